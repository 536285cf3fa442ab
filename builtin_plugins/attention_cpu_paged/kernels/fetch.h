/* Where the keys and values of a chunk are: in the cache itself, or unpacked from it. */
#ifndef FETCH_H
#define FETCH_H

typedef struct {
    const void *keys[GROUPS];   /* [head size][FW_LANES] */
    const void *values[GROUPS]; /* [FW_LANES][head size] */
    int count, type;
} chunk;

/* Whether vectors of the cache are used as they are. Numbers of 16 bits are, where they are
 * converted only once; for more queries they are unpacked. */
FW_INLINE int in_place(const paged_cache *cache, int64_t rows) {
    return key_width(cache) == FW_LANES && (cache->type == FW_FLOAT32 || rows <= PANEL);
}

/* Floats of the keys and values of one unpacked group. A vector may be read across the end. */
FW_INLINE int64_t unpacked_size(const paged_cache *cache) {
    return 2 * FW_LANES * cache->head_size + FW_LANES;
}

/* Index of the keys of the group at `position`, where groups do not cross blocks. */
FW_INLINE int64_t group_index(
    const paged_cache *cache, const int64_t *table, int64_t head, int64_t position) {
    int64_t offset = position % cache->block_size;
    return part_index(cache, table[position / cache->block_size], head) +
           offset * cache->head_size;
}

FW_INLINE void unpack_group(
    const paged_cache *cache, int64_t index, int64_t value_index, float *to, const int type) {
    int64_t count = FW_LANES * cache->head_size;
    for (int64_t i = 0; i < count; i += FW_LANES)
        fw_store(to + i, fw_load_as(cache->data, index + i, type));
    for (int64_t i = 0; i < count; i += FW_LANES)
        fw_store(to + count + i, fw_load_as(cache->data, value_index + i, type));
}

/* One token after the other, for blocks that are no multiple of a vector. */
static void unpack_tokens(
    const paged_cache *cache, const int64_t *table, int64_t head, int64_t position, int64_t begin,
    int64_t end, float *to) {
    int64_t size = cache->head_size, width = key_width(cache);
    float *values = to + FW_LANES * size;
    for (int64_t lane = 0; lane < FW_LANES; lane++) {
        int64_t token = position + lane;
        if (token < begin || token >= end) continue;
        int64_t offset = token % cache->block_size;
        int64_t part = part_index(cache, table[token / cache->block_size], head);
        int64_t key = part + key_index(cache, offset);
        int64_t value = part + part_size(cache) + offset * size;
        for (int64_t i = 0; i < size; i++) {
            to[i * FW_LANES + lane] = fw_get(cache->data, key + i * width, (int)cache->type);
            values[lane * size + i] = fw_get(cache->data, value + i, (int)cache->type);
        }
    }
}

/* The groups of positions from `position`, a multiple of FW_LANES, to `end`. What lies outside of
 * [begin, end) may be anything. `unpacked` is NULL where they are used in place. */
static void fetch(
    const paged_cache *cache, const int64_t *table, int64_t head, int64_t position, int64_t begin,
    int64_t end, float *unpacked, chunk *out) {
    const char *data = cache->data;
    int64_t bytes = fw_bytes_of((int)cache->type), values = FW_LANES * cache->head_size;
    out->type = unpacked ? FW_FLOAT32 : (int)cache->type;
    out->count = 0;
    for (; out->count < GROUPS && position < end; out->count++, position += FW_LANES) {
        if (key_width(cache) != FW_LANES) {
            unpack_tokens(cache, table, head, position, begin, end, unpacked);
        } else {
            int64_t index = group_index(cache, table, head, position);
            int64_t value_index = index + part_size(cache);
            if (!unpacked) {
                out->keys[out->count] = data + index * bytes;
                out->values[out->count] = data + value_index * bytes;
                continue;
            }
            if (cache->type == FW_BFLOAT16)
                unpack_group(cache, index, value_index, unpacked, FW_BFLOAT16);
            else
                unpack_group(cache, index, value_index, unpacked, FW_FLOAT16);
        }
        out->keys[out->count] = unpacked;
        out->values[out->count] = unpacked + values;
        unpacked += unpacked_size(cache);
    }
}

#endif
