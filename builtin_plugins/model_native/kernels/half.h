/* Scales and minima in IEEE 754 binary16. */
#ifndef HALF_H
#define HALF_H

#include "fw_kernel.h"
#include "int_dot.h"

/* Rounded to the nearest, ties to even; too large becomes infinity, NaN stays. */
FW_INLINE uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 */
    if (bits < 0x38800000)                        /* 2^-14: a multiple of 2^-24 */
        return sign | (uint16_t)nearbyintf(fabsf(value) * 16777216.0f);
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - (112u << 23)) >> 13);
}

#if !defined(LINEAR_PLAIN_C) && FW_LANES == 16

FW_INLINE fw_vec half_load(const uint16_t *from) {
    return (fw_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

#elif !defined(LINEAR_PLAIN_C) && FW_LANES == 8 && defined(__AVX2__) && defined(__F16C__)

FW_INLINE fw_vec half_load(const uint16_t *from) {
    return (fw_vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

#else

FW_INLINE fw_vec half_load(const uint16_t *from) {
    typedef uint16_t halves __attribute__((vector_size(2 * FW_LANES)));
    halves given;
    memcpy(&given, from, sizeof given);
    uint_vec bits = __builtin_convertvector(given, uint_vec);
    uint_vec sign = (bits & 0x8000) << 16, exponent = bits & 0x7c00;
    uint_vec normal = ((bits & 0x7fff) << 13) + (112u << 23);
    uint_vec special = (bits & 0x7fff) << 13 | 0x7f800000;
    fw_vec small = __builtin_convertvector((int_vec)(bits & 0x3ff), fw_vec) * (1.0f / 16777216.0f);
    uint_vec is_small = (uint_vec)(exponent == 0), is_special = (uint_vec)(exponent == 0x7c00);
    uint_vec magnitude = (normal & ~is_small & ~is_special) | ((uint_vec)small & is_small) |
                         (special & is_special);
    return (fw_vec)(magnitude | sign);
}

#endif

FW_INLINE float half_value(uint16_t half) {
    uint16_t halves[FW_LANES] = {half};
    return half_load(halves)[0];
}

#endif
