/* float32 weights.
 *
 * W [out, in] lies in panels of F32_WIDTH output features: [panel][in][F32_WIDTH], the last one
 * filled up with zeros. A tile of up to F32_ROWS rows of x meets a panel in registers; each weight
 * is read once for all of the tile's rows. A product is summed over `in` in order, whatever the
 * number of rows, so that a row's result does not depend on the others.
 */
#include "linear.h"

#define F32_WIDTH (2 * FW_LANES)

/* As many rows as keep the sums, two panel vectors and a factor in registers. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define F32_ROWS 12
#else
#define F32_ROWS 6
#endif

/* Rows of x that meet a panel while it is in the cache, and stay there for the next panel. */
#define F32_BLOCK (8 * F32_ROWS)

/* Bytes of a panel that are asked for ahead of their use. */
#define F32_AHEAD 2048

static int64_t f32_panels(const linear *l) { return (l->out + F32_WIDTH - 1) / F32_WIDTH; }

static int64_t f32_bytes(const linear *l) {
    return f32_panels(l) * l->in * F32_WIDTH * (int64_t)sizeof(float);
}

/* y[rows, F32_WIDTH] = x W^T of one panel, + bias, + y with `add`. `rows` is a constant at each
 * call, so that sums stay in registers. */
FW_INLINE void f32_tile(const int rows, const float *x, int64_t ldx, const float *w, int64_t in,
                        float *y, int64_t ldy, const float *bias, int add) {
    fw_vec low[F32_ROWS], high[F32_ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) low[i] = high[i] = (fw_vec){0};
    for (int64_t k = 0; k < in; k++, w += F32_WIDTH) {
        __builtin_prefetch((const char *)w + F32_AHEAD);
        if (F32_WIDTH * sizeof(float) > 64) __builtin_prefetch((const char *)w + F32_AHEAD + 64);
        fw_vec first = fw_load(w), second = fw_load(w + FW_LANES);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            fw_vec factor = fw_splat(x[i * ldx + k]);
            low[i] += factor * first;
            high[i] += factor * second;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        float *to = y + i * ldy;
        if (bias) {
            low[i] += fw_load(bias);
            high[i] += fw_load(bias + FW_LANES);
        }
        if (add) {
            low[i] += fw_load(to);
            high[i] += fw_load(to + FW_LANES);
        }
        fw_store(to, low[i]);
        fw_store(to + FW_LANES, high[i]);
    }
}

#define F32_TILE(ROWS)                                                                             \
    case ROWS:                                                                                     \
        f32_tile(ROWS, x, ldx, w, in, y, ldy, bias, add);                                          \
        break

static void f32_rows(int64_t rows, const float *x, int64_t ldx, const float *w, int64_t in,
                     float *y, int64_t ldy, const float *bias, int add) {
    switch (rows) {
        F32_TILE(1);
        F32_TILE(2);
        F32_TILE(3);
        F32_TILE(4);
        F32_TILE(5);
        F32_TILE(6);
#if F32_ROWS == 12
        F32_TILE(7);
        F32_TILE(8);
        F32_TILE(9);
        F32_TILE(10);
        F32_TILE(11);
        F32_TILE(12);
#endif
    }
}

/* The last panel, when it is only filled in part. */
static void f32_rows_partly(int64_t columns, int64_t rows, const float *x, int64_t ldx,
                            const float *w, int64_t in, float *y, int64_t ldy, const float *bias,
                            int add) {
    float all[F32_ROWS * F32_WIDTH];
    f32_rows(rows, x, ldx, w, in, all, F32_WIDTH, NULL, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float value = all[i * F32_WIDTH + j];
            if (bias) value += bias[j];
            y[i * ldy + j] = add ? value + y[i * ldy + j] : value;
        }
}

typedef struct {
    const linear *l;
    const float *x;
    int64_t ldx, rows, blocks;
    float *y;
    int64_t ldy;
    int add;
} f32_product;

/* Elements are pairs of a block of rows and a panel; panels of the same block follow each other. */
static void f32_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const f32_product *p = context;
    const linear *l = p->l;
    int64_t panels = f32_panels(l);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t block = unit / panels, panel = unit % panels;
        int64_t first = p->rows * block / p->blocks, last = p->rows * (block + 1) / p->blocks;
        int64_t column = panel * F32_WIDTH, columns = l->out - column;
        const float *w = (const float *)l->data + column * l->in;
        const float *bias = l->bias ? l->bias + column : NULL;
        int64_t tiles = (last - first + F32_ROWS - 1) / F32_ROWS;
        for (int64_t tile = 0; tile < tiles; tile++) {
            /* Tiles of about equal size: a tile of one row reads as much as one of many. */
            int64_t from = first + (last - first) * tile / tiles;
            int64_t rows = first + (last - first) * (tile + 1) / tiles - from;
            const float *x = p->x + from * p->ldx;
            float *y = p->y + from * p->ldy + column;
            if (columns >= F32_WIDTH)
                f32_rows(rows, x, p->ldx, w, l->in, y, p->ldy, bias, p->add);
            else
                f32_rows_partly(columns, rows, x, p->ldx, w, l->in, y, p->ldy, bias, p->add);
        }
    }
}

static void f32_forward(const linear *l, const float *x, int64_t ldx, int64_t rows, float *y,
                        int64_t ldy, int add) {
    int64_t blocks = (rows + F32_BLOCK - 1) / F32_BLOCK;
    f32_product product = {l, x, ldx, rows, blocks, y, ldy, add};
    fw_parallel_for(f32_task, &product, blocks * f32_panels(l), 1);
}

typedef struct {
    const linear *l;
    const float *weight;
    int64_t first;
} f32_packing;

static void f32_pack_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const f32_packing *p = context;
    int64_t in = p->l->in;
    /* Few inputs at a time: what is written then stays in the cache until it is whole. */
    for (int64_t k = 0; k < in; k += 64) {
        int64_t stop = k + 64 < in ? k + 64 : in;
        for (int64_t row = begin; row < end; row++) {
            int64_t to = p->first + row;
            const float *from = p->weight + row * in;
            float *data =
                (float *)p->l->data + to / F32_WIDTH * F32_WIDTH * in + to % F32_WIDTH;
            for (int64_t i = k; i < stop; i++) data[i * F32_WIDTH] = from[i];
        }
    }
}

static void f32_pack(const linear *l, const float *weight, int64_t first, int64_t rows) {
    f32_packing packing = {l, weight, first};
    fw_parallel_for(f32_pack_task, &packing, rows, F32_WIDTH);
}

typedef struct {
    const linear *l;
    const int64_t *rows;
    float *to;
} f32_unpacking;

static void f32_unpack_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const f32_unpacking *u = context;
    int64_t in = u->l->in;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = u->rows[i];
        const float *data =
            (const float *)u->l->data + row / F32_WIDTH * F32_WIDTH * in + row % F32_WIDTH;
        for (int64_t k = 0; k < in; k++) u->to[i * in + k] = data[k * F32_WIDTH];
    }
}

static void f32_unpack_rows(const linear *l, const int64_t *rows, int64_t count, float *to) {
    f32_unpacking unpacking = {l, rows, to};
    fw_parallel_for(f32_unpack_task, &unpacking, count, 4);
}
