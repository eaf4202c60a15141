/* Attention for scalar: the template over this set's lanes. */
#include "v8__scalar.h"
#define ISA scalar
#include "attention.inc"
