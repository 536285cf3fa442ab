/* The thread pool of the process, as kernels see it. */
#ifndef FW_POOL_H
#define FW_POOL_H

#include <stdint.h>

#if defined(__clang__) ? __clang_major__ < 10 : __GNUC__ < 9
#error "kernels need gcc 9 or clang 10, or later"
#endif

/* A piece of work: elements [begin, end) of a loop. `thread` is below fw_num_threads(), and no
 * two tasks of one loop run at once with the same one: it may choose scratch memory that belongs
 * to the loop, but none that belongs to the process. */
typedef void (*fw_task)(void *context, int64_t begin, int64_t end, int thread);

typedef struct {
    void (*parallel_for)(fw_task task, void *context, int64_t count, int64_t grain);
    int (*num_threads)(void);
} fw_pool;

#endif
