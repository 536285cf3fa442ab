/* Functions of vectors of floats; accurate to a few units in the last place. */
#ifndef FW_MATH_H
#define FW_MATH_H

#include <math.h>

#include "fw_kernel.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

typedef int32_t fw_ints __attribute__((vector_size(4 * FW_LANES)));

/* `mask` is what a comparison of vectors gives. */
FW_INLINE fw_vec fw_select(fw_ints mask, fw_vec yes, fw_vec no) {
    return (fw_vec)((mask & (fw_ints)yes) | (~mask & (fw_ints)no));
}

/* yes where a < b; no elsewhere, and where one of both is NaN. */
FW_INLINE fw_vec fw_if_less(fw_vec a, fw_vec b, fw_vec yes, fw_vec no) {
#if defined(__AVX512F__)
    __mmask16 less = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (fw_vec)_mm512_mask_blend_ps(less, (__m512)no, (__m512)yes);
#else
    return fw_select(a < b, yes, no);
#endif
}

/* b where one of both is NaN. */
FW_INLINE fw_vec fw_max(fw_vec a, fw_vec b) {
#if defined(__AVX512F__)
    return (fw_vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return fw_if_less(b, a, a, b);
#endif
}

/* The largest element; NaN are left out if there is anything else in the last half. */
FW_INLINE float fw_highest(fw_vec value) {
    float part[FW_LANES];
    fw_store(part, value);
    for (int n = FW_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
}

FW_INLINE float fw_sum(fw_vec value) {
    float part[FW_LANES];
    fw_store(part, value);
    for (int n = FW_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
}

/* e^x; 0 below -86.6 (where it is less than 2.5e-38), NaN of NaN. Range reduction by multiples of
 * ln 2 in two parts, then a polynomial of degree 6 (Cody & Waite; coefficients as in Cephes). */
FW_INLINE fw_vec fw_exp(fw_vec x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    fw_vec shifted = x * fw_splat(1.44269504f) + fw_splat(shift);
    fw_vec n = shifted - fw_splat(shift);
    fw_vec r = x - n * fw_splat(0.693359375f) + n * fw_splat(2.12194440e-4f);
    fw_vec p = fw_splat(1.9875691500e-4f);
    p = p * r + fw_splat(1.3981999507e-3f);
    p = p * r + fw_splat(8.3334519073e-3f);
    p = p * r + fw_splat(4.1665795894e-2f);
    p = p * r + fw_splat(1.6666665459e-1f);
    p = p * r + fw_splat(5.0000001201e-1f);
    p = p * (r * r) + r + fw_splat(1.0f);
    /* 2^(n - 1), by its exponent's bits, so that n may be 128. */
    fw_ints bits = ((fw_ints)shifted - (fw_ints)fw_splat(shift) + 126) << 23;
    fw_vec value = p * (fw_vec)bits * fw_splat(2.0f);
    value = fw_if_less(x, fw_splat(-86.6f), fw_splat(0.0f), value);
    return fw_if_less(fw_splat(88.72f), x, fw_splat(INFINITY), value);
}

/* Its series about 0, elsewhere by fw_exp. */
FW_INLINE fw_vec fw_tanh(fw_vec x) {
    fw_vec square = x * x;
    fw_vec p = fw_splat(62.0f / 2835.0f);
    p = p * square + fw_splat(-17.0f / 315.0f);
    p = p * square + fw_splat(2.0f / 15.0f);
    p = p * square + fw_splat(-1.0f / 3.0f);
    fw_vec small = x + x * square * p;
    fw_vec large = fw_splat(1.0f) - fw_splat(2.0f) / (fw_exp(x + x) + fw_splat(1.0f));
    return fw_if_less(square, fw_splat(0.0625f), small, large);
}

#endif
