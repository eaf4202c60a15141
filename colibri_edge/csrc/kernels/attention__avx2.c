/* Attention for avx2: the template over this set's lanes. */
#include "v8__avx2.h"
#define ISA avx2
#include "attention.inc"
