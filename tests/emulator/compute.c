/* Instructions that compute a result from operands: plain, packed, and two at once (VOPD). */
#include "machine.h"

static void compute(Wave *w, const Inst *in, Value *r, Value *e) {
    const Row *row = in->row;
    Value from[4][LANES];
    for (int i = 0; i < 4; i++) read_lanes(w, in, &in->from[i], row->from[i], from[i]);
    row->compute(w, in, from[0], from[1], from[2], from[3], r, e, (int)w->lanes);
}

static void keep(Wave *w, const Inst *in, Value *r, Value *e) {
    if (in->row->also) write_lanes(w, in, &in->also, in->row->also, e);
    write_lanes(w, in, &in->to, in->row->to, r);
}

/* Each half of a packed operand is chosen and negated on its own. */
static Value element(Wave *w, const Inst *in, int source, int high, int lane) {
    const Operand *from = &in->from[source];
    int bits = in->packed, upper = (high ? in->half_high : in->half) >> source & 1;
    Value v = {0};
    if (from->kind == VECTOR_REGISTER) {
        uint32_t word = w->vector[from->number + (bits == 32 ? upper : 0)][lane];
        v.u = bits == 32 ? word : word >> (upper ? 16 : 0) & 0xffff;
    } else if (from->kind == SCALAR_REGISTER) {
        uint32_t word = w->scalar[from->number + (bits == 32 ? upper : 0)];
        v.u = bits == 32 ? word : word >> (upper ? 16 : 0) & 0xffff;
    } else if (from->kind == LITERAL && bits == 16) {
        v.u = from->value >> (upper ? 16 : 0) & 0xffff;
    } else { /* an inline constant lies in the low half, or is that of each f32 */
        v = read_scalar(w, in, from, in->row->from[source]);
        if (bits == 16 && upper) v.u = v.u >> 16 & 0xffff;
    }
    if ((high ? in->negative_high : in->negative_low) >> source & 1) v.u ^= bits == 32 ? 0x80000000 : 0x8000;
    return v;
}

static void run_packed(Wave *w, const Inst *in) {
    const Row *row = in->row;
    Value from[3][LANES], r[2][LANES], e[LANES];
    for (int high = 0; high < 2; high++) {
        for (int i = 0; i < 3; i++)
            for (int l = 0; row->from[i] && l < (int)w->lanes; l++) from[i][l] = element(w, in, i, high, l);
        row->compute(w, in, from[0], from[1], from[2], from[2], r[high], e, (int)w->lanes);
    }
    for (int l = 0; l < (int)w->lanes; l++) {
        if (!active(w, l)) continue;
        if (in->packed == 16) w->vector[in->to.number][l] = r[0][l].h | (uint32_t)r[1][l].h << 16;
        else for (int high = 0; high < 2; high++) w->vector[in->to.number + high][l] = r[high][l].w;
    }
}

void run_vector(Wave *w, const Inst *in) {
    if (in->packed) return run_packed(w, in);
    Value r[LANES], e[LANES];
    compute(w, in, r, e);
    if (!in->second) return keep(w, in, r, e);
    Value r2[LANES], e2[LANES]; /* both halves read before one writes */
    compute(w, in->second, r2, e2);
    keep(w, in, r, e);
    keep(w, in->second, r2, e2);
}

void run_scalar(Wave *w, const Inst *in) {
    const Row *row = in->row;
    Value a = {0}, b = {0}, none = {0}, r, e;
    if (row->from[0]) a = read_scalar(w, in, &in->from[0], row->from[0]);
    if (row->from[1]) b = read_scalar(w, in, &in->from[1], row->from[1]);
    row->compute(w, in, &a, &b, &none, &none, &r, &e, 1);
    if (row->to) write_scalar(w, in, &in->to, row->to, r);
}
