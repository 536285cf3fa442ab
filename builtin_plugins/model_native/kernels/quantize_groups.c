/* Codes, scales and minima of groups, from weights or as another file has them. */
#include "linear_grouped.c"

#define CANDIDATES 12

/* Scale and minimum of FW_LANES groups, of which lane i has the values w[.][i].
 *
 * For 4 bits several scales are tried: weights become codes, and scale and minimum follow from the
 * codes by least squares; the least squared error wins. */
typedef struct {
    fw_vec scale, minimum;
} group_fit;

FW_INLINE fw_vec code_vec(fw_vec w, fw_vec minimum, fw_vec inverse, float most) {
    fw_vec code = (w - minimum) * inverse;
    code = fw_select(code > 0.0f, code, fw_splat(0.0f));
    code = fw_select(code < most, code, fw_splat(most));
    return __builtin_convertvector(round_vec(code), fw_vec);
}

static group_fit fit_groups(const fw_vec *w, float most) {
    fw_vec low = w[0], high = w[0], total = {0}, poison = {0};
    for (int i = 0; i < GROUP; i++) {
        low = fw_select(w[i] < low, w[i], low);
        high = fw_select(w[i] > high, w[i], high);
        total += w[i];
        poison += w[i] * 0.0f; /* NaN of infinities and NaNs */
    }
    const float count = GROUP;
    fw_vec range = high - low;
    int_vec flat = range < FLT_MIN;
    range = fw_select(flat, fw_splat(1.0f), range);
    group_fit best = {fw_select(flat, fw_splat(0.0f), range / most), low};
    if (most == 15.0f) {
        fw_vec least = fw_splat(INFINITY);
        for (int c = 0; c < CANDIDATES; c++) {
            fw_vec inverse = (most - 1.6f + 0.4f * (float)c) / range;
            fw_vec codes = {0}, squares = {0}, products = {0};
            for (int i = 0; i < GROUP; i++) {
                fw_vec code = code_vec(w[i], low, inverse, most);
                codes += code;
                squares += code * code;
                products += code * (w[i] - low);
            }
            fw_vec mean = codes / count, shifted = total - low * count;
            fw_vec scale = (products - mean * shifted) / (squares - mean * codes);
            fw_vec minimum = (shifted - scale * codes) / count;
            /* The squared error but for a constant. */
            fw_vec error = -scale * products - minimum * shifted;
            int_vec better = (error < least) & ~flat;
            least = fw_select(better, error, least);
            best.scale = fw_select(better, scale, best.scale);
            best.minimum = fw_select(better, minimum + low, best.minimum);
        }
    }
    return (group_fit){best.scale + poison, best.minimum + poison};
}

typedef struct {
    const linear *l;
    const float *weight;
    int64_t first, rows;
} grouped_pack_call;

static void pack_lanes(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const grouped_pack_call *c = context;
    const float most = c->l->format == LINEAR_INT4 ? 15.0f : 255.0f;
    for (int64_t row = begin * FW_LANES; row < end * FW_LANES && row < c->rows; row += FW_LANES) {
        int64_t lanes = c->rows - row < FW_LANES ? c->rows - row : FW_LANES;
        for (int64_t group = 0; group < groups_of(c->l->in); group++) {
            fw_vec w[GROUP];
            for (int lane = 0; lane < FW_LANES; lane++) {
                const float *from = c->weight + (row + (lane < lanes ? lane : 0)) * c->l->in;
                for (int i = 0; i < GROUP; i++) {
                    int64_t k = group * GROUP + i; /* inputs that are not there repeat the last */
                    w[i][lane] = from[k < c->l->in ? k : c->l->in - 1];
                }
            }
            group_fit fit = fit_groups(w, most);
            uint16_t scales[FW_LANES], minima[FW_LANES];
            for (int lane = 0; lane < FW_LANES; lane++) {
                scales[lane] = fw_to_float16(fit.scale[lane]);
                minima[lane] = fw_to_float16(fit.minimum[lane]);
            }
            fw_vec scale = fw_load_as(scales, 0, FW_FLOAT16);
            fw_vec minimum = fw_load_as(minima, 0, FW_FLOAT16);
            fw_vec inverse = fw_select(scale > 0.0f, 1.0f / scale, fw_splat(0.0f));
            uint8_t codes[FW_LANES][GROUP];
            for (int i = 0; i < GROUP; i++) {
                fw_vec code = code_vec(w[i], minimum, inverse, most);
                for (int lane = 0; lane < FW_LANES; lane++) codes[lane][i] = (uint8_t)code[lane];
            }
            for (int lane = 0; lane < lanes; lane++)
                put_group(c->l, c->first + row + lane, group, codes[lane], scales[lane],
                          minima[lane]);
        }
    }
}

static void grouped_pack(const linear *l, const float *weight, int64_t first, int64_t rows) {
    grouped_pack_call call = {l, weight, first, rows};
    fw_parallel_for(pack_lanes, &call, (rows + FW_LANES - 1) / FW_LANES, 4);
}

/* Puts groups in place that are quantized already, as rows [first, first + rows): codes
 * [rows, in], scales and minima [rows, in / 32] in binary16. `in` is a multiple of 32. */
FW_EXPORT void linear_pack_groups(const linear *l, const uint8_t *codes, const uint16_t *scales,
                                  const uint16_t *minima, int64_t first, int64_t rows) {
    int64_t groups = groups_of(l->in);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++)
            put_group(l, first + row, g, codes + row * l->in + g * GROUP, scales[row * groups + g],
                      minima[row * groups + g]);
}
