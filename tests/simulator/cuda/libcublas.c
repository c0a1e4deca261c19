/* cuBLAS without a GPU, as far as loopgrad uses it: column-major products in double precision, when the stream gets
   there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int Status;
enum { OK = 0, INVALID_VALUE = 7, F32 = 0, F64 = 1, F16 = 2, BF16 = 14, COMPUTE_32F = 68, COMPUTE_64F = 70, FAST_16BF = 75, FAST_TF32 = 77 };
typedef struct { void *stream, *workspace; } Handle;
typedef struct { int opa, opb, m, n, k, given, made, lda, ldb, ldc, batch; const void *a, *b; void *c;
                 long long stride_a, stride_b, stride_c; } Product;
extern int sim_enqueue(void *stream, void (*call)(const void *), const void *given, size_t size);
static long long products, started, computed;

/* those that were done, and the calls for some */
long long cublas_products(void) { return products; }
long long cublas_calls(void) { return started; }
/* as the last call wanted it */
long long cublas_compute_type(void) { return computed; }
Status cublasCreate_v2(Handle **out) { *out = calloc(1, sizeof(Handle)); return OK; }
Status cublasSetStream_v2(Handle *handle, void *stream) { handle->stream = stream; return stream ? OK : INVALID_VALUE; }
Status cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t size) {
    handle->workspace = workspace;
    return workspace && size == 32u << 20 && (uintptr_t)workspace % 256 == 0 ? OK : INVALID_VALUE;
}

static double at(const void *matrix, int type, long long i) {
    if (type == F64) return ((const double *)matrix)[i];
    if (type == F16) return ((const _Float16 *)matrix)[i];
    if (type == F32) return ((const float *)matrix)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)matrix)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *matrix, int type, long long i, double value) {
    if (type == F64) ((double *)matrix)[i] = value;
    else if (type == F16) ((_Float16 *)matrix)[i] = value;
    else if (type == F32) ((float *)matrix)[i] = value;
    else {
        float single = value;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        ((uint16_t *)matrix)[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}

static void multiply(const void *given) {
    const Product *g = given;
    products++;
    for (int p = 0; p < g->batch; p++)
        for (int j = 0; j < g->n; j++)
            for (int i = 0; i < g->m; i++) {
                double sum = 0;
                for (int l = 0; l < g->k; l++)
                    sum += at(g->a, g->given, p * g->stride_a + (g->opa ? l + (long long)i * g->lda : i + (long long)l * g->lda)) *
                           at(g->b, g->given, p * g->stride_b + (g->opb ? j + (long long)l * g->ldb : l + (long long)j * g->ldb));
                put(g->c, g->made, p * g->stride_c + i + (long long)j * g->ldc, sum);
            }
}

Status cublasGemmStridedBatchedEx(Handle *handle, int opa, int opb, int m, int n, int k, const void *alpha,
                                  const void *a, int atype, int lda, long long stride_a, const void *b, int btype,
                                  int ldb, long long stride_b, const void *beta, void *c, int ctype, int ldc,
                                  long long stride_c, int batch, int compute, int algorithm) {
    int wide = atype == F64, narrow = atype == F16 || atype == BF16;
    if (!handle->stream || !handle->workspace || btype != atype || algorithm != -1) return INVALID_VALUE;
    if (!(wide || narrow || atype == F32) || !(ctype == atype || (narrow && ctype == F32)) || opa > 1 || opb > 1)
        return INVALID_VALUE;
    if (wide ? compute != COMPUTE_64F : compute != COMPUTE_32F && (narrow || (compute != FAST_16BF && compute != FAST_TF32)))
        return INVALID_VALUE;
    computed = compute;
    if (lda < (opa ? k : m) || ldb < (opb ? n : k) || ldc < m) return INVALID_VALUE;
    if (at(alpha, wide ? F64 : F32, 0) != 1 || at(beta, wide ? F64 : F32, 0) != 0) return INVALID_VALUE;
    Product product = {opa, opb, m, n, k, atype, ctype, lda, ldb, ldc, batch, a, b, c, stride_a, stride_b, stride_c};
    started++;
    return sim_enqueue(handle->stream, multiply, &product, sizeof product);
}
