/* The gated delta rule for neon: the template over this set's eight lanes. */
#include "v8__neon.h"
#define ISA neon
#include "delta.inc"
