/* Loads, stores and atomics, in memory of the device, of a workgroup, and of a lane (scratch). Every address is
   looked up among what was allocated. */
#include "machine.h"

static char *device_address(Wave *w, const Inst *in, uint64_t at, uint64_t size) {
    Launch *launch = w->launch;
    const Range *last = &launch->ranges[launch->last_range];
    if (at >= last->first && at + size <= last->end) return (char *)(uintptr_t)at;
    uint64_t low = 0, high = launch->range_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (launch->ranges[middle].end <= at) low = middle + 1;
        else high = middle;
    }
    if (low == launch->range_count || at < launch->ranges[low].first || at + size > launch->ranges[low].end)
        fail(w, in, "%llu bytes at %#llx, which nobody allocated", (unsigned long long)size, (unsigned long long)at);
    launch->last_range = low;
    return (char *)(uintptr_t)at;
}

static char *local_address(Wave *w, const Inst *in, uint64_t at, uint64_t size, char *base, uint64_t most) {
    if (at > most || at + size > most)
        fail(w, in, "%llu bytes at %llu of %llu", (unsigned long long)size, (unsigned long long)at,
             (unsigned long long)most);
    return base + at;
}

/* from[0] is the address of each lane or its offset, from[1] a scalar base, from[2] data. */
static char *place(Wave *w, const Inst *in, int lane) {
    const Operand *offset = &in->from[0], *base = &in->from[1];
    uint64_t at = (uint64_t)in->offset;
    if (in->space == GROUP) {
        at += w->vector[offset->number][lane]; /* it doesn't wrap around: beyond 2**32 is out of range */
        return local_address(w, in, at, in->bytes, (char *)w->group_memory, w->launch->group_bytes);
    }
    int has_base = base->kind == SCALAR_REGISTER && base->number != NOWHERE;
    if (in->space == SCRATCH) {
        if (offset->kind == VECTOR_REGISTER) at += w->vector[offset->number][lane];
        if (has_base) at += w->scalar[base->number];
        uint64_t own = w->launch->private_bytes;
        return local_address(w, in, (uint32_t)at, in->bytes, (char *)w->private_memory + own * (uint64_t)lane, own);
    }
    uint32_t low = w->vector[offset->number][lane];
    if (has_base) at += pair(w, base->number) + low;
    else at += low | (uint64_t)w->vector[offset->number + 1][lane] << 32;
    return device_address(w, in, at, in->bytes);
}

static void fill_register(Wave *w, const Inst *in, int lane, const char *from) {
    uint32_t (*to)[LANES] = &w->vector[in->to.number], word = 0;
    if (in->form == PLAIN) {
        for (uint32_t i = 0; i < in->bytes / 4; i++) memcpy(&to[i][lane], from + 4 * i, 4);
        return;
    }
    memcpy(&word, from, in->bytes);
    uint32_t before = to[0][lane];
    switch (in->form) {
    case SIGNED_8: word = (uint32_t)(int8_t)word; break;
    case SIGNED_16: word = (uint32_t)(int16_t)word; break;
    case LOW_HALF: case LOW_U8: word |= before & 0xffff0000; break;
    case LOW_S8: word = ((uint32_t)(int8_t)word & 0xffff) | (before & 0xffff0000); break;
    case HIGH_HALF: case HIGH_U8: word = word << 16 | (before & 0xffff); break;
    case HIGH_S8: word = (uint32_t)(int8_t)word << 16 | (before & 0xffff); break;
    }
    to[0][lane] = word;
}

static void load(Wave *w, const Inst *in) {
    char *places[LANES];
    for (int l = 0; l < (int)w->lanes; l++)
        if (active(w, l)) places[l] = place(w, in, l);
    for (int l = 0; l < (int)w->lanes; l++)
        if (active(w, l)) fill_register(w, in, l, places[l]);
}
OTHER(load, load)

static void store(Wave *w, const Inst *in) {
    uint32_t (*from)[LANES] = &w->vector[in->from[2].number];
    for (int l = 0; l < (int)w->lanes; l++) {
        if (!active(w, l)) continue;
        char *to = place(w, in, l);
        if (in->bytes >= 4)
            for (uint32_t i = 0; i < in->bytes / 4; i++) memcpy(to + 4 * i, &from[i][l], 4);
        else {
            uint32_t word = from[0][l] >> (in->form == HIGH_HALF ? 16 : 0);
            memcpy(to, &word, in->bytes);
        }
    }
}
OTHER(store, store)

/* Two elements of a workgroup's memory at two offsets: bytes are those of one, offset the first, target the second. */
static void two(Wave *w, const Inst *in, int storing) {
    Inst one = *in;
    for (int i = 0; i < 2; i++) {
        one.offset = i ? (int64_t)in->target : in->offset;
        if (storing) {
            one.from[2] = in->from[2 + i];
            store(w, &one);
        } else {
            one.to.number = (uint16_t)(in->to.number + (uint32_t)i * in->bytes / 4);
            if (i) one.from[0] = in->from[1]; /* the address, kept */
            load(w, &one);
        }
    }
}
static void load_two(Wave *w, const Inst *in) {
    Inst copy = *in; /* the first load may overwrite the address */
    uint32_t kept[LANES];
    memcpy(kept, w->vector[in->from[0].number], sizeof kept);
    memcpy(w->vector[VECTORS - 1], kept, sizeof kept);
    copy.from[0].number = copy.from[1].number = VECTORS - 1;
    two(w, &copy, 0);
}
static void store_two(Wave *w, const Inst *in) { two(w, in, 1); }
OTHER(load_two, load_two)
OTHER(store_two, store_two)

static void load_scalar(Wave *w, const Inst *in) {
    uint64_t at = pair(w, in->from[0].number) + (uint64_t)in->offset;
    if (in->from[1].kind == SCALAR_REGISTER) at += read_scalar(w, in, &in->from[1], B32).w;
    const char *from = device_address(w, in, at & ~3ull, in->bytes);
    if (in->to.number + in->bytes / 4 > VCC + 2) fail(w, in, "a result beyond the scalar registers");
    memcpy(&w->scalar[in->to.number], from, in->bytes);
}
OTHER(load_scalar, load_scalar)

/* a: what is there, b: the operand, c: what a is compared with. */
static void run_atomic(Wave *w, const Inst *in) {
    Type type = in->row->from[0];
    int words = (int)in->bytes / 4, comparing = in->row->from[2] != NONE;
    const Operand *data = &in->from[2];
    Value none = {0}, r, e;
    for (int l = 0; l < (int)w->lanes; l++) {
        if (!active(w, l)) continue;
        char *at = place(w, in, l);
        if ((uintptr_t)at % in->bytes) fail(w, in, "an atomic at an address that isn't aligned");
        Value a = {0}, b = {0}, c = {0};
        memcpy(&a, at, in->bytes);
        for (int i = 0; i < words; i++) {
            b.p[i] = w->vector[data->number + i][l];
            if (comparing && in->space == GROUP) c.p[i] = b.p[i], b.p[i] = w->vector[in->from[3].number + i][l];
            else if (comparing) c.p[i] = w->vector[data->number + words + i][l];
        }
        (void)type;
        in->row->compute(w, in, &a, &b, &c, &none, &r, &e, 1);
        memcpy(at, &r, in->bytes);
        if (in->returns)
            for (int i = 0; i < words; i++) w->vector[in->to.number + i][l] = a.p[i];
    }
}
#define ATOMIC(name, type, also, ...) COMPUTED(run_atomic, name, type, NONE, type, type, also, NONE, __VA_ARGS__)
#define ATOMICS(suffix, type, u, i)                                          \
    ATOMIC(atomic_swap_##suffix, type, NONE, r.u = b.u)                      \
    ATOMIC(atomic_cmpswap_##suffix, type, type, r.u = a.u == c.u ? b.u : a.u) \
    ATOMIC(atomic_add_##suffix, type, NONE, r.u = a.u + b.u)                 \
    ATOMIC(atomic_sub_##suffix, type, NONE, r.u = a.u - b.u)                 \
    ATOMIC(atomic_and_##suffix, type, NONE, r.u = a.u & b.u)                 \
    ATOMIC(atomic_or_##suffix, type, NONE, r.u = a.u | b.u)                  \
    ATOMIC(atomic_xor_##suffix, type, NONE, r.u = a.u ^ b.u)                 \
    ATOMIC(atomic_min_u_##suffix, type, NONE, r.u = a.u < b.u ? a.u : b.u)   \
    ATOMIC(atomic_max_u_##suffix, type, NONE, r.u = a.u > b.u ? a.u : b.u)   \
    ATOMIC(atomic_min_i_##suffix, type, NONE, r.u = a.i < b.i ? a.u : b.u)   \
    ATOMIC(atomic_max_i_##suffix, type, NONE, r.u = a.i > b.i ? a.u : b.u)
ATOMICS(32, B32, w, s)
ATOMICS(64, B64, u, i)
ATOMIC(atomic_add_f32, B32, NONE, r.f = a.f + b.f)
ATOMIC(atomic_add_f64, B64, NONE, r.d = a.d + b.d)
