/* The kernel table: one struct of functions for each instruction set, chosen once at start (kernels.c).
   Every function of every set gives the same bits as the scalar one; docs/numerics.md states what they compute.
   Buffers: floats padded with zeros to a multiple of 32 (256 where a K-quant reads them), any alignment. */
#ifndef COLIBRI_KERNELS_H
#define COLIBRI_KERNELS_H

#include "colibri/base.h"
#include "colibri/formats.h"

/* 32 activations: x[k] = d * q[k]; s[0], s[1] are the sums of q over the first and last 16; sum = d * (s[0] + s[1]). */
typedef struct {
    float d, sum;
    int16_t s[2];
    int8_t q[32];
} cl_act8;

/* y[t*ldy + 8*g + r] = sum over k of W[8*g + r][k] * x_t[k], for t < nt and g < ngroups.
   Activations are float (float formats) or cl_act8 blocks. */
typedef struct {
    const uint8_t *w;     /* [ngroups][nblk] R8 blocks; row groups lie group_stride bytes apart */
    size_t group_stride;
    int32_t ngroups;
    int32_t nblk;         /* R8 blocks of a row group */
    const uint8_t *x;     /* activation rows, x_stride bytes apart */
    size_t x_stride;
    const int32_t *rows;  /* [nt]: which activation row token t uses; NULL = t */
    int32_t nt;
    float *y;             /* [nt][ldy] */
    size_t ldy;
    const uint8_t *next;  /* as many row groups, as far apart, that are probably read after these (a hint); or NULL */
} cl_mm_args;

/* y[t*ldy + j] = sum over k of x_t[k] * w[k*ldw + j], for t < nt and j < n: row-major floats, each y one fma chain in rising k. */
typedef struct {
    const float *w;       /* [k][ldw] */
    size_t ldw;
    int32_t k, n;
    const float *x;       /* activation rows, ldx floats apart */
    size_t ldx;
    const int32_t *rows;  /* [nt]: which activation row token t uses; NULL = t */
    int32_t nt;
    float *y;             /* [nt][ldy] */
    size_t ldy;
} cl_rowmm_args;

/* Gated delta rule of one head over nt tokens. Per value row S[k] of the state, with decay g and rate b of the token:
   d = (v - g * (S . k)) * b; S = g * S + k * d; o = S . q. docs/numerics.md states the order. */
typedef struct {
    float *s;             /* [n/8 rounded up][dk][8]: rows of the state, eight values interleaved */
    const float *q, *k;   /* [nt] rows of dk values, ldk floats apart: normalised queries and keys */
    size_t ldk;
    const float *v;       /* [nt] rows of n values, ldv floats apart */
    size_t ldv;
    const float *decay, *beta; /* [nt], ldg floats apart */
    size_t ldg;
    float *o;             /* [nt] rows of n values, ldo floats apart */
    size_t ldo;
    int32_t nt, dk, n;
} cl_delta_args;

/* Depthwise causal convolution with SiLU, in place: row taps-1+t becomes silu(sum over i, rising, of w[i] * row t+i), for n channels. */
typedef struct {
    float *x;             /* [taps-1 + nt] rows, ldx floats apart: taps-1 earlier inputs, then those of the tokens */
    size_t ldx;
    const float *w;       /* [taps] rows, ldw floats apart */
    size_t ldw;
    int32_t taps, nt, n;
} cl_conv_args;

enum { CL_ACT_SILU = 0, CL_ACT_GELU_TANH = 1, CL_ACT_RELU = 2 };
enum { CL_KV_F32 = 0, CL_KV_F16 = 1, CL_KV_Q8 = 2 }; /* q8: int8 codes, one float16 scale for 32 channels of a position */
enum { CL_KV_BLOCK = 64 }; /* positions that share one softmax maximum; blocks are aligned to absolute positions */

/* One (token, kv head): heads h < nrep share the keys. Positions lo..hi-1 are seen. */
typedef struct {
    const float *q;       /* [nrep][head_dim] */
    const uint8_t *k;     /* [positions/8][head_dim][8] of the kv type */
    const uint8_t *v;     /* [positions][v_stride] of the kv type; v_stride = head_dim rounded up to 8 */
    const uint8_t *k_scale; /* q8: half [positions/8][head_dim/32 rounded up][8] */
    const uint8_t *v_scale; /* q8: half [positions][head_dim/32 rounded up] */
    float *o;             /* [nrep][head_dim] */
    float *scratch;       /* cl_attn_scratch(nrep, head_dim) floats */
    int32_t nrep, head_dim, lo, hi, kv_type;
    float scale;
    float softcap;        /* 0: none */
    const float *sinks;   /* [nrep] or NULL */
    const uint8_t *next_k; /* keys that are probably wanted after these, as far from lo (a hint); or NULL */
} cl_attn_args;

typedef struct {
    const char *name;
    int32_t int8_rows;    /* rows of a register of the integer products: 8 or 16 */
    void (*mm[CL_FMT_COUNT])(const cl_mm_args *a);
    /* x[n] -> n/32 blocks; n a multiple of 32 */
    void (*quantize)(const float *x, cl_act8 *q, int32_t n);
    /* y = x / sqrt(mean(x^2) + eps) * w, over n values; y may be x; w may be NULL (all ones) */
    void (*rmsnorm)(const float *x, const float *w, float *y, int32_t n, float eps);
    /* gu [ngroups][16]: eight gates, eight ups -> h [ngroups][8] = act(gate) * up */
    void (*glu)(int32_t act, const float *gu, float *h, int32_t ngroups);
    /* the same with g = min(gate, limit) and u = up held in -limit .. limit: h = (u + 1) * (g / (1 + exp(-alpha * g))) (gpt-oss) */
    void (*glu_clamped)(const float *gu, float *h, int32_t ngroups, float alpha, float limit);
    /* h[n] = act(x[n]); n a multiple of 8 */
    void (*act)(int32_t act, const float *x, float *h, int32_t n);
    /* y[n] += x[n] and y[n] = fma(s, x[n], y[n]); n a multiple of 8 */
    void (*add)(float *y, const float *x, int32_t n);
    void (*axpy)(float *y, float s, const float *x, int32_t n);
    /* rotates pairs (i, i + half) of one head by cos[half], sin[half] */
    void (*rope)(float *x, const float *cos, const float *sin, int32_t half);
    /* p[n] = softmax(x[n]); n a multiple of 8, padding holds -inf; p may be x */
    void (*softmax)(const float *x, float *p, int32_t n);
    void (*attention)(const cl_attn_args *a);
    void (*rowmm)(const cl_rowmm_args *a);
    /* y[n] *= x[n]; n a multiple of 8 */
    void (*mul)(float *y, const float *x, int32_t n);
    void (*delta)(const cl_delta_args *a);
    void (*conv)(const cl_conv_args *a);
    /* y[n] = x / sqrt(sum x^2 + eps) * scale; y may be x */
    void (*l2norm)(const float *x, float *y, int32_t n, float eps, float scale);
    /* y[n] *= 1 / (1 + exp(-g[n])); n a multiple of 8 */
    void (*sigmoid_mul)(float *y, const float *g, int32_t n);
} cl_kernels;

CL_INLINE size_t cl_attn_scratch(int32_t nrep, int32_t head_dim) {
    return (size_t)nrep * (size_t)(CL_KV_BLOCK + 2 * CL_ROUND_UP(head_dim, 8) + 16);
}

/* n channels of one position as q8: code i at q[i * step], the scale of channels 32b .. 32b+31 at scale[b * scale_step].
   d = half(max |x| / 127), code = round to even(x * (1 / d)) held in -127 .. 127; all zero where d is zero. */
CL_API void cl_kv_quantize(const float *x, int32_t n, int8_t *q, size_t step, uint16_t *scale, size_t scale_step);

typedef struct {
    const char *name;
    int32_t block_k;      /* columns of a block */
    int32_t block_bytes;  /* bytes of an R8 block (eight rows) */
    int32_t int8_act;     /* activations are cl_act8 */
} cl_format;

/* The table in use; never NULL after cl_init. */
CL_API const cl_kernels *cl_get_kernels(void);
/* The i-th table that this CPU can run (0 = scalar, rising), or NULL. */
CL_API const cl_kernels *cl_kernels_at(int32_t i);
/* Chooses the best set, lowered by `isa` (NULL or a name). 0; -1 when the name is unknown; -2 when this CPU lacks it. */
CL_API int32_t cl_init(const char *isa);
/* Format i, or NULL beyond the table. */
CL_API const cl_format *cl_get_format(int32_t i);
/* Bytes of a matrix [rows, cols] in R8, or 0 where the arguments are not sensible. */
CL_API uint64_t cl_matrix_bytes(int32_t format, int64_t rows, int64_t cols);
/* One row of a matrix as floats: out[cols padded to the block]. */
CL_API void cl_dequant_row(int32_t format, const uint8_t *w, int64_t row, int64_t cols, float *out);

#endif
