"""Functions that many modules have, compiled apart: programs link to what they are by themselves."""

from __future__ import annotations

import ctypes

from loopgrad.codegen.targets.archive import parted
from loopgrad.codegen.targets.cpu import llvm
from loopgrad.codegen.targets.cpu.common_functions import apart
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.runtime.cpu.loader import Code

TEXT = """
declare i64 @llvm.smax.i64(i64, i64)
declare ptr @memset(ptr, i32, i64)

define i64 @run(i64 %x) #0 {
  %a = call i64 @lg.third(i64 %x)
  %w = load ptr, ptr @drv.ways
  %m = alloca i64
  store i64 100, ptr %m
  call void %w(ptr %m)
  %c = load i64, ptr %m
  %s = add i64 %a, %c
  %b = call i64 @lg.own(i64 %s)
  ret i64 %b
}

@lg.numbers = private unnamed_addr constant [2 x i64] [i64 40, i64 2]
@other = internal global i64 7
@drv.ways = private unnamed_addr constant [1 x ptr] [ptr @drv.clear]

define internal i64 @lg.third(i64 %x)
    cold noinline #0 {
  %n = call i64 @lg.number(i64 1)
  %y = call i64 @llvm.smax.i64(i64 %n, i64 %x)
  ret i64 %y
}

define internal i64 @lg.number(i64 %i) #0 {
  %p = getelementptr i64, ptr @lg.numbers, i64 %i
  %n = load i64, ptr %p, !invariant.load !0
  ret i64 %n
}

define internal i64 @lg.own(i64 %x) {
  %o = load i64, ptr @other
  %y = mul i64 %o, %x
  ret i64 %y
}

define internal void @drv.clear(ptr %p) {
  %q = call ptr @memset(ptr %p, i32 0, i64 8)
  ret void
}

attributes #0 = { nounwind }
!0 = !{}
"""


def test_what_is_apart_links_to_the_whole() -> None:
    own, others = apart(TEXT)
    assert [("@drv.clear(" in t, "@lg.number(" in t, "@lg.third(" in t) for t in others] == [
        (True, False, False), (False, True, True),
    ]  # fmt: skip
    assert "define internal i64 @lg.own" in own, "it names memory of its module"
    assert "define internal i64 @lg.third" not in own
    made: list[str] = []

    def common(text: str) -> bytes:
        made.append(text)
        return llvm.compile_module(text, host_machine())

    code = llvm.compile_side_by_side(TEXT, host_machine(), 1, common)
    assert made == others
    assert len(parted(code)) == 3
    for one in (code, llvm.compile_module(TEXT, host_machine())):
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(Code(one, ["run"]).address("run"))
        assert [run(1), run(5)] == [14, 35]


def test_other_modules_have_the_same_text_of_them() -> None:
    other = TEXT.replace("@run(", "@walk(").replace("define internal void @drv.clear", "define void @drv.clear")
    parts = other.partition("define internal i64 @lg.number")
    moved = parts[1] + parts[2].partition("}\n")[0] + "}\n"
    other = other.replace(moved, "").replace("define internal i64 @lg.third", moved + "\ndefine internal i64 @lg.third")
    assert apart(other)[1] == apart(TEXT)[1][1:]
    assert apart(TEXT.replace("@lg.", "@mine.").replace("@drv.", "@mine."))[1] == []
