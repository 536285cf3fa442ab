/* Activations as int8: symmetric, rounded to the nearest, with a scale a row or a group of inputs.
 *
 * Rows are stored in blocks, as the inner loops read them: [block][inputs / 4][row of the block][4].
 * A scale of a row or group with an infinity or a NaN in it is NaN, and makes outputs NaN.
 */
#ifndef QUANTIZED_ROWS_H
#define QUANTIZED_ROWS_H

#include <float.h>

#include "fw_kernel.h"
#include "int_dot.h"

#define GROUP 32 /* inputs; every row is padded to whole groups with zeros */
#define QUADS (GROUP / 4)

FW_INLINE int64_t groups_of(int64_t in) { return (in + GROUP - 1) / GROUP; }

/* Rows in equal blocks of at most `most`, the last one smaller. */
typedef struct {
    int64_t rows, size;
} row_blocks;

FW_INLINE row_blocks blocks_of(int64_t rows, int64_t most) {
    int64_t count = (rows + most - 1) / most;
    return (row_blocks){rows, count ? (rows + count - 1) / count : 1};
}

/* Rows in the block of `row`. */
FW_INLINE int64_t block_rows(row_blocks b, int64_t row) {
    int64_t first = row - row % b.size;
    return b.rows - first < b.size ? b.rows - first : b.size;
}

/* Where the first four values of `row` are, in rows of `values` values. */
FW_INLINE int64_t block_start(row_blocks b, int64_t row, int64_t values) {
    return (row - row % b.size) * values + row % b.size * 4;
}

/* Sizes of the pieces that threads take: rows to quantize, panels of weights to multiply by. */
FW_INLINE int64_t row_grain(int64_t in) { return 1 + 16384 / in; }
FW_INLINE int64_t panel_grain(int64_t panels) { return 1 + panels / (8 * fw_num_threads() + 1); }

/* The `count` numbers at `x` as a whole group; `space` takes a padded copy of fewer. */
FW_INLINE const float *whole_group(const float *x, int64_t count, float *space) {
    if (count >= GROUP) return x;
    memset(space, 0, GROUP * sizeof *space);
    memcpy(space, x, (size_t)count * sizeof *space);
    return space;
}

/* The largest magnitude of a group as bits of a float: they order like integers, with infinities
 * and then NaNs above all numbers. */
FW_INLINE int_vec group_magnitude(const float *x, int_vec largest) {
    for (int i = 0; i < GROUP; i += FW_LANES) {
        int_vec bits = (int_vec)fw_load(x + i) & 0x7fffffff;
        int_vec greater = bits > largest;
        largest = (bits & greater) | (largest & ~greater);
    }
    return largest;
}

/* Scale of int8 values (NaN if they are not all finite), and what to multiply by to get them. */
typedef struct {
    float scale, inverse;
} int8_scale;

FW_INLINE int8_scale scale_of(int_vec magnitudes) {
    int32_t largest = 0;
    for (int i = 0; i < FW_LANES; i++)
        if (magnitudes[i] > largest) largest = magnitudes[i];
    if (largest >= 0x7f800000) return (int8_scale){NAN, 0.0f};
    float magnitude;
    memcpy(&magnitude, &largest, 4);
    float scale = magnitude / 127.0f;
    return scale >= FLT_MIN ? (int8_scale){scale, 1.0f / scale} : (int8_scale){0.0f, 0.0f};
}

/* Rounded to the nearest integer, where the magnitude is below 2^22. */
FW_INLINE int_vec round_vec(fw_vec x) {
    /* After adding 1.5 * 2^23 the low bits of the float are the integer. */
    return (int_vec)(x + 12582912.0f) - 0x4b400000;
}

/* Writes a group as int8, `stride` bytes from each four values to the next; adds them to `sums`. */
FW_INLINE int_vec quantize_group(const float *x, float inverse, int8_t *to, int64_t stride,
                                 int_vec sums) {
    typedef int8_t bytes __attribute__((vector_size(FW_LANES)));
    for (int i = 0; i < GROUP; i += FW_LANES) {
        int_vec values = round_vec(fw_load(x + i) * inverse);
        sums += values;
        bytes narrow = __builtin_convertvector(values, bytes);
        int32_t quads[FW_LANES / 4];
        memcpy(quads, &narrow, sizeof quads);
        for (int j = 0; j < FW_LANES / 4; j++) memcpy(to + (i / 4 + j) * stride, &quads[j], 4);
    }
    return sums;
}

FW_INLINE int32_t lane_sum(int_vec values) {
    int32_t sum = 0;
    for (int i = 0; i < FW_LANES; i++) sum += values[i];
    return sum;
}

#endif
