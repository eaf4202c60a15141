/* Attention for avx512vnni: the template over this set's lanes. */
#include "v16__avx512vnni.h"
#define ISA avx512vnni
#include "attention.inc"
