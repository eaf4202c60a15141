/* The specification of the int8 matrix products. Owns: the order of operations. Refuses: to be optimised. */
#include "sub32.h"
#include "table.h"

static void mm_int(int32_t fmt, const cl_mm_args *a) {
    const cl_format *f = cl_get_format(fmt);
    int32_t subs = f->block_k / 32;
    for (int32_t g = 0; g < a->ngroups; g++)
        for (int32_t t = 0; t < a->nt; t++) {
            const cl_act8 *x = (const cl_act8 *)(const void *)(a->x + (size_t)(a->rows ? a->rows[t] : t) * a->x_stride);
            for (int32_t r = 0; r < 8; r++) {
                float acc = 0.0f, sum = 0.0f, min = 0.0f;
                for (int32_t b = 0; b < a->nblk * subs; b++) {
                    const uint8_t *blk = a->w + (size_t)g * a->group_stride + (size_t)(b / subs) * (size_t)f->block_bytes;
                    cl_sub32 u;
                    cl_unpack_sub32(fmt, blk, b % subs, r, &u);
                    int32_t i[2] = {0, 0};
                    for (int32_t k = 0; k < 32; k++) i[k / 16] += u.q[k] * x[b].q[k];
                    float dot = (float)(u.sc[0] * i[0] + u.sc[1] * i[1]);
                    if (f->block_k != 256) {
                        acc = cl_fma(u.d * x[b].d, dot, acc);
                        if (u.has_min) acc = cl_fma(u.m * x[b].d, (float)(u.mn[0] * x[b].s[0] + u.mn[1] * x[b].s[1]), acc);
                        continue;
                    }
                    if (b % subs == 0) sum = min = 0.0f;
                    sum = cl_fma(x[b].d, dot, sum);
                    if (fmt == CL_FMT_q2_k) min = cl_fma(x[b].d, (float)(u.mn[0] * x[b].s[0] + u.mn[1] * x[b].s[1]), min);
                    else if (u.has_min) min = cl_fma((float)u.mn[0], x[b].sum, min);
                    if (b % subs != subs - 1) continue;
                    if (u.has_min) acc = cl_fma(u.m, min, acc);
                    acc = cl_fma(u.d, sum, acc);
                }
                a->y[(size_t)t * a->ldy + (size_t)(8 * g + r)] = acc;
            }
        }
}

#define X(name, id, k, bytes, q8) \
    static void mm_##name(const cl_mm_args *a) { if (q8) mm_int(id, a); }
CL_FORMATS(X)
#undef X

void cl_fill_mm_int__scalar(cl_kernels *t) {
    t->int8_rows = 8;
#define X(name, id, k, bytes, q8) if (q8) t->mm[id] = mm_##name;
    CL_FORMATS(X)
#undef X
}
