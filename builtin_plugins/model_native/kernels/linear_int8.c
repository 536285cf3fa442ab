/* LINEAR_INT8: int8 weights with a scale an output, activations quantized a token.
 *
 * y[r, n] = xs[r] * ws[n] * sum_k xq[r, k] * wq[n, k]. Weights are stored plus 128, because the
 * instructions multiply unsigned by signed bytes; 128 * sum_k xq[r, k] is taken off the sum.
 *
 * data: [panel][inputs / 4][32 outputs][4 inputs] bytes, then ws [outputs] float32. Inputs are
 * padded to groups and outputs to panels. Sums fit 32 bits for 133,000 inputs.
 */
#include "linear.h"
#include "panels.h"

#define INT8_ROWS (FW_LANES == 16 ? 12 : 4)
#define INT8_AHEAD 2048 /* bytes of weights to fetch ahead of use */

typedef struct {
    int64_t quads; /* padded inputs / 4 */
    uint8_t *weights;
    float *scales;
} int8_layout;

FW_INLINE int8_layout int8_layout_of(const linear *l) {
    int64_t quads = groups_of(l->in) * QUADS;
    uint8_t *weights = (uint8_t *)l->data;
    return (int8_layout){quads, weights, (float *)(weights + panels_of(l->out) * quads * 4 * PANEL)};
}

/* Where the four weights of a quad of an output are; those of the next quad are 4 * PANEL on. */
FW_INLINE uint8_t *int8_weights(int8_layout layout, int64_t output) {
    return layout.weights + (output / PANEL * layout.quads * PANEL + output % PANEL) * 4;
}

static int64_t int8_bytes(const linear *l) {
    return panels_of(l->out) * PANEL * (groups_of(l->in) * GROUP + (int64_t)sizeof(float));
}

static int64_t int8_scratch_bytes(const linear *l, int64_t rows) {
    return rows * groups_of(l->in) * GROUP + rows * 8;
}

/* A row of weights, symmetric, rounded to the nearest. */
static void int8_pack(const linear *l, const float *weight, int64_t first, int64_t rows) {
    int8_layout layout = int8_layout_of(l);
    for (int64_t row = 0; row < rows; row++, weight += l->in) {
        float space[GROUP];
        int_vec largest = {0};
        for (int64_t k = 0; k < l->in; k += GROUP)
            largest = group_magnitude(whole_group(weight + k, l->in - k, space), largest);
        int8_scale scale = scale_of(largest);
        layout.scales[first + row] = scale.scale;
        uint8_t *to = int8_weights(layout, first + row);
        for (int64_t k = 0; k < l->in; k += GROUP, to += QUADS * 4 * PANEL) {
            const float *group = whole_group(weight + k, l->in - k, space);
            quantize_group(group, scale.inverse, (int8_t *)to, 4 * PANEL, (int_vec){0});
            for (int i = 0; i < GROUP; i++) to[i / 4 * 4 * PANEL + i % 4] ^= 0x80;
        }
    }
}

static void int8_unpack_rows(const linear *l, const int64_t *rows, int64_t count, float *to) {
    int8_layout layout = int8_layout_of(l);
    for (int64_t i = 0; i < count; i++, to += l->in) {
        const uint8_t *w = int8_weights(layout, rows[i]);
        for (int64_t k = 0; k < l->in; k++)
            to[k] = layout.scales[rows[i]] * (float)(w[k / 4 * 4 * PANEL + k % 4] - 128);
    }
}

typedef struct {
    const linear *l;
    int8_layout layout;
    row_blocks blocks;
    const float *x;
    float *y;
    int64_t ldx, ldy;
    int add;
    int8_t *values;
    float *scales;
    uint32_t *offsets; /* 128 * sum of a row */
} int8_call;

static void int8_quantize_rows(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const int8_call *c = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->x + row * c->ldx;
        int64_t stride = 4 * block_rows(c->blocks, row);
        int8_t *to = c->values + block_start(c->blocks, row, c->layout.quads * 4);
        float space[GROUP];
        int_vec largest = {0};
        for (int64_t k = 0; k < c->l->in; k += GROUP)
            largest = group_magnitude(whole_group(x + k, c->l->in - k, space), largest);
        int8_scale scale = scale_of(largest);
        int_vec sums = {0};
        for (int64_t k = 0; k < c->l->in; k += GROUP) {
            const float *group = whole_group(x + k, c->l->in - k, space);
            sums = quantize_group(group, scale.inverse, to + k / 4 * stride, stride, sums);
        }
        c->scales[row] = scale.scale;
        c->offsets[row] = 128u * (uint32_t)lane_sum(sums);
    }
}

typedef uint_vec int8_sums[INT8_ROWS][VECTORS];

static void int8_store(const int8_call *c, int64_t row, int64_t output, int rows, int8_sums sums) {
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++) {
            int64_t n = output + v * FW_LANES;
            if (n >= c->l->out) break;
            fw_vec value = int_dot_float(sums[r][v] - c->offsets[row + r]) *
                           (fw_load(c->layout.scales + n) * c->scales[row + r]);
            store_outputs(c->y + (row + r) * c->ldy + n, value,
                          c->l->bias ? c->l->bias + n : NULL, c->add, c->l->out - n);
        }
    }
}

/* Rows [row, row + rows), which are a block, times the weights of VECTORS vectors of outputs. */
FW_INLINE void int8_tile(const int8_call *c, int64_t row, int64_t output, int rows) {
    const uint8_t *w = int8_weights(c->layout, output);
    const int8_t *x = c->values + row * c->layout.quads * 4;
    int8_sums sums;
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++) {
            sums[r][v] = (uint_vec){0};
            __builtin_prefetch(c->y + (row + r) * c->ldy + output + v * FW_LANES, 1);
        }
    }
    for (int64_t quad = 0; quad < c->layout.quads; quad++, w += 4 * PANEL, x += 4 * rows) {
        uint_vec weights[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            weights[v] = int_dot_load(w + v * 4 * FW_LANES);
            __builtin_prefetch(w + v * 4 * FW_LANES + INT8_AHEAD);
        }
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            uint_vec shared = int_dot_share(x + 4 * r);
            for (int v = 0; v < VECTORS; v++) sums[r][v] = int_dot(sums[r][v], weights[v], shared);
        }
    }
    int8_store(c, row, output, rows, sums);
}

static void int8_panels(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const int8_call *c = context;
    for (int64_t n = begin * PANEL; n < end * PANEL; n += VECTORS * FW_LANES) {
        for (int64_t row = 0; row < c->blocks.rows; row += c->blocks.size) {
            switch (block_rows(c->blocks, row)) {
#define CASE(R) case R: int8_tile(c, row, n, R); break;
                CASE(1) CASE(2) CASE(3) CASE(4)
#if FW_LANES == 16
                CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
#undef CASE
            }
        }
    }
}

static void int8_forward(const linear *l, const float *x, int64_t ldx, int64_t rows, float *y,
                         int64_t ldy, int add, void *scratch) {
    int8_layout layout = int8_layout_of(l);
    float *scales = (float *)((char *)scratch + rows * layout.quads * 4);
    int8_call call = {
        l,   layout,  blocks_of(rows, INT8_ROWS), x, y, ldx, ldy,
        add, scratch, scales,                     (uint32_t *)(scales + rows),
    };
    fw_parallel_for(int8_quantize_rows, &call, rows, row_grain(l->in));
    fw_parallel_for(int8_panels, &call, panels_of(l->out), panel_grain(panels_of(l->out)));
}
