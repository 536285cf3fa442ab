/* Softmax over keys that come in chunks: what was summed up so far is scaled down when a larger
 * score appears (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
 * al., "FlashAttention", 2022). */
#ifndef SOFTMAX_H
#define SOFTMAX_H

FW_INLINE fw_vec capped(fw_vec score, float cap) {
    return fw_splat(cap) * fw_tanh(score / fw_splat(cap));
}

/* `score`, but -infinity where its key is not one of [first, end) of the chunk. */
FW_INLINE fw_vec masked(fw_vec score, int group, int64_t first, int64_t end) {
    fw_ints index;
    for (int i = 0; i < FW_LANES; i++) index[i] = i + group * FW_LANES;
    fw_ints seen = (index >= (int32_t)first) & (index < (int32_t)end);
    return fw_select(seen, score, fw_splat(-INFINITY));
}

/* Scores of one query and `groups` groups of keys become weights; those outside of [first, end)
 * become 0. `top` is the largest score so far, `total` [FW_LANES] sums the weights, out [stride]
 * the weighted values. */
FW_INLINE void soften(
    float *scores, int groups, int64_t first, int64_t end, float cap, float *top, float *total,
    float *out, int64_t stride) {
    int cut = first > 0 || end < groups * FW_LANES;
    fw_vec highest = fw_splat(*top);
    for (int g = 0; g < groups; g++) {
        fw_vec score = fw_load(scores + g * FW_LANES);
        if (cap != 0) score = capped(score, cap);
        if (cut) score = masked(score, g, first, end);
        if (cap != 0 || cut) fw_store(scores + g * FW_LANES, score);
        highest = fw_max(score, highest);
    }
    float new_top = fw_highest(highest);
    fw_vec sum = fw_load(total);
    if (new_top > *top) {
        fw_vec shrink = fw_splat(expf(*top - new_top));
        sum *= shrink;
        for (int64_t i = 0; i < stride; i += FW_LANES) fw_store(out + i, fw_load(out + i) * shrink);
        *top = new_top;
    }
    for (int g = 0; g < groups; g++) {
        fw_vec weight = fw_exp(fw_load(scores + g * FW_LANES) - fw_splat(new_top));
        sum += weight;
        fw_store(scores + g * FW_LANES, weight);
    }
    fw_store(total, sum);
}

#endif
