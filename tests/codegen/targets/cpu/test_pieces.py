"""Modules in pieces: they link to what the whole is, on any number of threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap

import pytest

from loopgrad.codegen.targets.archive import joined, parted
from loopgrad.codegen.targets.cpu import llvm, pieces
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.runtime.cpu.loader import Code

TEXT = """
%pair = type { i64, i64 }
@numbers = private unnamed_addr constant [2 x i64] [i64 40, i64 2]
@table = private unnamed_addr constant [2 x ptr] [ptr @first, ptr @second]
@memory = internal global %pair zeroinitializer
@part = private alias i64, getelementptr (%pair, ptr @memory, i64 0, i32 1)

declare i64 @llvm.smax.i64(i64, i64)

define internal i64 @number(i64 %i) #0 {
  %p = getelementptr i64, ptr @numbers, i64 %i
  %n = load i64, ptr %p, !tbaa !0
  ret i64 %n
}

define internal i64 @first(i64 %x)
    noinline #0 {
  %n = call i64 @number(i64 0)
  %y = add i64 %n, %x
  ret i64 %y
}

define internal i64 @second(i64 %x) #0 {
  %n = call i64 @number(i64 1)
  %y = call i64 @llvm.smax.i64(i64 %n, i64 %x)
  ret i64 %y
}

define void @keep(i64 %x) {
  store i64 %x, ptr @part
  ret void
}

define i64 @kept() {
  %x = load i64, ptr @part
  ret i64 %x
}

define i64 @run(i64 %which, i64 %x) {
  %p = getelementptr ptr, ptr @table, i64 %which
  %f = load ptr, ptr %p
  %y = call i64 %f(i64 %x)
  call void @keep(i64 %y)
  %z = call i64 @kept()
  ret i64 %z
}

attributes #0 = { nounwind }
!0 = !{!1, !1, i64 0}
!1 = !{!"number", !2}
!2 = !{!"root"}
"""


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 100)


def test_pieces_link_to_the_whole(short):
    assert len(pieces.pieces(TEXT)) >= 4
    whole = llvm.compile_module(TEXT, host_machine())
    codes = [llvm.compile_side_by_side(TEXT, host_machine(), threads) for threads in (1, 2, 5)]
    assert codes[0] == codes[1] == codes[2] != whole
    for code in (whole, codes[0]):
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(Code(code, ["run"]).address("run"))
        assert [run(0, 5), run(1, 1), run(1, 7)] == [45, 2, 7]


def test_short_texts_and_other_forms_stay_whole(short):
    assert pieces.pieces(TEXT[:150]) == [TEXT[:150]]
    other = TEXT.replace("define internal i64 @second", "define weak i64 @second")
    assert pieces.pieces(other) == [other]


def test_what_llvm_refuses_is_an_error(short):
    with pytest.raises(RuntimeError, match="nobody"):
        llvm.compile_side_by_side(TEXT.replace("call i64 @kept()", "call i64 @nobody()"), host_machine(), 3)
    test_pieces_link_to_the_whole(short)


def test_static_libraries_give_their_objects_back():
    objects = [b"\x7fELF-odd", b"", b"even"]
    assert parted(joined(objects)) == objects
    assert parted(joined(objects[:1])) == objects[:1] == [joined(objects[:1])]


def test_programs_in_pieces_while_the_interpreter_ends():
    """Whole programs, their support code too; the last one when no thread can be started any more."""
    code = """
        import atexit
        import numpy as np
        from loopgrad.codegen.targets.cpu import pieces
        pieces.PIECE = 1000
        import loopgrad as lg

        def check(n):
            x = np.linspace(0.1, 1, 50)
            def loss(x):
                for i in range(n):
                    x = lg.fori_loop(0, 3 + i, lambda _, v: lg.sin(v) * 0.9 + 0.1, x) @ (lg.eye(50) * 0.5)
                return lg.sum(x)
            with lg.options(direct=False):
                value, slope = lg.value_and_grad(loss)(lg.asarray(x))
            with lg.default_device("interpreter"):
                want = lg.value_and_grad(loss)(lg.asarray(x))
            assert np.allclose(value, want[0], rtol=1e-12) and np.allclose(slope, want[1], rtol=1e-12)
            print("fine", n)

        check(3)
        atexit.register(check, 2)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["fine", "3", "fine", "2"], done.stderr
