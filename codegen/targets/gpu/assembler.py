"""What a GPU target provides so that kernels can be emitted for it: scalar instructions of one invocation.

Opcodes have SPIR-V's names ("FAdd", "SLessThan", "ConvertFToS"; Khronos, SPIR-V specification 3.49), since
they say exactly what is meant; another target maps each to its own form. Types are named bool, i8 .. i64
(signless), f16, f32, f64. Addresses are i64 values. Control flow is structured: every branch is announced
by `merge`, every loop by `loop_merge`, and a label is started once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from loopgrad.codegen.targets.gpu.interface import MatrixShape

Label = Any
Variable = Any
When = Callable[["Val", Callable[[], None]], None]


class Val(NamedTuple):
    """One SSA value: what its assembler calls it, and the name of its type."""

    id: Any
    type: str


ARITHMETIC: Final = frozenset({"FAdd", "FSub", "FMul", "FDiv", "FNegate"})
"""What may be contracted and reassociated, unless it is exact."""
EXTENDED: Final = frozenset({"RoundEven", "Trunc", "FAbs", "Floor", "Ceil", "Sqrt", "Fma"})
"""What isn't an instruction of SPIR-V but one of its extended set."""
VECTOR_BYTES: Final = 16
"""Of the widest access to memory."""
WARP: Final = 32
"""Invocations that have matrix units together."""
WARPGROUP: Final = 4
"""Warps that have matrix units together, on some targets."""
PANEL_BYTES: Final = 128
PANEL_ROWS: Final = 8


class MatrixUnits(Protocol):
    """What the WARP invocations of a warp, neighbours in a workgroup, do together: all of them come to each of these.
    `types`: of factors of products; blocks may be of others, too.

    Numbers of 16 bits ("f16", "b16") are given in pairs, as an i32; of "tf32" one is, the upper 19 bits of an f32.
    Of sums, invocation number l has of rows l / 4 (and 8 after it) the columns 2 (l % 4) and the next one."""

    @property
    def types(self) -> tuple[str, ...]: ...

    def product(self, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], type: str) -> list[Val]:
        """sums + left @ right, as f32. `left` is 16 x 16, of "tf32" 16 x 8: i32 number l % 4 of a row and of that 8
        after it, then those 4 after these; `right` 16 x 8 (8 x 8), as its transpose: two i32; `sums` 16 x 8: of a row,
        then of the other. Twice as many columns are two i32 more and four sums more."""
        ...

    def memory(self, type: str, count: int) -> Variable:
        """Of the workgroup, for so many elements that are copied, or that products read."""
        ...

    def put(self, array: Variable, index: Val, word: Val) -> None:
        """An i32 to that place among those of such memory."""
        ...

    def words_at(self, array: Variable, index: Val, count: int) -> list[Val]:
        """So many i32 (1, 2 or 4) that lie side by side there, from a multiple of so many on."""
        ...

    def blocks(
        self, array: Variable, first: Val, pitch: int, type: str, right: bool, turned: bool
    ) -> Callable[[int], list[Val]]:
        """Factors of that type from memory of the workgroup: 16 lines of 32 bytes, one `pitch` elements after the
        other, of which the first begins at number `first`, and so many elements further; all are multiples of 16
        bytes, and of "f32" as of "tf32". A left factor has lines as its rows. Two `right` ones, of two words each,
        which only products take, have eight lines each as their columns. `turned`, which elements of 16 bits can be:
        lines are columns of the left one; or they are rows of the right ones, of which each has eight columns."""
        ...

    def pair(self, low: Val, high: Val, type: str) -> Val:
        """Two f32 as a pair of these."""
        ...

    def larger(self, x: Val, y: Val) -> Val:
        """Of two f32; either where the other is no number."""
        ...

    def larger_integer(self, x: Val, y: Val) -> Val:
        """The larger of two i32 with signs."""
        ...

    def power(self, x: Val) -> Val:
        """About 2**x, of f32."""
        ...

    def logarithm(self, x: Val) -> Val:
        """About log2(x), of f32."""
        ...

    def copy(self, array: Variable, index: Val, type: str, source: Val, valid: Val, bytes: int = VECTOR_BYTES) -> None:
        """So many bytes (16 or 4) of memory to that of the workgroup, where an element of the type is, or zeros where
        they aren't valid: begun."""
        ...

    def copies(self, there: Val, begin: Callable[[], None], when: When) -> None:
        """begin() copies, where they are `there`; `when` is the emitter's."""
        ...

    def copied(self) -> None:
        """What this invocation has begun to copy is there; the others see it after a barrier."""
        ...


class PanelRows(NamedTuple):
    """Rows of the left factors of all warps in memory of a workgroup, in panels: the array and the element (i32) where
    the first one begins, and so many elements further."""

    array: Variable
    start: Val
    at: int


class PanelProduct(NamedTuple):
    """The left factor of a product, words as `MatrixUnits.product` takes them or rows in memory, and where the right
    one begins, in elements behind the first of all products."""

    left: Sequence[Val] | PanelRows
    at: int


class Panels(NamedTuple):
    """Right factors in memory of a workgroup, of so many columns, the first from element number `start` (i32) of the
    array on. A panel is rows of 128 bytes, one after the other from a multiple of 1,024 on; of a row, chunk number c of
    16 bytes lies where number c ^ (row % 8) would. Rows are the columns of the right factor; or, `turned`, which
    elements of 16 bits can be, they are its rows, and its columns go on in the panel that begins `apart` elements
    further."""

    array: Variable
    start: Val
    columns: int
    turned: bool = False
    apart: int = 0


class ProductChain(NamedTuple):
    """Sums to begin with (zeros without), to which products are added one after the other; `right`: their factors."""

    sums: Sequence[Val] | None
    products: Sequence[PanelProduct]
    right: Panels


class Turns(Protocol):
    """Two warpgroups of a workgroup that multiply one after the other: while one does, the other goes on. What one had
    written (`written`) or read before it passed the turn on is written or read when the other takes it. All of their
    invocations come to each of these."""

    def begin(self) -> None:
        """The first one's turn comes."""
        ...

    def take(self) -> None:
        """Wait for the own turn."""
        ...

    def pass_on(self) -> None:
        """It is the other's turn."""
        ...

    def end(self) -> None:
        """Both have had as many turns."""
        ...


class WarpgroupUnits(Protocol):
    """What the WARPGROUP neighbouring warps that begin with one whose number is a multiple of that do together: each
    has 16 rows of left factors and of sums. All of their invocations come to each of these."""

    def products(self, chains: Sequence[ProductChain], type: str) -> list[list[Val]]:
        """Of each chain its sums: of each 8 columns an invocation's four, as `MatrixUnits` has them."""
        ...

    def written(self) -> None:
        """What this invocation has written to memory of the workgroup is seen by products after the next barrier."""
        ...

    def turns(self, number: Val) -> Turns:
        """Those of two warpgroups, of which this invocation's has that number (i32): 0 or 1."""
        ...


class SubgroupMatrices(Protocol):
    """What the invocations of a subgroup, neighbours in a workgroup, do together with matrices of which only the target
    knows who has which element. All of them come to each of these but `put` and `words`. Matrices come from memory of
    the workgroup in chunks of 16 bytes, `pitch` of them from one line to the next."""

    def memory(self, chunks: int) -> Variable: ...

    def put(self, memory: Variable, index: Val, words: Sequence[Val]) -> None:
        """Four i32 into a chunk."""
        ...

    def words(self, memory: Variable, index: Val) -> list[Val]:
        """What is there."""
        ...

    def zeros(self, shape: MatrixShape) -> Variable:
        """Sums, to which products can be added."""
        ...

    def factor(self, memory: Variable, index: Val, pitch: int, shape: MatrixShape, left: bool, turned: bool) -> Any:
        """A left or right factor, whose first line begins there; `turned`: lines are its columns."""
        ...

    def add(self, sums: Variable, left: Any, right: Any, shape: MatrixShape) -> None:
        """sums + left @ right."""
        ...

    def store(self, memory: Variable, index: Val, pitch: int, sums: Variable, shape: MatrixShape) -> None:
        """The sums, as f32, their rows as lines."""
        ...


class HandedWords(Protocol):
    """What workgroups leave for each other during a launch: integers in device memory, one by one, relaxed."""

    def load(self, address: Val, type: str) -> Val:
        """As it is now."""
        ...

    def store(self, address: Val, value: Val) -> None: ...


class Assembler(Protocol):
    """`fused`: Fma rounds once. `rearranges`: what is made of Fma may be factored anew. `flushes`: subnormal f32 may be
    taken for 0. `widens`: a 32-bit integer that was widened compares rightly. `guarded`: loops may be stopped by the
    driver, so each leaves its last condition in a guard cell. `label`: the block being written. `group`: invocations of
    a workgroup. `float_sums`: types that AtomicFAddEXT adds. `neighbours`: as many invocations that lie side by side in
    a workgroup, from a multiple of that on, exchange registers; 1 where none do; they `hand_on` where each also reads
    those of the ones before it. `wide_sums`: the few additions by which invocations meet are better made in f64.
    `short_offsets`: an offset in an array is better made in 32 bits, where that suffices,
    than by a product in 64. `functions`: whether code may call functions of its own. `trips_at_once`: as many trips of
    a short loop that pops are written one after the other, so that their loads are under way together; 1 where the
    compiler sees to that."""

    fused: bool
    rearranges: bool
    flushes: bool
    widens: bool
    guarded: bool
    short_offsets: bool
    functions: bool
    trips_at_once: int
    group: int
    neighbours: int
    hand_on: bool
    wide_sums: bool
    float_sums: tuple[str, ...]

    @property
    def label(self) -> Label: ...

    # values

    def const(self, type: str, value: float | int | bool) -> Val: ...

    def is_constant(self, value: Val) -> bool: ...

    def apart(self, index: Val) -> tuple[Val, int]:
        """An i64 and a constant, whose sum the given one is; 0 where compilers find it by themselves."""
        ...

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        """An instruction; float arithmetic may be contracted and reassociated where the target was asked to."""
        ...

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        """A float instruction that may not be fused with another, nor reassociated."""
        ...

    def wide_product(self, x: Val, y: Val) -> tuple[Val, Val]:
        """The upper and the lower half of the product of two i32 without sign, by one wide multiplication."""
        ...

    def nearest_bfloats(self, lower: Val, upper: Val) -> Val | None:
        """The i32 whose halves are the bfloat16 nearest to two f32, where one instruction makes both; its NaN may have
        another sign."""
        ...

    def upper_halves(self, lower: Val, upper: Val) -> Val:
        """The i32 whose halves are the upper ones of two f32."""
        ...

    def extreme(self, name: str, x: Val, y: Val) -> Val | None:
        """min or max of floats, NaN where either is NaN and 0.0 above -0.0, where that is one instruction."""
        ...

    def own(self, name: str, *operands: Val) -> Val | None:
        """A primitive in fewer operations than a recipe has, right to two units in the last place."""
        ...

    def near_quotient(self, x: Val, y: Val) -> Val | None:
        """x / y to a unit in the last place, where 1 / y is a normal number and x / y one too, or 0; None where that
        is no shorter than the exact one."""
        ...

    def known(self, x: Val) -> float | None:
        """The number that a constant of f32 or f64 is; None where it isn't known to be one."""
        ...

    def near_inverse(self, y: Val) -> Val | None:
        """1 / y to a unit or so in the last place, where both are normal numbers; None where there is no quick way."""
        ...

    def near_exp(self, x: Val) -> Val | None:
        """exp(x) of an f32 between -80 and 80 to 20 bits; None where there is no instruction for that."""
        ...

    def for_half(self, name: str, half: str, *operands: Val) -> Val | None:
        """A primitive of f32 that were halves of a type (f16 or b16), to as many bits as one needs to be nearly always
        rounded to the nearest half, subnormal ones too, where there is an instruction for it."""
        ...

    @property
    def matrix_units(self) -> MatrixUnits | None:
        """Where there are some."""
        ...

    @property
    def warpgroup_units(self) -> WarpgroupUnits | None:
        """Where there are some."""
        ...

    @property
    def subgroup_matrices(self) -> SubgroupMatrices | None:
        """Where there are some."""
        ...

    @property
    def handed_words(self) -> HandedWords | None:
        """Where workgroups may wait for those with lower numbers."""
        ...

    @property
    def shared_quotients(self) -> tuple[str, ...]:
        """The types whose exact quotients have a rare way behind a branch, which several may share."""
        ...

    def usual_quotients(self, pairs: Sequence[tuple[Val, Val]], zeros: bool = False) -> tuple[Sequence[Val], Val]:
        """Quotients of such types without the rare way, and whether all of them are right. They aren't where an x is 0,
        unless `zeros` are to be."""
        ...

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        """One of EXTENDED; Sqrt is rounded to nearest, on Vulkan only where the driver does so."""
        ...

    def approximate(self, name: str, type: str, *operands: Val) -> Val | None:
        """A primitive by the device's fast approximation, where it has one; only under fast_math."""
        ...

    def lookup(self, type: str, values: tuple[int, ...], first: Val, count: int) -> list[Val]:
        """The `count` elements of a table of constants from `first` on."""
        ...

    def opaque(self, x: Val) -> Val:
        """x behind a barrier to optimisation: the compiler neither moves nor rewrites what follows from it."""
        ...

    # variables of one invocation

    def local(self, type: str) -> Variable: ...

    def get(self, variable: Variable, type: str) -> Val: ...

    def set(self, variable: Variable, value: Val) -> None: ...

    def array_of(self, type: str, count: int) -> Variable:
        """An array of the invocation, not initialised."""
        ...

    def array_get(self, array: Variable, index: Val, type: str) -> Val: ...

    def array_set(self, array: Variable, index: Val, value: Val) -> None: ...

    def guard_get(self, index: Val) -> Val:
        """A guard cell (i32); `index` is a value that the compiler can't know."""
        ...

    def guard_set(self, index: Val, value: Val) -> None: ...

    # memory

    def load(self, address: Val, type: str, invariant: bool = False) -> Val:
        """One element, aligned to its size; `invariant`: nobody writes it during the launch (a sum of sines and
        exponentials takes 1.21 times as long on an H200 where that isn't said)."""
        ...

    def store(self, address: Val, value: Val) -> None: ...

    def load_vector(self, address: Val, type: str, count: int, invariant: bool = False) -> list[Val]:
        """`load` of `count` elements side by side in one access, aligned to all of them: 4 bytes, 8, or 16."""
        ...

    def store_vector(self, address: Val, values: Sequence[Val]) -> None:
        """As `load_vector`."""
        ...

    def atomic(self, name: str, address: Val, value: Val) -> Val:
        """A relaxed atomic of device scope; the old value."""
        ...

    def compare_exchange(self, address: Val, expected: Val, desired: Val) -> Val:
        """As `atomic`; the old value."""
        ...

    # blocks

    def block(self) -> Label:
        """A label to be started later."""
        ...

    def start(self, label: Label) -> None: ...

    def jump(self, label: Label) -> None: ...

    def branch(self, condition: Val, then: Label, other: Label) -> None: ...

    def leave(self) -> None:
        """The invocation ends here."""
        ...

    def merge(self, after: Label) -> None: ...

    def loop_merge(self, after: Label, again: Label) -> None: ...

    def phi(self, type: str, *pairs: tuple[Val, Label]) -> Val: ...

    # functions

    def outlined(
        self, name: str, operands: Sequence[Val], make: Callable[[Sequence[Val]], Sequence[Val]]
    ) -> tuple[Val, ...]:
        """What `make` gives of the operands, by calling a function, whose code it writes where there is none of that
        name. It must write the same wherever it is called with that name in a module."""
        ...

    # the launch

    def launch_words(self) -> list[Val]:
        """table, across, along, first, end, lanes; see interface."""
        ...

    def invocation(self) -> Val:
        """The number of this invocation in the launch (i32)."""
        ...

    def local_id(self, again: bool = False) -> Val:
        """Its number in the workgroup (i32). `again`: not to be kept in a register from an earlier use."""
        ...

    def group_id(self) -> Val:
        """The number of the workgroup (i32)."""
        ...

    # the workgroup

    def across(self, x: Val, distance: int) -> Val:
        """The f32 of the neighbour whose number differs in this bit; all neighbours come here."""
        ...

    def behind(self, x: Val, distance: int) -> Val:
        """The f32 of the neighbour so many before this one, anything where there is none; where they `hand_on`."""
        ...

    def barrier(self) -> None:
        """All invocations of the workgroup come here; memory of the workgroup is then seen by all."""
        ...

    def shared(self, type: str, count: int, alignment: int = VECTOR_BYTES) -> Variable:
        """An array in memory of the workgroup, not initialised."""
        ...

    def shared_get(self, array: Variable, index: Val, type: str) -> Val: ...

    def shared_set(self, array: Variable, index: Val, value: Val) -> None: ...

    def shared_get_vector(self, array: Variable, index: Val, type: str, count: int) -> list[Val]:
        """So many elements side by side, aligned to all of them."""
        ...

    def shared_set_vector(self, array: Variable, index: Val, values: Sequence[Val]) -> None: ...

    def shared_atomic(self, name: str, array: Variable, index: Val, value: Val) -> Val:
        """A relaxed atomic of workgroup scope; the old value."""
        ...
