/* Attention for neon: the template over this set's lanes. */
#include "v8__neon.h"
#define ISA neon
#include "attention.inc"
