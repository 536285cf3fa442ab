/* LINEAR_INT4 and LINEAR_INT8_GROUPED: a scale s and a minimum m for each 32 inputs of an output.
 *
 * A weight is s * code + m, with codes of 4 or 8 bits. Activations are quantized a group of a row,
 * x = xs * xq, so that y = sum over groups of s * xs * sum(code * xq) + m * xs * sum(xq); the inner
 * sums are integers.
 *
 * data: [panel][group] of codes, s [32 outputs], m [32 outputs], both binary16. 8-bit codes are
 * [input / 4][32 outputs][4 inputs]; 4-bit ones [input / 8][32 outputs][4 inputs] with the second
 * four inputs in the upper halves of the bytes.
 */
#include "fw_numbers.h"
#include "linear.h"
#include "panels.h"

#define GROUPED_ROWS (FW_LANES == 16 ? 6 : 2)
#define GROUPED_AHEAD 2560 /* bytes of weights to fetch ahead of use */

FW_INLINE int64_t code_bytes(int format) {
    return (format == LINEAR_INT4 ? GROUP / 2 : GROUP) * PANEL;
}

FW_INLINE int64_t group_bytes(int format) {
    return code_bytes(format) + PANEL * 2 * (int64_t)sizeof(uint16_t);
}

/* The codes of a panel's first group; those of the next group are group_bytes(format) on. */
FW_INLINE uint8_t *grouped_panel(const linear *l, int format, int64_t panel) {
    return (uint8_t *)l->data + panel * groups_of(l->in) * group_bytes(format);
}

FW_INLINE uint16_t *group_scales(uint8_t *group, int format) {
    return (uint16_t *)(group + code_bytes(format));
}

static int64_t grouped_bytes(const linear *l) {
    return panels_of(l->out) * groups_of(l->in) * group_bytes(l->format);
}

static int64_t grouped_scratch_bytes(const linear *l, int64_t rows) {
    return rows * groups_of(l->in) * (GROUP + 2 * (int64_t)sizeof(float));
}

/* Puts codes of a group of an output in their place. */
static void put_group(const linear *l, int64_t output, int64_t group, const uint8_t *codes,
                      uint16_t scale, uint16_t minimum) {
    int format = l->format;
    uint8_t *to = grouped_panel(l, format, output / PANEL) + group * group_bytes(format);
    uint16_t *scales = group_scales(to, format);
    output %= PANEL;
    scales[output] = scale;
    scales[PANEL + output] = minimum;
    for (int i = 0; i < GROUP; i++) {
        if (format == LINEAR_INT4) {
            uint8_t *byte = to + (i / 8 * PANEL + output) * 4 + i % 4;
            *byte = i % 8 < 4 ? (*byte & 0xf0) | codes[i] : (*byte & 0x0f) | codes[i] << 4;
        } else {
            to[(i / 4 * PANEL + output) * 4 + i % 4] = codes[i];
        }
    }
}

static void grouped_unpack_rows(const linear *l, const int64_t *rows, int64_t count, float *to) {
    int format = l->format;
    for (int64_t r = 0; r < count; r++, to += l->in) {
        uint8_t *group = grouped_panel(l, format, rows[r] / PANEL);
        int64_t output = rows[r] % PANEL;
        float scale = 0, minimum = 0;
        for (int64_t k = 0; k < l->in; k++) {
            int64_t i = k % GROUP;
            if (k && !i) group += group_bytes(format);
            if (!i) {
                scale = fw_get(group_scales(group, format), output, FW_FLOAT16);
                minimum = fw_get(group_scales(group, format), PANEL + output, FW_FLOAT16);
            }
            int code = format == LINEAR_INT4
                           ? group[(i / 8 * PANEL + output) * 4 + i % 4] >> (i % 8 < 4 ? 0 : 4) & 15
                           : group[(i / 4 * PANEL + output) * 4 + i % 4];
            to[k] = scale * (float)code + minimum;
        }
    }
}

typedef struct {
    const linear *l;
    row_blocks blocks;
    const float *x;
    float *y;
    int64_t ldx, ldy;
    int add;
    int8_t *values;
    float *scales, *sums; /* [block][group][row of the block]; sums are xs * sum(xq) */
} grouped_call;

static void grouped_quantize_rows(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const grouped_call *c = context;
    int64_t groups = groups_of(c->l->in);
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->x + row * c->ldx;
        int64_t stride = block_rows(c->blocks, row), place = row % c->blocks.size;
        int8_t *to = c->values + block_start(c->blocks, row, groups * GROUP);
        int64_t factor = (row - place) * groups + place;
        for (int64_t group = 0; group < groups; group++, factor += stride) {
            float space[GROUP];
            const float *values = whole_group(x + group * GROUP, c->l->in - group * GROUP, space);
            int8_scale scale = scale_of(group_magnitude(values, (int_vec){0}));
            int_vec sums = quantize_group(values, scale.inverse, to + group * QUADS * 4 * stride,
                                          4 * stride, (int_vec){0});
            c->scales[factor] = scale.scale;
            c->sums[factor] = scale.scale * (float)lane_sum(sums);
        }
    }
}

/* Codes of FW_LANES outputs and four inputs. */
FW_INLINE uint_vec group_codes(const uint8_t *codes, int format, int quad, int vector) {
    int64_t place = vector * 4 * FW_LANES;
    if (format == LINEAR_INT8_GROUPED) return int_dot_load(codes + quad * 4 * PANEL + place);
    uint_vec both = *(const uint_vec_any *)(codes + quad / 2 * 4 * PANEL + place);
    return (quad % 2 ? both >> 4 : both) & 0x0f0f0f0f;
}

/* Rows [row, row + rows), which are a block, times the weights of VECTORS vectors of outputs. */
FW_INLINE void grouped_tile(const grouped_call *c, int format, int64_t row, int64_t output,
                            int rows) {
    int64_t groups = groups_of(c->l->in);
    const uint8_t *codes = grouped_panel(c->l, format, output / PANEL) + output % PANEL * 4;
    const uint16_t *halves =
        group_scales(grouped_panel(c->l, format, output / PANEL), format) + output % PANEL;
    const int8_t *x = c->values + row * groups * GROUP;
    const float *scales = c->scales + row * groups, *sums = c->sums + row * groups;
    fw_vec y[GROUPED_ROWS][VECTORS];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++) {
            y[r][v] = (fw_vec){0};
            __builtin_prefetch(c->y + (row + r) * c->ldy + output + v * FW_LANES, 1);
        }
    }
    for (int64_t group = 0; group < groups; group++) {
        for (int64_t ahead = 0; ahead < group_bytes(format); ahead += 64)
            __builtin_prefetch(codes + GROUPED_AHEAD + ahead);
        uint_vec dots[GROUPED_ROWS][VECTORS];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) dots[r][v] = (uint_vec){0};
#pragma GCC unroll 8
        for (int quad = 0; quad < QUADS; quad++, x += 4 * rows) {
            uint_vec weights[VECTORS];
            for (int v = 0; v < VECTORS; v++) weights[v] = group_codes(codes, format, quad, v);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                uint_vec shared = int_dot_share(x + 4 * r);
                for (int v = 0; v < VECTORS; v++)
                    dots[r][v] = int_dot(dots[r][v], weights[v], shared);
            }
        }
        for (int v = 0; v < VECTORS; v++) {
            fw_vec scale = fw_load_as(halves, v * FW_LANES, FW_FLOAT16);
            fw_vec minimum = fw_load_as(halves, PANEL + v * FW_LANES, FW_FLOAT16);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                y[r][v] += minimum * sums[r];
                y[r][v] += int_dot_float(dots[r][v]) * scale * scales[r];
            }
        }
        codes += group_bytes(format);
        halves += group_bytes(format) / (int64_t)sizeof *halves;
        scales += rows;
        sums += rows;
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++) {
            int64_t n = output + v * FW_LANES;
            if (n < c->l->out)
                store_outputs(c->y + (row + r) * c->ldy + n, y[r][v],
                              c->l->bias ? c->l->bias + n : NULL, c->add, c->l->out - n);
        }
    }
}

FW_INLINE void grouped_panels(const grouped_call *c, int format, int64_t begin, int64_t end) {
    for (int64_t n = begin * PANEL; n < end * PANEL; n += VECTORS * FW_LANES) {
        for (int64_t row = 0; row < c->blocks.rows; row += c->blocks.size) {
            switch (block_rows(c->blocks, row)) {
#define CASE(R) case R: grouped_tile(c, format, row, n, R); break;
                CASE(1) CASE(2)
#if FW_LANES == 16
                CASE(3) CASE(4) CASE(5) CASE(6)
#endif
#undef CASE
            }
        }
    }
}

static void int4_panels(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    grouped_panels(context, LINEAR_INT4, begin, end);
}

static void int8_grouped_panels(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    grouped_panels(context, LINEAR_INT8_GROUPED, begin, end);
}

static void grouped_forward(const linear *l, const float *x, int64_t ldx, int64_t rows, float *y,
                            int64_t ldy, int add, void *scratch) {
    int64_t groups = groups_of(l->in), panels = panels_of(l->out);
    float *scales = (float *)((char *)scratch + rows * groups * GROUP);
    grouped_call call = {
        l,   blocks_of(rows, GROUPED_ROWS), x, y, ldx, ldy, add, scratch, scales,
        scales + rows * groups,
    };
    fw_parallel_for(grouped_quantize_rows, &call, rows, row_grain(l->in));
    fw_parallel_for(l->format == LINEAR_INT4 ? int4_panels : int8_grouped_panels, &call, panels,
                    panel_grain(panels));
}
