/* The gated delta rule for avx2: the template over this set's eight lanes. */
#include "v8__avx2.h"
#define ISA avx2
#include "delta.inc"
