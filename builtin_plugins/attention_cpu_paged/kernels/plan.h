/* The work of a call, in pieces that threads can share evenly. */
#ifndef PLAN_H
#define PLAN_H

/* Pieces for each thread, where rows are long enough to be divided: so that one that is late
 * holds up little. */
enum { PIECES_A_THREAD = 4 };

/* Keys in a part of a row that is divided; less is not worth to be merged. */
enum { LEAST_KEYS = 128 };

typedef struct {
    piece *pieces;
    int64_t count, partials;
    int64_t cost; /* products of a query and a key, of one kv head */
} plan;

FW_INLINE int64_t row_queries(const paged_step *step, int64_t row) {
    return step->query_start[row + 1] - step->query_start[row];
}

/* Tile number `index` of a row. */
FW_INLINE piece tile_piece(const attention_call *call, int64_t row, int64_t index) {
    int64_t queries = row_queries(call->step, row), most = tile_queries(call);
    piece own = {.row = row, .first_query = index * most, .partial = -1};
    own.queries = queries - own.first_query < most ? queries - own.first_query : most;
    int64_t position = call->step->seq_lens[row] - queries + own.first_query;
    own.end = position + own.queries;
    own.begin = call->window && position >= call->window ? position - call->window + 1 : 0;
    return own;
}

FW_INLINE int64_t row_tiles(const attention_call *call, int64_t row) {
    int64_t most = tile_queries(call);
    return (row_queries(call->step, row) + most - 1) / most;
}

/* Adds a tile, in parts where it costs more than `limit`. */
FW_INLINE void add_tile(plan *own, piece whole, int64_t group, int64_t limit) {
    int64_t base = whole.begin / CHUNK * CHUNK, keys = whole.end - base;
    int64_t parts = (whole.queries * group * keys - 1) / limit + 1;
    if (parts > keys / LEAST_KEYS) parts = keys / LEAST_KEYS;
    if (parts <= 1) {
        own->pieces[own->count++] = whole;
        return;
    }
    int64_t length = ((keys + parts - 1) / parts + CHUNK - 1) / CHUNK * CHUNK;
    int64_t first = own->count;
    for (int64_t begin = base; begin < whole.end; begin += length) {
        piece part = whole;
        part.partial = own->partials++;
        if (begin > whole.begin) part.begin = begin;
        if (begin + length < whole.end) part.end = begin + length;
        own->pieces[own->count++] = part;
    }
    own->pieces[first].parts = own->count - first;
}

/* Of all rows; later tiles, which cost more, come first. `pieces` is NULL where there is no
 * memory. */
static plan make_plan(const attention_call *call) {
    plan own = {0};
    int64_t group = heads_per_kv(call), rows = call->step->rows, tiles = 0;
    int threads = fw_num_threads();
    for (int64_t row = 0; row < rows; row++) {
        int64_t count = row_tiles(call, row);
        tiles += count;
        for (int64_t index = 0; index < count; index++) {
            piece whole = tile_piece(call, row, index);
            own.cost += whole.queries * group * (whole.end - whole.begin);
        }
    }
    int64_t share = (int64_t)threads * PIECES_A_THREAD;
    int64_t limit = threads > 1 ? own.cost * call->cache->kv_heads / share + 1 : INT64_MAX;
    own.pieces = malloc((size_t)(2 * tiles + share) * sizeof(piece));
    if (!own.pieces) return own;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t index = row_tiles(call, row) - 1; index >= 0; index--)
            add_tile(&own, tile_piece(call, row, index), group, limit);
    return own;
}

#endif
