/* libcolibri: include/colibri.h for programs that know nothing of Python.
   Owns: bringing up what is needed at the first call, and the text of its own failures. Refuses: work of its own; every call goes to the
   table that colibri_edge.capi._capi hands out. Links to nothing but the C library: Python's functions are found at run time, in the process
   or in the shared library of the interpreter that this package was installed for (embed.c). */
#define COLIBRI_BUILDING 1
#include "colibri.h"
#include "colibri/capi.h"
#include "embed.h"

#include <stdatomic.h>
#include <stdio.h>

#if defined(_MSC_VER)
#  define THREAD_LOCAL __declspec(thread)
#else
#  define THREAD_LOCAL _Thread_local
#endif

static _Atomic(const cl_capi *) table;
static THREAD_LOCAL char own_error[1024]; /* why there is no table */

/* The table, or NULL with own_error. */
static const cl_capi *api(void) {
    const cl_capi *t = atomic_load_explicit(&table, memory_order_acquire);
    if (t) return t;
    embed_lock();
    t = atomic_load_explicit(&table, memory_order_acquire);
    if (!t) {
        own_error[0] = 0;
        t = (const cl_capi *)embed_capsule("colibri_edge.capi._capi", CL_CAPI_CAPSULE, own_error, sizeof own_error);
        if (t && t->version != CL_CAPI_VERSION) {
            snprintf(own_error, sizeof own_error, "libcolibri wants version %d of its table, colibri_edge has %d: two installations are mixed",
                     (int)CL_CAPI_VERSION, (int)t->version);
            t = NULL;
        }
        atomic_store_explicit(&table, t, memory_order_release);
    }
    embed_unlock();
    return t;
}

/* A table for calls that need an open model: without one there is none, and the call is a mistake of the caller. */
static const cl_capi *opened(void) { return atomic_load_explicit(&table, memory_order_acquire); }

static int no_model(void) {
    snprintf(own_error, sizeof own_error, "nothing is open: the pointer is NULL");
    return COLIBRI_ERROR_MEMORY;
}

colibri_model_t *colibri_init_model(const char *path, int max_batch) {
    const cl_capi *t = api();
    return t ? (colibri_model_t *)t->init_model(path, max_batch) : NULL;
}

int colibri_forward(colibri_model_t *model, const float *in, float *out, int batch) {
    const cl_capi *t = opened();
    return t ? t->forward(model, in, out, batch) : no_model();
}

void colibri_free(colibri_model_t *model) {
    const cl_capi *t = opened();
    if (t && model) t->free_model(model);
}

int colibri_hidden_size(const colibri_model_t *model) {
    const cl_capi *t = opened();
    return t ? t->hidden_size(model) : -1;
}

const char *colibri_last_error(void) {
    const cl_capi *t = opened();
    return t ? t->last_error() : own_error;
}

colibri_session_t *colibri_session_open(const char *path, int ctx, int threads) {
    const cl_capi *t = api();
    return t ? (colibri_session_t *)t->session_open(path, ctx, threads) : NULL;
}

int colibri_session_feed(colibri_session_t *session, const int32_t *tokens, int n) {
    const cl_capi *t = opened();
    return t ? t->session_feed(session, tokens, n) : no_model();
}

const float *colibri_session_logits(const colibri_session_t *session) {
    const cl_capi *t = opened();
    return t ? t->session_logits(session) : NULL;
}

int colibri_session_vocab(const colibri_session_t *session) {
    const cl_capi *t = opened();
    return t ? t->session_vocab(session) : -1;
}

int colibri_session_position(const colibri_session_t *session) {
    const cl_capi *t = opened();
    return t ? t->session_position(session) : -1;
}

int colibri_session_rewind(colibri_session_t *session, int position) {
    const cl_capi *t = opened();
    return t ? t->session_rewind(session, position) : no_model();
}

void colibri_session_close(colibri_session_t *session) {
    const cl_capi *t = opened();
    if (t && session) t->session_close(session);
}
