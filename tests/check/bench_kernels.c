/* Micro-benchmarks over the format table: GB/s of one-token products and GMAC/s of many-token ones, by thread CPU time.
   usage: [COLIBRI_EDGE_ISA=name] bench_kernels [format] [tokens ...]    rows 1024, columns 2048; weights beyond every cache for one token. */
#include "colibri/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void bench(const cl_kernels *k, int32_t f, int32_t nt) {
    enum { ROWS = 1024, COLS = 2048 };
    const cl_format *fm = cl_get_format(f);
    size_t one = (size_t)cl_matrix_bytes(f, ROWS, COLS);
    size_t mats = nt == 1 ? (size_t)256 * 1024 * 1024 / one : 4;
    uint8_t *w = (uint8_t *)cl_aligned_alloc(64, one * mats + 4096);
    float *x = (float *)cl_aligned_alloc(64, sizeof(float) * (size_t)nt * COLS), *y = (float *)cl_aligned_alloc(64, sizeof(float) * (size_t)nt * ROWS);
    cl_act8 *q = (cl_act8 *)cl_aligned_alloc(64, sizeof(cl_act8) * (size_t)nt * COLS / 32);
    if (!w || !x || !y || !q) exit(2);
    memset(w, 0x21, one * mats);
    for (int32_t i = 0; i < nt * COLS; i++) x[i] = (float)(i % 17) - 8.0f;
    for (int32_t t = 0; t < nt; t++) k->quantize(x + t * COLS, q + t * COLS / 32, COLS);
    double best = 1e9;
    for (int32_t rep = 0; rep < 5; rep++) {
        double t0 = now();
        for (size_t m = 0; m < mats; m++) {
            cl_mm_args a = {w + m * one, one / (ROWS / 8), ROWS / 8, COLS / fm->block_k, fm->int8_act ? (uint8_t *)q : (uint8_t *)x,
                            fm->int8_act ? sizeof(cl_act8) * COLS / 32 : sizeof(float) * COLS, NULL, nt, y, ROWS, NULL};
            k->mm[f](&a);
        }
        best = CL_MIN(best, now() - t0);
    }
    printf("%-7s %-5s tokens %3d  %7.2f GB/s  %7.2f GMAC/s\n", k->name, fm->name, (int)nt, (double)(one * mats) / best / 1e9,
           (double)mats * ROWS * COLS * nt / best / 1e9);
    cl_aligned_free(w); cl_aligned_free(x); cl_aligned_free(y); cl_aligned_free(q);
}

int main(int argc, char **argv) {
    if (cl_init(getenv("COLIBRI_EDGE_ISA"))) return 2;
    const cl_kernels *k = cl_get_kernels();
    for (int32_t f = 0; f < CL_FMT_COUNT; f++) {
        if (argc > 1 && strcmp(argv[1], cl_get_format(f)->name) && strcmp(argv[1], "all")) continue;
        if (argc > 2) for (int32_t i = 2; i < argc; i++) bench(k, f, atoi(argv[i]));
        else { bench(k, f, 1); bench(k, f, 4); bench(k, f, 8); bench(k, f, 64); }
    }
    return 0;
}
