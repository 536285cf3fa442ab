/* Attention of a tile of queries over a range of keys. A tile's rows are its queries' heads:
 * row = query * heads per kv head + head. */
#ifndef TILE_H
#define TILE_H

typedef struct {
    float *query;    /* panels of [head size][rows] */
    float *scores;   /* [rows][CHUNK] */
    float *top;      /* [rows] */
    float *total;    /* [rows][FW_LANES] */
    float *sum;      /* [rows][padded head size] */
    float *unpacked; /* GROUPS groups */
} tile;

static tile new_tile(const attention_call *call) {
    int64_t rows = tile_rows(call), size = padded(call->cache->head_size);
    int64_t unpacked = in_place(call->cache, rows) ? 0 : GROUPS * unpacked_size(call->cache);
    float *memory = scratch(rows * (2 * size + CHUNK + FW_LANES + 1) + unpacked);
    tile own;
    own.scores = memory;
    own.total = own.scores + rows * CHUNK;
    own.sum = own.total + rows * FW_LANES;
    own.unpacked = own.sum + rows * size;
    own.query = own.unpacked + unpacked;
    own.top = own.query + rows * size;
    return own;
}

FW_INLINE int panel_rows(int64_t rows, int64_t row, int most) {
    return rows - row < most ? (int)(rows - row) : most;
}

/* Queries, scaled, in panels; sums of nothing, or of a sink. */
static void load_tile(
    const attention_call *call, const piece *work, int64_t kv_head, int with_sinks, tile *own) {
    int64_t size = call->cache->head_size, group = heads_per_kv(call);
    int64_t rows = work->queries * group, stride = padded(size);
    int64_t token = call->step->query_start[work->row] + work->first_query;
    for (int64_t row = 0; row < rows; row++) {
        int64_t panel = row / PANEL * PANEL, head = kv_head * group + row % group;
        int width = panel_rows(rows, panel, PANEL);
        float *to = own->query + panel * size + row % PANEL;
        int64_t from = (token + row / group) * call->query_token_stride +
                       head * call->query_head_stride;
        for (int64_t i = 0; i < size; i++)
            to[i * width] = fw_get(call->query, from + i, (int)call->type) * call->scale;
        float sink = with_sinks ? call->sinks[head] : -INFINITY;
        own->top[row] = sink <= -FLT_MAX ? -FLT_MAX : sink; /* a NaN is seen */
        fw_store(own->total + row * FW_LANES, (fw_vec){0});
        own->total[row * FW_LANES] = sink <= -FLT_MAX ? 0.0f : 1.0f;
    }
    memset(own->sum, 0, (size_t)(rows * stride) * sizeof(float));
}

/* Attends to the keys of the piece. */
static void run_tile(const attention_call *call, const piece *work, int64_t kv_head, tile *own) {
    const paged_cache *cache = call->cache;
    int64_t size = cache->head_size, group = heads_per_kv(call), stride = padded(size);
    int64_t rows = work->queries * group;
    const paged_step *step = call->step;
    const int64_t *table = step->block_tables + work->row * step->table_stride;
    int64_t row_queries = step->query_start[work->row + 1] - step->query_start[work->row];
    int64_t first_position = step->seq_lens[work->row] - row_queries + work->first_query;
    int64_t position = work->begin / FW_LANES * FW_LANES;
    float *unpacked = in_place(cache, rows) ? NULL : own->unpacked;
    chunk now, next;
    fetch(cache, table, kv_head, position, work->begin, work->end, unpacked, &now);
    for (; position < work->end; position += CHUNK, now = next) {
        for (int64_t row = 0; row < rows; row += PANEL)
            score_panel(
                own->query + row * size, &now, own->scores + row * CHUNK, size,
                panel_rows(rows, row, PANEL));
        int64_t begin = work->begin > position ? work->begin - position : 0;
        int64_t end = work->end - position < CHUNK ? work->end - position : CHUNK;
        for (int64_t row = 0; row < rows; row++) {
            int64_t seen = first_position + row / group + 1 - position; /* the end of what it sees */
            int64_t last = seen < end ? seen : end;
            int64_t first = call->window && seen - call->window > begin ? seen - call->window : begin;
            soften(
                own->scores + row * CHUNK, now.count, first, last, call->soft_cap, own->top + row,
                own->total + row * FW_LANES, own->sum + row * stride, stride);
        }
        int64_t then = position + CHUNK;
        next = now;
        if (!unpacked && then < work->end)
            fetch(cache, table, kv_head, then, work->begin, work->end, NULL, &next);
        for (int64_t row = 0; row < rows; row += VALUE_ROWS)
            value_panel(
                own->scores + row * CHUNK, &now,
                now.count <= next.count ? next.keys : now.values, own->sum + row * stride, stride,
                size, (int)begin, (int)end, panel_rows(rows, row, VALUE_ROWS));
        if (unpacked)
            fetch(cache, table, kv_head, then, work->begin, work->end, unpacked, &next);
    }
}

#endif
