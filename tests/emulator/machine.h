/* The machine: a wave's registers, a decoded instruction, and how an instruction's meaning is written down.

   A meaning is a Row, by the instruction's name. Rows are collected by the linker, so that each is written once:
   VECTOR(name, result, second result, operands ..., statements) and SCALAR likewise compute `r` (and `e`) from
   a, b, c, m; OTHER(name, function) is for what isn't computed operand by operand. */
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 64, SCALARS = 160, VECTORS = 512, NAME = 160 };
enum { VCC = 106, NOWHERE = 124, M0 = 125, EXEC = 126, SCC = 128 }; /* numbers of scalar registers */

typedef union {
    uint64_t u;
    int64_t i;
    double d;
    float f;
    uint32_t w;
    int32_t s;
    uint16_t h;
    int16_t hs;
    _Float16 hf;
    uint32_t p[2];
} Value;

/* of an operand or result; B: bits, I: a literal extends its sign, F: modes of floats apply, MASK: a bit of each lane */
typedef enum { NONE, B16, B32, B64, I64, F16, F32, F64, MASK } Type;
typedef enum { ABSENT, VECTOR_REGISTER, SCALAR_REGISTER, CONSTANT, LITERAL, INLINE_FLOAT } Kind;
enum { WHOLE, BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1 }; /* parts of a register; an operand's `part` */

typedef struct {
    uint8_t kind, negative, absolute, sign_extended, part, preserved;
    uint16_t number; /* of the register */
    uint32_t count;  /* registers */
    uint64_t value;  /* of constants */
} Operand;

struct Row;
typedef struct Inst {
    const struct Row *row;
    Operand to, also, from[4];
    int64_t offset;
    uint32_t target;      /* of a branch: the number of an instruction */
    uint32_t bytes;       /* that a memory instruction moves for a lane */
    uint8_t packed;       /* bits of an element of a packed instruction */
    uint8_t clamp, output_scale, half, half_high, negative_low, negative_high;
    uint8_t returns;      /* an atomic gives back what was there */
    uint8_t space, form;  /* of memory; how what is loaded fills a register */
    const struct Inst *second; /* of two that run at once (VOPD) */
    const char *text;
    uint64_t address;
} Inst;

enum { GLOBAL, SCRATCH, GROUP, SCALAR_MEMORY };              /* spaces */
enum { PLAIN, SIGNED_8, UNSIGNED_8, SIGNED_16, UNSIGNED_16, LOW_HALF, HIGH_HALF, LOW_S8, LOW_U8, HIGH_S8, HIGH_U8 };

struct Launch;
typedef enum { RUNNING, WAITING, ENDED } State;
typedef struct Wave {
    struct Launch *launch;
    uint32_t scalar[SCALARS];
    uint32_t (*vector)[LANES];
    uint8_t *group_memory, *private_memory;
    uint32_t pc, lanes, mode;
    State state;
} Wave;

typedef struct { uint64_t first, end; } Range;
enum { ANY_ERROR = 2 };

typedef struct Launch {
    const Inst *code;
    uint32_t count, entry;
    uint32_t lanes, group, groups;
    uint32_t group_bytes, private_bytes;
    uint32_t group_id_register, argument_register;
    uint64_t arguments;
    uint32_t mode, zeroes_high_half; /* of a register that gets a result of 16 bits */
    const Range *ranges;
    uint64_t range_count;
    int32_t error; /* of approximations: -1, 0, 1 or ANY_ERROR */
    uint64_t steps;
    char message[512];
    uint64_t last_range;
    jmp_buf stop;
} Launch;

typedef void (*Compute)(Wave *, const Inst *, const Value *, const Value *, const Value *, const Value *, Value *,
                        Value *, int);
typedef struct Row {
    const char *name;
    void (*run)(Wave *, const Inst *);
    Compute compute;
    uint8_t to, also, from[4]; /* types */
} Row;

void run_vector(Wave *, const Inst *);
void run_scalar(Wave *, const Inst *);
_Noreturn void fail(Wave *, const Inst *, const char *, ...) __attribute__((format(printf, 3, 4)));
void read_lanes(Wave *, const Inst *, const Operand *, Type, Value *);
Value read_scalar(Wave *, const Inst *, const Operand *, Type);
void write_scalar(Wave *, const Inst *, const Operand *, Type, Value);
void write_lanes(Wave *, const Inst *, const Operand *, Type, Value *);

static inline uint64_t pair(const Wave *w, int number) {
    return w->scalar[number] | (uint64_t)w->scalar[number + 1] << 32;
}
static inline uint64_t exec(const Wave *w) { return w->lanes == 32 ? w->scalar[EXEC] : pair(w, EXEC); }
static inline int active(const Wave *w, int lane) { return exec(w) >> lane & 1; }
static inline void set_mask(Wave *w, int number, uint64_t mask) {
    if (number == NOWHERE) return;
    w->scalar[number] = (uint32_t)mask;
    if (w->lanes == 64) w->scalar[number + 1] = (uint32_t)(mask >> 32);
}

#define REGISTER(title, symbol, run, compute, ...)                                                          \
    static const Row row_##symbol = {title, run, compute, __VA_ARGS__};                                     \
    static const Row *const listed_##symbol __attribute__((section("rows"), used)) = &row_##symbol;
#define OTHER(name, function) REGISTER(#name, name, function, 0, 0, 0, {0})
#define COMPUTED(how, name, to, also, A, B, C, M, ...)                                                      \
    static void name(Wave *w, const Inst *in, const Value *pa, const Value *pb, const Value *pc,            \
                     const Value *pm, Value *pr, Value *pe, int n) {                                        \
        (void)w, (void)in, (void)pa, (void)pb, (void)pc, (void)pm;                                          \
        for (int l = 0; l < n; l++) {                                                                       \
            Value a = pa[l], b = pb[l], c = pc[l], m = pm[l], r = {0}, e = {0};                             \
            (void)a, (void)b, (void)c, (void)m;                                                             \
            __VA_ARGS__;                                                                                    \
            pr[l] = r;                                                                                      \
            pe[l] = e;                                                                                      \
        }                                                                                                   \
    }                                                                                                       \
    REGISTER(#name, name, how, name, to, also, {A, B, C, M})
#define VECTOR(name, to, also, A, B, C, M, ...) COMPUTED(run_vector, name, to, also, A, B, C, M, __VA_ARGS__)
#define VECTOR1(name, to, A, ...) VECTOR(name, to, NONE, A, NONE, NONE, NONE, __VA_ARGS__)
#define VECTOR2(name, to, A, B, ...) VECTOR(name, to, NONE, A, B, NONE, NONE, __VA_ARGS__)
#define VECTOR3(name, to, A, B, C, ...) VECTOR(name, to, NONE, A, B, C, NONE, __VA_ARGS__)
#define SCALAR1(name, to, A, ...) COMPUTED(run_scalar, name, to, NONE, A, NONE, NONE, NONE, __VA_ARGS__)
#define SCALAR2(name, to, A, B, ...) COMPUTED(run_scalar, name, to, NONE, A, B, NONE, NONE, __VA_ARGS__)
