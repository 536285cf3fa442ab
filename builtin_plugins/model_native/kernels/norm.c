/* RMSNorm (Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019). */
#include "fw_kernel.h"

/* to[size] = weight * x / sqrt(mean(x^2) + eps); `to` may be x. */
FW_INLINE void rms_norm(const float *x, const float *weight, float eps, int64_t size, float *to) {
    fw_vec squares = {0};
    int64_t i = 0;
    for (; i + FW_LANES <= size; i += FW_LANES) {
        fw_vec value = fw_load(x + i);
        squares += value * value;
    }
    float sum = 0;
    for (int lane = 0; lane < FW_LANES; lane++) sum += squares[lane];
    for (; i < size; i++) sum += x[i] * x[i];
    float factor = 1 / sqrtf(sum / (float)size + eps);
    for (i = 0; i + FW_LANES <= size; i += FW_LANES)
        fw_store(to + i, fw_load(weight + i) * (fw_load(x + i) * fw_splat(factor)));
    for (; i < size; i++) to[i] = weight[i] * (x[i] * factor);
}

typedef struct {
    const float *x, *weight;
    float eps;
    int64_t size;
    float *to;
    int64_t ldto;
} norm_work;

static void norm_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const norm_work *n = context;
    for (int64_t i = begin; i < end; i++)
        rms_norm(n->x + i * n->size, n->weight, n->eps, n->size, n->to + i * n->ldto);
}

/* x[count, size] to to[count, size], its rows `ldto` apart. */
static void norm_rows(const float *x, int64_t count, const float *weight, float eps, int64_t size,
                      float *to, int64_t ldto) {
    norm_work work = {x, weight, eps, size, to, ldto};
    fw_parallel_for(norm_task, &work, count, 1 + 8192 / size);
}
