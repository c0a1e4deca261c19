/* Arithmetic of the wave, on scalar registers; most of it sets SCC. */
#include "machine.h"

#define SET(condition) (w->scalar[SCC] = (condition) != 0)
#define IS_SET (w->scalar[SCC])
#define LOGIC(name, expression)                                                    \
    SCALAR2(s_##name##_b32, B32, B32, B32, r.w = (uint32_t)(expression); SET(r.w)) \
    SCALAR2(s_##name##_b64, B64, B64, B64, r.u = (expression); SET(r.u))

LOGIC(and, a.u & b.u)
LOGIC(or, a.u | b.u)
LOGIC(xor, a.u ^ b.u)
LOGIC(and_not1, a.u & ~b.u)
LOGIC(or_not1, a.u | ~b.u)
LOGIC(nand, ~(a.u & b.u))
LOGIC(nor, ~(a.u | b.u))
LOGIC(xnor, ~(a.u ^ b.u))

SCALAR1(s_mov_b32, B32, B32, r = a)
SCALAR1(s_mov_b64, B64, B64, r = a)
SCALAR1(s_movk_i32, B32, B32, r.s = (int16_t)a.h)
SCALAR1(s_not_b32, B32, B32, r.w = ~a.w; SET(r.w))
SCALAR1(s_not_b64, B64, B64, r.u = ~a.u; SET(r.u))
SCALAR2(s_add_u32, B32, B32, B32, r.w = a.w + b.w; SET(r.w < a.w))
SCALAR2(s_sub_u32, B32, B32, B32, r.w = a.w - b.w; SET(b.w > a.w))
SCALAR2(s_add_i32, B32, B32, B32, SET(__builtin_add_overflow(a.s, b.s, &r.s)))
SCALAR2(s_sub_i32, B32, B32, B32, SET(__builtin_sub_overflow(a.s, b.s, &r.s)))
SCALAR2(s_addk_i32, B32, B32, B32, SET(__builtin_add_overflow(a.s, (int32_t)b.hs, &r.s)))
SCALAR2(s_mulk_i32, B32, B32, B32, r.w = a.w * (uint32_t)(int32_t)b.hs)
SCALAR2(s_addc_u32, B32, B32, B32, uint64_t sum = a.u + b.u + IS_SET; r.w = (uint32_t)sum; SET(sum >> 32))
SCALAR2(s_subb_u32, B32, B32, B32, uint64_t rest = a.u - b.u - IS_SET; r.w = (uint32_t)rest; SET(rest >> 63))
SCALAR2(s_mul_i32, B32, B32, B32, r.w = a.w * b.w)
SCALAR2(s_mul_hi_u32, B32, B32, B32, r.w = (uint32_t)(a.u * b.u >> 32))
SCALAR2(s_mul_hi_i32, B32, B32, B32, r.w = (uint32_t)(((int64_t)a.s * b.s) >> 32))
SCALAR2(s_lshl_b32, B32, B32, B32, r.w = a.w << (b.w & 31); SET(r.w))
SCALAR2(s_lshr_b32, B32, B32, B32, r.w = a.w >> (b.w & 31); SET(r.w))
SCALAR2(s_ashr_i32, B32, B32, B32, r.s = a.s >> (b.w & 31); SET(r.w))
SCALAR2(s_lshl_b64, B64, B64, B32, r.u = a.u << (b.w & 63); SET(r.u))
SCALAR2(s_lshr_b64, B64, B64, B32, r.u = a.u >> (b.w & 63); SET(r.u))
SCALAR2(s_ashr_i64, B64, I64, B32, r.i = a.i >> (b.w & 63); SET(r.u))
#define SHIFTED_ADD(shift)                                                                   \
    SCALAR2(s_lshl##shift##_add_u32, B32, B32, B32, uint64_t sum = (a.u << shift) + b.u;     \
            r.w = (uint32_t)sum; SET(sum >> 32))
SHIFTED_ADD(1)
SHIFTED_ADD(2)
SHIFTED_ADD(3)
SHIFTED_ADD(4)
SCALAR2(s_min_i32, B32, B32, B32, SET(a.s < b.s); r = a.s < b.s ? a : b)
SCALAR2(s_max_i32, B32, B32, B32, SET(a.s > b.s); r = a.s > b.s ? a : b)
SCALAR2(s_min_u32, B32, B32, B32, SET(a.w < b.w); r = a.w < b.w ? a : b)
SCALAR2(s_max_u32, B32, B32, B32, SET(a.w > b.w); r = a.w > b.w ? a : b)
SCALAR1(s_abs_i32, B32, B32, r.w = a.s < 0 ? -a.w : a.w; SET(r.w))
SCALAR1(s_sext_i32_i8, B32, B32, r.s = (int8_t)a.w)
SCALAR1(s_sext_i32_i16, B32, B32, r.s = a.hs)
SCALAR2(s_cselect_b32, B32, B32, B32, r = IS_SET ? a : b)
SCALAR2(s_cselect_b64, B64, B64, B64, r = IS_SET ? a : b)
SCALAR2(s_pack_ll_b32_b16, B32, B32, B32, r.w = a.h | (uint32_t)b.h << 16)
SCALAR2(s_pack_lh_b32_b16, B32, B32, B32, r.w = a.h | (b.w & 0xffff0000))
SCALAR2(s_pack_hh_b32_b16, B32, B32, B32, r.w = a.w >> 16 | (b.w & 0xffff0000))
SCALAR2(s_pack_hl_b32_b16, B32, B32, B32, r.w = a.w >> 16 | (uint32_t)b.h << 16)
SCALAR2(s_bfm_b32, B32, B32, B32, r.w = ((1u << (a.w & 31)) - 1) << (b.w & 31))
SCALAR2(s_bfm_b64, B64, B32, B32, r.u = ((1ull << (a.w & 63)) - 1) << (b.w & 63))

static uint64_t bits(uint64_t x, uint32_t first, uint32_t count) {
    return count >= 64 ? x >> first : x >> first & ((1ull << count) - 1);
}
static int64_t signed_bits(uint64_t x, uint32_t first, uint32_t count) {
    uint64_t found = bits(x, first, count);
    return count && count < 64 && found >> (count - 1) & 1 ? (int64_t)(found | ~0ull << count) : (int64_t)found;
}
SCALAR2(s_bfe_u32, B32, B32, B32, r.w = (uint32_t)bits(a.w, b.w & 31, b.w >> 16 & 127); SET(r.w))
SCALAR2(s_bfe_i32, B32, B32, B32,
        r.w = (uint32_t)signed_bits((uint64_t)(int64_t)a.s, b.w & 31, b.w >> 16 & 127); SET(r.w))
SCALAR2(s_bfe_u64, B64, B64, B32, r.u = bits(a.u, b.w & 63, b.w >> 16 & 127); SET(r.u))
SCALAR2(s_bfe_i64, B64, I64, B32, r.i = signed_bits(a.u, b.w & 63, b.w >> 16 & 127); SET(r.u))
SCALAR1(s_bcnt1_i32_b32, B32, B32, r.w = (uint32_t)__builtin_popcount(a.w); SET(r.w))
SCALAR1(s_bcnt1_i32_b64, B32, B64, r.w = (uint32_t)__builtin_popcountll(a.u); SET(r.w))
SCALAR1(s_bcnt0_i32_b32, B32, B32, r.w = 32 - (uint32_t)__builtin_popcount(a.w); SET(r.w))
SCALAR1(s_ctz_i32_b32, B32, B32, r.s = a.w ? __builtin_ctz(a.w) : -1)
SCALAR1(s_ctz_i32_b64, B32, B64, r.s = a.u ? __builtin_ctzll(a.u) : -1)
SCALAR1(s_clz_i32_u32, B32, B32, r.s = a.w ? __builtin_clz(a.w) : -1)
SCALAR1(s_clz_i32_u64, B32, B64, r.s = a.u ? __builtin_clzll(a.u) : -1)
SCALAR1(s_cls_i32, B32, B32, r.s = a.s == 0 || a.s == -1 ? -1 : __builtin_clrsb(a.s) + 1)
SCALAR1(s_cls_i32_i64, B32, I64, r.s = a.i == 0 || a.i == -1 ? -1 : __builtin_clrsbll(a.i) + 1)
static uint64_t backwards(uint64_t x, int count) {
    uint64_t r = 0;
    for (int i = 0; i < count; i++) r |= (x >> i & 1) << (count - 1 - i);
    return r;
}
SCALAR1(s_brev_b32, B32, B32, r.u = backwards(a.w, 32))
SCALAR1(s_brev_b64, B64, B64, r.u = backwards(a.u, 64))

static void run_bit(Wave *w, const Inst *in) { /* S_BITSET and S_CMOV change a register */
    Value old = read_scalar(w, in, &in->to, in->row->to), a = read_scalar(w, in, &in->from[0], in->row->from[0]), none;
    Value r = old;
    in->row->compute(w, in, &a, &old, &old, &old, &r, &none, 1);
    write_scalar(w, in, &in->to, in->row->to, r);
}
COMPUTED(run_bit, s_bitset0_b32, B32, NONE, B32, NONE, NONE, NONE, r.w = b.w & ~(1u << (a.w & 31)))
COMPUTED(run_bit, s_bitset1_b32, B32, NONE, B32, NONE, NONE, NONE, r.w = b.w | 1u << (a.w & 31))
COMPUTED(run_bit, s_bitset1_b64, B64, NONE, B32, NONE, NONE, NONE, r.u = b.u | 1ull << (a.w & 63))
COMPUTED(run_bit, s_cmov_b32, B32, NONE, B32, NONE, NONE, NONE, r = IS_SET ? a : b)
COMPUTED(run_bit, s_cmov_b64, B64, NONE, B64, NONE, NONE, NONE, r = IS_SET ? a : b)

#define COMPARES(suffix, type, member)                                   \
    SCALAR2(s_cmp_eq_##suffix, NONE, type, type, SET(a.member == b.member)) \
    SCALAR2(s_cmp_lg_##suffix, NONE, type, type, SET(a.member != b.member)) \
    SCALAR2(s_cmp_gt_##suffix, NONE, type, type, SET(a.member > b.member))  \
    SCALAR2(s_cmp_ge_##suffix, NONE, type, type, SET(a.member >= b.member)) \
    SCALAR2(s_cmp_lt_##suffix, NONE, type, type, SET(a.member < b.member))  \
    SCALAR2(s_cmp_le_##suffix, NONE, type, type, SET(a.member <= b.member))
COMPARES(i32, B32, s)
COMPARES(u32, B32, w)
SCALAR2(s_cmp_eq_u64, NONE, B64, B64, SET(a.u == b.u))
SCALAR2(s_cmp_lg_u64, NONE, B64, B64, SET(a.u != b.u))
SCALAR2(s_bitcmp0_b32, NONE, B32, B32, SET(!(a.w >> (b.w & 31) & 1)))
SCALAR2(s_bitcmp1_b32, NONE, B32, B32, SET(a.w >> (b.w & 31) & 1))
SCALAR2(s_bitcmp1_b64, NONE, B64, B32, SET(a.u >> (b.w & 63) & 1))
#define SHORT_COMPARES(suffix, member, half)                                  \
    SCALAR2(s_cmpk_eq_##suffix, NONE, B32, B32, SET(a.member == b.half))      \
    SCALAR2(s_cmpk_lg_##suffix, NONE, B32, B32, SET(a.member != b.half))      \
    SCALAR2(s_cmpk_gt_##suffix, NONE, B32, B32, SET(a.member > b.half))       \
    SCALAR2(s_cmpk_ge_##suffix, NONE, B32, B32, SET(a.member >= b.half))      \
    SCALAR2(s_cmpk_lt_##suffix, NONE, B32, B32, SET(a.member < b.half))       \
    SCALAR2(s_cmpk_le_##suffix, NONE, B32, B32, SET(a.member <= b.half))
SHORT_COMPARES(i32, s, hs)
SHORT_COMPARES(u32, w, h)

/* EXEC changes and what it was is kept. */
static void run_save(Wave *w, const Inst *in) {
    Value a = read_scalar(w, in, &in->from[0], in->row->from[0]), r, none;
    Value before = read_scalar(w, in, &(Operand){.kind = SCALAR_REGISTER, .number = EXEC}, in->row->from[0]);
    in->row->compute(w, in, &a, &before, &none, &none, &r, &none, 1);
    write_scalar(w, in, &in->to, in->row->to, before);
    write_scalar(w, in, &(Operand){.kind = SCALAR_REGISTER, .number = EXEC}, in->row->to, r);
    SET(in->row->to == B32 ? r.w : r.u);
}
#define SAVE(name, expression)                                                                            \
    COMPUTED(run_save, s_##name##_saveexec_b32, B32, NONE, B32, NONE, NONE, NONE, r.w = (uint32_t)(expression)) \
    COMPUTED(run_save, s_##name##_saveexec_b64, B64, NONE, B64, NONE, NONE, NONE, r.u = (expression))
SAVE(and, a.u & b.u)
SAVE(or, a.u | b.u)
SAVE(xor, a.u ^ b.u)
SAVE(and_not1, a.u & ~b.u)       /* the operand without those that were active */
SAVE(and_not0, ~a.u & b.u)
SAVE(or_not1, a.u | ~b.u)
SAVE(or_not0, ~a.u | b.u)
