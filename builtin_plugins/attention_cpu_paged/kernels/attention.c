/* Attention over a paged cache: keys and values are read where they lie. */
#include "fw_kernel.h"

#include <float.h>

#include "fw_math.h"
#include "fw_numbers.h"

#include "cache.h"
#include "write.h"

#include "call.h"
#include "fetch.h"
#include "scores.h"
#include "values.h"
#include "softmax.h"
#include "scratch.h"
#include "tile.h"
#include "plan.h"
#include "forward.h"
