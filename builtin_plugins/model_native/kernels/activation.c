/* The gated activation SiLU(gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020). */
#include "fw_kernel.h"

#include "fw_math.h"

typedef struct {
    float *gate_up;
    int64_t inner, ld;
} activation_work;

static void activation_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const activation_work *a = context;
    for (int64_t row = begin; row < end; row++) {
        float *gate = a->gate_up + row * a->ld, *up = gate + a->inner;
        int64_t i = 0;
        for (; i + FW_LANES <= a->inner; i += FW_LANES) {
            fw_vec g = fw_load(gate + i);
            fw_store(gate + i, g / (1.0f + fw_exp(-g)) * fw_load(up + i));
        }
        for (; i < a->inner; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

/* gate_up[rows, 2 * inner], rows `ld` apart: the first half becomes SiLU(gate) * up. */
static void gated_silu(float *gate_up, int64_t inner, int64_t ld, int64_t rows) {
    activation_work work = {gate_up, inner, ld};
    fw_parallel_for(activation_task, &work, rows, 1 + 4096 / inner);
}
