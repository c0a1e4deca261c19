/* A launch: workgroups one after the other, the waves of each in turn until all have met at a barrier or ended. */
#include "machine.h"

#include <stdarg.h>

extern const Row *const __start_rows[], *const __stop_rows[];

const Row *find_row(const char *name) {
    for (const Row *const *row = __start_rows; row < __stop_rows; row++)
        if (!strcmp((*row)->name, name)) return *row;
    return NULL;
}
int has_result(const Row *row) { return row->to != NONE; }
int has_second(const Row *row) { return row->also != NONE; }
int operands(const Row *row) {
    int count = 0;
    while (count < 4 && row->from[count]) count++;
    return count;
}
int is_half(const Row *row, int operand) { /* -1: the result */
    int type = operand < 0 ? row->to : row->from[operand];
    return type == B16 || type == F16;
}
unsigned long inst_size(void) { return sizeof(Inst); }
unsigned long launch_size(void) { return sizeof(Launch); }

void fail(Wave *w, const Inst *in, const char *format, ...) {
    char *to = w->launch->message;
    size_t room = sizeof w->launch->message;
    int used = snprintf(to, room, "%s at %#llx: ", in->text, (unsigned long long)in->address);
    va_list rest;
    va_start(rest, format);
    if (used > 0 && (size_t)used < room) vsnprintf(to + used, room - (size_t)used, format, rest);
    va_end(rest);
    longjmp(w->launch->stop, 1);
}

enum { PATTERN = 0xA5 }; /* what nobody wrote */

static void begin(Wave *w, Launch *launch, uint32_t group, uint32_t number) {
    memset(w->scalar, PATTERN, sizeof w->scalar);
    memset(w->vector, PATTERN, sizeof(uint32_t[VECTORS][LANES]));
    if (launch->private_bytes) memset(w->private_memory, PATTERN, (size_t)launch->private_bytes * launch->lanes);
    w->launch = launch;
    w->lanes = launch->lanes;
    w->mode = launch->mode;
    w->pc = launch->entry;
    w->state = RUNNING;
    w->scalar[launch->argument_register] = (uint32_t)launch->arguments;
    w->scalar[launch->argument_register + 1] = (uint32_t)(launch->arguments >> 32);
    w->scalar[launch->group_id_register] = group;
    w->scalar[EXEC] = UINT32_MAX;
    w->scalar[EXEC + 1] = w->lanes == 64 ? UINT32_MAX : 0;
    w->scalar[SCC] = 0;
    for (uint32_t l = 0; l < w->lanes; l++) w->vector[0][l] = number * w->lanes + l;
}

static void run(Wave *w) {
    Launch *launch = w->launch;
    while (w->state == RUNNING) {
        const Inst *in = &launch->code[w->pc++];
        launch->steps++;
        in->row->run(w, in);
    }
}

static void run_group(Launch *launch, Wave *waves, uint32_t count, uint32_t group) {
    memset(waves[0].group_memory, PATTERN, launch->group_bytes);
    for (uint32_t i = 0; i < count; i++) begin(&waves[i], launch, group, i);
    for (uint32_t ended = 0; ended < count;) {
        ended = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (waves[i].state != ENDED) waves[i].state = RUNNING, run(&waves[i]);
            ended += waves[i].state == ENDED;
        }
        if (ended && ended < count) { /* a barrier that not all reach */
            for (uint32_t i = 0; i < count; i++)
                if (waves[i].state == WAITING)
                    fail(&waves[i], &launch->code[waves[i].pc - 1], "a barrier that another wave didn't reach");
        }
    }
}

/* 0, or 1 with a message. */
int run_launch(Launch *launch) {
    uint32_t count = launch->group / launch->lanes;
    Wave *waves = calloc(count, sizeof *waves);
    uint8_t *group_memory = calloc(1, launch->group_bytes + 16);
    for (uint32_t i = 0; i < count; i++) {
        waves[i].vector = malloc(sizeof(uint32_t[VECTORS][LANES]));
        waves[i].private_memory = malloc((size_t)launch->private_bytes * launch->lanes + 1);
        waves[i].group_memory = group_memory;
    }
    int failed = setjmp(launch->stop);
    if (!failed)
        for (uint32_t group = 0; group < launch->groups; group++) run_group(launch, waves, count, group);
    for (uint32_t i = 0; i < count; i++) free(waves[i].vector), free(waves[i].private_memory);
    free(group_memory);
    free(waves);
    return failed;
}
