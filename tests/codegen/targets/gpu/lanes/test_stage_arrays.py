"""What stages hand on in memory of the workgroup, where its invocations wait, and for how many of it are registers."""

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.codegen.targets.gpu.lanes.stage_arrays import barriers
from loopgrad.codegen.targets.gpu.lanes.stage_tiles import stage_plan
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float32, float64


def stages(function, *shape, dtype=float32):
    """The only kernel of a function of rows, its plan."""
    graph, _ = trace(function, [TensorType(shape, dtype)])
    (kernel,) = with_row_stages(schedule(graph, DEFAULT_OPTIONS), Geometry()).kernels
    return kernel, stage_plan(kernel, Geometry())


def shared_sizes(kernel):
    return sorted(param.size for param in kernel.stages[0].params[len(kernel.params) :])


def spread(value, x):
    return ops.broadcast(value, x.shape, (0,))


def scaled(x):
    """By the root of the sum of squares, which a stage of single rows makes."""
    return [ops.mul(x, spread(ops.sin(ops.sqrt(ops.reduce_sum(ops.mul(x, x), (1,)))), x))]


def test_values_of_rows_stay_in_the_workgroup():
    """The first invocation of a long row goes on alone; of short ones many do."""
    for shape, meets in (((300, 2048), [False, True, True]), ((300, 100), [True, True, True])):
        kernel, plan = stages(scaled, *shape)
        assert shared_sizes(kernel) == [shape[0]] * 2
        assert barriers(kernel, plan) == meets


def test_what_others_need_is_in_memory():
    def both(x):
        size = ops.reduce_max(x, (1,))
        return [size, ops.sub(x, spread(size, x))]

    kernel, plan = stages(both, 300, 2048)
    assert not shared_sizes(kernel)
    assert barriers(kernel, plan) == [True, True]


def test_several_reductions_end_with_several_invocations():
    def ranged(x):
        width = ops.sub(ops.reduce_max(x, (1,)), ops.reduce_min(x, (1,)))
        return [ops.div(x, spread(ops.sin(ops.add(width, 1.0)), x))]

    kernel, plan = stages(ranged, 300, 2048)
    assert [len(stage.reductions) for stage in kernel.stages] == [2, 0, 0]
    assert barriers(kernel, plan) == [True, True, True]


def test_registers_are_left_for_fewer_workgroups_where_lanes_hold_more():
    def furthest(x):
        return [ops.eq(x, spread(ops.reduce_max(x, (1,)), x))]

    def exponentials(x):
        return [ops.exp(ops.sub(x, spread(ops.reduce_max(x, (1,)), x)))]

    light, heavy, wide = (
        stages(function, 300, 2048, dtype=dtype)[1].resident
        for function, dtype in ((furthest, float32), (exponentials, float32), (exponentials, float64))
    )
    assert light == 8
    assert 2 <= wide < heavy < light
