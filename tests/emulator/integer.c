/* Vector arithmetic on integers and bits. */
#include "machine.h"

#define LOW(x) ((uint32_t)(x))
static uint32_t leading(uint32_t x) { return x ? (uint32_t)__builtin_clz(x) : UINT32_MAX; }
static uint32_t trailing(uint32_t x) { return x ? (uint32_t)__builtin_ctz(x) : UINT32_MAX; }
static uint32_t signs(int32_t x) { return x == 0 || x == -1 ? UINT32_MAX : (uint32_t)__builtin_clrsb(x) + 1; }
static uint32_t reversed(uint32_t x) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
static uint32_t field(uint32_t x, uint32_t first, uint32_t bits) { return x >> first & ((1u << bits) - 1); }
static int32_t signed_field(int32_t x, uint32_t first, uint32_t bits) {
    return bits ? (int32_t)((uint32_t)(x >> first) << (32 - bits)) >> (32 - bits) : 0;
}
static uint32_t permuted(uint64_t bytes, uint32_t selectors) {
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = selectors >> 8 * i & 0xff, byte;
        if (s >= 13) byte = 0xff;
        else if (s == 12) byte = 0;
        else if (s >= 8) byte = bytes >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
        else byte = bytes >> 8 * s & 0xff;
        r |= byte << 8 * i;
    }
    return r;
}
static int64_t saturated(const Inst *in, int64_t exact, int64_t least, int64_t most) { /* where clamp asks for it */
    return !in->clamp ? exact : exact < least ? least : exact > most ? most : exact;
}
#define MINIMUM(x, y) ((x) < (y) ? (x) : (y))
#define MAXIMUM(x, y) ((x) > (y) ? (x) : (y))
#define MIDDLE(x, y, z) MAXIMUM(MINIMUM(x, y), MINIMUM(MAXIMUM(x, y), z))

VECTOR1(v_mov_b32, B32, B32, r = a)
VECTOR1(v_mov_b64, B64, B64, r = a)
VECTOR1(v_mov_b16, B16, B16, r = a)
VECTOR1(v_accvgpr_read_b32, B32, B32, r = a)
VECTOR1(v_accvgpr_write_b32, B32, B32, r = a)
VECTOR1(v_accvgpr_mov_b32, B32, B32, r = a)
VECTOR(v_cndmask_b32, B32, NONE, B32, B32, MASK, NONE, r = c.u ? b : a)
VECTOR(v_cndmask_b16, B16, NONE, B16, B16, MASK, NONE, r = c.u ? b : a)

VECTOR2(v_add_nc_u32, B32, B32, B32, r.w = LOW(saturated(in, (int64_t)a.w + b.w, 0, UINT32_MAX)))
VECTOR2(v_sub_nc_u32, B32, B32, B32, r.w = LOW(saturated(in, (int64_t)a.w - b.w, 0, UINT32_MAX)))
VECTOR2(v_subrev_nc_u32, B32, B32, B32, r.w = LOW(saturated(in, (int64_t)b.w - a.w, 0, UINT32_MAX)))
VECTOR2(v_add_nc_i32, B32, B32, B32, r.w = LOW(saturated(in, (int64_t)a.s + b.s, INT32_MIN, INT32_MAX)))
VECTOR2(v_sub_nc_i32, B32, B32, B32, r.w = LOW(saturated(in, (int64_t)a.s - b.s, INT32_MIN, INT32_MAX)))
VECTOR(v_add_co_u32, B32, MASK, B32, B32, NONE, NONE, r.w = a.w + b.w; e.u = r.w < a.w)
VECTOR(v_sub_co_u32, B32, MASK, B32, B32, NONE, NONE, r.w = a.w - b.w; e.u = b.w > a.w)
VECTOR(v_subrev_co_u32, B32, MASK, B32, B32, NONE, NONE, r.w = b.w - a.w; e.u = a.w > b.w)
VECTOR(v_add_co_ci_u32, B32, MASK, B32, B32, MASK, NONE,
       uint64_t sum = (uint64_t)a.w + b.w + c.u; r.w = LOW(sum); e.u = sum >> 32)
VECTOR(v_sub_co_ci_u32, B32, MASK, B32, B32, MASK, NONE,
       uint64_t rest = (uint64_t)a.w - b.w - c.u; r.w = LOW(rest); e.u = rest >> 63)
VECTOR(v_subrev_co_ci_u32, B32, MASK, B32, B32, MASK, NONE,
       uint64_t rest = (uint64_t)b.w - a.w - c.u; r.w = LOW(rest); e.u = rest >> 63)
VECTOR3(v_add3_u32, B32, B32, B32, B32, r.w = a.w + b.w + c.w)
VECTOR3(v_lshl_add_u32, B32, B32, B32, B32, r.w = (a.w << (b.w & 31)) + c.w)
VECTOR3(v_add_lshl_u32, B32, B32, B32, B32, r.w = (a.w + b.w) << (c.w & 31))
VECTOR3(v_lshl_add_u64, B64, B64, B32, B64, r.u = (a.u << (b.w & 7)) + c.u)
VECTOR3(v_xad_u32, B32, B32, B32, B32, r.w = (a.w ^ b.w) + c.w)

VECTOR2(v_mul_lo_u32, B32, B32, B32, r.w = a.w * b.w)
VECTOR2(v_mul_hi_u32, B32, B32, B32, r.w = LOW((uint64_t)a.w * b.w >> 32))
VECTOR2(v_mul_hi_i32, B32, B32, B32, r.w = LOW(((int64_t)a.s * b.s) >> 32))
VECTOR2(v_mul_u32_u24, B32, B32, B32, r.w = (a.w & 0xffffff) * (b.w & 0xffffff))
VECTOR2(v_mul_i32_i24, B32, B32, B32, r.w = LOW(signed_field(a.s, 0, 24)) * LOW(signed_field(b.s, 0, 24)))
VECTOR2(v_mul_hi_u32_u24, B32, B32, B32, r.w = LOW((uint64_t)(a.w & 0xffffff) * (b.w & 0xffffff) >> 32))
VECTOR2(v_mul_hi_i32_i24, B32, B32, B32,
        r.w = LOW((int64_t)signed_field(a.s, 0, 24) * signed_field(b.s, 0, 24) >> 32))
VECTOR3(v_mad_u32_u24, B32, B32, B32, B32, r.w = (a.w & 0xffffff) * (b.w & 0xffffff) + c.w)
VECTOR3(v_mad_i32_i24, B32, B32, B32, B32, r.w = LOW(signed_field(a.s, 0, 24)) * LOW(signed_field(b.s, 0, 24)) + c.w)
VECTOR(v_mad_u64_u32, B64, MASK, B32, B32, B64, NONE,
       r.u = (uint64_t)a.w * b.w + c.u; e.u = r.u < c.u)
VECTOR(v_mad_i64_i32, B64, MASK, B32, B32, I64, NONE,
       e.u = (uint64_t)__builtin_add_overflow((int64_t)a.s * b.s, c.i, &r.i))
VECTOR3(v_mad_u32_u16, B32, B16, B16, B32, r.w = (uint32_t)a.h * b.h + c.w)
VECTOR3(v_mad_i32_i16, B32, B16, B16, B32, r.w = LOW(a.hs * b.hs) + c.w)
static uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
VECTOR3(v_dot4_u32_u8, B32, B32, B32, B32, r.w = dot4(a.w, b.w, c.w))
VECTOR3(v_sad_u32, B32, B32, B32, B32, r.w = (a.w > b.w ? a.w - b.w : b.w - a.w) + c.w)

VECTOR1(v_not_b32, B32, B32, r.w = ~a.w)
VECTOR2(v_and_b32, B32, B32, B32, r.w = a.w & b.w)
VECTOR2(v_or_b32, B32, B32, B32, r.w = a.w | b.w)
VECTOR2(v_xor_b32, B32, B32, B32, r.w = a.w ^ b.w)
VECTOR2(v_xnor_b32, B32, B32, B32, r.w = ~(a.w ^ b.w))
VECTOR3(v_and_or_b32, B32, B32, B32, B32, r.w = (a.w & b.w) | c.w)
VECTOR3(v_or3_b32, B32, B32, B32, B32, r.w = a.w | b.w | c.w)
VECTOR3(v_xor3_b32, B32, B32, B32, B32, r.w = a.w ^ b.w ^ c.w)
VECTOR3(v_lshl_or_b32, B32, B32, B32, B32, r.w = (a.w << (b.w & 31)) | c.w)
VECTOR3(v_bfi_b32, B32, B32, B32, B32, r.w = (a.w & b.w) | (~a.w & c.w))
VECTOR3(v_bfe_u32, B32, B32, B32, B32, r.w = field(a.w, b.w & 31, c.w & 31))
VECTOR3(v_bfe_i32, B32, B32, B32, B32, r.s = signed_field(a.s, b.w & 31, c.w & 31))
VECTOR2(v_bfm_b32, B32, B32, B32, r.w = ((1u << (a.w & 31)) - 1) << (b.w & 31))
VECTOR3(v_alignbit_b32, B32, B32, B32, B32, r.w = LOW((a.u << 32 | b.w) >> (c.w & 31)))
VECTOR3(v_alignbyte_b32, B32, B32, B32, B32, r.w = LOW((a.u << 32 | b.w) >> 8 * (c.w & 3)))
VECTOR3(v_perm_b32, B32, B32, B32, B32, r.w = permuted(a.u << 32 | b.w, c.w))
VECTOR1(v_bfrev_b32, B32, B32, r.w = reversed(a.w))
VECTOR2(v_bcnt_u32_b32, B32, B32, B32, r.w = LOW(__builtin_popcount(a.w)) + b.w)
VECTOR1(v_clz_i32_u32, B32, B32, r.w = leading(a.w))
VECTOR1(v_cls_i32, B32, B32, r.w = signs(a.s))
VECTOR1(v_ctz_i32_b32, B32, B32, r.w = trailing(a.w))
VECTOR2(v_lshlrev_b32, B32, B32, B32, r.w = b.w << (a.w & 31))
VECTOR2(v_lshrrev_b32, B32, B32, B32, r.w = b.w >> (a.w & 31))
VECTOR2(v_ashrrev_i32, B32, B32, B32, r.s = b.s >> (a.w & 31))
VECTOR2(v_lshlrev_b64, B64, B32, B64, r.u = b.u << (a.w & 63))
VECTOR2(v_lshrrev_b64, B64, B32, B64, r.u = b.u >> (a.w & 63))
VECTOR2(v_ashrrev_i64, B64, B32, I64, r.i = b.i >> (a.w & 63))

VECTOR2(v_min_u32, B32, B32, B32, r.w = MINIMUM(a.w, b.w))
VECTOR2(v_max_u32, B32, B32, B32, r.w = MAXIMUM(a.w, b.w))
VECTOR2(v_min_i32, B32, B32, B32, r.s = MINIMUM(a.s, b.s))
VECTOR2(v_max_i32, B32, B32, B32, r.s = MAXIMUM(a.s, b.s))
VECTOR3(v_min3_u32, B32, B32, B32, B32, r.w = MINIMUM(MINIMUM(a.w, b.w), c.w))
VECTOR3(v_max3_u32, B32, B32, B32, B32, r.w = MAXIMUM(MAXIMUM(a.w, b.w), c.w))
VECTOR3(v_min3_i32, B32, B32, B32, B32, r.s = MINIMUM(MINIMUM(a.s, b.s), c.s))
VECTOR3(v_max3_i32, B32, B32, B32, B32, r.s = MAXIMUM(MAXIMUM(a.s, b.s), c.s))
VECTOR3(v_med3_u32, B32, B32, B32, B32, r.w = MIDDLE(a.w, b.w, c.w))
VECTOR3(v_med3_i32, B32, B32, B32, B32, r.s = MIDDLE(a.s, b.s, c.s))
VECTOR3(v_maxmin_u32, B32, B32, B32, B32, r.w = MINIMUM(MAXIMUM(a.w, b.w), c.w))
VECTOR3(v_minmax_u32, B32, B32, B32, B32, r.w = MAXIMUM(MINIMUM(a.w, b.w), c.w))
VECTOR3(v_maxmin_i32, B32, B32, B32, B32, r.s = MINIMUM(MAXIMUM(a.s, b.s), c.s))
VECTOR3(v_minmax_i32, B32, B32, B32, B32, r.s = MAXIMUM(MINIMUM(a.s, b.s), c.s))

VECTOR2(v_add_nc_u16, B16, B16, B16, r.h = (uint16_t)saturated(in, a.h + b.h, 0, UINT16_MAX))
VECTOR2(v_sub_nc_u16, B16, B16, B16, r.h = (uint16_t)saturated(in, a.h - b.h, 0, UINT16_MAX))
VECTOR2(v_subrev_nc_u16, B16, B16, B16, r.h = (uint16_t)saturated(in, b.h - a.h, 0, UINT16_MAX))
VECTOR2(v_add_nc_i16, B16, B16, B16, r.h = (uint16_t)saturated(in, a.hs + b.hs, INT16_MIN, INT16_MAX))
VECTOR2(v_sub_nc_i16, B16, B16, B16, r.h = (uint16_t)saturated(in, a.hs - b.hs, INT16_MIN, INT16_MAX))
VECTOR2(v_mul_lo_u16, B16, B16, B16, r.h = (uint16_t)((uint32_t)a.h * b.h))
VECTOR3(v_mad_u16, B16, B16, B16, B16, r.h = (uint16_t)((uint32_t)a.h * b.h + c.h))
VECTOR3(v_mad_i16, B16, B16, B16, B16, r.h = (uint16_t)((uint32_t)a.h * b.h + c.h))
VECTOR2(v_lshlrev_b16, B16, B16, B16, r.h = (uint16_t)(b.h << (a.h & 15)))
VECTOR2(v_lshrrev_b16, B16, B16, B16, r.h = (uint16_t)(b.h >> (a.h & 15)))
VECTOR2(v_ashrrev_i16, B16, B16, B16, r.h = (uint16_t)(b.hs >> (a.h & 15)))
VECTOR2(v_and_b16, B16, B16, B16, r.h = a.h & b.h)
VECTOR2(v_or_b16, B16, B16, B16, r.h = a.h | b.h)
VECTOR2(v_xor_b16, B16, B16, B16, r.h = a.h ^ b.h)
VECTOR1(v_not_b16, B16, B16, r.h = (uint16_t)~a.h)
VECTOR2(v_min_u16, B16, B16, B16, r.h = MINIMUM(a.h, b.h))
VECTOR2(v_max_u16, B16, B16, B16, r.h = MAXIMUM(a.h, b.h))
VECTOR2(v_min_i16, B16, B16, B16, r.hs = MINIMUM(a.hs, b.hs))
VECTOR2(v_max_i16, B16, B16, B16, r.hs = MAXIMUM(a.hs, b.hs))
VECTOR3(v_med3_i16, B16, B16, B16, B16, r.hs = MIDDLE(a.hs, b.hs, c.hs))
VECTOR3(v_med3_u16, B16, B16, B16, B16, r.h = MIDDLE(a.h, b.h, c.h))
VECTOR3(v_min3_i16, B16, B16, B16, B16, r.hs = MINIMUM(MINIMUM(a.hs, b.hs), c.hs))
VECTOR3(v_max3_i16, B16, B16, B16, B16, r.hs = MAXIMUM(MAXIMUM(a.hs, b.hs), c.hs))
VECTOR3(v_min3_u16, B16, B16, B16, B16, r.h = MINIMUM(MINIMUM(a.h, b.h), c.h))
VECTOR3(v_max3_u16, B16, B16, B16, B16, r.h = MAXIMUM(MAXIMUM(a.h, b.h), c.h))
