"""Random structured kernels, compiled, against the interpreter, bit for bit."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import walk
from tests.codegen.kernel import random_kernels as _random_kernels
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, narrower

EXACT = {"sin": "floor", "cos": "neg"}  # so that rounding of sin and cos can't turn into other integers


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("bits", [None, 128])
def test_random_kernels(seed, bits):
    kernel, arrays = _random_kernels.random_kernel(seed)
    for op in walk(kernel.body):
        op.opcode = EXACT.get(op.opcode, op.opcode)
    wanted, got = ([a.copy() for a in arrays] for _ in range(2))
    interpret_kernel(kernel, wanted)
    CompiledKernel(kernel, machine=narrower(bits) if bits else None).run(got)
    for w, g in zip(wanted[:-1], got[:-1], strict=True):
        np.testing.assert_array_equal(g, w)
    np.testing.assert_allclose(got[-1], wanted[-1], rtol=1e-4, atol=1e-4)
