/* Products of unsigned weights and signed activations, four inputs at a time.
 *
 * `int_dot` adds to each of FW_LANES outputs w0*x0 + w1*x1 + w2*x2 + w3*x3, where w are four
 * unsigned bytes of that output and x four signed bytes that all outputs share. Sums are exact
 * modulo 2^32 on each path. LINEAR_PLAIN_C leaves the path without intrinsics.
 */
#ifndef INT_DOT_H
#define INT_DOT_H

#include "fw_kernel.h"

#if !defined(LINEAR_PLAIN_C) && (defined(__AVX512BW__) || defined(__AVX2__))
#include <immintrin.h>
#endif

typedef int32_t int_vec __attribute__((vector_size(4 * FW_LANES)));
typedef uint32_t uint_vec __attribute__((vector_size(4 * FW_LANES)));
typedef uint32_t uint_vec_any __attribute__((vector_size(4 * FW_LANES), aligned(1), may_alias));

FW_INLINE uint_vec int_dot_load(const void *weights) {
    uint_vec w = *(const uint_vec_any *)weights;
#if defined(__AVX512F__)
    __asm__("" : "+v"(w)); /* to stay in its register: loads are what the inner loop lacks */
#endif
    return w;
}

/* Four activations in every lane. */
FW_INLINE uint_vec int_dot_share(const void *activations) {
    uint32_t four;
    memcpy(&four, activations, 4);
    return four - (uint_vec){0};
}

#if !defined(LINEAR_PLAIN_C) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

FW_INLINE uint_vec int_dot(uint_vec sum, uint_vec w, uint_vec x) {
    return (uint_vec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}

#elif !defined(LINEAR_PLAIN_C) && defined(__AVX512BW__)

/* Products of bytes can not saturate when they are widened to 16 bits first: even, then odd ones. */
FW_INLINE uint_vec int_dot(uint_vec sum, uint_vec w, uint_vec x) {
    __m512i wide = (__m512i)w, shared = (__m512i)x;
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(wide, _mm512_set1_epi16(255)),
                                     _mm512_srai_epi16(_mm512_slli_epi16(shared, 8), 8));
    __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(wide, 8), _mm512_srai_epi16(shared, 8));
    return sum + (uint_vec)even + (uint_vec)odd;
}

#elif !defined(LINEAR_PLAIN_C) && defined(__AVX2__) && defined(__AVXVNNI__) && FW_LANES == 8

FW_INLINE uint_vec int_dot(uint_vec sum, uint_vec w, uint_vec x) {
    return (uint_vec)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
}

#elif !defined(LINEAR_PLAIN_C) && defined(__AVX2__) && FW_LANES == 8

FW_INLINE uint_vec int_dot(uint_vec sum, uint_vec w, uint_vec x) {
    __m256i wide = (__m256i)w, shared = (__m256i)x;
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(255)),
                                     _mm256_srai_epi16(_mm256_slli_epi16(shared, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(wide, 8), _mm256_srai_epi16(shared, 8));
    return sum + (uint_vec)even + (uint_vec)odd;
}

#else

FW_INLINE uint_vec int_dot(uint_vec sum, uint_vec w, uint_vec x) {
    int_vec signs = (int_vec)x;
    sum += (w & 255) * (uint_vec)((signs << 24) >> 24);
    sum += ((w >> 8) & 255) * (uint_vec)((signs << 16) >> 24);
    sum += ((w >> 16) & 255) * (uint_vec)((signs << 8) >> 24);
    return sum + (w >> 24) * (uint_vec)(signs >> 24);
}

#endif

FW_INLINE fw_vec int_dot_float(uint_vec sum) {
    return __builtin_convertvector((int_vec)sum, fw_vec);
}

#endif
