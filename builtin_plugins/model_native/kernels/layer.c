/* A decoder layer of the Llama family, around its attention. */
#include "linear.h"

typedef struct {
    linear qkv;     /* query, key and value heads one after the other */
    linear out;     /* attention's output to the residual stream */
    linear gate_up; /* gate, then up */
    linear down;
    const float *input_norm, *post_norm; /* [hidden] */
    const float *query_norm, *key_norm;  /* [head size] or NULL */
} layer;

typedef struct {
    int64_t hidden, heads, kv_heads, head_size, inner;
    float eps;
} shape;

/* What a step computes in; rows of `normed` and `gate_up` are ld_* floats apart, a block of rows
 * at a time. */
typedef struct {
    float *x;   /* [tokens, hidden]: the residual stream */
    float *qkv; /* [tokens, qkv features] */
    const float *cosine, *sine; /* [tokens, head size / 2] */
    float *normed;  /* [block, ld_normed] */
    float *gate_up; /* [block, ld_gate_up] */
    void *scratch;
    int64_t block, ld_normed, ld_gate_up;
} buffers;

typedef struct {
    const layer *l;
    const shape *s;
    const buffers *b;
} layer_work;

static void position_task(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const layer_work *w = context;
    const shape *s = w->s;
    int64_t size = s->head_size, half = size / 2;
    for (int64_t token = begin; token < end; token++) {
        float *head = w->b->qkv + token * w->l->qkv.out;
        const float *cosine = w->b->cosine + token * half, *sine = w->b->sine + token * half;
        for (int64_t h = 0; h < s->heads + s->kv_heads; h++, head += size) {
            const float *norm = h < s->heads ? w->l->query_norm : w->l->key_norm;
            if (norm) rms_norm(head, norm, s->eps, size, head);
            rotate(head, cosine, sine, half);
        }
    }
}

/* x to query, key and value in `qkv`, with their positions. */
FW_EXPORT void layer_before(const layer *l, const shape *s, const buffers *b, int64_t tokens) {
    for (int64_t first = 0; first < tokens; first += b->block) {
        int64_t rows = tokens - first < b->block ? tokens - first : b->block;
        norm_rows(b->x + first * s->hidden, rows, l->input_norm, s->eps, s->hidden,
                  b->normed, b->ld_normed);
        linear_forward(&l->qkv, b->normed, b->ld_normed, rows, b->qkv + first * l->qkv.out,
                       l->qkv.out, 0, b->scratch);
    }
    layer_work work = {l, s, b};
    fw_parallel_for(position_task, &work, tokens, 1 + 8192 / l->qkv.out);
}

/* attention[tokens, heads * head size] and x to the next x. */
FW_EXPORT void layer_after(const layer *l, const shape *s, const buffers *b,
                           const float *attention, int64_t tokens) {
    for (int64_t first = 0; first < tokens; first += b->block) {
        int64_t rows = tokens - first < b->block ? tokens - first : b->block;
        float *x = b->x + first * s->hidden;
        linear_forward(&l->out, attention + first * l->out.in, l->out.in, rows, x, s->hidden, 1,
                       b->scratch);
        norm_rows(x, rows, l->post_norm, s->eps, s->hidden, b->normed, b->ld_normed);
        linear_forward(&l->gate_up, b->normed, b->ld_normed, rows, b->gate_up, b->ld_gate_up, 0,
                       b->scratch);
        gated_silu(b->gate_up, s->inner, b->ld_gate_up, rows);
        linear_forward(&l->down, b->gate_up, b->ld_gate_up, rows, x, s->hidden, 1, b->scratch);
    }
}

/* The final norm of the first rows of x: to[count, hidden]. */
FW_EXPORT void final_norm(const shape *s, const buffers *b, const float *weight, int64_t count,
                          float *to) {
    norm_rows(b->x, count, weight, s->eps, s->hidden, to, s->hidden);
}
