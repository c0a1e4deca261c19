/* Comparisons: V_CMP gives a bit for each lane, V_CMPX the lanes that go on. */
#include "machine.h"

static void run_compare(Wave *w, const Inst *in) { /* V_CMPX: into EXEC, and into its operand where it has one */
    Value a[LANES], b[LANES], r[LANES], e[LANES];
    read_lanes(w, in, &in->from[0], in->row->from[0], a);
    read_lanes(w, in, &in->from[1], in->row->from[1], b);
    in->row->compute(w, in, a, b, b, b, r, e, (int)w->lanes);
    uint64_t mask = 0;
    for (int l = 0; l < (int)w->lanes; l++) mask |= (uint64_t)(r[l].u & 1) << l;
    mask &= exec(w);
    if (in->to.kind == SCALAR_REGISTER) set_mask(w, in->to.number, mask);
    set_mask(w, EXEC, mask);
}

#define COMPARE(name, type, ...)                                                     \
    COMPUTED(run_vector, v_cmp_##name, MASK, NONE, type, type, NONE, NONE, r.u = __VA_ARGS__) \
    COMPUTED(run_compare, v_cmpx_##name, MASK, NONE, type, type, NONE, NONE, r.u = __VA_ARGS__)
#define INTEGERS(suffix, type, member)                        \
    COMPARE(lt_##suffix, type, a.member < b.member)           \
    COMPARE(eq_##suffix, type, a.member == b.member)          \
    COMPARE(le_##suffix, type, a.member <= b.member)          \
    COMPARE(gt_##suffix, type, a.member > b.member)           \
    COMPARE(ne_##suffix, type, a.member != b.member)          \
    COMPARE(ge_##suffix, type, a.member >= b.member)
#define FLOATS(suffix, type, member)                                                          \
    COMPARE(lt_##suffix, type, a.member < b.member)                                           \
    COMPARE(eq_##suffix, type, a.member == b.member)                                          \
    COMPARE(le_##suffix, type, a.member <= b.member)                                          \
    COMPARE(gt_##suffix, type, a.member > b.member)                                           \
    COMPARE(lg_##suffix, type, a.member < b.member || a.member > b.member)                    \
    COMPARE(ge_##suffix, type, a.member >= b.member)                                          \
    COMPARE(o_##suffix, type, a.member == a.member && b.member == b.member)                   \
    COMPARE(u_##suffix, type, a.member != a.member || b.member != b.member)                   \
    COMPARE(nge_##suffix, type, !(a.member >= b.member))                                      \
    COMPARE(nlg_##suffix, type, !(a.member < b.member || a.member > b.member))                \
    COMPARE(ngt_##suffix, type, !(a.member > b.member))                                       \
    COMPARE(nle_##suffix, type, !(a.member <= b.member))                                      \
    COMPARE(neq_##suffix, type, a.member != b.member)                                         \
    COMPARE(nlt_##suffix, type, !(a.member < b.member))

INTEGERS(i16, B16, hs)
INTEGERS(u16, B16, h)
INTEGERS(i32, B32, s)
INTEGERS(u32, B32, w)
INTEGERS(i64, I64, i)
INTEGERS(u64, B64, u)
FLOATS(f16, F16, hf)
FLOATS(f32, F32, f)
FLOATS(f64, F64, d)

/* The classes that b asks for: signalling and quiet NaN, then from -infinity to +infinity. Modes of denormals
   don't matter here. */
static int of_class(int negative, int kind, int quiet, uint32_t mask) {
    int bit = kind == FP_NAN ? (quiet ? 1 : 0) : kind == FP_INFINITE ? (negative ? 2 : 9) : kind == FP_NORMAL
            ? (negative ? 3 : 8) : kind == FP_SUBNORMAL ? (negative ? 4 : 7) : (negative ? 5 : 6);
    return mask >> bit & 1;
}
static int class_16(uint32_t x) {
    int exponent = x >> 10 & 31, rest = x & 0x3ff;
    return exponent == 31 ? (rest ? FP_NAN : FP_INFINITE) : exponent ? FP_NORMAL : rest ? FP_SUBNORMAL : FP_ZERO;
}
static void run_class(Wave *w, const Inst *in, const Value *pa, const Value *pb, const Value *pc, const Value *pm,
                      Value *pr, Value *pe, int n) {
    (void)w, (void)pc, (void)pm, (void)pe;
    for (int l = 0; l < n; l++) {
        Value a = pa[l];
        /* the operands were read as bits */
        if (in->row->from[0] == B16) pr[l].u = (uint64_t)of_class(a.h >> 15, class_16(a.h), a.h >> 9 & 1, pb[l].w);
        else if (in->row->from[0] == B32)
            pr[l].u = (uint64_t)of_class(a.w >> 31, fpclassify(a.f), a.w >> 22 & 1, pb[l].w);
        else pr[l].u = (uint64_t)of_class((int)(a.u >> 63), fpclassify(a.d), a.u >> 51 & 1, pb[l].w);
    }
}
REGISTER("v_cmp_class_f16", class_f16, run_vector, run_class, MASK, NONE, {B16, B32})
REGISTER("v_cmp_class_f32", class_f32, run_vector, run_class, MASK, NONE, {B32, B32})
REGISTER("v_cmp_class_f64", class_f64, run_vector, run_class, MASK, NONE, {B64, B32})
REGISTER("v_cmpx_class_f16", classx_f16, run_compare, run_class, MASK, NONE, {B16, B32})
REGISTER("v_cmpx_class_f32", classx_f32, run_compare, run_class, MASK, NONE, {B32, B32})
REGISTER("v_cmpx_class_f64", classx_f64, run_compare, run_class, MASK, NONE, {B64, B32})
