/* Linear layers: which format does what. */
#include "linear.h"

#include "linear_f32.c"
#include "linear_int8.c"
#include "quantize_groups.c"

static int64_t linear_bytes(const linear *l) {
    switch (l->format) {
    case LINEAR_F32: return f32_bytes(l);
    case LINEAR_INT8: return int8_bytes(l);
    case LINEAR_INT4:
    case LINEAR_INT8_GROUPED: return grouped_bytes(l);
    default: return 0;
    }
}

/* Bytes of `data`, from format, in and out. */
FW_EXPORT int64_t linear_data_bytes(const linear *l) { return linear_bytes(l); }

/* Puts weight [rows, in] in place as rows [first, first + rows) of W. */
FW_EXPORT void linear_pack(const linear *l, const float *weight, int64_t first, int64_t rows) {
    switch (l->format) {
    case LINEAR_F32: f32_pack(l, weight, first, rows); break;
    case LINEAR_INT8: int8_pack(l, weight, first, rows); break;
    case LINEAR_INT4:
    case LINEAR_INT8_GROUPED: grouped_pack(l, weight, first, rows); break;
    }
}

/* The weights of output features `rows`, as float32 to[count, in]. */
FW_EXPORT void linear_unpack_rows(const linear *l, const int64_t *rows, int64_t count, float *to) {
    switch (l->format) {
    case LINEAR_F32: f32_unpack_rows(l, rows, count, to); break;
    case LINEAR_INT8: int8_unpack_rows(l, rows, count, to); break;
    case LINEAR_INT4:
    case LINEAR_INT8_GROUPED: grouped_unpack_rows(l, rows, count, to); break;
    }
}

FW_EXPORT int64_t linear_scratch_bytes(const linear *l, int64_t rows) {
    switch (l->format) {
    case LINEAR_INT8: return int8_scratch_bytes(l, rows);
    case LINEAR_INT4:
    case LINEAR_INT8_GROUPED: return grouped_scratch_bytes(l, rows);
    default: return 0;
    }
}

FW_EXPORT void linear_forward(const linear *l, const float *x, int64_t ldx, int64_t rows, float *y,
                              int64_t ldy, int add, void *scratch) {
    switch (l->format) {
    case LINEAR_F32: f32_forward(l, x, ldx, rows, y, ldy, add); break;
    case LINEAR_INT8: int8_forward(l, x, ldx, rows, y, ldy, add, scratch); break;
    case LINEAR_INT4:
    case LINEAR_INT8_GROUPED:
        grouped_forward(l, x, ldx, rows, y, ldy, add, scratch);
        break;
    }
}
