"""Float16 that are widened after they were rounded: hidden from drivers that may not take what was rounded."""

from dataclasses import replace

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.listing import listing
from loopgrad.codegen.targets.spirv.probe import module
from loopgrad.graph.types import int64
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import device_count


@pytest.mark.parametrize("rounded", [True, False])
def test_what_is_computed_is_hidden_and_what_is_loaded_is_not(rounded):
    def body(e):
        b, place = e.b, e.table.params[0]
        pair = b.load_vector(place, "f16", 2)
        x, y, z = [b.inst("FConvert", "f32", v) for v in (*pair, b.load(e.offset(place, SIZE["i32"]), "f16"))]
        product = b.inst("FConvert", "f16", b.exact("FMul", "f32", x, y))
        total = b.exact("FAdd", "f32", b.inst("FConvert", "f32", product), z)
        b.store_vector(place, [product, b.inst("FConvert", "f16", total)])

    kernel = Kernel("rounded", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    text = listing(module(kernel, Features(fused=False, rounded_halves=rounded), body))
    assert text.count("OpBitwiseXor") == int(not rounded)


@pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
@pytest.mark.parametrize("shape", [(257,), (3, 64), (0,)])
def test_hidden_numbers_stay_what_they_are(monkeypatch, shape):
    gpu = get_device("vulkan:0").gpu
    monkeypatch.setattr(gpu, "features", replace(gpu.features, rounded_halves=False))
    bits = np.random.default_rng(3).integers(0, 1 << 16, (3, *shape)).astype(np.uint16)
    x, y, z = bits.view(np.float16)
    with np.errstate(all="ignore"):
        wanted = np.where(x < y, x * y, x) + z  # infinite products among them
    with lg.default_device("vulkan:0"):
        got = lg.compile(lambda x, y, z: lg.where(x < y, x * y, x) + z)(*[lg.asarray(v) for v in (x, y, z)])
    np.testing.assert_array_equal(np.asarray(got), wanted)
