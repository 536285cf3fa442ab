/* Sums of values, weighted. */
#ifndef VALUES_H
#define VALUES_H

/* out [rows][stride] += weights [rows][CHUNK] x values of the tokens first to end - 1 of a chunk,
 * each from its component `column` on. Meanwhile the memory `ahead` is brought near. */
FW_INLINE void value_block(
    const float *weights, const chunk *values, const void *const *ahead, float *out,
    int64_t stride, int64_t size, int64_t column, int first, int end, const int rows,
    const int vectors, const int type) {
    fw_vec sum[VALUE_ROWS][VALUE_VECTORS];
    out += column;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = fw_load(out + r * stride + v * FW_LANES);
    for (int begin = first; begin < end; begin = begin / FW_LANES * FW_LANES + FW_LANES) {
        int group = begin / FW_LANES, stop = (group + 1) * FW_LANES;
        if (stop > end) stop = end;
        int64_t index = (begin - group * FW_LANES) * size + column;
        for (int token = begin; token < stop; token++, index += size) {
            fw_vec value[VALUE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                int64_t at = index + v * FW_LANES;
                value[v] = fw_load_as(values->values[group], at, type);
                __builtin_prefetch((const char *)ahead[group] + at * fw_bytes_of(type));
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                fw_vec weight = fw_splat(weights[r * CHUNK + token]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) sum[r][v] += weight * value[v];
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) fw_store(out + r * stride + v * FW_LANES, sum[r][v]);
}

FW_INLINE void value_rows(
    const float *weights, const chunk *values, const void *const *ahead, float *out,
    int64_t stride, int64_t size, int first, int end, const int rows, const int type) {
    int64_t column = 0;
    for (; column + VALUE_VECTORS * FW_LANES <= stride; column += VALUE_VECTORS * FW_LANES)
        value_block(
            weights, values, ahead, out, stride, size, column, first, end, rows, VALUE_VECTORS,
            type);
    for (; column < stride; column += FW_LANES)
        value_block(
            weights, values, ahead, out, stride, size, column, first, end, rows, 1, type);
}

FW_INLINE void value_any(
    const float *weights, const chunk *values, const void *const *ahead, float *out,
    int64_t stride, int64_t size, int first, int end, int rows, const int type) {
    switch (rows) {
    case 1: value_rows(weights, values, ahead, out, stride, size, first, end, 1, type); break;
    case 2: value_rows(weights, values, ahead, out, stride, size, first, end, 2, type); break;
    case 3: value_rows(weights, values, ahead, out, stride, size, first, end, 3, type); break;
    case 4: value_rows(weights, values, ahead, out, stride, size, first, end, 4, type); break;
#if FW_LANES != 8
    case 5: value_rows(weights, values, ahead, out, stride, size, first, end, 5, type); break;
    default: value_rows(weights, values, ahead, out, stride, size, first, end, 6, type); break;
#endif
    }
}

/* For up to VALUE_ROWS queries, the values of a chunk's tokens first to end - 1. `ahead` is what
 * is read next. */
static void value_panel(
    const float *weights, const chunk *values, const void *const *ahead, float *out,
    int64_t stride, int64_t size, int first, int end, int rows) {
    if (values->type == FW_FLOAT32)
        value_any(weights, values, ahead, out, stride, size, first, end, rows, FW_FLOAT32);
    else if (values->type == FW_BFLOAT16)
        value_any(weights, values, ahead, out, stride, size, first, end, rows, FW_BFLOAT16);
    else
        value_any(weights, values, ahead, out, stride, size, first, end, rows, FW_FLOAT16);
}

#endif
