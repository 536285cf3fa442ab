/* min_p, top_k, top_p and the draw, row by row; what `draws.py` does with torch, where it says what
 * the filters mean. A row is reduced to candidates before anything is ordered, and nothing depends
 * on the number of threads or on other rows. */
#include <stdlib.h>

#include "fw_kernel.h"

/* Logits whose largest is kept: rows are searched block by block. */
#define BLOCK 32
/* Sums are of so many parts, whatever the processor. */
#define PARTS 16
/* Weights that are added at once while a cumulative weight is searched for. */
#define STRIDE 256

typedef struct {
    const float *logits; /* [.., vocab] */
    int64_t vocab;
    const int64_t *rows;
    const double *temperature, *min_p, *top_p, *uniforms;
    const int64_t *top_k; /* vocab when off */
    int64_t *tokens;
    int failed; /* out of memory */
} draw_args;

typedef struct {
    uint64_t key; /* larger for what ranks higher */
    double weight;
} entry;

typedef struct {
    entry *entries;   /* [vocab] */
    double *weights;  /* [vocab], of the token ids */
    int32_t *ids;     /* [vocab], ascending */
    float *block_max; /* [blocks] */
} scratch;

/* e**x for x <= 0, within about one unit of the last place; 0 below -708. Cody and Waite's
 * reduction (Software Manual for the Elementary Functions, 1980) and a Taylor polynomial. */
FW_INLINE double exp_of(double x) {
    const double shift = 0x1.8p52;
    double clipped = x < -708.0 ? -708.0 : x;
    double shifted = clipped * 0x1.71547652b82fep+0 + shift;
    double n = shifted - shift;
    double r = clipped - n * 0x1.62e42fee00000p-1;
    r -= n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int64_t)((uint64_t)bits << 52); /* the low bits of `shifted` are n */
    int64_t scaled;
    memcpy(&scaled, &p, sizeof scaled);
    scaled += bits;
    double result;
    memcpy(&result, &scaled, sizeof result);
    return x < -708.0 ? 0.0 : result;
}

FW_INLINE double weight_of(float logit, float largest, double inverse_temperature) {
    return exp_of(((double)logit - (double)largest) * inverse_temperature);
}

static float find_block_maxima(const float *x, int64_t vocab, float *block_max) {
    float largest = -INFINITY;
    for (int64_t block = 0; block * BLOCK < vocab; block++) {
        const float *from = x + block * BLOCK;
        float best = from[0];
        if ((block + 1) * BLOCK <= vocab) {
            float lanes[8];
            memcpy(lanes, from, sizeof lanes);
            for (int i = 8; i < BLOCK; i += 8)
                for (int j = 0; j < 8; j++)
                    lanes[j] = from[i + j] > lanes[j] ? from[i + j] : lanes[j];
            for (int j = 0; j < 8; j++) best = lanes[j] > best ? lanes[j] : best;
        } else {
            for (int64_t i = 1; i < vocab - block * BLOCK; i++)
                best = from[i] > best ? from[i] : best;
        }
        block_max[block] = best;
        largest = best > largest ? best : largest;
    }
    return largest;
}

/* By logit, of equals the lower id first. */
FW_INLINE uint64_t key_of(float logit, int32_t id) {
    uint32_t bits;
    float plain = logit + 0.0f; /* -0 is 0 */
    memcpy(&bits, &plain, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

FW_INLINE float logit_of(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    bits = bits >> 31 ? bits & 0x7fffffffu : ~bits;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* Of `count` entries in descending order of their keys: the key of the first one with which there
 * are `most` or the weights sum to `mass`; of the last one if there is none. Reorders them. Hoare,
 * "Algorithm 65: Find", CACM 4 (1961), with weights. */
static uint64_t key_at(entry *entries, int64_t count, int64_t most, double mass) {
    int64_t low = 0, high = count - 1;
    double sum = 0.0; /* of what lies before `low` */
    while (low < high) {
        entry pivot = entries[low + (high - low) / 2];
        entries[low + (high - low) / 2] = entries[high];
        int64_t end = low;
        double left = sum;
        for (int64_t i = low; i < high; i++) {
            entry one = entries[i];
            int larger = one.key > pivot.key;
            entries[i] = entries[end];
            entries[end] = one;
            end += larger;
            left += larger ? one.weight : 0.0;
        }
        entries[high] = entries[end];
        entries[end] = pivot;
        if (end > low && (end >= most || left >= mass)) {
            high = end - 1;
            continue;
        }
        sum = left + pivot.weight;
        if (end + 1 >= most || sum >= mass) return pivot.key;
        if (end == high) return pivot.key;
        low = end + 1;
    }
    return entries[low].key;
}

/* The tokens of at least `least`, in the order of their ids. */
static int64_t collect(const float *x, int64_t vocab, float least, scratch *s) {
    int64_t count = 0;
    for (int64_t block = 0; block * BLOCK < vocab; block++) {
        if (!(s->block_max[block] >= least)) continue;
        int64_t end = (block + 1) * BLOCK < vocab ? (block + 1) * BLOCK : vocab;
        for (int64_t i = block * BLOCK; i < end; i++) {
            s->ids[count] = (int32_t)i;
            count += x[i] >= least;
        }
    }
    return count;
}

/* Leave only the first candidates by rank: `most` of them, or as many as it takes until their
 * weights sum to `mass`. */
static int64_t cut(const float *x, scratch *s, int64_t count, int64_t most, double mass) {
    for (int64_t i = 0; i < count; i++)
        s->entries[i] = (entry){key_of(x[s->ids[i]], s->ids[i]), s->weights[i]};
    uint64_t last = key_at(s->entries, count, most, mass);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t id = s->ids[i];
        s->ids[kept] = id;
        s->weights[kept] = s->weights[i];
        kept += key_of(x[id], id) >= last;
    }
    return kept;
}

static double sum_of(const double *weights, int64_t count) {
    double parts[PARTS] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) parts[j] += weights[i + j];
    for (; i < count; i++) sum += weights[i];
    for (int j = 0; j < PARTS; j++) sum += parts[j];
    return sum;
}

/* The float below which no logit has `weight` times the largest one's. */
static float least_logit(float largest, double temperature, double weight) {
    float least = (float)((double)largest + temperature * log(weight));
    return nextafterf(nextafterf(least, -INFINITY), -INFINITY);
}

/* The first of `count` whose cumulative weight exceeds the share: one with a weight. */
static int64_t inverted(const double *weights, int64_t count, double uniform) {
    double share = uniform * sum_of(weights, count), sum = 0.0;
    int64_t at = 0;
    for (; at + STRIDE < count; at += STRIDE) {
        double next = sum + sum_of(weights + at, STRIDE);
        if (next > share) break;
        sum = next;
    }
    for (; at < count; at++) {
        sum += weights[at];
        if (sum > share) return at;
    }
    /* Only where rounding has lost the last one's. */
    do at--;
    while (at > 0 && !(weights[at] > 0));
    return at;
}

static int64_t drawn(const draw_args *args, int64_t at, scratch *s) {
    const float *x = args->logits + args->rows[at] * args->vocab;
    double temperature = args->temperature[at], min_p = args->min_p[at], top_p = args->top_p[at];
    int64_t vocab = args->vocab, top_k = args->top_k[at], blocks = (vocab + BLOCK - 1) / BLOCK;
    float largest = find_block_maxima(x, vocab, s->block_max);
    double inverse = 1.0 / temperature;
    int64_t count;
    double total;
    if (top_k >= vocab && !(min_p > 0)) {
        for (int64_t i = 0; i < vocab; i++) s->weights[i] = weight_of(x[i], largest, inverse);
        total = sum_of(s->weights, vocab);
        if (!(top_p < 1)) return inverted(s->weights, vocab, args->uniforms[at]);
        /* All of less weight than this have less than 1 - top_p together. */
        double least = (1 - top_p) * (total / (double)vocab) * (1 - 1e-9);
        count = collect(x, vocab, least_logit(largest, temperature, least), s);
        for (int64_t i = 0; i < count; i++) s->weights[i] = s->weights[s->ids[i]];
    } else {
        float least = -INFINITY;
        if (top_k < blocks) {
            /* So many blocks have a token of at least that. */
            for (int64_t i = 0; i < blocks; i++)
                s->entries[i] = (entry){key_of(s->block_max[i], (int32_t)i), 0.0};
            least = logit_of(key_at(s->entries, blocks, top_k, INFINITY));
        }
        if (min_p > 0) {
            float other = least_logit(largest, temperature, min_p);
            least = other > least ? other : least;
        }
        count = collect(x, vocab, least, s);
        for (int64_t i = 0; i < count; i++)
            s->weights[i] = weight_of(x[s->ids[i]], largest, inverse);
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++) {
            s->ids[kept] = s->ids[i];
            s->weights[kept] = s->weights[i];
            kept += s->weights[i] >= min_p;
        }
        count = kept;
        if (count > top_k) count = cut(x, s, count, top_k, INFINITY);
        total = sum_of(s->weights, count);
    }
    if (top_p < 1) count = cut(x, s, count, count, top_p * total);
    return s->ids[inverted(s->weights, count, args->uniforms[at])];
}

static void draw_rows(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    draw_args *args = context;
    size_t vocab = (size_t)args->vocab, blocks = (vocab + BLOCK - 1) / BLOCK;
    char *memory =
        malloc(vocab * (sizeof(entry) + sizeof(double) + sizeof(int32_t)) + blocks * sizeof(float));
    if (!memory) {
        __atomic_store_n(&args->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    scratch s;
    s.entries = (entry *)memory;
    s.weights = (double *)(s.entries + vocab);
    s.ids = (int32_t *)(s.weights + vocab);
    s.block_max = (float *)(s.ids + vocab);
    for (int64_t at = begin; at < end; at++) args->tokens[at] = drawn(args, at, &s);
    free(memory);
}

/* Returns 0, or 1 when there is no memory. */
FW_EXPORT int draw_tokens(const float *logits, int64_t vocab, const int64_t *rows, int64_t count,
                          const double *temperature, const double *min_p, const int64_t *top_k,
                          const double *top_p, const double *uniforms, int64_t *tokens) {
    draw_args args = {logits, vocab, rows, temperature, min_p, top_p, uniforms, top_k, tokens, 0};
    fw_parallel_for(draw_rows, &args, count, 1 + (1 << 13) / vocab);
    return args.failed;
}
