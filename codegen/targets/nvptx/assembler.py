"""The LLVM assembler with f32 division and square root of our own, rounded to nearest like IEEE's.

`div.rn.f32` and `sqrt.rn.f32` call a subroutine for operands of unusual size (zero numerators among them), and a call
costs a loop its registers. The root below is corrected by its exact remainder, as quotients are, and scaled where that
isn't exact. On an H200 Newton's iteration takes 1.13 times as long with `div.rn.f32`, sphere tracing 1.17 times with
`sqrt.rn.f32`.

Circle: `codegen/targets/nvptx/matrix_units.py`, `codegen/targets/nvptx/warp_matrices.py` and
`codegen/targets/nvptx/warpgroup_units.py` write instructions by the assembler that gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import WARP, MatrixUnits, SubgroupMatrices, Val, Variable, WarpgroupUnits
from loopgrad.codegen.targets.gpu.emit.binary_exponential import LOG2_E, exp_by_power
from loopgrad.codegen.targets.nvptx.half_functions import Halves
from loopgrad.codegen.targets.nvptx.matrix_units import WarpUnits
from loopgrad.codegen.targets.nvptx.warp_matrices import WarpMatrices
from loopgrad.codegen.targets.nvptx.warpgroup_units import PtxWarpgroupUnits

SMALLEST_ROOT: Final = 0x0D000000  # bits of 2**-101, below which a root's remainder isn't exact
ACROSS: Final = "llvm.nvvm.shfl.sync.bfly.f32"
BEHIND: Final = "llvm.nvvm.shfl.sync.up.f32"
ALL: Final = -1  # invocations of the warp exchange
ROOT_RANGE: Final = 0x7F7FFFFF - SMALLEST_ROOT  # up to the largest finite number
SCALE: Final = 64  # a power of two, even
SATURATED: Final = "llvm.nvvm.fma.rn.sat.f"  # x * y + z within 0 and 1


class NvptxAssembler(Halves):
    """Implements codegen.targets.gpu.assembler.Assembler."""

    neighbours, hand_on, wide_sums = WARP, True, True
    corrected_quotients = ("f32", "f64")

    @property
    def matrix_units(self) -> MatrixUnits:
        return WarpUnits(self)

    @property
    def subgroup_matrices(self) -> SubgroupMatrices:
        return WarpMatrices(self)

    @property
    def warpgroup_units(self) -> WarpgroupUnits:
        return PtxWarpgroupUnits(self)

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        if name == "Sqrt" and type == "f32" and not self.fast:
            return self._root(*operands)
        return super().extended(name, type, *operands)

    def wide_product(self, x: Val, y: Val) -> tuple[Val, Val]:
        """LLVM holds chains of such products in 64 bits and multiplies these, which takes several instructions each."""
        text = f'call i64 asm "mul.wide.u32 $0, $1, $2;", "=l,r,r"(i32 {x.id}, i32 {y.id})'
        return self._halves(self._value("i64", text))

    def nearest_bfloats(self, lower: Val, upper: Val) -> Val:
        """To round one alone takes the unit of special functions (F2F in place of F2FP). Subnormal numbers are rounded
        like others (tried on an H200); its NaN has no sign, as that of arithmetic."""
        pair = self.called("llvm.nvvm.ff2bf16x2.rn", "<2 x bfloat>", f"float {upper.id}, float {lower.id}")
        return self._value("i32", f"bitcast <2 x bfloat> {pair} to i32")

    def extreme(self, name: str, x: Val, y: Val) -> Val | None:
        """By tests and selections it is three."""
        return self._call(f"{name}imum", x.type, x, y) if x.type in ("f16", "f32") else None

    def own(self, name: str, *operands: Val) -> Val | None:
        (x, *_) = operands
        return self._exp(x) if name == "exp" and x.type == "f32" else None

    def near_exp(self, x: Val) -> Val | None:
        return self._power_of_two(self._times(x, self.const("f32", LOG2_E)))

    def across(self, x: Val, distance: int) -> Val:
        return self._exchanged(ACROSS, x, distance, WARP - 1)

    def behind(self, x: Val, distance: int) -> Val:
        return self._exchanged(BEHIND, x, distance, 0)

    def _exchanged(self, function: str, x: Val, distance: int, end: int) -> Val:
        """`end`: the number of an invocation that no exchange passes."""
        given = f"i32 {ALL}, float {x.id}, i32 {distance}, i32 {end}"
        return Val(self.called(function, "float", given), "f32")

    # for matrix units

    def part_of(self, several: str, kind: str, number: int, type: str) -> Val:
        return self._value(type, f"extractvalue {kind} {several}, {number}")

    def inline(self, text: str, constraints: str, result: str, given: Sequence[str]) -> str:
        """PTX that neither moves nor is repeated; the name of its result."""
        name = "" if result == "void" else self._name()
        call = f'call {result} asm sideeffect "{text}", "{constraints}"({", ".join(given)}) convergent'
        self._put(f"{name}{' = ' * bool(name)}{call}")
        return name

    def recast(self, value: str, kind: str, wanted: str) -> str:
        return self._recast(value, kind, wanted)

    def shared_place(self, array: Variable, index: Val, type: str) -> str:
        """Where an element of an array of the workgroup is."""
        return self._cell(self.flavour.workgroup, array, type, index)

    def address_number(self, place: str) -> str:
        name = self._name()
        self._put(f"{name} = ptrtoint {place} to i64")
        return name

    def place(self, address: Val) -> str:
        return self._address(address)

    # pieces

    def _load_words(self, address: Val, words: str, bytes: int, invariant: bool) -> str:
        """LLVM has loads through the read-only cache of single words alone."""
        count = bytes // 4
        if count == 1 or not invariant:
            return super()._load_words(address, words, bytes, invariant)
        names = [self._name() for _ in range(count + 1)]
        numbers = ", ".join(f"${i}" for i in range(count))
        results, outputs = ", ".join(["i32"] * count), ",".join(["=r"] * count)
        text = f'"ld.global.nc.v{count}.b32 {{{numbers}}}, [${count}];", "{outputs},l"'
        self._put(f"{names[0]} = call {{ {results} }} asm {text}(i64 {address.id})")
        vector = "poison"
        for i in range(count):
            self._put(f"{names[i + 1]} = extractvalue {{ {results} }} {names[0]}, {i}")
            joined = self._name()
            self._put(f"{joined} = insertelement {words} {vector}, i32 {names[i + 1]}, i32 {i}")
            vector = joined
        return vector

    # exponentials

    def _exp(self, x: Val) -> Val:
        def saturated(x: Val, y: Val, z: Val) -> Val:
            return Val(self.called(SATURATED, "float", ", ".join([f"float {v.id}" for v in (x, y, z)])), "f32")

        return exp_by_power(self, x, saturated, self._power_of_two)

    # square root

    def _root(self, x: Val) -> Val:
        bits = self.inst("Bitcast", "i32", x)
        offset = self.inst("ISub", "i32", bits, self.const("i32", SMALLEST_ROOT))
        usual = self.inst("ULessThanEqual", "bool", offset, self.const("i32", ROOT_RANGE))
        return self._rarely(usual, self._normal_root(x), lambda: self._scaled_root(x))

    def _normal_root(self, x: Val) -> Val:
        inverse = self._approximate("rsqrt", x)
        rough = self._times(x, inverse)
        half = self._times(inverse, self.const("f32", 0.5))
        return self._fma(self._fma(self._minus(rough), rough, x), half, rough)

    def _scaled_root(self, x: Val) -> Val:
        """Of tiny, negative, infinite numbers, zeros and NaN."""
        larger = self._normal_root(self._times(x, self.const("f32", 2.0**SCALE)))
        root = self._times(larger, self.const("f32", 2.0 ** (-SCALE // 2)))
        endless = self.inst("FOrdEqual", "bool", x, self.const("f32", float("inf")))
        itself = self.inst("LogicalOr", "bool", self._is_zero(x), endless)
        return self.inst("Select", "f32", itself, x, root)
