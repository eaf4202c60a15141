/* The gated delta rule for scalar: the template over this set's eight lanes. */
#include "v8__scalar.h"
#define ISA scalar
#include "delta.inc"
