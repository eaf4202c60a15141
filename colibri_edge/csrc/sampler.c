/* sampler.c - sampling filters and random numbers; see sampler.h.
 *
 * Order of the filters: penalty, temperature, top-k, top-p, min-p, as Hugging Face applies them. Formulas: repetition
 * penalty Keskar et al. 2019 (arXiv:1909.05858), top-p Holtzman et al. 2020 (arXiv:1904.09751), min-p Nguyen et al. 2024
 * (arXiv:2407.01082); random numbers PCG-XSH-RR 64/32 (O'Neill 2014).
 * Nothing is sorted whole: top-k keeps a heap of k, top-p sorts one bucket of weights.
 */
#include "colibri/sampler.h"

#include <stdlib.h>

#define EXP_LOW (-87.0)           /* weights below e^-87 are 0 */
#define BUCKETS ((127 << 4) + 2) /* of weights 0 .. 1 by their upper 13 bits */

typedef cl_sampler_item item;

static uint32_t pcg32(uint64_t *state)
{
    uint64_t s = *state;
    uint32_t x = (uint32_t)(((s >> 18) ^ s) >> 27), r = (uint32_t)(s >> 59);
    *state = s * 6364136223846793005u + 1442695040888963407u;
    return x >> r | x << ((32u - r) & 31u);
}

/* Uniform in [0, 1) with 53 bits. */
static double uniform(uint64_t *state)
{
    uint64_t hi = pcg32(state), lo = pcg32(state);
    return (double)((hi << 32 | lo) >> 11) * (1.0 / 9007199254740992.0);
}

static int valid(int32_t vocab, const cl_sampler_config *c)
{
    return vocab > 0 && c->temperature >= 0 && c->temperature < 1e30f && c->top_p >= 0 && c->top_p <= 1 && c->min_p >= 0 &&
           c->min_p <= 1 && c->repetition_penalty > 0 && c->repetition_penalty < 1e30f && c->top_k >= 0 && c->window >= 0;
}

int cl_sampler_init(cl_sampler *s, int32_t vocab, const cl_sampler_config *cfg, const uint8_t *banned)
{
    size_t n = (size_t)vocab;
    memset(s, 0, sizeof *s);
    if (!valid(vocab, cfg))
        return CL_SAMPLER_EARG;
    s->cfg = *cfg;
    s->vocab = vocab;
    s->cap_recent = cfg->window ? cfg->window : vocab;
    s->banned = calloc(n, 1);
    s->logits = malloc(n * sizeof *s->logits);
    s->items = malloc(n * sizeof *s->items);
    s->stamp = calloc(n, sizeof *s->stamp);
    s->recent = malloc((size_t)s->cap_recent * sizeof *s->recent);
    if (!s->banned || !s->logits || !s->items || !s->stamp || !s->recent) {
        cl_sampler_free(s);
        return CL_SAMPLER_EMEM;
    }
    if (banned)
        for (size_t i = 0; i < n; i++)
            s->banned[i] = banned[i] != 0;
    cl_sampler_reset(s, cfg->seed);
    return 0;
}

void cl_sampler_free(cl_sampler *s)
{
    free(s->banned);
    free(s->logits);
    free(s->items);
    free(s->stamp);
    free(s->recent);
    memset(s, 0, sizeof *s);
}

void cl_sampler_reset(cl_sampler *s, uint64_t seed)
{
    s->cfg.seed = seed;
    s->state = 0;
    pcg32(&s->state);
    s->state += seed;
    pcg32(&s->state);
    s->n_recent = s->at_recent = 0;
    s->tick = 0;
    memset(s->stamp, 0, (size_t)s->vocab * sizeof *s->stamp);
}

void cl_sampler_accept(cl_sampler *s, int32_t id)
{
    if (id < 0 || id >= s->vocab)
        return;
    if (s->cfg.window == 0) {
        if (!s->stamp[id]) {
            s->stamp[id] = 1;
            s->recent[s->n_recent++] = id;
        }
        return;
    }
    s->recent[s->at_recent] = id;
    s->at_recent = s->at_recent + 1 == s->cap_recent ? 0 : s->at_recent + 1;
    s->n_recent += s->n_recent < s->cap_recent;
}

/* Each token seen in the window is made less likely once. */
static void penalise(cl_sampler *s)
{
    float r = s->cfg.repetition_penalty;
    if (s->cfg.window && ++s->tick == 0) {
        memset(s->stamp, 0, (size_t)s->vocab * sizeof *s->stamp);
        s->tick = 1;
    }
    for (int32_t i = 0; i < s->n_recent; i++) {
        int32_t id = s->recent[i];
        float x = s->logits[id];
        if (s->cfg.window) {
            if (s->stamp[id] == s->tick)
                continue;
            s->stamp[id] = s->tick;
        }
        s->logits[id] = x > 0 ? x / r : x * r;
    }
}

/* Copies logits: [vocab] with banned tokens at -inf; the id of the highest, or a status. */
static int32_t prepare(cl_sampler *s, const float *logits)
{
    const float inf = cl_bits_f32(0x7F800000u);
    int32_t best = CL_SAMPLER_ENONE;
    float top = -inf;
    int bad = 0;
    for (int32_t i = 0; i < s->vocab; i++) {
        float x = s->banned[i] ? -inf : logits[i];
        bad |= !(x < inf);
        s->logits[i] = x;
    }
    if (bad)
        return CL_SAMPLER_ENAN;
    if (s->cfg.repetition_penalty != 1.0f)
        penalise(s);
    for (int32_t i = 0; i < s->vocab; i++)
        if (s->logits[i] > top) {
            top = s->logits[i];
            best = i;
        }
    return top < inf ? best : CL_SAMPLER_ENAN; /* a penalty below one can take a logit past the largest float */
}

/* a before b: higher, then lower id */
static inline int ahead(item a, item b)
{
    return a.p != b.p ? a.p > b.p : a.id < b.id;
}

/* Restores a heap h: [n] with the last item (in order of `ahead`) on top, below place i. */
static void sift(item *h, int32_t n, int32_t i)
{
    item x = h[i];
    for (;;) {
        int32_t k = 2 * i + 1;
        if (k >= n)
            break;
        if (k + 1 < n && ahead(h[k], h[k + 1]))
            k++;
        if (!ahead(x, h[k]))
            break;
        h[i] = h[k];
        i = k;
    }
    h[i] = x;
}

static void heapify(item *h, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(h, n, i);
}

/* Sorts a heap into order: highest first. */
static void unheap(item *h, int32_t n)
{
    while (n > 1) {
        item x = h[0];
        h[0] = h[--n];
        h[n] = x;
        sift(h, n, 0);
    }
}

/* The k highest logits, in order, as scaled logits. */
static int32_t select_top_k(cl_sampler *s, int32_t k)
{
    const float low = -cl_bits_f32(0x7F800000u);
    int32_t n = 0;
    for (int32_t i = 0; i < s->vocab; i++) {
        item x = {s->logits[i], i};
        if (!(x.p > low))
            continue;
        if (n < k) {
            s->items[n++] = x;
            if (n == k)
                heapify(s->items, n);
        } else if (ahead(x, s->items[0])) {
            s->items[0] = x;
            sift(s->items, n, 0);
        }
    }
    if (n < k)
        heapify(s->items, n);
    unheap(s->items, n);
    return n;
}

/* e^x for x <= 0, in double products and sums alone: the same bits everywhere, and loops over it become vectors on every
   target, while a float exp with fused products has to emulate them on baseline x86-64 (0.15 us each). Taylor to degree 7
   on |r| <= ln(2) / 2: relative error under 1e-8. Below e^-87: 0. */
static inline double sampler_exp(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: rounds to the nearest integer, in the low bits */
    double c = x < EXP_LOW ? EXP_LOW : x, m = c * 1.4426950408889634 + magic, n = m - magic;
    double r = c - n * 0.6931471803691238 - n * 1.9082149292705877e-10, p = 1.0 / 5040;
    uint64_t bits;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    memcpy(&bits, &m, 8);
    bits = (bits + 1023) << 52;
    memcpy(&r, &bits, 8);
    p *= r; /* not inside the choice, which then needs no branch */
    return x < EXP_LOW ? 0.0 : p;
}

/* x: [n] logits -> weights in (0, 1], top -> 1, in place. */
static void to_weights(const cl_sampler *s, float *x, int32_t n, float top)
{
    double inv = 1.0 / (double)s->cfg.temperature;
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)sampler_exp(((double)x[i] - (double)top) * inv);
}

/* Cuts sorted items: [n] with weights, before which there is `mass`, where the mass reaches `want`. */
static int32_t cut(const item *it, int32_t n, double mass, double want)
{
    int32_t k = 0;
    while (k < n && mass < want)
        mass += (double)it[k++].p;
    return k;
}

static int32_t bucket(float p)
{
    return (int32_t)(cl_f32_bits(p) >> 19);
}

/* Top-p without top-k. Weights are counted in buckets of one sixteenth of a power of two; whole buckets are in or out, and
   only the one on the border is sorted. Leaves the kept items in s->items, those above the border by id. */
static int32_t select_top_p(cl_sampler *s)
{
    double mass[BUCKETS] = {0}, all = 0, above = 0, want;
    int32_t b = BUCKETS - 1, n = 0, m = 0;
    for (int32_t i = 0; i < s->vocab; i++)
        mass[bucket(s->logits[i])] += (double)s->logits[i];
    for (int32_t i = BUCKETS - 1; i >= 0; i--)
        all += mass[i];
    want = (double)s->cfg.top_p * all;
    while (b > 0 && above + mass[b] < want)
        above += mass[b--];
    /* above the border from the front, the border from the back */
    for (int32_t i = 0; i < s->vocab; i++) {
        item x = {s->logits[i], i};
        if (bucket(x.p) > b)
            s->items[n++] = x;
        else if (bucket(x.p) == b)
            s->items[s->vocab - ++m] = x;
    }
    memmove(s->items + n, s->items + s->vocab - m, (size_t)m * sizeof *s->items);
    heapify(s->items + n, m);
    unheap(s->items + n, m);
    m = cut(s->items + n, m, above, want);
    return n + m ? n + m : 1;
}

/* Drops items: [n] below min_p; the order stays. */
static int32_t drop_low(item *it, int32_t n, float min_p, double *sum)
{
    int32_t k = 0;
    *sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (it[i].p >= min_p && it[i].p > 0) {
            *sum += (double)it[i].p;
            it[k++] = it[i];
        }
    return k;
}

int32_t cl_sampler_candidates(cl_sampler *s, const float *logits, double *sum)
{
    const cl_sampler_config *c = &s->cfg;
    int32_t best = prepare(s, logits), n;
    double all = 0;
    float top;
    if (best < 0)
        return best;
    top = s->logits[best];
    if (c->temperature == 0 || c->top_k == 1 || c->top_p == 0) {
        s->items[0].p = 1;
        s->items[0].id = best;
        *sum = 1;
        return 1;
    }
    if (c->top_k && c->top_k < s->vocab) {
        n = select_top_k(s, c->top_k);
        for (int32_t i = 0; i < n; i++) {
            to_weights(s, &s->items[i].p, 1, top);
            all += (double)s->items[i].p;
        }
        if (c->top_p < 1.0f)
            n = cut(s->items, n, 0, (double)c->top_p * all);
        return drop_low(s->items, n, c->min_p, sum);
    }
    to_weights(s, s->logits, s->vocab, top);
    if (c->top_p < 1.0f)
        return drop_low(s->items, select_top_p(s), c->min_p, sum);
    for (n = 0; n < s->vocab; n++) {
        s->items[n].p = s->logits[n];
        s->items[n].id = n;
    }
    return drop_low(s->items, n, c->min_p, sum);
}

int32_t cl_sampler_sample(cl_sampler *s, const float *logits)
{
    double sum, at = 0, u;
    int32_t n = cl_sampler_candidates(s, logits, &sum), id;
    if (n < 0)
        return n;
    id = s->items[n - 1].id;
    if (n > 1) {
        u = uniform(&s->state) * sum;
        for (int32_t i = 0; i < n; i++) {
            at += (double)s->items[i].p;
            if (u < at) {
                id = s->items[i].id;
                break;
            }
        }
    }
    cl_sampler_accept(s, id);
    return id;
}
