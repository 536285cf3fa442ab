/* Memory of a thread, kept from call to call. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    float *memory;
    int64_t count;
} scratch_memory;

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void drop_scratch(void *own) {
    free(((scratch_memory *)own)->memory);
    free(own);
}

static void make_scratch_key(void) { pthread_key_create(&scratch_key, drop_scratch); }

/* At least `count` floats, at a multiple of 64 bytes; aborts where there is no memory, since
 * nothing of the layer could be computed. */
static float *scratch(int64_t count) {
    pthread_once(&scratch_once, make_scratch_key);
    scratch_memory *own = pthread_getspecific(scratch_key);
    if (!own) {
        own = calloc(1, sizeof *own);
        if (!own) abort();
        pthread_setspecific(scratch_key, own);
    }
    if (own->count < count) {
        free(own->memory);
        own->count = (count + 1023) / 1024 * 1024;
        own->memory = aligned_alloc(64, (size_t)own->count * sizeof(float));
        if (!own->memory) abort();
    }
    return own->memory;
}

#endif
