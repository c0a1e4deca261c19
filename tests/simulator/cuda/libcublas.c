/* cuBLAS without a GPU, as far as loopgrad uses it: column-major products in double precision, at once, after
   what waits on the stream. */
#include <stdint.h>
#include <stdlib.h>

typedef int Status;
enum { OK = 0, INVALID_VALUE = 7, F32 = 0, F64 = 1, COMPUTE_32F = 68, COMPUTE_64F = 70 };
typedef struct { void *stream, *workspace; } Handle;
extern int cuStreamSynchronize(void *stream);
static long long products;

long long cublas_products(void) { return products; }
Status cublasCreate_v2(Handle **out) { *out = calloc(1, sizeof(Handle)); return OK; }
Status cublasSetStream_v2(Handle *handle, void *stream) { handle->stream = stream; return stream ? OK : INVALID_VALUE; }
Status cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t size) {
    handle->workspace = workspace;
    return workspace && size == 32u << 20 && (uintptr_t)workspace % 256 == 0 ? OK : INVALID_VALUE;
}

static double at(const void *matrix, int type, long long i) {
    return type == F64 ? ((const double *)matrix)[i] : ((const float *)matrix)[i];
}

Status cublasGemmStridedBatchedEx(Handle *handle, int opa, int opb, int m, int n, int k, const void *alpha,
                                  const void *a, int atype, int lda, long long stride_a, const void *b, int btype,
                                  int ldb, long long stride_b, const void *beta, void *c, int ctype, int ldc,
                                  long long stride_c, int batch, int compute, int algorithm) {
    int wide = ctype == F64;
    if (!handle->stream || !handle->workspace || atype != ctype || btype != ctype || algorithm != -1) return INVALID_VALUE;
    if (compute != (wide ? COMPUTE_64F : COMPUTE_32F) || ctype > F64 || opa > 1 || opb > 1) return INVALID_VALUE;
    if (lda < (opa ? k : m) || ldb < (opb ? n : k) || ldc < m) return INVALID_VALUE;
    if (at(alpha, ctype, 0) != 1 || at(beta, ctype, 0) != 0) return INVALID_VALUE;
    cuStreamSynchronize(handle->stream);
    products++;
    for (int p = 0; p < batch; p++)
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                double sum = 0;
                for (int l = 0; l < k; l++)
                    sum += at(a, atype, p * stride_a + (opa ? l + (long long)i * lda : i + (long long)l * lda)) *
                           at(b, btype, p * stride_b + (opb ? j + (long long)l * ldb : l + (long long)j * ldb));
                long long place = p * stride_c + i + (long long)j * ldc;
                if (wide) ((double *)c)[place] = sum;
                else ((float *)c)[place] = (float)sum;
            }
    return OK;
}
