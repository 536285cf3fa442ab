/* The gated activation SiLU(gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020). */
#include "fw_kernel.h"

typedef int32_t fw_ints __attribute__((vector_size(4 * FW_LANES)));

/* Lanes of `yes` where the mask is all ones, of `no` where it is 0. */
FW_INLINE fw_vec vec_select(fw_ints mask, fw_vec yes, fw_vec no) {
    return (fw_vec)((mask & (fw_ints)yes) | (~mask & (fw_ints)no));
}

/* e^x for x in [-87, 88], to about 1e-7 of the result: 2^n times a polynomial of the rest, with
 * the coefficients of Cephes' expf. Values outside are taken as the nearest inside. */
FW_INLINE fw_vec vec_exp(fw_vec x) {
    x = vec_select(x < fw_splat(-87.0f), fw_splat(-87.0f), x);
    x = vec_select(x > fw_splat(88.0f), fw_splat(88.0f), x);
    /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
    fw_vec magic = fw_splat(12582912.0f);
    fw_vec shifted = x * 1.44269504088896341f + magic;
    fw_vec n = shifted - magic;
    fw_vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    fw_vec p = fw_splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    fw_ints exponent = ((fw_ints)shifted - (fw_ints)magic) << 23;
    return (fw_vec)((fw_ints)p + exponent);
}

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
            fw_store(gate + i, g / (1.0f + vec_exp(-g)) * fw_load(up + i));
        }
        for (; i < a->inner; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

/* gate_up[rows, 2 * inner], rows `ld` apart: the first half becomes SiLU(gate) * up. */
static void gated_silu(float *gate_up, int64_t inner, int64_t ld, int64_t rows) {
    activation_work work = {gate_up, inner, ld};
    fw_parallel_for(activation_task, &work, rows, 1 + 4096 / inner);
}
