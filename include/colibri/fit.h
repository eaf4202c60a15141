/* Scales for groups of weights, used when float weights are quantised (convert/quantise.py). Not on the token path.
   Refuses: NaN and infinity; the caller has checked. */
#ifndef COLIBRI_FIT_H
#define COLIBRI_FIT_H

#include "colibri/base.h"

#define CL_FIT_MAX_GROUP 64

/* For each of n groups of g weights (g a multiple of 8, at most CL_FIT_MAX_GROUP) the scale that codes -top .. top-1 fit best:
   the least sum of w (x - scale q)^2 with w = x^2 + mean(x^2), over trials that aim the weight of largest magnitude at
   -(top + trial). x [n][g], trials [m], scale [n] (may be negative). */
CL_API void cl_fit_symmetric(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale);

/* Likewise x is about scale q - minimum for codes 0 .. top, with scale and minimum [n] at least zero. */
CL_API void cl_fit_affine(const float *x, size_t n, size_t g, float top, const float *trials, size_t m, float *scale,
                          float *minimum);

/* Likewise x is about scale q + bias for codes 0 .. top, scale and bias in bfloat16 bits (either sign), codes [n][g] chosen against
   them. Each trial narrows the range that the codes span by trial / top, then refits scale and bias and chooses codes anew, three
   times; the trial with the least error as stored wins. importance [period][g], at least zero, or NULL: the weights w of group
   i are importance[i % period] (the mean square of the activation that meets each column); NULL: w = 1. */
CL_API void cl_fit_biased(const float *x, const float *importance, size_t period, size_t n, size_t g, float top,
                          const float *trials, size_t m, uint16_t *scale, uint16_t *bias, uint8_t *code);

/* code [n][g] = clamp(round to even((x + shift) inverse), low, high) - low; shift and inverse [n], one for each group. */
CL_API void cl_fit_codes(const float *x, size_t n, size_t g, const float *shift, const float *inverse, float low, float high,
                         uint8_t *code);

#endif
