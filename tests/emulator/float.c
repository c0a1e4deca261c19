/* Vector arithmetic on floats: f16, f32 and f64, each rounded once, to nearest even. */
#include "machine.h"

#define IEEE_MODE 0x200 /* of the mode register: signalling NaNs become quiet in min and max */

static int quiet_bit_clear_32(uint32_t x) { return (x & 0x7fffffff) > 0x7f800000 && !(x & 0x400000); }
static int quiet_bit_clear_64(uint64_t x) { return (x & INT64_MAX) > 0x7ff0000000000000 && !(x >> 51 & 1); }
static int quiet_bit_clear_16(uint16_t x) { return (x & 0x7fff) > 0x7c00 && !(x & 0x200); }

/* The smaller of two, where -0 < +0 and a NaN loses; `sign` -1 makes it the larger. */
#define LESSER(title, type, member, bits, signalling, quiet, top)                                  \
    static Value title(const Wave *w, Value a, Value b, int larger) {                              \
        if (w->mode & IEEE_MODE) {                                                                 \
            if (signalling(a.bits)) return a.bits |= quiet, a;                                     \
            if (signalling(b.bits)) return b.bits |= quiet, b;                                     \
        }                                                                                          \
        if (b.member != b.member) return a;                                                        \
        if (a.member != a.member) return b;                                                        \
        int less = a.member < b.member || (a.member == b.member && (a.bits >> top) > (b.bits >> top)); \
        return less != larger ? a : b;                                                             \
    }
LESSER(lesser_16, _Float16, hf, h, quiet_bit_clear_16, 0x200, 15)
LESSER(lesser_32, float, f, w, quiet_bit_clear_32, 0x400000, 31)
LESSER(lesser_64, double, d, u, quiet_bit_clear_64, 1ull << 51, 63)

static _Float16 fma_16(_Float16 a, _Float16 b, _Float16 c) { /* 64 bits hold the sum where it isn't out of range */
    return (_Float16)((long double)a * b + c);
}

VECTOR2(v_add_f16, F16, F16, F16, r.hf = a.hf + b.hf)
VECTOR2(v_sub_f16, F16, F16, F16, r.hf = a.hf - b.hf)
VECTOR2(v_subrev_f16, F16, F16, F16, r.hf = b.hf - a.hf)
VECTOR2(v_mul_f16, F16, F16, F16, r.hf = a.hf * b.hf)
VECTOR3(v_fma_f16, F16, F16, F16, F16, r.hf = fma_16(a.hf, b.hf, c.hf))
VECTOR2(v_min_f16, F16, F16, F16, r = lesser_16(w, a, b, 0))
VECTOR2(v_max_f16, F16, F16, F16, r = lesser_16(w, a, b, 1))
VECTOR3(v_min3_f16, F16, F16, F16, F16, r = lesser_16(w, lesser_16(w, a, b, 0), c, 0))
VECTOR3(v_max3_f16, F16, F16, F16, F16, r = lesser_16(w, lesser_16(w, a, b, 1), c, 1))
VECTOR1(v_floor_f16, F16, F16, r.hf = (_Float16)floorf((float)a.hf))
VECTOR1(v_ceil_f16, F16, F16, r.hf = (_Float16)ceilf((float)a.hf))
VECTOR1(v_trunc_f16, F16, F16, r.hf = (_Float16)truncf((float)a.hf))
VECTOR1(v_rndne_f16, F16, F16, r.hf = (_Float16)rintf((float)a.hf))
VECTOR1(v_rcp_f16, F16, F16, r.hf = (_Float16)(1.0f / (float)a.hf))
VECTOR1(v_rsq_f16, F16, F16, r.hf = (_Float16)(1.0 / sqrt((double)a.hf)))
VECTOR1(v_sqrt_f16, F16, F16, r.hf = (_Float16)sqrtf((float)a.hf))
VECTOR1(v_exp_f16, F16, F16, r.hf = (_Float16)exp2((double)a.hf))
VECTOR1(v_log_f16, F16, F16, r.hf = (_Float16)log2((double)a.hf))
VECTOR2(v_ldexp_f16, F16, F16, B16, r.hf = (_Float16)ldexp((double)a.hf, b.hs))

VECTOR2(v_add_f32, F32, F32, F32, r.f = a.f + b.f)
VECTOR2(v_sub_f32, F32, F32, F32, r.f = a.f - b.f)
VECTOR2(v_subrev_f32, F32, F32, F32, r.f = b.f - a.f)
VECTOR2(v_mul_f32, F32, F32, F32, r.f = a.f * b.f)
VECTOR2(v_mul_legacy_f32, F32, F32, F32, r.f = a.f == 0 || b.f == 0 ? 0 : a.f * b.f)
VECTOR3(v_fma_f32, F32, F32, F32, F32, r.f = fmaf(a.f, b.f, c.f))
VECTOR3(v_mad_f32, F32, F32, F32, F32, r.f = a.f * b.f; r.f = r.f + c.f)
VECTOR2(v_min_f32, F32, F32, F32, r = lesser_32(w, a, b, 0))
VECTOR2(v_max_f32, F32, F32, F32, r = lesser_32(w, a, b, 1))
VECTOR3(v_min3_f32, F32, F32, F32, F32, r = lesser_32(w, lesser_32(w, a, b, 0), c, 0))
VECTOR3(v_max3_f32, F32, F32, F32, F32, r = lesser_32(w, lesser_32(w, a, b, 1), c, 1))
VECTOR3(v_maxmin_f32, F32, F32, F32, F32, r = lesser_32(w, lesser_32(w, a, b, 1), c, 0))
VECTOR3(v_minmax_f32, F32, F32, F32, F32, r = lesser_32(w, lesser_32(w, a, b, 0), c, 1))

static Value middle(const Wave *w, Value a, Value b, Value c) {
    if (a.f != a.f || b.f != b.f || c.f != c.f) return lesser_32(w, lesser_32(w, a, b, 0), c, 0);
    Value most = lesser_32(w, lesser_32(w, a, b, 1), c, 1);
    return most.w == a.w ? lesser_32(w, b, c, 1) : most.w == b.w ? lesser_32(w, a, c, 1) : lesser_32(w, a, b, 1);
}
VECTOR3(v_med3_f32, F32, F32, F32, F32, r = middle(w, a, b, c))
VECTOR1(v_floor_f32, F32, F32, r.f = floorf(a.f))
VECTOR1(v_ceil_f32, F32, F32, r.f = ceilf(a.f))
VECTOR1(v_trunc_f32, F32, F32, r.f = truncf(a.f))
VECTOR1(v_rndne_f32, F32, F32, r.f = rintf(a.f))
VECTOR1(v_fract_f32, F32, F32, r.f = fminf(a.f - floorf(a.f), 0x1.fffffep-1f))
VECTOR2(v_ldexp_f32, F32, F32, B32, r.f = ldexpf(a.f, b.s))

VECTOR2(v_add_f64, F64, F64, F64, r.d = a.d + b.d)
VECTOR2(v_mul_f64, F64, F64, F64, r.d = a.d * b.d)
VECTOR3(v_fma_f64, F64, F64, F64, F64, r.d = fma(a.d, b.d, c.d))
VECTOR2(v_min_f64, F64, F64, F64, r = lesser_64(w, a, b, 0))
VECTOR2(v_max_f64, F64, F64, F64, r = lesser_64(w, a, b, 1))
VECTOR1(v_floor_f64, F64, F64, r.d = floor(a.d))
VECTOR1(v_ceil_f64, F64, F64, r.d = ceil(a.d))
VECTOR1(v_trunc_f64, F64, F64, r.d = trunc(a.d))
VECTOR1(v_rndne_f64, F64, F64, r.d = rint(a.d))
VECTOR1(v_fract_f64, F64, F64, r.d = fmin(a.d - floor(a.d), 0x1.fffffffffffffp-1))
VECTOR2(v_ldexp_f64, F64, F64, B32, r.d = ldexp(a.d, b.s))

/* Mantissa in [0.5, 1) and exponent. */
VECTOR1(v_frexp_mant_f32, F32, F32, int x; r.f = isfinite(a.f) ? frexpf(a.f, &x) : a.f)
VECTOR1(v_frexp_exp_i32_f32, B32, F32, int x = 0; if (isfinite(a.f)) frexpf(a.f, &x); r.s = x)
VECTOR1(v_frexp_mant_f64, F64, F64, int x; r.d = isfinite(a.d) ? frexp(a.d, &x) : a.d)
VECTOR1(v_frexp_exp_i32_f64, B32, F64, int x = 0; if (isfinite(a.d)) frexp(a.d, &x); r.s = x)
VECTOR1(v_frexp_mant_f16, F16, F16, int x; r.hf = isfinite((float)a.hf) ? (_Float16)frexpf((float)a.hf, &x) : a.hf)
VECTOR1(v_frexp_exp_i16_f16, B16, F16, int x = 0; if (isfinite((float)a.hf)) frexpf((float)a.hf, &x); r.hs = (int16_t)x)

/* Approximations. RDNA 3 ISA: within an ulp for f32, within 2**29 ulp for f64; denormal operands and results of f32
   are zeros. A launch says which end of that a result is moved to; ANY_ERROR: that depends on the operand. */
static int error_of(const Wave *w, Value operand) {
    if (w->launch->error != ANY_ERROR) return w->launch->error;
    return (int)((operand.u * 0x9e3779b97f4a7c15) >> 33) % 3 - 1;
}
static float rough(const Wave *w, Value operand, double exact) { /* the number nearest, next below, or next above */
    int error = error_of(w, operand);
    Value r = {.f = (float)exact};
    if (isfinite(r.f) && exact != 0) {
        if (error < 0 && (double)r.f >= exact) r.f = nextafterf(r.f, -INFINITY);
        if (error > 0 && (double)r.f <= exact) r.f = nextafterf(r.f, INFINITY);
    }
    if (!(r.w & 0x7f800000)) r.w &= 0x80000000;
    return r.f;
}
static double coarse(const Wave *w, Value operand, double exact) {
    Value r = {.d = exact};
    if (isfinite(exact) && (r.u >> 52 & 0x7ff)) r.i += (int64_t)error_of(w, operand) << 29;
    return r.d;
}
static double normal(float x) { return fpclassify(x) == FP_SUBNORMAL ? copysign(0.0, x) : (double)x; }

VECTOR1(v_rcp_f32, F32, F32, r.f = rough(w, a, 1 / normal(a.f)))
VECTOR1(v_rcp_iflag_f32, F32, F32, r.f = rough(w, a, 1 / normal(a.f)))
VECTOR1(v_rsq_f32, F32, F32, r.f = rough(w, a, 1 / sqrt(normal(a.f))))
VECTOR1(v_sqrt_f32, F32, F32, r.f = rough(w, a, sqrt(normal(a.f))))
VECTOR1(v_exp_f32, F32, F32, r.f = rough(w, a, exp2(normal(a.f))))
VECTOR1(v_log_f32, F32, F32, r.f = rough(w, a, log2(normal(a.f))))
VECTOR1(v_sin_f32, F32, F32, r.f = rough(w, a, sin(2 * M_PI * fmod(a.f, 1))))
VECTOR1(v_cos_f32, F32, F32, r.f = rough(w, a, cos(2 * M_PI * fmod(a.f, 1))))
VECTOR1(v_rcp_f64, F64, F64, r.d = coarse(w, a, 1 / a.d))
VECTOR1(v_rsq_f64, F64, F64, r.d = coarse(w, a, 1 / sqrt(a.d)))
VECTOR1(v_sqrt_f64, F64, F64, r.d = coarse(w, a, sqrt(a.d)))
