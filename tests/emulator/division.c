/* The steps of division that hardware has, and products of mixed widths. RDNA 3 ISA, V_DIV_SCALE and its like. */
#include "machine.h"

static int exponent_32(float x) { return (int)((Value){.f = x}.w >> 23 & 0xff); }
static int exponent_64(double x) { return (int)((Value){.d = x}.u >> 52 & 0x7ff); }
static int denormal_32(float x) { return fpclassify(x) == FP_SUBNORMAL; }
static int denormal_64(double x) { return fpclassify(x) == FP_SUBNORMAL; }

/* a is the one of denominator b and numerator c that is to be scaled; e tells V_DIV_FMAS to scale back. */
#define SCALE(name, type, member, number, exponent, denormal, far, small, shift, inverse_denormal)       \
    VECTOR(name, type, MASK, type, type, type, NONE, {                                                   \
        number one = a.member, below = b.member, above = c.member;                                       \
        int is_below = one == below, is_above = one == above, scaled = 0;                                \
        if (above == 0 || below == 0) r.member = NAN;                                                    \
        else {                                                                                           \
            int tiny = denormal((number)(above / below));                                                \
            if (exponent(above) - exponent(below) >= far) e.u = 1, scaled = is_below ? shift : 0;        \
            else if (denormal(below)) scaled = shift;                                                    \
            else if (inverse_denormal(below) && tiny) e.u = 1, scaled = is_below ? -shift : 0;           \
            else if (inverse_denormal(below)) scaled = -shift;                                           \
            else if (tiny) e.u = 1, scaled = is_above ? shift : 0;                                       \
            else if (exponent(above) <= small) scaled = shift;                                           \
            r.member = (number)ldexp(one, scaled);                                                       \
        }                                                                                                \
    })
static int inverse_denormal_64(double x) { return denormal_64(1 / x); }
static int inverse_denormal_32(float x) { return denormal_32(1 / x); }
SCALE(v_div_scale_f32, F32, f, float, exponent_32, denormal_32, 96, 23, 64, inverse_denormal_32)
SCALE(v_div_scale_f64, F64, d, double, exponent_64, denormal_64, 768, 53, 128, inverse_denormal_64)

/* x * y + z as a number from which rounding to f32 or f64 is that of the exact sum: to odd, of 113 bits. */
static __float128 nearly_exact(double x, double y, double z) {
    __float128 product = (__float128)x * y, sum = product + z, back = sum - product;
    __float128 lost = (product - (sum - back)) + (z - back);
    union { __float128 f; unsigned __int128 u; } v = {.f = sum};
    if (lost != 0 && !(v.u & 1)) v.u += (lost > 0) == (sum > 0) ? 1 : (unsigned __int128)-1;
    return v.f;
}
/* Scales towards where the quotient c came from, and rounds once. */
#define FMAS(name, type, member, number, fused, exponent, middle, shift)                                 \
    VECTOR(name, type, NONE, type, type, type, MASK, {                                                   \
        number x = a.member, y = b.member, z = c.member;                                                 \
        r.member = fused(x, y, z);                                                                       \
        if (m.u && isfinite(r.member))                                                                   \
            r.member = (number)(nearly_exact(x, y, z) * ldexp(1, exponent(z) > middle ? shift : -shift));  \
    })
FMAS(v_div_fmas_f32, F32, f, float, fmaf, exponent_32, 127, 64)
FMAS(v_div_fmas_f64, F64, d, double, fma, exponent_64, 1023, 128)

#define FIXUP(name, type, member, number, nan, ...)                                                      \
    VECTOR3(name, type, type, type, type, {                                                              \
        number quotient = a.member, below = b.member, above = c.member;                                  \
        int negative = !signbit((double)below) != !signbit((double)above);                               \
        number size = quotient;                                                                          \
        if (above != above) r.member = above + above;                                                    \
        else if (below != below) r.member = below + below;                                               \
        else if ((below == 0 && above == 0) || (isinf((double)below) && isinf((double)above))) r.u = nan; \
        else {                                                                                           \
            if (below == 0 || isinf((double)above)) size = (number)INFINITY;                             \
            else if (isinf((double)below) || above == 0) size = 0;                                       \
            else {                                                                                       \
                if (size != size) size = (number)INFINITY; /* out of range between the steps */          \
                __VA_ARGS__;                                                                             \
            }                                                                                            \
            r.member = (number)copysign((double)size, negative ? -1.0 : 1.0);                            \
        }                                                                                                \
    })
FIXUP(v_div_fixup_f16, F16, hf, _Float16, 0xfe00)
FIXUP(v_div_fixup_f32, F32, f, float, 0xffc00000, if (exponent_32(above) - exponent_32(below) < -150) size = 0)
FIXUP(v_div_fixup_f64, F64, d, double, 0xfff8000000000000,
      if (exponent_64(above) - exponent_64(below) < -1075) size = 0)

/* Operands of V_FMA_MIX are f16 where op_sel_hi says so, of the half that op_sel says. */
static float mixed(const Inst *in, int i, Value v) {
    const Operand *from = &in->from[i];
    float x = v.f;
    if (in->half_high >> i & 1) {
        if (from->kind == INLINE_FLOAT) x = (float)(_Float16)(Value){.u = from->value}.d;
        else x = (float)(Value){.h = (uint16_t)(v.w >> (in->half >> i & 1 ? 16 : 0))}.hf;
    }
    if (in->negative_high >> i & 1) x = fabsf(x); /* of V_FMA_MIX: absolute, then negative */
    return in->negative_low >> i & 1 ? -x : x;
}
#define MIXED fmaf(mixed(in, 0, a), mixed(in, 1, b), mixed(in, 2, c))
static _Float16 mixed_half(const Inst *in, Value a, Value b, Value c) { /* one rounding: to odd first, then to f16 */
    double x = mixed(in, 0, a), y = mixed(in, 1, b), z = mixed(in, 2, c), product = x * y, sum = product + z;
    double back = sum - product, lost = (product - (sum - back)) + (z - back);
    Value v = {.d = sum};
    if (lost != 0 && isfinite(sum) && !(v.u & 1)) v.u += (lost > 0) == (sum > 0) ? 1 : -1ull;
    return (_Float16)v.d;
}
VECTOR3(v_fma_mix_f32, F32, B32, B32, B32, r.f = MIXED)
VECTOR3(v_fma_mixlo_f16, F16, B32, B32, B32, r.hf = mixed_half(in, a, b, c))
VECTOR3(v_fma_mixhi_f16, F16, B32, B32, B32, r.hf = mixed_half(in, a, b, c))
