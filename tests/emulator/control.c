/* Branches, barriers, what a wave waits for, modes, and single lanes. */
#include "machine.h"

static void nothing(Wave *w, const Inst *in) { (void)w, (void)in; } /* work is done at once and in order */
OTHER(s_nop, nothing)
OTHER(s_waitcnt, nothing)
OTHER(s_waitcnt_depctr, nothing)
OTHER(s_waitcnt_vscnt, nothing)
OTHER(s_delay_alu, nothing)
OTHER(s_clause, nothing)
OTHER(s_sendmsg, nothing)
OTHER(s_sleep, nothing)
OTHER(s_setprio, nothing)
OTHER(s_inst_prefetch, nothing)
OTHER(s_set_inst_prefetch_distance, nothing)
OTHER(s_icache_inv, nothing)
OTHER(s_dcache_wb, nothing)
OTHER(buffer_gl0_inv, nothing)
OTHER(buffer_gl1_inv, nothing)
OTHER(buffer_inv, nothing)
OTHER(buffer_wbl2, nothing)
OTHER(buffer_wbinvl1_vol, nothing)
OTHER(buffer_wbinvl1, nothing)
OTHER(v_nop, nothing)

static void end(Wave *w, const Inst *in) { (void)in, w->state = ENDED; }
static void meet(Wave *w, const Inst *in) { (void)in, w->state = WAITING; }
OTHER(s_endpgm, end)
OTHER(s_barrier, meet)

static uint64_t vcc(const Wave *w) { return w->lanes == 32 ? w->scalar[VCC] : pair(w, VCC); }
#define BRANCH(name, condition)                                                                   \
    static void name(Wave *w, const Inst *in) {                                                   \
        if (condition) w->pc = in->target;                                                        \
    }                                                                                             \
    OTHER(name, name)
BRANCH(s_branch, 1)
BRANCH(s_cbranch_scc0, !w->scalar[SCC])
BRANCH(s_cbranch_scc1, w->scalar[SCC])
BRANCH(s_cbranch_vccz, !vcc(w))
BRANCH(s_cbranch_vccnz, vcc(w) != 0)
BRANCH(s_cbranch_execz, !exec(w))
BRANCH(s_cbranch_execnz, exec(w) != 0)

/* Branches too far for an offset: by the address of what follows, in the code object, and sums with it. */
static uint64_t behind(const Inst *in) { return in->address + 4; }
static void go(Wave *w, const Inst *in, uint64_t address) {
    const Launch *launch = w->launch;
    uint32_t low = 0, high = launch->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (launch->code[middle].address < address) low = middle + 1;
        else high = middle;
    }
    if (low == launch->count || launch->code[low].address != address)
        fail(w, in, "to %#llx, where no instruction begins", (unsigned long long)address);
    w->pc = low;
}
SCALAR1(s_getpc_b64, B64, NONE, r.u = behind(in))
SCALAR1(s_setpc_b64, NONE, B64, go(w, in, a.u))
SCALAR1(s_swappc_b64, B64, B64, r.u = behind(in); go(w, in, a.u))

/* offset and bytes: the first bit and the number of bits of the mode register. */
static void set_mode(Wave *w, const Inst *in) {
    uint32_t mask = (uint32_t)((1ull << in->bytes) - 1) << in->offset;
    uint32_t value = (uint32_t)read_scalar(w, in, &in->from[0], B32).u << in->offset;
    w->mode = (w->mode & ~mask) | (value & mask);
    if (w->mode & 0xf) fail(w, in, "a rounding mode other than to nearest");
}
static void get_mode(Wave *w, const Inst *in) {
    uint32_t value = w->mode >> in->offset & (uint32_t)((1ull << in->bytes) - 1);
    write_scalar(w, in, &in->to, B32, (Value){.u = value});
}
static void set_denormals(Wave *w, const Inst *in) { w->mode = (w->mode & ~0xf0u) | ((uint32_t)in->offset & 15) << 4; }
static void set_rounding(Wave *w, const Inst *in) {
    if (in->offset & 15) fail(w, in, "a rounding mode other than to nearest");
}
OTHER(s_setreg_b32, set_mode)
OTHER(s_setreg_imm32_b32, set_mode)
OTHER(s_getreg_b32, get_mode)
OTHER(s_denorm_mode, set_denormals)
OTHER(s_round_mode, set_rounding)

/* lanes */

static void read_first(Wave *w, const Inst *in) {
    Value v[LANES];
    read_lanes(w, in, &in->from[0], B32, v);
    write_scalar(w, in, &in->to, B32, v[exec(w) ? __builtin_ctzll(exec(w)) : 0]);
}
static void read_one(Wave *w, const Inst *in) {
    Value v[LANES];
    read_lanes(w, in, &in->from[0], B32, v);
    write_scalar(w, in, &in->to, B32, v[read_scalar(w, in, &in->from[1], B32).w & (w->lanes - 1)]);
}
static void write_one(Wave *w, const Inst *in) {
    uint32_t lane = read_scalar(w, in, &in->from[1], B32).w & (w->lanes - 1);
    w->vector[in->to.number][lane] = read_scalar(w, in, &in->from[0], B32).w;
}
OTHER(v_readfirstlane_b32, read_first)
OTHER(v_readlane_b32, read_one)
OTHER(v_writelane_b32, write_one)

static void count_mask(Wave *w, const Inst *in) { /* bits of the mask below the lane, plus an operand */
    int high = in->row->name[8] == 'h';
    uint32_t mask = read_scalar(w, in, &in->from[0], B32).w;
    Value add[LANES];
    read_lanes(w, in, &in->from[1], B32, add);
    for (int l = 0; l < (int)w->lanes; l++) {
        int below = high ? (l >= 32 ? l - 32 : 0) : (l >= 32 ? 32 : l);
        add[l].w += (uint32_t)__builtin_popcount(below >= 32 ? mask : mask & ((1u << below) - 1));
    }
    write_lanes(w, in, &in->to, B32, add);
}
OTHER(v_mbcnt_lo_u32_b32, count_mask)
OTHER(v_mbcnt_hi_u32_b32, count_mask)

static void swap(Wave *w, const Inst *in) {
    for (int l = 0; l < (int)w->lanes; l++) {
        if (!active(w, l)) continue;
        uint32_t *a = &w->vector[in->to.number][l], *b = &w->vector[in->from[0].number][l], kept = *a;
        *a = *b, *b = kept;
    }
}
OTHER(v_swap_b32, swap)

/* Two words, each of the half of its operand that op_sel names. */
static void move_two(Wave *w, const Inst *in) {
    Value r[LANES];
    for (int i = 0; i < 2; i++) {
        int high = in->half >> i & 1;
        Operand from = in->from[i];
        if (from.kind <= SCALAR_REGISTER) from.number = (uint16_t)(from.number + high);
        Value one[LANES];
        read_lanes(w, in, &from, B32, one);
        for (int l = 0; l < (int)w->lanes; l++) r[l].p[i] = one[l].w;
    }
    write_lanes(w, in, &in->to, B64, r);
}
OTHER(v_pk_mov_b32, move_two)
