"""Texts whose numbers come from a table: which can, and that the code does the same."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int64, c_uint64

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.interface import TABLE
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.open_numbers import numbered
from loopgrad.runtime.cpu.loader import Code

TEXT = """
@constant = private constant [2 x i64] [i64 5, i64 6]
@shape = private unnamed_addr constant [3 x i64] [i64 41, i64 42, i64 43]

declare i64 @llvm.smin.i64(i64, i64)

define i64 @whole(i64 %x, ptr %to) {
  %a = add nsw i64 %x, 7
  %b = call i64 @llvm.smin.i64(i64 %a, i64 8123456789)
  %c = sdiv i64 %b, 11
  %at = getelementptr i64, ptr @constant, i64 1
  %d = load i64, ptr %at
  %less = icmp slt i64 %x, 12
  %e = select i1 %less, i64 %c, i64 -13
  %to.1 = getelementptr float, ptr %to, i64 1
  store float 0x3FB99999A0000000, ptr %to.1
  %last = getelementptr i64, ptr @shape, i64 2
  %extent = load i64, ptr %last
  %both = mul i64 %d, %extent
  %f = add i64 %e, %both
  %narrow = trunc i64 %f to i32
  %more = mul i32 %narrow, 3
  %g = sext i32 %more to i64
  ret i64 %g
}

define internal <2 x double> @vector(double %x) {
start:
  %v = insertelement <2 x double> splat (double 0x4008000000000000), double %x, i64 0
  %w = fmul <2 x double> %v, splat (double 0x3FE0000000000000)
  %q = udiv <2 x i64> <i64 8, i64 9>, splat (i64 2)
  %r = uitofp <2 x i64> %q to <2 x double>
  %s = fadd <2 x double> %w, %r
  ret <2 x double> %s
}

define double @total(double %x) {
start:
  %v = call <2 x double> @vector(double %x)
  %a = extractelement <2 x double> %v, i64 0
  %b = extractelement <2 x double> %v, i64 1
  %c = fadd double %a, %b
  %d = fdiv double %c, 0x4059000000000000
  %above = fcmp ogt double %d, 0x4069000000000000
  br i1 %above, label %large, label %end
large:
  br label %end
end:
  %e = phi double [ %d, %start ], [ 0x4069000000000000, %large ]
  ret double %e
}
"""

OPENED = {
    "41", "42", "43", "7", "8123456789", "12", "-13", "1", "0x3FB99999A0000000", "3",
    "0x3FE0000000000000", "0x4059000000000000", "0x4069000000000000",
}  # fmt: skip


def results(code: Code) -> list[float]:
    whole = ctypes.CFUNCTYPE(c_int64, c_int64, ctypes.c_void_p)(code.address("whole"))
    total = ctypes.CFUNCTYPE(c_double, c_double)(code.address("total"))
    to = (ctypes.c_float * 2)()
    numbers = [-20, 0, 11, 12, 500, 1 << 40]
    return [whole(x, ctypes.addressof(to)) for x in numbers] + [total(float(x)) for x in numbers] + [*to]


def test_opened_numbers_are_those_of_the_table() -> None:
    text = numbered(TEXT)
    chosen = [i for i in range(len(text.numbers)) if text.use(i) is not None]
    assert {text.numbers[i] for i in chosen} == OPENED
    exports = ("whole", "total")
    plain = Code(compile_module(TEXT, host_machine()), exports)
    opened = Code(compile_module(text.opened(chosen), host_machine()), (*exports, TABLE))
    table = (c_uint64 * len(chosen)).from_address(opened.address(TABLE))
    table[:] = text.words(chosen)
    assert results(opened) == results(plain)
    other = TEXT.replace("8123456789", "33").replace("0x4059000000000000", "0x4034000000000000")
    whole = other.replace("i64 43", "i64 47")
    changed = numbered(whole)
    assert changed.skeleton == text.skeleton
    differing = text.differing(changed.numbers)
    assert len(differing) == 3
    assert {text.numbers[i] for i in text.likely(differing)} >= {"41", "42", "43"}  # an array is opened as a whole
    table[:] = changed.words(chosen)
    assert results(opened) == results(Code(compile_module(whole, host_machine()), exports)) != results(plain)


def test_other_names_and_lines_make_other_skeletons() -> None:
    skeleton = numbered(TEXT).skeleton
    assert numbered(TEXT.replace("%less", "%fewer")).skeleton != skeleton
    assert numbered(TEXT.replace("  %above", "  ; line\n  %above")).skeleton != skeleton


def test_numbers_that_are_likely_to_differ_too() -> None:
    text = numbered(
        "define void @f(ptr %p, i64 %x) {\n  %a = call i64 @llvm.smin.i64(i64 %x, i64 100)\n"
        "  %b = icmp slt i64 %x, 100\n  %c = icmp slt i64 %x, 30\n  %d = getelementptr i8, ptr %p, i64 64\n"
        "  %e = sdiv i64 %x, 100\n  ret void\n}\n"
    )
    first = text.numbers.index("100")
    assert sorted(text.numbers[i] for i in text.likely({first})) == ["100", "100", "64"]
