"""What a well-formed Kernel is. Every finding is collected, then raised as one VerifyError."""

from __future__ import annotations

from math import prod

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, OwnArray
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.types import bool_, float32, float64, int64


class _KernelVerifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.findings: list[str] = []

    def expect(self, holds: bool, finding: str) -> None:
        if not holds:
            self.findings.append(finding)

    def block(self, block: Block, visible: frozenset[KValue], top: bool = False) -> None:
        scope = set(visible) | set(block.arguments)
        for op in block.ops:
            for v in op.operands:
                self.expect(v in scope, f"{op.opcode}: an operand is used before its definition or outside its block")
            self.operation(op, top)
            for inner in op.blocks:
                self.block(inner, frozenset(scope))
            scope.update(op.results)
        for v in block.yields:
            self.expect(v in scope, "a yielded value is not visible at the end of its block")

    def operation(self, op: KOp, top: bool) -> None:
        check = getattr(self, f"check_{op.opcode}", None)
        if op.opcode not in OPCODES:
            self.expect(False, f"unknown opcode {op.opcode}")
        elif check is not None:
            check(op)
        elif not OPCODES[op.opcode].own:
            self.elementwise(op)
        if op.opcode in ("reduce", "scan"):
            self.expect(top, f"{op.opcode}: only allowed in the top block")

    def elementwise(self, op: KOp) -> None:
        dtypes = {v.dtype for v in op.operands}
        self.expect(len(dtypes) == 1, f"{op.opcode}: operands of different dtypes {sorted(d.name for d in dtypes)}")
        wanted = bool_ if OPCODES[op.opcode].test else op.operands[0].dtype
        self.expect(op.results[0].dtype is wanted, f"{op.opcode}: result is not {wanted.name}")

    def check_select(self, op: KOp) -> None:
        pred, a, b = op.operands
        self.expect(pred.dtype is bool_, "select: predicate is not bool")
        self.expect(a.dtype is b.dtype is op.results[0].dtype, "select: arms and result differ in dtype")

    def check_load(self, op: KOp) -> None:
        param = self.kernel.params[op.attrs["param"]]
        self.expect(op.operands[0].dtype is int64, "load: index is not int64")
        self.expect(op.results[0].dtype is param.dtype, "load: result is not the parameter's dtype")

    def check_fma(self, op: KOp) -> None:
        self.expect(op.operands[0].dtype in (float32, float64), "fma: operands are neither float32 nor float64")
        self.elementwise(op)

    def check_store(self, op: KOp) -> None:
        param = self.kernel.params[op.attrs["param"]]
        self.expect(param.access == "write", "store: parameter is not writable")
        self.expect(op.operands[0].dtype is int64, "store: index is not int64")
        self.expect(op.operands[1].dtype is param.dtype, "store: value is not the parameter's dtype")

    def check_accumulate(self, op: KOp) -> None:
        param = self.kernel.params[op.attrs["param"]]
        self.expect(param.access == "accumulate", "accumulate: parameter is not an accumulator")
        self.expect(op.operands[0].dtype is int64, "accumulate: index is not int64")
        self.expect(op.operands[1].dtype is param.dtype, "accumulate: value is not the parameter's dtype")
        self.expect(op.operands[2].dtype is bool_, "accumulate: predicate is not bool")

    def check_scan(self, op: KOp) -> None:
        running = self.kernel.running
        self.expect(running is not None, "scan: the kernel has no running total")
        if running is not None:
            wanted = running.leaves or (running.dtype,)
            given = tuple([v.dtype for v in op.operands])
            self.expect(given == wanted, "scan: the term is not of the total's dtype")

    def check_for(self, op: KOp) -> None:
        self.expect(op.operands[0].dtype.is_integer, "for: count is not an integer")
        body = op.blocks[0]
        self.expect(body.arguments[0].dtype is op.operands[0].dtype, "for: index and count differ in dtype")
        self.carries(op, op.operands[1:], body.arguments[1:], body.yields)

    def check_while(self, op: KOp) -> None:
        cond, body = op.blocks
        self.expect(len(cond.yields) == 1 and cond.yields[0].dtype is bool_, "while: condition is not one bool")
        self.carries(op, op.operands, body.arguments, body.yields)

    def check_if(self, op: KOp) -> None:
        self.expect(op.operands[0].dtype is bool_, "if: predicate is not bool")
        for block in op.blocks:
            same = [v.dtype for v in block.yields] == [r.dtype for r in op.results]
            self.expect(same, "if: a branch yields other dtypes than the results")

    def carries(
        self, op: KOp, inits: tuple[KValue, ...], arguments: tuple[KValue, ...], yields: tuple[KValue, ...]
    ) -> None:
        wanted = [r.dtype for r in op.results]
        for label, values in (("inits", inits), ("block arguments", arguments), ("yields", yields)):
            self.expect([v.dtype for v in values] == wanted, f"{op.opcode}: {label} don't match the results")

    def check_push(self, op: KOp) -> None:
        slot = self.kernel.stacks[op.attrs["stack"]]
        self.expect(op.operands[0].dtype is slot.dtype, "push: value is not the stack's dtype")

    def check_array_load(self, op: KOp) -> None:
        self.expect(op.results[0].dtype is self.array(op).dtype, f"{op.opcode}: result is not the array's dtype")

    def check_array_store(self, op: KOp) -> None:
        self.expect(op.operands[1].dtype is self.array(op).dtype, f"{op.opcode}: value is not the array's dtype")

    def array(self, op: KOp) -> OwnArray:
        index, number = op.operands[0], int(op.attrs["array"])
        slot = self.kernel.arrays[number]
        self.expect(index.dtype is int64, f"{op.opcode}: index is not int64")
        if index.op is not None and index.op.opcode == "const":
            self.expect(0 <= index.op.attrs["value"] < slot.size, f"{op.opcode}: index out of range")
        return slot

    def check_pop(self, op: KOp) -> None:
        slot = self.kernel.stacks[op.attrs["stack"]]
        self.expect(op.results[0].dtype is slot.dtype, "pop: result is not the stack's dtype")


def verify_kernel(kernel: Kernel) -> None:
    """Raise VerifyError, with the kernel's text, unless it is well formed."""
    verifier = _KernelVerifier(kernel)
    verifier.expect(
        len(kernel.body.arguments) == len(kernel.domain) and all(v.dtype is int64 for v in kernel.body.arguments),
        "body: expected one int64 argument per dim of the domain",
    )
    verifier.block(kernel.body, frozenset(), top=True)
    if kernel.running is not None:
        scans = sum(op.opcode == "scan" for op in kernel.body.ops)
        verifier.expect(scans == 1, f"body: expected one scan, got {scans}")
        verifier.expect(prod(kernel.running.shape) == prod(kernel.domain), "running total: not of the domain's size")
    if kernel.order_key is not None:
        verifier.block(kernel.order_key, frozenset())
    for stage in kernel.stages:
        verify_kernel(stage)
        same = stage.params[: len(kernel.params)] == kernel.params
        verifier.expect(same and not kernel.body.ops, f"stage {stage.name}: expected the kernel's parameters, no body")
        lanes = (kernel.domain[0], prod(kernel.domain))
        verifier.expect(prod(stage.domain) in lanes, f"stage {stage.name}: lanes are neither rows nor elements")
    if verifier.findings:
        raise VerifyError("\n".join([f"kernel {kernel.name}:", *verifier.findings, print_kernel(kernel)]))
