/* The thread pool that all kernel libraries of a process share.
 *
 * The calling thread works too, and it waits for pieces of work, not for threads: one that never
 * woke up costs nothing. Idle threads watch for work for a short while, then they sleep.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fw_pool.h"

#define FW_EXPORT __attribute__((visibility("default")))

enum { MAX_THREADS = 1024, STACK_BYTES = 4 << 20, PAUSES = 16 };

/* Longer than what lies between two loops of one forward pass, shorter than what a system takes
 * to notice that another thread wants the processor. */
static const int64_t SPIN_NS = 50000;
static const int64_t ALONE_NS = 3000;

typedef struct {
    fw_task task;
    void *context;
    int64_t count, grain;
    uint32_t pieces;
} loop_t;

/* What `ticket` and `done` speak of. It is only written while nobody holds a piece. */
static loop_t loop;
/* Generation of the loop in the upper half, pieces that nobody took yet in the lower. */
static _Alignas(64) _Atomic uint64_t ticket;
static _Alignas(64) _Atomic uint32_t done;
static _Atomic bool caller_sleeps;
static _Alignas(64) _Atomic uint32_t rings;
static _Atomic uint32_t sleepers;

static atomic_flag busy = ATOMIC_FLAG_INIT;
/* The calling thread included. */
static _Atomic int wanted_threads = 1;
/* Threads 1 to `started`; only touched by who holds `busy`. */
static int started;
static pthread_t threads[MAX_THREADS];

/* --- sleeping ------------------------------------------------------------------------------ */

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns when it was woken, or when *word is not `seen`, or for no reason. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void reset_sleeping(void) {}
#else
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;

static void sleep_on(_Atomic uint32_t *word, uint32_t seen) {
    pthread_mutex_lock(&bed);
    if (atomic_load(word) == seen) pthread_cond_wait(&bell, &bed);
    pthread_mutex_unlock(&bed);
}

static void wake(_Atomic uint32_t *word, int count) {
    (void)word, (void)count;
    pthread_mutex_lock(&bed);
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&bed);
}

static void reset_sleeping(void) {
    pthread_mutex_init(&bed, NULL);
    pthread_cond_init(&bell, NULL);
}
#endif

/* --- spinning ------------------------------------------------------------------------------ */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Until `ready` or for SPIN_NS; whether it was ready. After a while it lets others run in
 * between: the thread that is waited for may be one that the system put on this processor. */
static inline bool spin_until(bool (*ready)(uint32_t), uint32_t argument) {
    if (ready(argument)) return true;
    int64_t begin = now_ns(), spent = 0;
    while (spent < SPIN_NS) {
        for (int i = 0; i < PAUSES; i++) {
            relax();
            if (ready(argument)) return true;
        }
        if (spent > ALONE_NS) sched_yield();
        spent = now_ns() - begin;
    }
    return ready(argument);
}

/* --- work ---------------------------------------------------------------------------------- */

/* Takes pieces until there are none. A successful exchange means that the taken piece is one of
 * the present loop, which can not end before it is done: then `loop` stands still. */
static void work(int thread) {
    uint64_t seen = atomic_load_explicit(&ticket, memory_order_acquire);
    while ((uint32_t)seen) {
        if (!atomic_compare_exchange_weak_explicit(
                &ticket, &seen, seen - 1, memory_order_acq_rel, memory_order_acquire))
            continue;
        uint32_t pieces = loop.pieces;
        int64_t begin = (int64_t)(pieces - (uint32_t)seen) * loop.grain;
        int64_t end = loop.count - begin > loop.grain ? begin + loop.grain : loop.count;
        loop.task(loop.context, begin, end, thread);
        if (atomic_fetch_add(&done, 1) + 1 == pieces && atomic_load(&caller_sleeps))
            wake(&done, 1);
        seen = atomic_load_explicit(&ticket, memory_order_acquire);
    }
}

static bool has_work(uint32_t unused) {
    (void)unused;
    return (uint32_t)atomic_load_explicit(&ticket, memory_order_acquire) != 0;
}

static bool all_done(uint32_t pieces) {
    return atomic_load_explicit(&done, memory_order_acquire) == pieces;
}

static void *run_thread(void *argument) {
    int thread = (int)(intptr_t)argument;
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "kernel-pool");
#endif
    while (thread < atomic_load(&wanted_threads)) {
        if (!spin_until(has_work, 0)) {
            atomic_fetch_add(&sleepers, 1);
            uint32_t seen = atomic_load(&rings);
            /* A loop published before `sleepers` rose did not see it and rings nothing. */
            if (!(uint32_t)atomic_load(&ticket) && thread < atomic_load(&wanted_threads))
                sleep_on(&rings, seen);
            atomic_fetch_sub(&sleepers, 1);
        }
        if (thread < atomic_load(&wanted_threads)) work(thread);
    }
    return NULL;
}

static void ring(int count) {
    atomic_fetch_add(&rings, 1);
    wake(&rings, count);
}

/* Starts what is missing. Where the system gives no more threads, those that run do the work. */
static void start_threads(int wanted) {
    if (started + 1 >= wanted) return;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* Signals are for the threads of the program, but for those of a fault in a task: blocked,
     * it would end the process without a word. */
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < wanted) {
        void *argument = (void *)(intptr_t)(started + 1);
        if (pthread_create(&threads[started + 1], &attributes, run_thread, argument)) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static int num_threads(void) { return atomic_load_explicit(&wanted_threads, memory_order_relaxed); }

static void parallel_for(fw_task task, void *context, int64_t count, int64_t grain) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    int wanted = num_threads();
    /* Another thread's loop, or the one that this is nested in, has the pool. */
    if (count <= grain || wanted == 1 || atomic_flag_test_and_set(&busy)) {
        task(context, 0, count, 0);
        return;
    }
    if ((count - 1) / grain >= UINT32_MAX) grain = count / UINT32_MAX + 1;
    start_threads(wanted);
    uint32_t pieces = (uint32_t)((count - 1) / grain + 1);
    loop = (loop_t){task, context, count, grain, pieces};
    atomic_store(&done, 0);
    uint64_t generation = (atomic_load(&ticket) >> 32) + 1;
    atomic_store(&ticket, generation << 32 | pieces);
    uint32_t asleep = atomic_load(&sleepers);
    if (asleep) ring(asleep < pieces - 1 ? (int)asleep : (int)(pieces - 1));
    work(0);
    if (!spin_until(all_done, pieces)) {
        atomic_store(&caller_sleeps, true);
        for (uint32_t seen; (seen = atomic_load(&done)) != pieces;) sleep_on(&done, seen);
        atomic_store(&caller_sleeps, false);
    }
    atomic_flag_clear(&busy);
}

/* A forked child has the forking thread alone. */
static void after_fork(void) {
    started = 0;
    atomic_store(&ticket, atomic_load(&ticket) >> 32 << 32);
    atomic_store(&sleepers, 0);
    atomic_store(&caller_sleeps, false);
    reset_sleeping();
    atomic_flag_clear(&busy);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

/* --- for Python ---------------------------------------------------------------------------- */

static const fw_pool pool = {parallel_for, num_threads};

FW_EXPORT const fw_pool *fw_pool_get(void) { return &pool; }

/* Threads that may run tasks, the calling one included; waits for a loop that runs. */
FW_EXPORT void fw_pool_set_num_threads(int wanted) {
    if (wanted < 1) wanted = 1;
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    while (atomic_flag_test_and_set(&busy)) relax();
    atomic_store(&wanted_threads, wanted);
    ring(INT_MAX);
    for (; started >= wanted; started--) pthread_join(threads[started], NULL);
    atomic_flag_clear(&busy);
}
