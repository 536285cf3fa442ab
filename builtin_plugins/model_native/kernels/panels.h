/* Panels of outputs, which the inner loops of the integer formats go through. */
#ifndef PANELS_H
#define PANELS_H

#include "quantized_rows.h"

#define PANEL 32  /* outputs whose weights are interleaved */
#define VECTORS 2 /* of outputs in the inner loop */

FW_INLINE int64_t panels_of(int64_t out) { return (out + PANEL - 1) / PANEL; }

/* Adds the outputs of one vector, of which `count` exist, to bias and to what is there. */
FW_INLINE void store_outputs(float *y, fw_vec value, const float *bias, int add, int64_t count) {
    if (count >= FW_LANES) {
        if (bias) value += fw_load(bias);
        fw_store(y, add ? fw_load(y) + value : value);
    } else {
        for (int64_t i = 0; i < count; i++) {
            float one = value[i] + (bias ? bias[i] : 0.0f);
            y[i] = add ? y[i] + one : one;
        }
    }
}

#endif
