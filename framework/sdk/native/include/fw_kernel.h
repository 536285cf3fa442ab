/* Common ground of compiled kernels: exported functions, vectors of floats, and the thread pool.
 *
 * A kernel library is one translation unit: a main .c file that includes this header first, then
 * its parts. It has no tie to any other library's ABI: callers pass raw pointers.
 */
#ifndef FW_KERNEL_H
#define FW_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fw_pool.h"

#define FW_EXPORT __attribute__((visibility("default")))
#define FW_INLINE static inline __attribute__((always_inline))

/* Floats in a vector register. */
#if defined(__AVX512F__)
#define FW_LANES 16
#elif defined(__AVX__)
#define FW_LANES 8
#else
#define FW_LANES 4
#endif

typedef float fw_vec __attribute__((vector_size(4 * FW_LANES)));
typedef float fw_vec_any __attribute__((vector_size(4 * FW_LANES), aligned(4), may_alias));

FW_INLINE fw_vec fw_load(const float *from) { return *(const fw_vec_any *)from; }
FW_INLINE void fw_store(float *to, fw_vec value) { *(fw_vec_any *)to = value; }
FW_INLINE fw_vec fw_splat(float value) { return value - (fw_vec){0}; }

/* The pool of the process, which the Python side binds after loading; without it everything runs
 * in the calling thread. */
static const fw_pool *fw_bound_pool;

FW_EXPORT void fw_bind_pool(const fw_pool *pool) { fw_bound_pool = pool; }

/* Threads that may run tasks, the calling one included. */
FW_INLINE int fw_num_threads(void) { return fw_bound_pool ? fw_bound_pool->num_threads() : 1; }

/* Runs `task` over [0, count) in pieces of `grain` (at least 1) elements, which threads take one
 * after the other; returns when all are done. Where nothing can run beside the caller, and in a
 * loop inside of a task, it is one piece. */
FW_INLINE void fw_parallel_for(fw_task task, void *context, int64_t count, int64_t grain) {
    if (count <= 0) return;
    if (fw_bound_pool && count > grain)
        fw_bound_pool->parallel_for(task, context, count, grain);
    else
        task(context, 0, count, 0);
}

#endif
