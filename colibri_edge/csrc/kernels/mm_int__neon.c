/* int8 matrix products for neon: the template over this set's integer lanes. */
#include "int8__neon.h"
#define ISA neon
#include "mm_int.inc"
