/* Reading and writing operands: registers of lanes and of the wave, constants, modifiers, and the mode's denormals. */
#include "machine.h"

/* The mode register's bits 4, 5 (f32) and 6, 7 (f16, f64): whether denormal operands, results are kept. */
static int flushes(const Wave *w, Type type, int result) {
    if (type != F16 && type != F32 && type != F64) return 0;
    int allowed = w->mode >> (type == F32 ? 4 : 6) & 3;
    return result ? !(allowed & 2) : !(allowed & 1);
}

static void flush(Type type, Value *v) {
    if (type == F32 && !(v->w & 0x7f800000)) v->w &= 0x80000000;
    if (type == F16 && !(v->h & 0x7c00)) v->h &= 0x8000;
    if (type == F64 && !(v->u >> 52 & 0x7ff)) v->u &= 1ull << 63;
}

static uint64_t sign_bit(Type type) {
    return type == F16 || type == B16 ? 0x8000 : type == F64 || type == B64 || type == I64 ? 1ull << 63 : 0x80000000;
}

static int wide(Type type) { return type == B64 || type == I64 || type == F64; }

static uint64_t constant(Wave *w, const Inst *in, const Operand *from, Type type) {
    if (from->kind == CONSTANT) return wide(type) || type == MASK ? from->value : (uint32_t)from->value;
    if (from->kind == LITERAL) {
        if (type == F64) return from->value << 32;
        return type == I64 ? (uint64_t)(int64_t)(int32_t)from->value : from->value;
    }
    Value v = {.u = from->value}; /* an inline float is given as a double */
    if (type == F64 || type == B64 || type == I64) return v.u;
    if (type == F16) return (Value){.hf = (_Float16)v.d}.h;
    if (type == B16) fail(w, in, "a float constant as an integer of 16 bits");
    return (Value){.f = (float)v.d}.w;
}

static Value part_of(const Operand *from, Value v) {
    static const uint8_t shifts[] = {0, 0, 8, 16, 24, 0, 16};
    if (from->part == WHOLE) return v;
    int bits = from->part >= WORD_0 ? 16 : 8;
    v.u = (uint32_t)v.u >> shifts[from->part] & ((1u << bits) - 1);
    if (from->sign_extended) v.u = (uint32_t)((int32_t)(v.w << (32 - bits)) >> (32 - bits));
    return v;
}

static Value modified(Wave *w, const Operand *from, Type type, Value v) {
    if (from->absolute) v.u &= ~sign_bit(type);
    if (from->negative) v.u ^= sign_bit(type);
    if (flushes(w, type, 0)) flush(type, &v);
    return v;
}

Value read_scalar(Wave *w, const Inst *in, const Operand *from, Type type) {
    if (from->kind == SCALAR_REGISTER) {
        if (from->number == NOWHERE) return (Value){0};
        if (type == MASK) return (Value){.u = w->lanes == 32 ? w->scalar[from->number] : pair(w, from->number)};
        return (Value){.u = wide(type) ? pair(w, from->number) : w->scalar[from->number]};
    }
    if (from->kind >= CONSTANT) return (Value){.u = constant(w, in, from, type)};
    fail(w, in, "an operand that isn't a scalar");
}

void write_scalar(Wave *w, const Inst *in, const Operand *to, Type type, Value v) {
    if (to->kind != SCALAR_REGISTER) fail(w, in, "a result that isn't a scalar register");
    if (to->number == NOWHERE) return;
    w->scalar[to->number] = v.p[0];
    if (wide(type)) w->scalar[to->number + 1] = v.p[1];
}

void read_lanes(Wave *w, const Inst *in, const Operand *from, Type type, Value *out) {
    if (type == NONE) return;
    int n = (int)w->lanes;
    if (type == MASK) {
        uint64_t mask = read_scalar(w, in, from, MASK).u;
        for (int l = 0; l < n; l++) out[l].u = mask >> l & 1;
        return;
    }
    if (from->kind == VECTOR_REGISTER) {
        const uint32_t *low = w->vector[from->number], *high = w->vector[from->number + (wide(type) ? 1 : 0)];
        if (wide(type))
            for (int l = 0; l < n; l++) out[l].u = low[l] | (uint64_t)high[l] << 32;
        else
            for (int l = 0; l < n; l++) out[l].u = low[l];
        if (from->part)
            for (int l = 0; l < n; l++) out[l] = part_of(from, out[l]);
        if (from->absolute || from->negative || flushes(w, type, 0))
            for (int l = 0; l < n; l++) out[l] = modified(w, from, type, out[l]);
        return;
    }
    Value one = modified(w, from, type, part_of(from, read_scalar(w, in, from, type)));
    for (int l = 0; l < n; l++) out[l] = one;
}

static void finish_float(Wave *w, const Inst *in, Type type, Value *v) {
    static const double scales[] = {1, 2, 4, 0.5};
    if (in->output_scale) {
        if (type == F32) v->f *= (float)scales[in->output_scale];
        else if (type == F64) v->d *= scales[in->output_scale];
        else v->hf = (_Float16)((float)v->hf * (float)scales[in->output_scale]);
    }
    if (in->clamp) { /* to [0, 1]; NaN becomes 0, as dx10_clamp says */
        if (type == F32) v->f = v->f > 0 ? v->f > 1 ? 1 : v->f : 0;
        else if (type == F64) v->d = v->d > 0 ? v->d > 1 ? 1 : v->d : 0;
        else v->hf = v->hf > 0 ? v->hf > 1 ? 1 : v->hf : 0;
    }
    if (flushes(w, type, 1)) flush(type, v);
}

static uint32_t placed(const Wave *w, const Operand *to, Type type, uint32_t before, uint32_t value) {
    static const uint8_t shifts[] = {0, 0, 8, 16, 24, 0, 16};
    if (to->part) {
        uint32_t mask = (to->part >= WORD_0 ? 0xffffu : 0xffu) << shifts[to->part];
        return ((to->preserved ? before : 0) & ~mask) | (value << shifts[to->part] & mask);
    }
    if (type != B16 && type != F16) return value;
    return w->launch->zeroes_high_half ? value & 0xffff : (before & 0xffff0000) | (value & 0xffff);
}

void write_lanes(Wave *w, const Inst *in, const Operand *to, Type type, Value *v) {
    int n = (int)w->lanes;
    uint64_t on = exec(w);
    if (type == MASK) {
        uint64_t mask = 0;
        for (int l = 0; l < n; l++) mask |= (uint64_t)(v[l].u & 1) << l;
        set_mask(w, to->number, mask & on);
        return;
    }
    if (to->kind != VECTOR_REGISTER) fail(w, in, "a result that isn't a vector register");
    int is_float = type == F16 || type == F32 || type == F64;
    if (is_float && (in->output_scale || in->clamp || flushes(w, type, 1)))
        for (int l = 0; l < n; l++) finish_float(w, in, type, &v[l]);
    uint32_t *low = w->vector[to->number], *high = w->vector[to->number + (wide(type) ? 1 : 0)];
    int plain = !to->part && type != B16 && type != F16;
    for (int l = 0; l < n; l++) {
        if (!(on >> l & 1)) continue;
        low[l] = plain ? v[l].p[0] : placed(w, to, type, low[l], v[l].p[0]);
        if (wide(type)) high[l] = v[l].p[1];
    }
}
