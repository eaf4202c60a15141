/* What this CPU can run. */
#ifndef COLIBRI_CPU_H
#define COLIBRI_CPU_H
#include "colibri/base.h"
enum { CL_CPU_AVX2 = 1, CL_CPU_NEON = 2, CL_CPU_DOTPROD = 4, CL_CPU_I8MM = 8, CL_CPU_SSE42 = 16, CL_CPU_VNNI = 32, CL_CPU_CRC = 64 };
uint32_t cl_cpu_features(void);
#endif
