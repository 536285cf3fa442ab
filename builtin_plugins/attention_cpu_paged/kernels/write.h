/* Keys and values of a step into the cache. */
#ifndef WRITE_H
#define WRITE_H

typedef struct {
    const void *data; /* [tokens, kv heads, head size] */
    int64_t token_stride, head_stride, type;
} token_rows;

typedef struct {
    const paged_cache *cache;
    const int64_t *slots;
    token_rows key, value;
} write_call;

FW_INLINE void write_head(
    const write_call *call, int64_t token, int64_t head, const int from, const int to) {
    const paged_cache *cache = call->cache;
    int64_t size = cache->head_size, width = key_width(cache), slot = call->slots[token];
    int64_t offset = slot % cache->block_size;
    int64_t part = part_index(cache, slot / cache->block_size, head);
    int64_t keys = part + key_index(cache, offset);
    int64_t values = part + part_size(cache) + offset * size;
    int64_t key = token * call->key.token_stride + head * call->key.head_stride;
    int64_t value = token * call->value.token_stride + head * call->value.head_stride;
    for (int64_t i = 0; i < size; i++)
        fw_put(cache->data, keys + i * width, fw_get(call->key.data, key + i, from), to);
    for (int64_t i = 0; i < size; i++)
        fw_put(cache->data, values + i, fw_get(call->value.data, value + i, from), to);
}

static void write_tokens(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const write_call *call = context;
    int from = (int)call->key.type, to = (int)call->cache->type;
    for (int64_t token = begin; token < end; token++)
        for (int64_t head = 0; head < call->cache->kv_heads; head++)
            if (from == FW_FLOAT32 && to == FW_FLOAT32)
                write_head(call, token, head, FW_FLOAT32, FW_FLOAT32);
            else if (from == FW_FLOAT32 && to == FW_BFLOAT16)
                write_head(call, token, head, FW_FLOAT32, FW_BFLOAT16);
            else if (from == FW_BFLOAT16 && to == FW_BFLOAT16)
                write_head(call, token, head, FW_BFLOAT16, FW_BFLOAT16);
            else
                write_head(call, token, head, from, to);
}

/* The index of the first token whose slot the cache does not have; -1 if it has all. Then
 * nothing was written. */
FW_EXPORT int64_t paged_write(
    const paged_cache *cache, const paged_step *step, const void *key, int64_t key_token_stride,
    int64_t key_head_stride, const void *value, int64_t value_token_stride,
    int64_t value_head_stride, int64_t type) {
    int64_t slots = cache->num_blocks * cache->block_size;
    for (int64_t i = 0; i < step->tokens; i++)
        if (step->slots[i] < 0 || step->slots[i] >= slots) return i;
    write_call call = {
        cache, step->slots,
        {key, key_token_stride, key_head_stride, type},
        {value, value_token_stride, value_head_stride, type}};
    int64_t grain = 8192 / (cache->kv_heads * cache->head_size) + 1;
    fw_parallel_for(write_tokens, &call, step->tokens, grain);
    return -1;
}

#endif
