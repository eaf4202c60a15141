/* Fills the kernel tables in rising order and chooses one. Owns: the format table. Refuses: per-call dispatch. */
#include "cpu.h"
#include "kernels/sub32.h"
#include "kernels/table.h"

static const cl_format formats[CL_FMT_COUNT] = {
#define X(name, id, k, bytes, q8) {#name, k, bytes, q8},
    CL_FORMATS(X)
#undef X
};

enum { MAX_TABLES = 8 };
static cl_kernels tables[MAX_TABLES];
static int32_t ntables;
static const cl_kernels *chosen;

static cl_kernels *next_table(const char *name) {
    if (ntables) tables[ntables] = tables[ntables - 1]; /* what a set does not bring, it inherits */
    tables[ntables].name = name;
    return &tables[ntables++];
}

static void fill(void) {
    uint32_t f = cl_cpu_features();
    (void)f;
    cl_kernels *t = next_table("scalar");
    cl_fill_float__scalar(t);
    cl_fill_attention__scalar(t);
    cl_fill_rowmm__scalar(t);
    cl_fill_delta__scalar(t);
    cl_fill_mm_int__scalar(t);
#if CL_HAVE_AVX2
    if (f & CL_CPU_AVX2) {
        t = next_table("avx2");
        cl_fill_float__avx2(t);
        cl_fill_attention__avx2(t);
        cl_fill_rowmm__avx2(t);
        cl_fill_delta__avx2(t);
        cl_fill_mm_int__avx2(t);
    }
#endif
#if CL_HAVE_AVX512VNNI
    if (f & CL_CPU_VNNI) {
        t = next_table("avx512vnni");
        cl_fill_attention__avx512vnni(t);
        cl_fill_mm_int__avx512vnni(t);
    }
#endif
#if CL_HAVE_NEON
    if (f & CL_CPU_NEON) {
        t = next_table("neon");
        cl_fill_float__neon(t);
        cl_fill_attention__neon(t);
        cl_fill_rowmm__neon(t);
        cl_fill_delta__neon(t);
        cl_fill_mm_int__neon(t);
    }
#endif
#if CL_HAVE_DOTPROD
    if (f & CL_CPU_DOTPROD) cl_fill_mm_int__dotprod(next_table("dotprod"));
#endif
}

static const char *const known[] = {"scalar", "avx2", "avx512vnni", "neon", "dotprod", "i8mm"};

int32_t cl_init(const char *isa) {
    if (!ntables) fill();
    if (!isa || !*isa) {
        chosen = &tables[ntables - 1];
        return 0;
    }
    for (int32_t i = 0; i < ntables; i++)
        if (!strcmp(tables[i].name, isa)) {
            chosen = &tables[i];
            return 0;
        }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], isa)) return -2;
    return -1;
}

const cl_kernels *cl_get_kernels(void) {
    if (!chosen) cl_init(NULL);
    return chosen;
}

const cl_kernels *cl_kernels_at(int32_t i) {
    if (!ntables) fill();
    return i >= 0 && i < ntables ? &tables[i] : NULL;
}

const cl_format *cl_get_format(int32_t i) { return i >= 0 && i < CL_FMT_COUNT ? &formats[i] : NULL; }

uint64_t cl_matrix_bytes(int32_t format, int64_t rows, int64_t cols) {
    const cl_format *f = cl_get_format(format);
    if (!f || rows <= 0 || cols <= 0 || rows > INT32_MAX - 8 || cols > INT32_MAX - 256) return 0;
    return (uint64_t)((rows + 7) / 8) * (uint64_t)((cols + f->block_k - 1) / f->block_k) * (uint64_t)f->block_bytes;
}

void cl_kv_quantize(const float *x, int32_t n, int8_t *q, size_t step, uint16_t *scale, size_t scale_step) {
    const float magic = 12582912.0f; /* 1.5 x 2^23: adding it leaves no fraction bits */
    for (int32_t b = 0; b < n; b += 32, scale += scale_step) {
        float top = 0.0f;
        for (int32_t i = b; i < CL_MIN(b + 32, n); i++) {
            float a = x[i] < 0.0f ? -x[i] : x[i];
            top = a > top ? a : top;
        }
        top /= 127.0f;
        *scale = cl_f32_f16(top < 65504.0f ? top : 65504.0f);
        const float d = cl_f16_f32(*scale), inverse = d > 0.0f ? 1.0f / d : 0.0f;
        for (int32_t i = b; i < CL_MIN(b + 32, n); i++) {
            float c = x[i] * inverse;
            c = c > 127.0f ? 127.0f : c > -127.0f ? c : -127.0f;
            c = c + magic;
            q[(size_t)i * step] = (int8_t)(int32_t)(c - magic);
        }
    }
}

void cl_dequant_row(int32_t format, const uint8_t *w, int64_t row, int64_t cols, float *out) {
    const cl_format *f = cl_get_format(format);
    int64_t nblk = (cols + f->block_k - 1) / f->block_k;
    const uint8_t *b = w + (size_t)(row / 8) * (size_t)nblk * (size_t)f->block_bytes;
    int32_t r = (int32_t)(row % 8);
    for (int64_t i = 0; i < nblk; i++, b += f->block_bytes, out += f->block_k) {
        if (!f->int8_act) {
            for (int32_t k = 0; k < 32; k++) {
                const uint8_t *p = b + (size_t)(k * 8 + r) * (format == CL_FMT_f32 ? 4 : 2);
                if (format == CL_FMT_f32) memcpy(out + k, p, 4);
                else out[k] = format == CL_FMT_f16 ? cl_f16_f32(cl_load_u16(p)) : cl_bf16_f32(cl_load_u16(p));
            }
            continue;
        }
        for (int32_t s = 0; s < f->block_k / 32; s++) {
            cl_sub32 u;
            cl_unpack_sub32(format, b, s, r, &u);
            for (int32_t k = 0; k < 32; k++) {
                float v = u.d * (float)(u.sc[k / 16] * u.q[k]);
                out[32 * s + k] = u.has_min ? v + u.m * (float)u.mn[k / 16] : v;
            }
        }
    }
}
