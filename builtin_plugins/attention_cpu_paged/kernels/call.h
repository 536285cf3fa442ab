/* One call of the attention of one layer, and the pieces of work that it is divided into. */
#ifndef CALL_H
#define CALL_H

/* Keys whose scores are computed before their values are read: the keys and values of most head
 * sizes fit into the first cache together. */
enum { CHUNK = 64, GROUPS = CHUNK / FW_LANES };

/* Queries that are multiplied with keys at once: their sums, and a few keys, fill the vector
 * registers. In the same way, queries and vectors of values. */
#if FW_LANES == 8
enum { PANEL = 4, VALUE_ROWS = 4, VALUE_VECTORS = 2 };
#else
enum { PANEL = 8, VALUE_ROWS = 6, VALUE_VECTORS = 4 };
#endif

/* Queries (of all heads of a kv head) that share what is read of keys and values. */
enum { TILE = 64 };

typedef struct {
    int64_t row, first_query, queries; /* of the row's query tokens */
    int64_t begin, end;                /* positions of the keys to read */
    int64_t partial; /* number of its result among those that are to be merged; -1: the only one */
    int64_t parts;   /* how many are merged, counted at the first of them; else 0 */
} piece;

typedef struct {
    const paged_cache *cache;
    const paged_step *step;
    const void *query; /* [tokens, heads, head size] */
    void *out;         /* the same, contiguous */
    const float *sinks;
    int64_t query_token_stride, query_head_stride, type;
    int64_t heads, window; /* window 0: all */
    float scale, soft_cap; /* soft_cap 0: none */
    const piece *pieces;
    float *partials; /* [partials][kv heads][partial_size] */
} attention_call;

FW_INLINE int64_t heads_per_kv(const attention_call *call) {
    return call->heads / call->cache->kv_heads;
}

/* Floats of a row of results: whole vectors. */
FW_INLINE int64_t padded(int64_t size) { return (size + FW_LANES - 1) / FW_LANES * FW_LANES; }

/* Queries x heads of the largest tile. */
FW_INLINE int64_t tile_queries(const attention_call *call) {
    int64_t group = heads_per_kv(call);
    return group < TILE ? TILE / group : 1;
}

FW_INLINE int64_t tile_rows(const attention_call *call) {
    return tile_queries(call) * heads_per_kv(call);
}

/* Of a result before it is divided: its maxima, its sums of exponentials, its sums of values. */
FW_INLINE int64_t partial_size(const attention_call *call) {
    return tile_rows(call) * (2 + padded(call->cache->head_size));
}

#endif
