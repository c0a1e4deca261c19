/* Conversions: to integers towards zero, out of range to the nearest that is in it, NaN to 0. */
#include "machine.h"

static int64_t clamped(double x, double least, double most) {
    return x != x ? 0 : x <= least ? (int64_t)least : x >= most ? (int64_t)most : (int64_t)x;
}

VECTOR1(v_cvt_i32_f32, B32, F32, r.w = (uint32_t)clamped(a.f, INT32_MIN, INT32_MAX))
VECTOR1(v_cvt_u32_f32, B32, F32, r.w = (uint32_t)clamped(a.f, 0, UINT32_MAX))
VECTOR1(v_cvt_i32_f64, B32, F64, r.w = (uint32_t)clamped(a.d, INT32_MIN, INT32_MAX))
VECTOR1(v_cvt_u32_f64, B32, F64, r.w = (uint32_t)clamped(a.d, 0, UINT32_MAX))
VECTOR1(v_cvt_i16_f16, B16, F16, r.w = (uint32_t)clamped((double)a.hf, INT16_MIN, INT16_MAX) & 0xffff)
VECTOR1(v_cvt_u16_f16, B16, F16, r.w = (uint32_t)clamped((double)a.hf, 0, UINT16_MAX))
VECTOR1(v_cvt_floor_i32_f32, B32, F32, r.w = (uint32_t)clamped(floor(a.f), INT32_MIN, INT32_MAX))
VECTOR1(v_cvt_nearest_i32_f32, B32, F32, r.w = (uint32_t)clamped(floor(a.f + 0.5), INT32_MIN, INT32_MAX))
VECTOR1(v_cvt_f32_i32, F32, B32, r.f = (float)a.s)
VECTOR1(v_cvt_f32_u32, F32, B32, r.f = (float)a.w)
VECTOR1(v_cvt_f64_i32, F64, B32, r.d = a.s)
VECTOR1(v_cvt_f64_u32, F64, B32, r.d = a.w)
VECTOR1(v_cvt_f16_i16, F16, B16, r.hf = (_Float16)(float)a.hs)
VECTOR1(v_cvt_f16_u16, F16, B16, r.hf = (_Float16)(float)a.h)
VECTOR1(v_cvt_f32_ubyte0, F32, B32, r.f = (float)(a.w & 0xff))
VECTOR1(v_cvt_f32_ubyte1, F32, B32, r.f = (float)(a.w >> 8 & 0xff))
VECTOR1(v_cvt_f32_ubyte2, F32, B32, r.f = (float)(a.w >> 16 & 0xff))
VECTOR1(v_cvt_f32_ubyte3, F32, B32, r.f = (float)(a.w >> 24))
VECTOR1(v_cvt_f32_f16, F32, F16, r.f = (float)a.hf)
VECTOR1(v_cvt_f16_f32, F16, F32, r.hf = (_Float16)a.f)
VECTOR1(v_cvt_f32_f64, F32, F64, r.f = (float)a.d)
VECTOR1(v_cvt_f64_f32, F64, F32, r.d = a.f)

/* To bfloat16, to nearest even; a NaN stays one. */
static uint32_t bfloat(float x) {
    uint32_t bits = (Value){.f = x}.w;
    return x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
VECTOR2(v_cvt_pk_bf16_f32, B32, F32, F32, r.w = bfloat(a.f) | bfloat(b.f) << 16)

static uint32_t towards_zero(float x) {
    Value r = {.hf = (_Float16)x};
    if (isfinite(x) && fabs((double)r.hf) > fabs((double)x)) r.h--;
    return r.h;
}
VECTOR2(v_cvt_pk_rtz_f16_f32, B32, F32, F32, r.w = towards_zero(a.f) | towards_zero(b.f) << 16)
VECTOR2(v_cvt_pkrtz_f16_f32, B32, F32, F32, r.w = towards_zero(a.f) | towards_zero(b.f) << 16)
VECTOR2(v_pack_b32_f16, B32, F16, F16, r.w = a.h | (uint32_t)b.h << 16)
