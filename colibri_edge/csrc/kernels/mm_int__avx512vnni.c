/* int8 matrix products for avx512vnni: the template over this set's integer lanes. */
#include "int8__avx512vnni.h"
#define ISA avx512vnni
#include "mm_int.inc"
