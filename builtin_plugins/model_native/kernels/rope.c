/* Rotary position embedding (Su et al., "RoFormer", 2021); element i of a head is turned with
 * element i + half. */
#include "fw_kernel.h"

FW_INLINE void rotate(float *head, const float *cosine, const float *sine, int64_t half) {
    float *other = head + half;
    int64_t i = 0;
    for (; i + FW_LANES <= half; i += FW_LANES) {
        fw_vec a = fw_load(head + i), b = fw_load(other + i);
        fw_vec c = fw_load(cosine + i), s = fw_load(sine + i);
        fw_store(head + i, a * c - b * s);
        fw_store(other + i, b * c + a * s);
    }
    for (; i < half; i++) {
        float a = head[i], b = other[i];
        head[i] = a * cosine[i] - b * sine[i];
        other[i] = b * cosine[i] + a * sine[i];
    }
}

typedef struct {
    const int64_t *positions;
    const float *frequencies;
    int64_t half;
    float scale;
    float *cosine, *sine;
} angles_work;

static void angles_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const angles_work *a = context;
    for (int64_t i = begin * a->half; i < end * a->half; i++) {
        float angle = (float)a->positions[i / a->half] * a->frequencies[i % a->half];
        a->cosine[i] = a->scale * cosf(angle);
        a->sine[i] = a->scale * sinf(angle);
    }
}

/* cosine, sine [tokens, half] of position * frequency, times `scale`. */
FW_EXPORT void rope_angles(const int64_t *positions, int64_t tokens, const float *frequencies,
                           int64_t half, float scale, float *cosine, float *sine) {
    angles_work work = {positions, frequencies, half, scale, cosine, sine};
    fw_parallel_for(angles_task, &work, tokens, 16);
}
