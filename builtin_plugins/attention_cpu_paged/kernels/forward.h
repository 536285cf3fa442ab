/* The attention of a layer for all rows of a step. */
#ifndef FORWARD_H
#define FORWARD_H

/* Multiply-adds below which threads are not worth to be woken. */
enum { LEAST_SHARED = 1 << 16 };

static float *partial_of(const attention_call *call, int64_t partial, int64_t kv_head) {
    return call->partials + (partial * call->cache->kv_heads + kv_head) * partial_size(call);
}

/* One row of a result, divided by the sum of its weights. */
FW_INLINE void store_row(
    const attention_call *call, const piece *work, int64_t kv_head, int64_t row, const float *sum,
    float total) {
    int64_t size = call->cache->head_size, group = heads_per_kv(call);
    int64_t token = call->step->query_start[work->row] + work->first_query + row / group;
    int64_t to = (token * call->heads + kv_head * group + row % group) * size;
    float factor = 1.0f / total;
    if (call->type == FW_FLOAT32)
        for (int64_t i = 0; i < size; i++) ((float *)call->out)[to + i] = sum[i] * factor;
    else
        for (int64_t i = 0; i < size; i++) fw_put(call->out, to + i, sum[i] * factor, (int)call->type);
}

static void run_pieces(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const attention_call *call = context;
    tile own = new_tile(call);
    int64_t kv_heads = call->cache->kv_heads, stride = padded(call->cache->head_size);
    for (int64_t index = begin; index < end; index++) {
        const piece *work = call->pieces + index / kv_heads;
        int64_t kv_head = index % kv_heads, rows = work->queries * heads_per_kv(call);
        int first_part = work->partial < 0 || work->parts > 0;
        load_tile(call, work, kv_head, call->sinks && first_part, &own);
        run_tile(call, work, kv_head, &own);
        float *partial = work->partial < 0 ? NULL : partial_of(call, work->partial, kv_head);
        for (int64_t row = 0; row < rows; row++) {
            float total = fw_sum(fw_load(own.total + row * FW_LANES));
            const float *sum = own.sum + row * stride;
            if (!partial) {
                store_row(call, work, kv_head, row, sum, total);
                continue;
            }
            float *to = partial + row * (2 + stride);
            to[0] = own.top[row];
            to[1] = total;
            memcpy(to + 2, sum, (size_t)stride * sizeof(float));
        }
    }
}

/* Puts the parts of one tile together, in the first of them. */
static void merge_parts(const attention_call *call, const piece *work, int64_t kv_head) {
    int64_t size = call->cache->head_size, stride = 2 + padded(size);
    for (int64_t row = 0; row < work->queries * heads_per_kv(call); row++) {
        float *all = partial_of(call, work->partial, kv_head) + row * stride;
        for (int64_t part = 1; part < work->parts; part++) {
            const float *more = partial_of(call, work->partial + part, kv_head) + row * stride;
            float top = all[0] > more[0] ? all[0] : more[0];
            float own = expf(all[0] - top), other = expf(more[0] - top);
            all[0] = top;
            all[1] = all[1] * own + more[1] * other;
            for (int64_t i = 2; i < 2 + size; i++) all[i] = all[i] * own + more[i] * other;
        }
        store_row(call, work, kv_head, row, all + 2, all[1]);
    }
}

/* The first row whose blocks the cache or the table does not have; -1 if all are there. Blocks
 * before the window are not looked at. */
static int64_t wrong_row(const attention_call *call) {
    const paged_step *step = call->step;
    int64_t size = call->cache->block_size;
    for (int64_t row = 0; row < step->rows; row++) {
        if (!row_queries(step, row)) continue;
        int64_t blocks = (step->seq_lens[row] + size - 1) / size;
        if (blocks > step->table_stride) return row;
        const int64_t *table = step->block_tables + row * step->table_stride;
        for (int64_t i = tile_piece(call, row, 0).begin / size; i < blocks; i++)
            if (table[i] < 0 || table[i] >= call->cache->num_blocks) return row;
    }
    return -1;
}

enum { DONE = -1, NO_MEMORY = -2 };

/* DONE, NO_MEMORY, or the index of a row whose blocks are not there; then `out` is not written. */
FW_EXPORT int64_t paged_forward(
    const paged_cache *cache, const paged_step *step, const void *query, int64_t query_token_stride,
    int64_t query_head_stride, void *out, int64_t heads, int64_t type, float scale, int64_t window,
    float soft_cap, const float *sinks) {
    attention_call call = {
        .cache = cache,
        .step = step,
        .query = query,
        .out = out,
        .sinks = sinks,
        .query_token_stride = query_token_stride,
        .query_head_stride = query_head_stride,
        .type = type,
        .heads = heads,
        .window = window,
        .scale = scale,
        .soft_cap = soft_cap,
    };
    int64_t wrong = wrong_row(&call);
    if (wrong >= 0) return wrong;
    plan own = make_plan(&call);
    int64_t floats = own.partials * cache->kv_heads * partial_size(&call);
    call.pieces = own.pieces;
    call.partials = floats ? malloc((size_t)floats * sizeof(float)) : NULL;
    int64_t result = own.pieces && (call.partials || !floats) ? DONE : NO_MEMORY;
    if (result == DONE) {
        int64_t count = own.count * cache->kv_heads;
        int small = own.cost * cache->kv_heads * cache->head_size < LEAST_SHARED;
        fw_parallel_for(run_pieces, &call, count, small ? count : 1);
        for (int64_t i = 0; i < own.count; i++)
            for (int64_t head = 0; own.pieces[i].parts && head < cache->kv_heads; head++)
                merge_parts(&call, own.pieces + i, head);
    }
    free(call.partials);
    free(own.pieces);
    return result;
}

#endif
