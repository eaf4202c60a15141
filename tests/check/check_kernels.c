/* Every kernel of every instruction set against the scalar one, bit for bit, on random and extreme inputs.
   usage: check_kernels [seed]        prints the failing parameters; exit 1 on any difference. */
#include "colibri/kernels.h"
#include <stdio.h>
#include <stdlib.h>

static uint64_t state;
static uint32_t rnd(void) { /* splitmix64 */
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}
static float frand(void) { return ((float)(int32_t)rnd()) * (1.0f / 2147483648.0f); }

static int32_t checks, failures;
static const cl_kernels *ref, *k;

static void same(const void *a, const void *b, size_t n, const char *what, int32_t p0, int32_t p1, int32_t p2) {
    checks++;
    if (!memcmp(a, b, n)) return;
    if (failures++ < 20) printf("FAIL %s %s: parameters %d %d %d\n", k->name, what, (int)p0, (int)p1, (int)p2);
}

static void *mem(size_t n) {
    void *p = cl_aligned_alloc(64, n + 64);
    if (!p) exit(2);
    return p;
}

enum { MODE_RANDOM, MODE_EXTREME, MODE_BYTES, MODES };

/* A half whose exponent is sensible, so that sums stay finite. */
static uint16_t half_rand(void) { return (uint16_t)((rnd() & 0x83FFu) | (((rnd() % 12) + 8) << 10)); }

static void fill_blocks(int32_t f, uint8_t *w, size_t nblocks, int32_t mode) {
    const cl_format *fm = cl_get_format(f);
    size_t bytes = (size_t)fm->block_bytes;
    for (size_t b = 0; b < nblocks; b++, w += bytes) {
        for (size_t i = 0; i < bytes; i++) w[i] = mode == MODE_EXTREME ? ((rnd() & 1) ? 0xFF : (rnd() & 1) ? 0x80 : 0) : (uint8_t)rnd();
        if (!fm->int8_act) {
            for (int32_t i = 0; i < 256; i++) {
                float v = frand();
                uint16_t h = f == CL_FMT_f16 ? half_rand() : (uint16_t)(cl_f32_bits(v) >> 16);
                if (f == CL_FMT_f32) memcpy(w + 4 * i, &v, 4);
                else memcpy(w + 2 * i, &h, 2);
            }
            continue;
        }
        if (f == CL_FMT_mxfp4) { /* any exponent but those that overflow sums, the subnormal ones too */
            for (int32_t i = 0; i < 8; i++) w[i] = mode == MODE_BYTES ? (uint8_t)(rnd() % 3) : (uint8_t)(rnd() % 160);
            continue;
        }
        if (f >= CL_FMT_q4_a) {
            for (int32_t i = 0; i < 16; i++) {
                uint16_t h = (uint16_t)(cl_f32_bits(frand() * (mode == MODE_BYTES ? 1e-39f : 4.0f)) >> 16);
                memcpy(w + 2 * i, &h, 2);
            }
            continue;
        }
        int32_t has_m = f == CL_FMT_q4_1 || f == CL_FMT_q5_1 || f == CL_FMT_q4_k || f == CL_FMT_q5_k || f == CL_FMT_q2_k;
        for (int32_t i = 0; i < (has_m ? 16 : 8); i++) {
            uint16_t h = half_rand();
            memcpy(w + 2 * i, &h, 2);
        }
    }
}

static void fill_floats(float *x, int32_t n, int32_t mode) {
    for (int32_t i = 0; i < n; i++) {
        float v = frand() * 3.0f;
        if (mode == MODE_EXTREME) v = (rnd() & 1) ? 1e4f : (rnd() & 1) ? -1e4f : (rnd() & 3) ? 0.0f : 1e-35f;
        if (mode == MODE_BYTES && (rnd() & 7) == 0) v *= 1000.0f;
        x[i] = v;
    }
}

static void check_mm(int32_t f, int32_t mode) {
    static const int32_t nts[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 33};
    const cl_format *fm = cl_get_format(f);
    for (int32_t nblk = 1; nblk <= (fm->block_k == 256 ? 3 : 5); nblk++)
        for (int32_t ng = 1; ng <= 3; ng++)
            for (size_t i = 0; i < sizeof nts / sizeof *nts; i++) {
                int32_t nt = nts[i], n = nblk * fm->block_k, rows[64];
                uint8_t *w = (uint8_t *)mem((size_t)(2 * ng * nblk) * (size_t)fm->block_bytes + 4096);
                float *x = (float *)mem(sizeof(float) * (size_t)(n * 40));
                cl_act8 *q = (cl_act8 *)mem(sizeof(cl_act8) * (size_t)(n / 32 * 40));
                float *y0 = (float *)mem(sizeof(float) * (size_t)(nt * 32)), *y1 = (float *)mem(sizeof(float) * (size_t)(nt * 32));
                fill_blocks(f, w, (size_t)(2 * ng * nblk), mode);
                fill_floats(x, n * 40, mode);
                for (int32_t t = 0; t < 40; t++) ref->quantize(x + t * n, q + t * (n / 32), n);
                for (int32_t t = 0; t < nt; t++) rows[t] = (int32_t)(rnd() % 40);
                cl_mm_args a = {w, (size_t)(nblk * fm->block_bytes) * 2, ng, nblk, fm->int8_act ? (uint8_t *)q : (uint8_t *)x,
                                fm->int8_act ? sizeof(cl_act8) * (size_t)(n / 32) : sizeof(float) * (size_t)n, (rnd() & 1) ? rows : NULL, nt, y0, 32, (rnd() & 1) ? w : NULL};
                ref->mm[f](&a);
                a.y = y1;
                k->mm[f](&a);
                same(y0, y1, sizeof(float) * (size_t)(nt * 32), fm->name, nblk, ng, nt);
                cl_aligned_free(w); cl_aligned_free(x); cl_aligned_free(q); cl_aligned_free(y0); cl_aligned_free(y1);
            }
}

static void check_elementwise(int32_t mode) {
    for (int32_t n = 1; n <= 300; n = n < 70 ? n + 1 : n + 37) {
        int32_t m = CL_ROUND_UP(n, 32);
        float *x = (float *)mem(sizeof(float) * (size_t)(4 * m)), *w = (float *)mem(sizeof(float) * (size_t)m);
        float *a = (float *)mem(sizeof(float) * (size_t)(4 * m)), *b = (float *)mem(sizeof(float) * (size_t)(4 * m));
        cl_act8 *qa = (cl_act8 *)mem(sizeof(cl_act8) * (size_t)(m / 32)), *qb = (cl_act8 *)mem(sizeof(cl_act8) * (size_t)(m / 32));
        fill_floats(x, 4 * m, mode);
        fill_floats(w, m, MODE_RANDOM);
        ref->rmsnorm(x, w, a, n, 1e-5f); k->rmsnorm(x, w, b, n, 1e-5f);
        same(a, b, sizeof(float) * (size_t)n, "rmsnorm", n, mode, 0);
        ref->rmsnorm(x, NULL, a, n, 1e-5f); k->rmsnorm(x, NULL, b, n, 1e-5f);
        same(a, b, sizeof(float) * (size_t)n, "rmsnorm without weights", n, mode, 0);
        ref->quantize(x, qa, m); k->quantize(x, qb, m);
        same(qa, qb, sizeof(cl_act8) * (size_t)(m / 32), "quantize", m, mode, 0);
        for (int32_t act = 0; act < 3; act++) {
            ref->glu(act, x, a, m / 8); k->glu(act, x, b, m / 8);
            same(a, b, sizeof(float) * (size_t)m, "glu", m, act, mode);
            ref->act(act, x, a, m); k->act(act, x, b, m);
            same(a, b, sizeof(float) * (size_t)m, "act", m, act, mode);
        }
        ref->glu_clamped(x, a, m / 8, 1.702f, 7.0f); k->glu_clamped(x, b, m / 8, 1.702f, 7.0f);
        same(a, b, sizeof(float) * (size_t)m, "glu_clamped", m, mode, 0);
        memcpy(a, w, sizeof(float) * (size_t)m); memcpy(b, w, sizeof(float) * (size_t)m);
        ref->add(a, x, m); k->add(b, x, m);
        ref->axpy(a, 0.37f, x + m, m); k->axpy(b, 0.37f, x + m, m);
        same(a, b, sizeof(float) * (size_t)m, "add, axpy", m, mode, 0);
        ref->mul(a, x, m); k->mul(b, x, m);
        same(a, b, sizeof(float) * (size_t)m, "mul", m, mode, 0);
        memcpy(a, x, sizeof(float) * (size_t)(2 * m)); memcpy(b, x, sizeof(float) * (size_t)(2 * m));
        ref->rope(a, x, w, n); k->rope(b, x, w, n);
        same(a, b, sizeof(float) * (size_t)(2 * m), "rope", n, mode, 0);
        for (int32_t i = n; i < m; i++) x[i] = -1.0f / 0.0f;
        ref->softmax(x, a, m); k->softmax(x, b, m);
        same(a, b, sizeof(float) * (size_t)m, "softmax", n, mode, 0);
        cl_aligned_free(x); cl_aligned_free(w); cl_aligned_free(a); cl_aligned_free(b); cl_aligned_free(qa); cl_aligned_free(qb);
    }
}

static void check_attention(void) {
    static const int32_t dims[] = {8, 18, 32, 64, 72, 128}, his[] = {1, 7, 8, 9, 63, 64, 65, 130, 200};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t h = 0; h < sizeof his / sizeof *his; h++)
            for (int32_t nrep = 1; nrep <= 9; nrep++)
                for (int32_t kv = 0; kv < 3; kv++) {
                    int32_t hd = dims[d], vs = CL_ROUND_UP(hd, 8), hi = his[h], lo = (rnd() & 1) ? 0 : (int32_t)(rnd() % (uint32_t)hi), np = CL_ROUND_UP(hi, 8);
                    size_t nk = (size_t)(np * hd), nv = (size_t)(np * vs), es = kv == CL_KV_F16 ? 2 : kv == CL_KV_Q8 ? 1 : 4;
                    size_t nks = (size_t)(np * ((hd + 31) / 32));
                    uint8_t *kk = (uint8_t *)mem(nk * es), *vv = (uint8_t *)mem(nv * es);
                    float *q = (float *)mem(sizeof(float) * (size_t)(nrep * hd)), *o0 = (float *)mem(sizeof(float) * (size_t)(nrep * hd)),
                          *o1 = (float *)mem(sizeof(float) * (size_t)(nrep * hd)), *s = (float *)mem(sizeof(float) * cl_attn_scratch(nrep, hd));
                    float sinks[16];
                    fill_floats(q, nrep * hd, MODE_RANDOM);
                    fill_floats(sinks, 16, MODE_RANDOM);
                    for (size_t i = 0; i < nk; i++) { float v = frand(); uint16_t u = cl_f32_f16(v); int8_t c = (int8_t)rnd(); memcpy(kk + i * es, kv == CL_KV_Q8 ? (void *)&c : kv ? (void *)&u : (void *)&v, es); }
                    for (size_t i = 0; i < nv; i++) { float v = frand(); uint16_t u = cl_f32_f16(v); int8_t c = (int8_t)rnd(); memcpy(vv + i * es, kv == CL_KV_Q8 ? (void *)&c : kv ? (void *)&u : (void *)&v, es); }
                    uint16_t *scales = (uint16_t *)mem(sizeof(uint16_t) * nks * 2);
                    for (size_t i = 0; i < 2 * nks; i++) scales[i] = (uint16_t)(half_rand() & 0x7FFFu);
                    cl_attn_args a = {q, kk, vv, (uint8_t *)scales, (uint8_t *)(scales + nks), o0, s, nrep, hd, lo, hi, kv, 0.11f, (rnd() & 3) ? 0.0f : 30.0f, (rnd() & 1) ? NULL : sinks,
                                      (rnd() & 1) ? kk : NULL};
                    ref->attention(&a);
                    a.o = o1;
                    k->attention(&a);
                    same(o0, o1, sizeof(float) * (size_t)(nrep * hd), "attention", hd, hi, nrep * 3 + kv);
                    cl_aligned_free(kk); cl_aligned_free(vv); cl_aligned_free(q); cl_aligned_free(o0); cl_aligned_free(o1); cl_aligned_free(s); cl_aligned_free(scales);
                }
}

static void check_rowmm(int32_t mode) {
    static const int32_t ks[] = {1, 7, 8, 13, 64}, ns[] = {1, 8, 21, 520, 1040};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++)
            for (int32_t nt = 1; nt <= 9; nt++) {
                int32_t kk = ks[i], n = ns[j], rows[9];
                size_t ldw = (size_t)n + 3, ldx = (size_t)kk + 1, ldy = (size_t)n + 5, ny = ldy * (size_t)nt;
                float *w = (float *)mem(sizeof(float) * ldw * (size_t)kk), *x = (float *)mem(sizeof(float) * ldx * 9),
                      *a = (float *)mem(sizeof(float) * ny), *b = (float *)mem(sizeof(float) * ny);
                fill_floats(w, (int32_t)ldw * kk, MODE_RANDOM);
                fill_floats(x, (int32_t)ldx * 9, mode);
                for (int32_t t = 0; t < 9; t++) rows[t] = (int32_t)(rnd() % 9);
                cl_rowmm_args r = {w, ldw, kk, n, x, ldx, (rnd() & 1) ? NULL : rows, nt, a, ldy};
                ref->rowmm(&r);
                r.y = b;
                k->rowmm(&r);
                same(a, b, sizeof(float) * ny, "rowmm", kk, n, nt); /* what lies between the rows stays as it was, too */
                cl_aligned_free(w); cl_aligned_free(x); cl_aligned_free(a); cl_aligned_free(b);
            }
}

static void check_delta(void) {
    static const int32_t dks[] = {1, 7, 16, 33, 128}, ns[] = {1, 8, 12, 29, 32, 64}, nts[] = {1, 2, 5, 33};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 6; j++)
            for (size_t h = 0; h < 4; h++) {
                int32_t dk = dks[i], n = ns[j], nt = nts[h];
                size_t ldk = (size_t)dk + 1, ldv = (size_t)n + 3, ns8 = (size_t)(CL_ROUND_UP(n, 8) * dk), no = ldv * (size_t)nt;
                float *q = (float *)mem(sizeof(float) * ldk * (size_t)nt), *kk = (float *)mem(sizeof(float) * ldk * (size_t)nt),
                      *v = (float *)mem(sizeof(float) * no), *g = (float *)mem(sizeof(float) * (size_t)(2 * nt)),
                      *s0 = (float *)mem(sizeof(float) * ns8), *s1 = (float *)mem(sizeof(float) * ns8),
                      *a = (float *)mem(sizeof(float) * no), *b = (float *)mem(sizeof(float) * no);
                fill_floats(q, (int32_t)ldk * nt, MODE_RANDOM);
                fill_floats(kk, (int32_t)ldk * nt, MODE_RANDOM);
                fill_floats(v, (int32_t)no, MODE_RANDOM);
                fill_floats(s0, (int32_t)ns8, MODE_RANDOM);
                fill_floats(a, (int32_t)no, MODE_RANDOM);
                for (int32_t t = 0; t < nt; t++) ref->l2norm(kk + (size_t)t * ldk, kk + (size_t)t * ldk, dk, 1e-6f, 1.0f);
                for (int32_t t = 0; t < 2 * nt; t++) g[t] = (frand() + 1.0f) * 0.5f;
                memcpy(s1, s0, sizeof(float) * ns8);
                memcpy(b, a, sizeof(float) * no);
                cl_delta_args d = {s0, q, kk, ldk, v, ldv, g, g + 1, 2, a, ldv, nt, dk, n};
                ref->delta(&d);
                d.s = s1;
                d.o = b;
                k->delta(&d);
                same(a, b, sizeof(float) * no, "delta", dk, n, nt);
                same(s0, s1, sizeof(float) * ns8, "delta's state", dk, n, nt);
                cl_aligned_free(q); cl_aligned_free(kk); cl_aligned_free(v); cl_aligned_free(g);
                cl_aligned_free(s0); cl_aligned_free(s1); cl_aligned_free(a); cl_aligned_free(b);
            }
}

static void check_conv(int32_t mode) {
    for (int32_t taps = 1; taps <= 5; taps++)
        for (int32_t n = 1; n <= 70; n = n < 17 ? n + 1 : n + 19)
            for (int32_t nt = 1; nt <= 9; nt += 4) {
                size_t ld = (size_t)n + 2, nx = ld * (size_t)(taps - 1 + nt);
                float *a = (float *)mem(sizeof(float) * nx), *b = (float *)mem(sizeof(float) * nx), *w = (float *)mem(sizeof(float) * ld * 5);
                fill_floats(a, (int32_t)nx, mode);
                fill_floats(w, (int32_t)ld * 5, MODE_RANDOM);
                memcpy(b, a, sizeof(float) * nx);
                cl_conv_args c = {a, ld, w, ld, taps, nt, n};
                ref->conv(&c);
                c.x = b;
                k->conv(&c);
                same(a, b, sizeof(float) * nx, "conv", taps, n, nt);
                ref->l2norm(a, a, n, 1e-6f, 0.3f); k->l2norm(b, b, n, 1e-6f, 0.3f);
                same(a, b, sizeof(float) * nx, "l2norm", n, mode, 0);
                int32_t n8 = (int32_t)(nx / 2) & ~7;
                ref->sigmoid_mul(a, a + nx / 2, n8); k->sigmoid_mul(b, b + nx / 2, n8);
                same(a, b, sizeof(float) * nx, "sigmoid_mul", n8, mode, 0);
                cl_aligned_free(a); cl_aligned_free(b); cl_aligned_free(w);
            }
}

int main(int argc, char **argv) {
    state = argc > 1 ? (uint64_t)strtoull(argv[1], NULL, 10) : 1;
    ref = cl_kernels_at(0);
    for (int32_t i = 1; (k = cl_kernels_at(i)) != NULL; i++) {
        for (int32_t mode = 0; mode < MODES; mode++) {
            for (int32_t f = 0; f < CL_FMT_COUNT; f++) check_mm(f, mode);
            check_elementwise(mode);
            check_rowmm(mode);
            check_conv(mode);
        }
        check_attention();
        check_delta();
        printf("%s: %d checks so far\n", k->name, (int)checks);
    }
    printf("%d passed, %d failed\n", (int)(checks - failures), (int)failures);
    return failures != 0;
}
