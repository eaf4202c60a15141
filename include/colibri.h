/* colibri-edge for C and C++: MoE blocks and whole models. C99 or C++11, nothing but the standard headers.

       cc main.c $(colibri-edge config --cflags --libs)

   The first call of colibri_init_model or colibri_session_open starts what is needed inside this process (a Python interpreter that your
   program never sees); later calls on blocks do not touch it and take no lock of its. Once open, nothing allocates memory.
   One model or session belongs to one thread at a time; several may run in several threads.
   Documentation: docs/c-api.md of the project. */
#ifndef COLIBRI_H
#define COLIBRI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && defined(COLIBRI_BUILDING)
#  define COLIBRI_API __declspec(dllexport)
#elif defined(_WIN32)
#  define COLIBRI_API __declspec(dllimport)
#elif defined(__GNUC__)
#  define COLIBRI_API __attribute__((visibility("default")))
#else
#  define COLIBRI_API
#endif

/* What functions that return int answer; colibri_last_error() says why. */
#define COLIBRI_OK 0
#define COLIBRI_ERROR_MEMORY (-1)  /* no memory, a file that cannot be used, a batch or token count over the maximum, a NULL pointer */
#define COLIBRI_ERROR_ROUTING (-2) /* a router score is no number: NaN or infinity in the input, damaged weights */
#define COLIBRI_ERROR_EXPERT (-3)  /* an expert's output is not finite, or its record is damaged */

/* ---- one MoE block: a version 1 .colibri file ---- */
typedef struct colibri_model colibri_model_t;

/* Opens a file. path: UTF-8, either separator. max_batch: most tokens of one forward, at least 1.
   NULL when it cannot be opened. Free with colibri_free. Threads: the fast cores, or COLIBRI_EDGE_THREADS. */
COLIBRI_API colibri_model_t *colibri_init_model(const char *path, int max_batch);

/* in [batch][hidden] -> out [batch][hidden], row-major, not overlapping; 0 <= batch <= max_batch.
   batch 0 is a dry run: it checks the model and computes nothing; in and out may be NULL. 0, -1, -2 or -3. */
COLIBRI_API int colibri_forward(colibri_model_t *model, const float *in, float *out, int batch);

/* Gives everything back. NULL is allowed. */
COLIBRI_API void colibri_free(colibri_model_t *model);

/* Floats of a token's row, or -1 for NULL. */
COLIBRI_API int colibri_hidden_size(const colibri_model_t *model);

/* Why the last call of this thread failed; "" when none has. Valid until this thread's next call. Never NULL. */
COLIBRI_API const char *colibri_last_error(void);

/* ---- whole models: version 2 files, .gguf files, Hugging Face folders ---- */
typedef struct colibri_session colibri_session_t;

/* Opens a model. path: UTF-8, as the system writes it. ctx: most positions, 0 = the default; threads: 0 = what pays here. NULL when it
   cannot be opened. */
COLIBRI_API colibri_session_t *colibri_session_open(const char *path, int ctx, int threads);

/* Appends n tokens to the sequence; afterwards the logits of the last one can be read. 0, -1, -2 or -3; after an error the position is
   what it was before the call. */
COLIBRI_API int colibri_session_feed(colibri_session_t *session, const int32_t *tokens, int n);

/* Logits [vocab] of the last token fed, overwritten by the next feed; NULL before the first. */
COLIBRI_API const float *colibri_session_logits(const colibri_session_t *session);
COLIBRI_API int colibri_session_vocab(const colibri_session_t *session);    /* number of logits */
COLIBRI_API int colibri_session_position(const colibri_session_t *session); /* tokens in the sequence */

/* Forgets all tokens from `position` on. 0, or -1 when there are not that many; a model with a recurrent state computes tokens since its
   last checkpoint again, which can fail as a feed does. */
COLIBRI_API int colibri_session_rewind(colibri_session_t *session, int position);
COLIBRI_API void colibri_session_close(colibri_session_t *session);

#ifdef __cplusplus
}
#endif
#endif
