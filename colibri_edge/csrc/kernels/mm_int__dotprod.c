/* int8 matrix products for dotprod: the template over sdot. */
#include "int8__dotprod.h"
#define ISA dotprod
#include "mm_int.inc"
