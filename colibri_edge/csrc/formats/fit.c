/* Scales and codes of float weights; see colibri/fit.h. Eight strided lanes everywhere, so that compilers vectorise the
   sums without fast-math. Weighted least squares for each trial in closed form:
   symmetric: scale = sum w q x / sum w q^2; affine: the 2 x 2 normal equations for (scale, minimum). */
#include "colibri/fit.h"

typedef struct { float v[8]; } lanes;

static float lane_sum(const lanes *a) {
    return ((a->v[0] + a->v[4]) + (a->v[2] + a->v[6])) + ((a->v[1] + a->v[5]) + (a->v[3] + a->v[7]));
}

/* Nearest integer, ties to even, for |x| < 2^22: adding 1.5 x 2^23 leaves no fraction bits. */
CL_INLINE float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

CL_INLINE float clamp(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* w[i] = x[i]^2 + mean(x^2); returns false when all weights are zero. */
static int weigh(const float *x, size_t g, float *w) {
    lanes sq = {{0}};
    for (size_t i = 0; i < g; i += 8)
        for (size_t j = 0; j < 8; j++) sq.v[j] += x[i + j] * x[i + j];
    const float mean = lane_sum(&sq) / (float)g;
    for (size_t i = 0; i < g; i++) w[i] = x[i] * x[i] + mean + 1e-30f;
    return mean > 0.0f;
}

/* Least and largest weight. */
static void range(const float *x, size_t g, float *low, float *high) {
    lanes a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, x, sizeof b);
    for (size_t i = 8; i < g; i += 8)
        for (size_t j = 0; j < 8; j++) {
            a.v[j] = x[i + j] < a.v[j] ? x[i + j] : a.v[j];
            b.v[j] = x[i + j] > b.v[j] ? x[i + j] : b.v[j];
        }
    *low = a.v[0];
    *high = b.v[0];
    for (size_t j = 1; j < 8; j++) {
        *low = a.v[j] < *low ? a.v[j] : *low;
        *high = b.v[j] > *high ? b.v[j] : *high;
    }
}

static float fit_one(const float *x, size_t g, float top, const float *trials, size_t m) {
    float w[CL_FIT_MAX_GROUP], low, high, best = -1.0f, scale = 0.0f;
    if (!weigh(x, g, w)) return 0.0f;
    range(x, g, &low, &high);
    const float peak = high > -low ? high : low;
    for (size_t t = 0; t < m; t++) {
        const float inv = -(top + trials[t]) / peak;
        lanes num = {{0}}, den = {{0}};
        for (size_t i = 0; i < g; i += 8)
            for (size_t j = 0; j < 8; j++) {
                const float q = clamp(nearest(clamp(x[i + j] * inv, -1024.0f, 1024.0f)), -top, top - 1.0f);
                const float wq = w[i + j] * q;
                num.v[j] += wq * x[i + j];
                den.v[j] += wq * q;
            }
        const float a = lane_sum(&num), b = lane_sum(&den), s = b > 0.0f ? a / b : 0.0f;
        if (a * s > best) { best = a * s; scale = s; }      /* what the fit takes off sum w x^2 */
    }
    return scale;
}

void cl_fit_symmetric(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale) {
    assert(g % 8 == 0 && g <= CL_FIT_MAX_GROUP);
    for (size_t i = 0; i < n; i++) scale[i] = fit_one(x + i * g, g, top, trials, m);
}

static void fit_two(const float *x, size_t g, float top, const float *trials, size_t m, float *scale, float *minimum) {
    float w[CL_FIT_MAX_GROUP], low, high, best = 0.0f;
    lanes lw = {{0}}, lwx = {{0}};
    int found = 0;
    *scale = *minimum = 0.0f;
    if (!weigh(x, g, w)) return;
    range(x, g, &low, &high);
    low = low < 0.0f ? low : 0.0f;
    *minimum = -low;
    if (!(high > low)) return;
    for (size_t i = 0; i < g; i += 8)
        for (size_t j = 0; j < 8; j++) { lw.v[j] += w[i + j]; lwx.v[j] += w[i + j] * x[i + j]; }
    const float sw = lane_sum(&lw), swx = lane_sum(&lwx);
    for (size_t t = 0; t < m; t++) {
        const float inv = (top + trials[t]) / (high - low);
        lanes a = {{0}}, b = {{0}}, c = {{0}};
        for (size_t i = 0; i < g; i += 8)
            for (size_t j = 0; j < 8; j++) {
                const float q = clamp(nearest((x[i + j] - low) * inv), 0.0f, top), wq = w[i + j] * q;
                a.v[j] += wq;
                b.v[j] += wq * q;
                c.v[j] += wq * x[i + j];
            }
        const float sq = lane_sum(&a), sqq = lane_sum(&b), sqx = lane_sum(&c), det = sw * sqq - sq * sq;
        float s = 0.0f, mn = -1.0f;
        if (det > 1e-6f * sw * sqq) {
            s = (sw * sqx - sq * swx) / det;
            mn = -(sqq * swx - sq * sqx) / det;
        }
        if (mn < 0.0f) { s = sqq > 0.0f ? sqx / sqq : 0.0f; mn = 0.0f; }   /* no negative minimum; or all codes equal */
        const float err = s * (s * sqq - 2.0f * (mn * sq + sqx)) + mn * (mn * sw + 2.0f * swx);
        if (s > 0.0f && (!found || err < best)) { found = 1; best = err; *scale = s; *minimum = mn; }
    }
}

void cl_fit_affine(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale,
                   float *minimum) {
    assert(g % 8 == 0 && g <= CL_FIT_MAX_GROUP);
    for (size_t i = 0; i < n; i++) fit_two(x + i * g, g, top, trials, m, scale + i, minimum + i);
}

/* Round to nearest even bfloat16; x is finite and far from the largest float. */
static uint16_t bf16_bits(float x) {
    const uint32_t u = cl_f32_bits(x);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* codes and weighted squared error of x against scale and bias */
static float assign(const float *x, const float *w, size_t g, float top, float scale, float bias, float *q) {
    const float inv = scale != 0.0f ? 1.0f / scale : 0.0f;
    lanes err = {{0}};
    for (size_t i = 0; i < g; i += 8)
        for (size_t j = 0; j < 8; j++) {
            const float c = clamp(nearest(clamp((x[i + j] - bias) * inv, -1024.0f, 1024.0f)), 0.0f, top);
            const float e = x[i + j] - (scale * c + bias);
            q[i + j] = c;
            err.v[j] += w[i + j] * e * e;
        }
    return lane_sum(&err);
}

/* least squares (scale, bias) for given codes; false where all codes that count are equal */
static int solve(const float *x, const float *w, const float *q, size_t g, float *scale, float *bias) {
    lanes lw = {{0}}, lx = {{0}}, lq = {{0}}, lqq = {{0}}, lqx = {{0}};
    for (size_t i = 0; i < g; i += 8)
        for (size_t j = 0; j < 8; j++) {
            const float wi = w[i + j], wq = wi * q[i + j];
            lw.v[j] += wi;
            lx.v[j] += wi * x[i + j];
            lq.v[j] += wq;
            lqq.v[j] += wq * q[i + j];
            lqx.v[j] += wq * x[i + j];
        }
    const float sw = lane_sum(&lw), sx = lane_sum(&lx), sq = lane_sum(&lq), sqq = lane_sum(&lqq), sqx = lane_sum(&lqx);
    const float det = sw * sqq - sq * sq;
    if (!(det > 1e-6f * sw * sqq)) return 0;
    *scale = (sw * sqx - sq * sx) / det;
    *bias = (sqq * sx - sq * sqx) / det;
    return 1;
}

static void fit_biased_one(const float *x, const float *importance, size_t g, float top, const float *trials, size_t m,
                           uint16_t *scale, uint16_t *bias, uint8_t *code) {
    float w[CL_FIT_MAX_GROUP], q[CL_FIT_MAX_GROUP], low, high, best = -1.0f, total = 0.0f;
    for (size_t i = 0; i < g; i++) w[i] = 1.0f;
    if (importance) {
        for (size_t i = 0; i < g; i++) total += importance[i];
        if (total > 0.0f) for (size_t i = 0; i < g; i++) w[i] = importance[i] / total + 1e-6f;   /* no column counts for nothing */
    }
    range(x, g, &low, &high);
    *scale = 0;
    *bias = bf16_bits(low);
    memset(code, 0, g);
    if (!(high > low)) return;
    for (size_t t = 0; t < m; t++) {
        float s = (high - low) / (top + trials[t]), b = 0.5f * (high + low) - 0.5f * top * s;
        for (int32_t round = 0; round < 4; round++) {
            const uint16_t sb = bf16_bits(s), bb = bf16_bits(b);
            const float err = assign(x, w, g, top, cl_bf16_f32(sb), cl_bf16_f32(bb), q);
            if (best < 0.0f || err < best) {
                best = err;
                *scale = sb;
                *bias = bb;
                for (size_t i = 0; i < g; i++) code[i] = (uint8_t)(int32_t)q[i];
            }
            if (!solve(x, w, q, g, &s, &b)) break;
        }
    }
}

void cl_fit_biased(const float *x, const float *importance, size_t period, size_t n, size_t g, float top, const float *trials,
                   size_t m, uint16_t *scale, uint16_t *bias, uint8_t *code) {
    assert(g % 8 == 0 && g <= CL_FIT_MAX_GROUP);
    for (size_t i = 0; i < n; i++)
        fit_biased_one(x + i * g, importance ? importance + i % period * g : NULL, g, top, trials, m, scale + i, bias + i, code + i * g);
}

void cl_fit_codes(const float *x, size_t n, size_t g, const float *shift, const float *inverse, float low, float high,
                  uint8_t *code) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < g; j++) {
            const float q = nearest(clamp((x[i * g + j] + shift[i]) * inverse[i], -1024.0f, 1024.0f));
            code[i * g + j] = (uint8_t)(int32_t)(clamp(q, low, high) - low);
        }
}
