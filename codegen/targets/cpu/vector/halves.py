"""Conversions of float16 and bfloat16 on machines without instructions for them.

Where the machine lacks an instruction, LLVM calls functions of compiler-rt, which no process is sure to have:
`runtime_functions` gives their text.
"""

from __future__ import annotations

from typing import Final


def runtime_functions(text: str) -> str:
    """Definitions for a module with this text; none where it has no halves."""
    return "".join([definition for type, definition in ((" half", _HALF), (" bfloat", _BFLOAT)) if type in text])


# Giesen, Float to half done quick: https://gist.github.com/rygorous/2156668
_HALF: Final = """
define weak hidden half @__truncsfhf2(float %x) #0 {
  %bits = bitcast float %x to i32
  %sign = and i32 %bits, -2147483648
  %size = xor i32 %bits, %sign
  %large = icmp uge i32 %size, 1199570944
  %nan = icmp ugt i32 %size, 2139095040
  %special = select i1 %nan, i32 32256, i32 31744
  %small = icmp ult i32 %size, 947912704
  %float = bitcast i32 %size to float
  %lifted = fadd float %float, 5.0e-1
  %lifted.bits = bitcast float %lifted to i32
  %denormal = sub i32 %lifted.bits, 1056964608
  %lower = lshr i32 %size, 13
  %odd = and i32 %lower, 1
  %rebased = add i32 %size, -939520001
  %even = add i32 %rebased, %odd
  %normal = lshr i32 %even, 13
  %finite = select i1 %small, i32 %denormal, i32 %normal
  %found = select i1 %large, i32 %special, i32 %finite
  %sign.low = lshr i32 %sign, 16
  %whole = or i32 %found, %sign.low
  %narrow = trunc i32 %whole to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}

define weak hidden float @__extendhfsf2(half %h) #0 {
  %narrow = bitcast half %h to i16
  %bits = zext i16 %narrow to i32
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %exponent = and i32 %moved, 260046848
  %based = add i32 %moved, 939524096
  %top = icmp eq i32 %exponent, 260046848
  %special = add i32 %based, 939524096
  %bottom = icmp eq i32 %exponent, 0
  %raised = add i32 %based, 8388608
  %raised.float = bitcast i32 %raised to float
  %denormal.float = fsub float %raised.float, 0x3F10000000000000
  %denormal = bitcast float %denormal.float to i32
  %normal = select i1 %top, i32 %special, i32 %based
  %found = select i1 %bottom, i32 %denormal, i32 %normal
  %sign = and i32 %bits, 32768
  %sign.high = shl i32 %sign, 16
  %whole = or i32 %found, %sign.high
  %float = bitcast i32 %whole to float
  ret float %float
}
"""

_BFLOAT: Final = """
define weak hidden bfloat @__truncsfbf2(float %x) #0 {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %more = add i32 %odd, 32767
  %up = add i32 %bits, %more
  %nearest = lshr i32 %up, 16
  %quiet = or i32 %high, 64
  %nan = fcmp uno float %x, %x
  %whole = select i1 %nan, i32 %quiet, i32 %nearest
  %narrow = trunc i32 %whole to i16
  %result = bitcast i16 %narrow to bfloat
  ret bfloat %result
}
"""
