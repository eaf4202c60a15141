/* colibri/sampler.h - from logits to one token id.
 *
 * Owns: the filters (repetition penalty, temperature, top-k, top-p, min-p), the random numbers and their scratch, all sized
 * from the vocabulary at init; no allocation per token. Same logits, settings and seed give the same ids on every CPU: its
 * own exp, sums in double in a fixed order, no libm.
 * Refuses: logits that are NaN or +inf, or of which nothing may be taken.
 */
#ifndef COLIBRI_SAMPLER_H
#define COLIBRI_SAMPLER_H

#include "colibri/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CL_SAMPLER_EMEM = -1,  /* out of memory */
    CL_SAMPLER_EARG = -2,  /* a setting outside its range */
    CL_SAMPLER_ENAN = -3,  /* a logit is NaN or +inf */
    CL_SAMPLER_ENONE = -4  /* every token is banned or at -inf */
};

typedef struct {
    float temperature;        /* >= 0; 0 takes the highest logit, ties to the lower id */
    float top_p;              /* 0 .. 1; 1 is off */
    float min_p;              /* 0 .. 1; 0 is off */
    float repetition_penalty; /* > 0; 1 is off */
    int32_t top_k;            /* >= 0; 0 is off */
    int32_t window;           /* last tokens that the penalty sees; 0: all */
    uint64_t seed;
} cl_sampler_config;

typedef struct {
    float p; /* logit, later probability times a constant */
    int32_t id;
} cl_sampler_item;

typedef struct {
    cl_sampler_config cfg;
    int32_t vocab;
    int32_t n_recent, at_recent, cap_recent;
    uint32_t tick;
    uint64_t state;         /* of the random numbers */
    uint8_t *banned;        /* [vocab] 1: never taken */
    float *logits;          /* [vocab] after ban and penalty */
    cl_sampler_item *items; /* [vocab] candidates */
    uint32_t *stamp;        /* [vocab] tick of the last penalty; with window 0 nonzero: seen */
    int32_t *recent;        /* [cap_recent] ring, or with window 0 the distinct ids seen */
} cl_sampler;

/* banned: [vocab] or NULL, copied. Returns 0 or a status. */
CL_API int cl_sampler_init(cl_sampler *s, int32_t vocab, const cl_sampler_config *cfg, const uint8_t *banned);
CL_API void cl_sampler_free(cl_sampler *s);
/* Forgets the tokens seen and starts the random numbers again. */
CL_API void cl_sampler_reset(cl_sampler *s, uint64_t seed);
/* Tells the penalty about a token, 0 <= id < vocab. */
CL_API void cl_sampler_accept(cl_sampler *s, int32_t id);
/* logits: [vocab]. The id taken, which is then accepted, or a status below 0. */
CL_API int32_t cl_sampler_sample(cl_sampler *s, const float *logits);
/* What the next draw would choose from: leaves s->items[0 .. n) with weights p in the order of the draw and returns n, or
   a status; *sum is their total. */
CL_API int32_t cl_sampler_candidates(cl_sampler *s, const float *logits, double *sum);

#ifdef __cplusplus
}
#endif
#endif
