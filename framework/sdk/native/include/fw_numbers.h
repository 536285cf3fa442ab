/* Numbers of 16 bits: loaded as vectors of float32, rounded to nearest even when stored. */
#ifndef FW_NUMBERS_H
#define FW_NUMBERS_H

#include "fw_math.h"

/* Number types, as the Python side names them. */
enum { FW_FLOAT32 = 0, FW_BFLOAT16 = 1, FW_FLOAT16 = 2 };

typedef uint16_t fw_shorts __attribute__((vector_size(2 * FW_LANES), aligned(2), may_alias));
typedef uint32_t fw_words __attribute__((vector_size(4 * FW_LANES)));

FW_INLINE int64_t fw_bytes_of(int type) { return type == FW_FLOAT32 ? 4 : 2; }

/* FW_LANES numbers from the one at `index`. */
FW_INLINE fw_vec fw_load_as(const void *from, int64_t index, int type) {
    if (type == FW_FLOAT32) return fw_load((const float *)from + index);
    const fw_shorts *shorts = (const fw_shorts *)((const uint16_t *)from + index);
#if defined(__AVX512F__)
    if (type == FW_FLOAT16) return (fw_vec)_mm512_cvtph_ps((__m256i)*shorts);
#elif defined(__AVX__) && defined(__F16C__)
    if (type == FW_FLOAT16) return (fw_vec)_mm256_cvtph_ps((__m128i)*shorts);
#endif
    fw_words bits = __builtin_convertvector(*shorts, fw_words);
    if (type == FW_BFLOAT16) return (fw_vec)(bits << 16);
    fw_words magnitude = (bits & 0x7fff) << 13;
    /* The exponent's bias is 112 less; this way it also holds for subnormal numbers. */
    fw_vec scaled = (fw_vec)magnitude * fw_splat(0x1p112f);
    fw_vec special = (fw_vec)(magnitude | 0x7f800000);
    fw_vec value = fw_select((fw_ints)(magnitude >= (0x7c00 << 13)), special, scaled);
    return (fw_vec)((fw_words)value | (bits & 0x8000) << 16);
}

FW_INLINE uint32_t fw_bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FW_INLINE float fw_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FW_INLINE uint16_t fw_to_bfloat16(float value) {
    uint32_t bits = fw_bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

FW_INLINE uint16_t fw_to_float16(float value) {
    uint32_t bits = fw_bits_of(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x47800000) /* 2^16 and more, infinity, NaN */
        bits = bits > 0x7f800000 ? 0x7e00 : 0x7c00;
    else if (bits < 0x38800000) /* subnormal: the sum with 0.5 has their last place */
        bits = fw_bits_of(fw_float_of(bits) + 0.5f) - fw_bits_of(0.5f);
    else
        bits = (bits + 0xc8000fff + (bits >> 13 & 1)) >> 13;
    return (uint16_t)(sign | bits);
}

FW_INLINE float fw_get(const void *from, int64_t index, int type) {
    if (type == FW_FLOAT32) return ((const float *)from)[index];
    uint16_t bits = ((const uint16_t *)from)[index];
    if (type == FW_BFLOAT16) return fw_float_of((uint32_t)bits << 16);
    uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
    if (magnitude >= 0x7c00 << 13) return fw_float_of(sign | magnitude | 0x7f800000);
    return fw_float_of(sign | fw_bits_of(fw_float_of(magnitude) * 0x1p112f));
}

FW_INLINE void fw_put(void *to, int64_t index, float value, int type) {
    if (type == FW_FLOAT32)
        ((float *)to)[index] = value;
    else
        ((uint16_t *)to)[index] =
            type == FW_BFLOAT16 ? fw_to_bfloat16(value) : fw_to_float16(value);
}

#endif
