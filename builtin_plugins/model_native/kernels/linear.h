/* A linear layer y = x W^T (+ bias) in one of several formats of its weights. */
#ifndef LINEAR_H
#define LINEAR_H

#include "fw_kernel.h"

enum linear_format {
    LINEAR_F32 = 0,  /* float32, panels */
    LINEAR_INT8 = 1, /* int8 a weight, a scale an output; activations int8 a token */
    LINEAR_INT4 = 2, /* 4 bits a weight, scale and minimum a group of 32 inputs; activations int8 a
                        group */
    LINEAR_INT8_GROUPED = 3, /* 8 bits a weight, all else as LINEAR_INT4 */
};

/* Filled in by the Python side (ctypes mirrors it in `linear.py`). `data` is packed by the
 * format's own pack function and aligned to 64 bytes. */
typedef struct {
    int32_t format;
    int32_t reserved;
    int64_t in, out;
    const void *data;
    const float *bias; /* [out] or NULL */
} linear;

/* y[rows, out] = x[rows, in] W^T + bias; rows of x and y are ldx and ldy floats apart. With `add`
 * the product is added to what y holds. `scratch` holds linear_scratch_bytes(rows) bytes, aligned
 * to 64. */
void linear_forward(const linear *l, const float *x, int64_t ldx, int64_t rows, float *y,
                    int64_t ldy, int add, void *scratch);
int64_t linear_scratch_bytes(const linear *l, int64_t rows);

#endif
