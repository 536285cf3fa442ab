/* Numbers of rows, as Python gives them. */
#include "fw_kernel.h"

/* How many of `rows` come before the first that is not in [0, limit). */
FW_EXPORT int64_t rows_inside(const int64_t *rows, int64_t count, int64_t limit) {
    for (int64_t i = 0; i < count; i++)
        if (rows[i] < 0 || rows[i] >= limit) return i;
    return count;
}
