/* libcuda.so.1 without a GPU, as far as loopgrad uses it: memory is the host's, an image is a shared object of
   this computer in hexadecimal digits, and work waits in a queue until somebody waits for it, so that whoever
   relies on work being done at once is found out. Calls are checked as strictly as the driver checks them:
   a context must be current, addresses must lie in memory that was taken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef int Status;
typedef unsigned long long Address;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
       ILLEGAL_ADDRESS = 700, CAPTURING = 900 };
enum { RELAXED = 2 };
enum { WORDS = 6, MOST_GROUP = 1024, SHARED = 99 << 10, PATTERN = 0xA5, PATTERNED = 1 << 20 };

static int started, context;
static __thread void *current;
static Status lost;                        /* every call answers this once the device is gone */
static size_t held, capacity = (size_t)1 << 32;
static int asleep;                         /* kernels are not run: for measuring what the host does */
static int captures = 1;                   /* whether streams can be captured */
static int devices = 1, major = 9, version = 13010;

/* what tests set */
void sim_set(const char *what, long long value) {
    if (!strcmp(what, "lost")) lost = (Status)value;
    else if (!strcmp(what, "capacity")) capacity = (size_t)value;
    else if (!strcmp(what, "asleep")) asleep = (int)value;
    else if (!strcmp(what, "captures")) captures = (int)value;
    else if (!strcmp(what, "devices")) devices = (int)value;
    else if (!strcmp(what, "major")) major = (int)value;
    else if (!strcmp(what, "version")) version = (int)value;
}

static long long counts[8];
enum { LAUNCHES, GRAPH_LAUNCHES, INSTANTIATIONS, UPLOADS, DOWNLOADS, WAITS, MODULES, ORDERS };
long long sim_count(int which) { return counts[which]; }

/* memory */

typedef struct Piece { struct Piece *next; char *base; size_t size; int pinned; } Piece;
static Piece *pieces;

static int inside(Address at, size_t size, int pinned) {
    for (Piece *p = pieces; p; p = p->next)
        if (p->pinned == pinned && (char *)at >= p->base && (char *)at + size <= p->base + p->size) return 1;
    return 0;
}

static Status take(void **out, size_t size, int pinned) {
    if (!size) return INVALID_VALUE;
    if (!pinned && held + size > capacity) return OUT_OF_MEMORY;
    Piece *p = malloc(sizeof *p);
    *p = (Piece){pieces, aligned_alloc(512, (size + 511) / 512 * 512), size, pinned};
    if (!p->base) { free(p); return OUT_OF_MEMORY; }
    memset(p->base, PATTERN, size < PATTERNED ? size : PATTERNED);
    if (!pinned) held += size;
    pieces = p;
    *out = p->base;
    return OK;
}

static Status give(void *at, int pinned) {
    for (Piece **q = &pieces; *q; q = &(*q)->next)
        if ((*q)->base == at && (*q)->pinned == pinned) {
            Piece *p = *q;
            *q = p->next;
            if (!pinned) held -= p->size;
            memset(p->base, 0x5A, p->size < PATTERNED ? p->size : PATTERNED);
            free(p->base);
            free(p);
            return OK;
        }
    return INVALID_VALUE;
}

/* kernels */

typedef struct { void *library; } Module;
typedef struct {
    void (*run)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int32_t, int32_t, int32_t, void *, void *);
    int waits;
    int backwards;   /* in which order invocations run that wait for each other: both in turn */
    unsigned asked;  /* bytes of a workgroup's memory, said at launches */
} Function;
typedef struct { Function *f; int64_t w[WORDS]; unsigned groups, group; } Launch;

/* A workgroup whose invocations wait for each other: each is a coroutine, which ends in the next one, the last one in
   who launched them. A kernel's barrier is this, whose first word is the function that waits. */
typedef struct Workgroup {
    void (*wait)(struct Workgroup *);
    const Launch *launch;
    void *shared;
    unsigned place;  /* of the one that runs */
} Workgroup;

enum { STACK = 1 << 20 };
static ucontext_t contexts[MOST_GROUP + 1];
static Workgroup *running;

static void call(const Launch *launch, int first, int end, void *shared, void *barrier) {
    const int64_t *w = launch->w;
    launch->f->run(w[0], w[1], w[2], w[3], w[4], w[5], (int32_t)launch->groups, first, end, shared, barrier);
}

static void wait_for_others(Workgroup *group) {
    unsigned mine = group->place;
    group->place = (mine + 1) % group->launch->group;
    swapcontext(&contexts[mine], &contexts[group->place]);
}

static void member(void) {
    Workgroup *group = running;
    const Launch *launch = group->launch;
    unsigned place = group->place, id = launch->f->backwards ? launch->group - 1 - place : place;
    call(launch, (int)id, (int)id + 1, group->shared, group);
    group->place = place + 1;
}

static void run_kernel(const Launch *launch) {
    if (asleep) return;
    static uint64_t shared[SHARED / 8];
    if (!launch->f->waits) {
        call(launch, 0, (int)launch->group, shared, NULL);
        return;
    }
    static char *stacks;
    int rights = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!stacks) stacks = mmap(NULL, (size_t)MOST_GROUP * STACK, rights, private, -1, 0);
    Workgroup group = {wait_for_others, launch, shared, 0};
    running = &group;
    memset(shared, PATTERN, sizeof shared);
    for (unsigned i = 0; i < launch->group; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_link = &contexts[i + 1];
        contexts[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], member, 0);
    }
    swapcontext(&contexts[launch->group], &contexts[0]);
    launch->f->backwards = !launch->f->backwards;
}

/* work: a queue, and graphs, which are lists of the same */

typedef struct { unsigned value; struct Graph *owner; } Condition;
typedef enum { KERNEL, COPY, FILL, GRAPH, EMPTY, LOOP, BRANCHES, LIBRARY } Kind;
typedef struct Work {
    struct Work *next;
    Kind kind;
    Launch launch;
    Address target, source;
    size_t size;
    unsigned value;
    struct Graph *graph, **inner;
    Condition *condition;
    void (*call)(const void *);    /* a library's, and what it is given */
    unsigned char given[256];
} Work;
typedef struct Graph { Work *first, *last; } Graph;

static Graph queue, *capture;      /* while a stream is captured, what is put on it goes there */

static void append(Graph *graph, const Work *work) {
    Work *copy = malloc(sizeof *copy);
    *copy = *work;
    copy->next = NULL;
    if (graph->last) graph->last->next = copy;
    else graph->first = copy;
    graph->last = copy;
}

static void run_work(const Work *work);
static void run_graph(const Graph *graph) {
    for (Work *w = graph->first; w; w = w->next) run_work(w);
}

static void run_work(const Work *work) {
    switch (work->kind) {
    case KERNEL: run_kernel(&work->launch); break;
    case COPY: memmove((void *)work->target, (void *)work->source, work->size); break;
    case FILL: for (size_t i = 0; i < work->size; i++) ((unsigned *)work->target)[i] = work->value; break;
    case GRAPH: run_graph(work->graph); break;
    case EMPTY: break;
    case LIBRARY: work->call(work->given); break;
    case LOOP: while (work->condition->value) run_graph(work->inner[0]); break;
    case BRANCHES: if (work->condition->value < work->size) run_graph(work->inner[work->condition->value]); break;
    }
}

static void drain(void) {
    while (queue.first) {
        Work *work = queue.first;
        queue.first = work->next;
        if (!queue.first) queue.last = NULL;
        if (!lost) run_work(work);
        free(work);
    }
}

static Status enqueue(const Work *work) {
    append(capture ? capture : &queue, work);
    return OK;
}

Status sim_enqueue(void *stream, void (*call)(const void *), const void *given, size_t size) {
    Work work = {.kind = LIBRARY, .call = call};
    if (!stream || size > sizeof work.given) return INVALID_VALUE;
    memcpy(work.given, given, size);
    return enqueue(&work);
}

#define READY if (!started) return NOT_INITIALIZED; if (!current) return INVALID_CONTEXT; if (lost) return lost
#define CALL __attribute__((visibility("default")))

/* the API */

CALL Status cuInit(unsigned flags) { started = 1; return devices ? OK : NO_DEVICE; }
CALL Status cuDriverGetVersion(int *out) { *out = version; return OK; }
CALL Status cuDeviceGetCount(int *out) { *out = devices; return started ? OK : NOT_INITIALIZED; }
CALL Status cuDeviceGet(int *out, int number) { *out = number; return number < devices ? OK : INVALID_DEVICE; }
CALL Status cuDeviceGetName(char *out, int size, int device) { snprintf(out, (size_t)size, "simulated GPU"); return OK; }
CALL Status cuDeviceGetAttribute(int *out, int attribute, int device) {
    switch (attribute) {
    case 16: *out = 2; break;        /* multiprocessors */
    case 38: *out = 1 << 16; break;  /* bytes of the second-level cache */
    case 75: *out = major; break;
    case 76: *out = 0; break;
    default: return INVALID_VALUE;
    }
    return OK;
}
CALL Status cuDevicePrimaryCtxRetain(void **out, int device) { *out = &context; return OK; }
CALL Status cuCtxGetCurrent(void **out) { *out = current; return OK; }
CALL Status cuCtxSetCurrent(void *given) { current = given; return OK; }
CALL Status cuGetErrorName(Status status, const char **out) {
    *out = status == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : status == OUT_OF_MEMORY
        ? "CUDA_ERROR_OUT_OF_MEMORY" : status == INVALID_PTX ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_OTHER";
    return OK;
}
CALL Status cuGetErrorString(Status status, const char **out) { *out = "as the simulator says"; return OK; }

CALL Status cuMemAlloc(Address *out, size_t size) { READY; return take((void **)out, size, 0); }
CALL Status cuMemFree(Address at) { READY; drain(); return give((void *)at, 0); }
CALL Status cuMemGetInfo(size_t *available, size_t *total) {
    READY;
    *available = capacity - held;
    *total = capacity;
    return OK;
}
CALL Status cuMemHostAlloc(void **out, size_t size, unsigned flags) { READY; return take(out, size, 1); }
CALL Status cuMemFreeHost(void *at) { READY; return give(at, 1); }

static Status transfer(Address target, Address source, size_t size) {
    Work work = {.kind = COPY, .target = target, .source = source, .size = size};
    return enqueue(&work);
}

CALL Status cuMemcpyHtoDAsync(Address target, const void *source, size_t size, void *stream) {
    READY;
    if (!stream || !inside(target, size, 0)) return INVALID_VALUE;
    counts[UPLOADS]++;
    if (inside((Address)source, size, 1)) return transfer(target, (Address)source, size);
    drain();
    memcpy((void *)target, source, size);
    return OK;
}
CALL Status cuMemcpyDtoHAsync(void *target, Address source, size_t size, void *stream) {
    READY;
    if (!stream || !inside(source, size, 0)) return INVALID_VALUE;
    counts[DOWNLOADS]++;
    return transfer((Address)target, source, size);
}
CALL Status cuMemcpyDtoDAsync(Address target, Address source, size_t size, void *stream) {
    READY;
    if (!stream || !inside(target, size, 0) || !inside(source, size, 0)) return INVALID_VALUE;
    return transfer(target, source, size);
}
CALL Status cuMemsetD32Async(Address target, unsigned value, size_t count, void *stream) {
    READY;
    if (!stream || target % 4 || !inside(target, 4 * count, 0)) return INVALID_VALUE;
    Work work = {.kind = FILL, .target = target, .value = value, .size = count};
    return enqueue(&work);
}

CALL Status cuStreamCreate(void **out, unsigned flags) { READY; *out = malloc(1); return OK; }
CALL Status cuStreamCreateWithPriority(void **out, unsigned flags, int priority) {
    READY;
    if (priority > 0 || priority < -5) return INVALID_VALUE;
    *out = malloc(1);
    return OK;
}
CALL Status cuCtxGetStreamPriorityRange(int *least, int *greatest) { READY; *least = 0; *greatest = -5; return OK; }
CALL Status cuStreamQuery(void *stream) {
    READY;
    if (capture) return CAPTURING;
    if (!queue.first) return OK;
    drain();
    return NOT_READY;
}
CALL Status cuStreamSynchronize(void *stream) {
    READY;
    if (capture) return CAPTURING;
    counts[WAITS]++;
    drain();
    return lost;
}
CALL Status cuStreamBeginCapture(void *stream, int mode) {
    READY;
    if (!stream || capture || mode != RELAXED) return INVALID_VALUE;
    if (!captures) return CAPTURING;
    capture = calloc(1, sizeof *capture);
    return OK;
}
CALL Status cuStreamEndCapture(void *stream, Graph **out) {
    READY;
    if (!stream || !capture) return INVALID_VALUE;
    *out = capture;
    capture = NULL;
    return OK;
}
CALL Status cuEventCreate(void **out, unsigned flags) { READY; *out = malloc(1); return OK; }
CALL Status cuEventRecord(void *event, void *stream) { READY; return event ? OK : INVALID_HANDLE; }
CALL Status cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    READY;
    counts[ORDERS]++;
    return stream && event ? OK : INVALID_HANDLE;
}
CALL Status cuCtxSynchronize(void) { READY; counts[WAITS]++; drain(); return lost; }
CALL Status cuPointerGetAttribute(void *out, int attribute, Address at) {
    if (!inside(at, 1, 0)) return INVALID_VALUE;
    *(int *)out = 0;
    return OK;
}
CALL Status cuEventSynchronize(void *event) { READY; if (!event) return INVALID_HANDLE; drain(); return OK; }

static int digit(char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; }

CALL Status cuModuleLoadData(void **out, const void *image) {
    READY;
    const char *text = image;
    if (strncmp(text, "7f454c46", 8)) return INVALID_PTX;
    char path[] = "/tmp/loopgrad-module-XXXXXX";  /* a name of its own: dlopen goes by it */
    int file = mkstemp(path);
    for (; *text; text += 2) {
        unsigned char byte = (unsigned char)(16 * digit(text[0]) + digit(text[1]));
        if (write(file, &byte, 1) != 1) return INVALID_VALUE;
    }
    Module *module = malloc(sizeof *module);
    module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    unlink(path);
    if (!module->library) { fprintf(stderr, "%s\n", dlerror()); return INVALID_VALUE; }
    counts[MODULES]++;
    *out = module;
    return OK;
}
CALL Status cuModuleLoadDataEx(void **out, const void *image, unsigned count, int *options, void **values) {
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6 };
    Status status = cuModuleLoadData(out, image);
    char *log = NULL;
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == ERROR_LOG) log = values[i];
        if (options[i] == ERROR_LOG_BYTES) size = (size_t)values[i] & 0xFFFFFFFF;
    }
    if (status && log) snprintf(log, size, "ptxas application ptx input, line 4; error   : Unknown symbol 'x'");
    return status;
}
CALL Status cuModuleUnload(Module *module) {
    READY;
    if (queue.first) return INVALID_VALUE;  /* work may still use it */
    counts[MODULES]--;
    dlclose(module->library);
    free(module);
    return OK;
}
CALL Status cuModuleGetFunction(void **out, Module *module, const char *name) {
    READY;
    char full[256];
    snprintf(full, sizeof full, "%s.run", name);
    Function *function = calloc(1, sizeof *function);
    *(void **)&function->run = dlsym(module->library, full);
    snprintf(full, sizeof full, "%s.waits", name);
    char *waits = dlsym(module->library, full);
    if (!function->run || !waits) return NOT_FOUND;
    function->waits = *waits;
    *out = function;
    return OK;
}
CALL Status cuFuncSetAttribute(Function *function, int attribute, int value) {
    enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
    READY;
    if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > SHARED) return INVALID_VALUE;
    function->asked = (unsigned)value;
    return OK;
}
CALL Status cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, Function *function, int group, size_t shared) {
    READY;
    *out = 4;
    return function && group && shared == function->asked ? OK : INVALID_VALUE;
}

static Status launch_of(Launch *out, Function *function, unsigned groups, unsigned group, unsigned shared,
                        void **params) {
    if (!function || !groups || !group || group > MOST_GROUP || !params) return INVALID_VALUE;
    if (shared != function->asked) return INVALID_VALUE;
    *out = (Launch){.f = function, .groups = groups, .group = group};
    for (int i = 0; i < WORDS; i++) out->w[i] = *(int64_t *)params[i];
    return OK;
}

CALL Status cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, void *stream, void **params, void **extra) {
    READY;
    Work work = {.kind = KERNEL};
    if (!stream || y != 1 || z != 1 || by != 1 || bz != 1 || extra) return INVALID_VALUE;
    Status status = launch_of(&work.launch, function, x, bx, shared, params);
    if (status) return status;
    counts[LAUNCHES]++;
    return enqueue(&work);
}

/* graphs: nodes are added in an order in which they can run */

typedef struct {
    void *function;
    unsigned x, y, z, bx, by, bz, shared;
    void **params, **extra;
    void *kernel, *context;
} KernelNode;
typedef struct {
    size_t source_x, source_y, source_z, source_level;
    int source_type;
    const void *source_host;
    Address source_device;
    void *source_array, *reserved0;
    size_t source_pitch, source_height;
    size_t target_x, target_y, target_z, target_level;
    int target_type;
    void *target_host;
    Address target_device;
    void *target_array, *reserved1;
    size_t target_pitch, target_height;
    size_t width, height, depth;
} CopyNode;
typedef struct {
    Address target;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
} FillNode;
enum { HOST = 1, DEVICE = 2 };

static Status add(Graph *graph, void **out, void *const *after, size_t count, const Work *work) {
    if (!graph || !out || (graph->first == NULL) != (count == 0)) return INVALID_VALUE;
    if (count && after[count - 1] != graph->last) return INVALID_VALUE;
    append(graph, work);
    *out = graph->last;
    return OK;
}

CALL Status cuGraphCreate(void **out, unsigned flags) { READY; *out = calloc(1, sizeof(Graph)); return OK; }
CALL Status cuGraphAddKernelNode(void **out, Graph *graph, void *const *after, size_t count, const KernelNode *node) {
    READY;
    Work work = {.kind = KERNEL};
    if (node->y != 1 || node->z != 1 || node->by != 1 || node->bz != 1 || node->extra) return INVALID_VALUE;
    Status status = launch_of(&work.launch, node->function, node->x, node->bx, node->shared, node->params);
    return status ? status : add(graph, out, after, count, &work);
}
CALL Status cuGraphAddMemcpyNode(void **out, Graph *graph, void *const *after, size_t count, const CopyNode *node,
                                 void *given) {
    READY;
    Work work = {.kind = COPY, .source = node->source_device, .size = node->width};
    work.target = node->target_type == HOST ? (Address)node->target_host : node->target_device;
    if (given != &context || node->height != 1 || node->depth != 1 || node->source_type != DEVICE) return INVALID_VALUE;
    if (!inside(work.source, work.size, 0)) return INVALID_VALUE;
    if (!inside(work.target, work.size, node->target_type == HOST)) return INVALID_VALUE;
    return add(graph, out, after, count, &work);
}
CALL Status cuGraphAddMemsetNode(void **out, Graph *graph, void *const *after, size_t count, const FillNode *node,
                                 void *given) {
    READY;
    Work work = {.kind = FILL, .target = node->target, .value = node->value, .size = node->width};
    if (given != &context || node->element != 4 || node->height != 1) return INVALID_VALUE;
    if (!inside(node->target, 4 * node->width, 0)) return INVALID_VALUE;
    return add(graph, out, after, count, &work);
}

typedef struct {
    int type, reserved[3];
    struct {
        unsigned long long handle;
        int type;
        unsigned size;
        Graph **graphs;
        void *context;
    } conditional;
} Node;
enum { CONDITIONAL = 13, IF = 0, WHILE = 1, SWITCH = 2 };

CALL Status cuGraphAddEmptyNode(void **out, Graph *graph, void *const *after, size_t count) {
    READY;
    Work work = {.kind = EMPTY};
    return add(graph, out, after, count, &work);
}
CALL Status cuGraphConditionalHandleCreate(unsigned long long *out, Graph *graph, void *given, unsigned value,
                                           unsigned flags) {
    READY;
    if (given != &context || flags) return INVALID_VALUE;
    Condition *condition = malloc(sizeof *condition);
    *condition = (Condition){77, graph};  /* without flags nothing says what it is before it is set */
    *out = (unsigned long long)condition;
    return OK;
}
CALL Status cuGraphAddNode(void **out, Graph *graph, void *const *after, const void *data, size_t count, Node *node) {
    READY;
    Condition *condition = (Condition *)node->conditional.handle;
    unsigned size = node->conditional.size;
    int kind = node->conditional.type;
    if (node->type != CONDITIONAL || data || node->conditional.context != &context) return INVALID_VALUE;
    if (condition->owner != graph || !size || (kind == WHILE ? size != 1 : kind != SWITCH)) return INVALID_VALUE;
    Work work = {.kind = kind == WHILE ? LOOP : BRANCHES, .size = size, .condition = condition};
    work.inner = malloc(size * sizeof *work.inner);
    for (unsigned i = 0; i < size; i++) work.inner[i] = calloc(1, sizeof(Graph));
    node->conditional.graphs = work.inner;
    return add(graph, out, after, count, &work);
}
CALL void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
    ((Condition *)handle)->value = value;
}

static Graph *copy_of(const Graph *graph) {
    Graph *copy = calloc(1, sizeof *copy);
    for (Work *w = graph->first; w; w = w->next) append(copy, w);
    return copy;
}
static void destroy(Graph *graph) {
    for (Work *w = graph->first; w;) {
        Work *next = w->next;
        free(w);
        w = next;
    }
    free(graph);
}
CALL Status cuGraphInstantiateWithFlags(void **out, Graph *graph, unsigned long long flags) {
    READY;
    counts[INSTANTIATIONS]++;
    *out = copy_of(graph);
    return OK;
}
CALL Status cuGraphLaunch(Graph *graph, void *stream) {
    READY;
    if (!stream) return INVALID_VALUE;
    counts[GRAPH_LAUNCHES]++;
    Work work = {.kind = GRAPH, .graph = graph};
    return enqueue(&work);
}
CALL Status cuGraphDestroy(Graph *graph) { READY; destroy(graph); return OK; }
CALL Status cuGraphExecDestroy(Graph *graph) {
    READY;
    if (queue.first) return INVALID_VALUE;
    destroy(graph);
    return OK;
}

CALL Status cuGetProcAddress_v2(const char *name, void **out, int wanted, uint64_t flags, int *answer) {
    static const char *const renamed[][2] = {{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(name, renamed[i][0])) name = renamed[i][1];
    Dl_info own;
    static void *self;
    if (!self && dladdr((void *)cuGetProcAddress_v2, &own)) self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *out = strcmp(name, "cuGetProcAddress") ? dlsym(self, name) : (void *)cuGetProcAddress_v2;
    if (answer) *answer = *out ? 0 : 1;
    return *out ? OK : NOT_FOUND;
}
CALL Status cuGetProcAddress(const char *name, void **out, int wanted, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, wanted, flags, NULL);
}
