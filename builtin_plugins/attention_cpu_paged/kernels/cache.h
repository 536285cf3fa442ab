/* How keys and values lie in the cache.
 *
 * [blocks][kv heads][keys, values] parts of block_size * head_size numbers. Values are
 * [block_size][head_size]. Keys are [block_size / width][head_size][width], so that one vector
 * has the same component of neighbouring keys: then scores need no sum across a vector. A block
 * whose size is no multiple of a vector is one such group, whatever its size.
 */
#ifndef CACHE_H
#define CACHE_H

typedef struct {
    void *data;
    int64_t num_blocks, kv_heads, head_size, block_size;
    int64_t type; /* FW_FLOAT32, ... */
} paged_cache;

/* The step's tokens; all rows one after the other. */
typedef struct {
    int64_t rows, tokens, table_stride;
    const int64_t *query_start, *seq_lens, *block_tables, *slots;
} paged_step;

FW_INLINE int64_t key_width(const paged_cache *cache) {
    return cache->block_size % FW_LANES ? cache->block_size : FW_LANES;
}

FW_INLINE int64_t part_size(const paged_cache *cache) {
    return cache->block_size * cache->head_size;
}

/* Index of the first key of a block; the values begin part_size later. */
FW_INLINE int64_t part_index(const paged_cache *cache, int64_t block, int64_t head) {
    return (block * cache->kv_heads + head) * 2 * part_size(cache);
}

/* Index of a key's first component in its part; the next one lies key_width further. */
FW_INLINE int64_t key_index(const paged_cache *cache, int64_t offset) {
    int64_t width = key_width(cache);
    return offset / width * width * cache->head_size + offset % width;
}

/* The same for the Python side, which copies blocks out. */
FW_EXPORT int64_t paged_key_width(const paged_cache *cache) { return key_width(cache); }

#endif
