/* Products of queries and keys. */
#ifndef SCORES_H
#define SCORES_H

/* query [size][rows], keys [size][FW_LANES] of each group; scores [rows][CHUNK]. Meanwhile the
 * memory `ahead` is brought near, which is read next. */
FW_INLINE void score_block(
    const float *query, const void *const *keys, const void *const *ahead, float *scores,
    int64_t size, const int rows, const int groups, const int type) {
    fw_vec sum[PANEL][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) sum[r][g] = (fw_vec){0};
    for (int64_t i = 0; i < size; i++) {
        fw_vec key[4];
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            key[g] = fw_load_as(keys[g], i * FW_LANES, type);
            __builtin_prefetch((const char *)ahead[g] + i * FW_LANES * fw_bytes_of(type));
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            fw_vec component = fw_splat(query[i * rows + r]);
#pragma GCC unroll 4
            for (int g = 0; g < groups; g++) sum[r][g] += component * key[g];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) fw_store(scores + r * CHUNK + g * FW_LANES, sum[r][g]);
}

/* As many groups at once as there are registers for. */
FW_INLINE void score_rows(
    const float *query, const chunk *keys, float *scores, int64_t size, const int rows,
    const int type) {
    const int step = rows <= PANEL / 2 ? 4 : 2;
    int g = 0;
    for (; g + step <= keys->count; g += step, scores += step * FW_LANES)
        score_block(query, keys->keys + g, keys->values + g, scores, size, rows, step, type);
    for (; g < keys->count; g++, scores += FW_LANES)
        score_block(query, keys->keys + g, keys->values + g, scores, size, rows, 1, type);
}

FW_INLINE void score_any(
    const float *query, const chunk *keys, float *scores, int64_t size, int rows, const int type) {
    switch (rows) {
    case 1: score_rows(query, keys, scores, size, 1, type); break;
    case 2: score_rows(query, keys, scores, size, 2, type); break;
    case 3: score_rows(query, keys, scores, size, 3, type); break;
    case 4: score_rows(query, keys, scores, size, 4, type); break;
#if FW_LANES != 8
    case 5: score_rows(query, keys, scores, size, 5, type); break;
    case 6: score_rows(query, keys, scores, size, 6, type); break;
    case 7: score_rows(query, keys, scores, size, 7, type); break;
    default: score_rows(query, keys, scores, size, 8, type); break;
#endif
    }
}

/* Scores of up to PANEL queries and a chunk. */
static void score_panel(
    const float *query, const chunk *keys, float *scores, int64_t size, int rows) {
    if (keys->type == FW_FLOAT32)
        score_any(query, keys, scores, size, rows, FW_FLOAT32);
    else if (keys->type == FW_BFLOAT16)
        score_any(query, keys, scores, size, rows, FW_BFLOAT16);
    else
        score_any(query, keys, scores, size, rows, FW_FLOAT16);
}

#endif
