/* The kernels of the model loader `native`: one translation unit. */
#include "fw_kernel.h"

#include "linear.c"

#include "rows.c"
#include "norm.c"
#include "rope.c"
#include "activation.c"
#include "layer.c"
