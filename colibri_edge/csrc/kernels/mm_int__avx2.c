/* int8 matrix products for avx2: the template over this set's integer lanes. */
#include "int8__avx2.h"
#define ISA avx2
#include "mm_int.inc"
