/* What the extension module hands to libcolibri in a capsule. Private: it changes with the version number. */
#ifndef COLIBRI_CAPI_H
#define COLIBRI_CAPI_H
#include <stdint.h>

enum { CL_CAPI_VERSION = 1 };
#define CL_CAPI_CAPSULE "colibri_edge.capi._capi._api"

typedef struct {
    int32_t version;
    void *(*init_model)(const char *path, int max_batch);
    int (*forward)(void *model, const float *in, float *out, int batch);
    void (*free_model)(void *model);
    int (*hidden_size)(const void *model);
    const char *(*last_error)(void);
    void (*clear_error)(void);
    void *(*session_open)(const char *path, int ctx, int threads);
    int (*session_feed)(void *session, const int32_t *tokens, int n);
    const float *(*session_logits)(const void *session);
    int (*session_vocab)(const void *session);
    int (*session_position)(const void *session);
    int (*session_rewind)(void *session, int position);
    void (*session_close)(void *session);
} cl_capi;

#endif
