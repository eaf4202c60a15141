/* The weight formats: one row each. Code, tests and benchmarks iterate this table; docs/format.md draws the layouts.
   X(NAME, id, columns of a block, bytes of an R8 block (eight rows), activations are int8) */
#ifndef COLIBRI_FORMATS_H
#define COLIBRI_FORMATS_H

#define CL_FORMATS(X)          \
    X(f32,  0,  32, 1024, 0)   \
    X(f16,  1,  32,  512, 0)   \
    X(bf16, 2,  32,  512, 0)   \
    X(q8_0, 3,  32,  272, 1)   \
    X(q4_0, 4,  32,  144, 1)   \
    X(q4_1, 5,  32,  160, 1)   \
    X(q5_0, 6,  32,  176, 1)   \
    X(q5_1, 7,  32,  192, 1)   \
    X(q4_k, 8, 256, 1152, 1)   \
    X(q5_k, 9, 256, 1408, 1)   \
    X(q6_k, 10, 256, 1680, 1)  \
    X(q3_k, 11, 256, 880, 1)   \
    X(q2_k, 12, 256, 672, 1)   \
    X(mxfp4, 13, 32, 136, 1)   \
    X(q4_a, 14, 64, 288, 1)    \
    X(q2_a, 15, 64, 160, 1)    \
    X(q4_a32, 16, 32, 160, 1)  \
    X(q2_a32, 17, 32, 96, 1)

enum {
#define X(name, id, k, bytes, q8) CL_FMT_##name = id,
    CL_FORMATS(X)
#undef X
    CL_FMT_COUNT = 18
};

#endif
