"""Hand-written CUDA for `ragged` and `ragged_skewed`: forward and reverse in one kernel.

`plain` gives every thread the next lane. `sorted` takes tiles of 2,048 lanes and orders each by trip count in
shared memory, longest first, so that the lanes of a warp end together. Both save the cosine, which the
forward loop gets together with the sine, in a stack in global memory, interleaved by resident lane.
"""

from __future__ import annotations

from typing import Any

from benchmarks.contender import Arrays, Contender
from benchmarks.cuda_native import BLOCK_SUM, loops

SOURCE = (
    BLOCK_SUM
    + r"""
typedef long long i64;

__device__ float lane(float v, int trips, float *stack, i64 place, i64 width, double &sum) {
    float *top = stack + place;
    for (int k = 0; k < trips; k++, top += width) {
        float s, c;
        sincosf(v, &s, &c);
        *top = c;
        v = s + 0.1f;
    }
    sum += v;
    float slope = 1.0f;
    for (int k = 0; k < trips; k++) {
        top -= width;
        slope *= *top;
    }
    return slope;
}

extern "C" __global__
void plain(const float *x, const int *trips, float *gradient, double *total, float *stack, i64 n) {
    i64 place = blockIdx.x * (i64)blockDim.x + threadIdx.x, width = gridDim.x * (i64)blockDim.x;
    double sum = 0.0;
    for (i64 i = place; i < n; i += width) gradient[i] = lane(x[i], trips[i], stack, place, width, sum);
    add_block(sum, total);
}

// Buckets 0..63 are trip counts; above, each power of two is cut into eight.
__device__ int bucket(int trips) {
    if (trips < 64) return max(trips, 0);
    int power = 31 - __clz(trips);
    return min(64 + 8 * (power - 6) + ((trips >> (power - 3)) & 7), 127);
}

#define TILE 2048
extern "C" __global__
void sorted(const float *x, const int *trips, float *gradient, double *total, float *stack, i64 n) {
    __shared__ unsigned short order[TILE];
    __shared__ int next[128];
    i64 place = blockIdx.x * (i64)blockDim.x + threadIdx.x, width = gridDim.x * (i64)blockDim.x;
    double sum = 0.0;
    for (i64 base = blockIdx.x * (i64)TILE; base < n; base += gridDim.x * (i64)TILE) {
        int count = (int)(n - base < TILE ? n - base : TILE);
        if (threadIdx.x < 128) next[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += blockDim.x) atomicAdd(&next[127 - bucket(trips[base + i])], 1);
        __syncthreads();
        if (threadIdx.x < 32) {
            int *mine = next + 4 * threadIdx.x, kept[4], own = 0;
            for (int k = 0; k < 4; k++) { kept[k] = own; own += mine[k]; }
            int before = own;
            for (int step = 1; step < 32; step <<= 1) {
                int other = __shfl_up_sync(0xffffffffu, before, step);
                if ((int)threadIdx.x >= step) before += other;
            }
            for (int k = 0; k < 4; k++) mine[k] = kept[k] + before - own;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += blockDim.x)
            order[atomicAdd(&next[127 - bucket(trips[base + i])], 1)] = (unsigned short)i;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            i64 item = base + order[i];
            gradient[item] = lane(x[item], trips[item], stack, place, width, sum);
        }
        __syncthreads();
    }
    add_block(sum, total);
}
"""
)


def hand_written(kernel: str, *, fast_math: bool, blocks: int) -> Any:
    """`blocks` of 256 threads a multiprocessor: few enough that the stack stays in the cache."""

    def build(arrays: Arrays) -> Contender:
        depth = max(1, int(arrays["trips"].max(initial=0)))
        make = loops(SOURCE, kernel, ("x", "trips"), "x", depth, blocks_per_multiprocessor=blocks, fast_math=fast_math)
        return make(arrays)

    return build


CONTENDERS = {
    "limit:plain": hand_written("plain", fast_math=False, blocks=4),
    "limit:plain, fast math": hand_written("plain", fast_math=True, blocks=4),
    "limit:sorted": hand_written("sorted", fast_math=False, blocks=4),
    "limit:sorted, fast math": hand_written("sorted", fast_math=True, blocks=2),
}
