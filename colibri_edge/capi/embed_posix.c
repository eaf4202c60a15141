/* Finding Python's shared library on POSIX systems. */
#if !defined(_WIN32)
#include "embed.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__APPLE__)
#  define NAME "libpython%s.dylib"
#else
#  define NAME "libpython%s.so.1.0"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;

void embed_lock(void) { pthread_mutex_lock(&lock); }
void embed_unlock(void) { pthread_mutex_unlock(&lock); }
int embed_exists(const char *path) { return access(path, F_OK) == 0; }
FILE *embed_open(const char *path) { return fopen(path, "r"); }

void embed_own_folder(char *out, size_t n) {
    Dl_info info;
    out[0] = 0;
    if (!dladdr((void *)(size_t)&embed_own_folder, &info) || !info.dli_fname) return;
    snprintf(out, n, "%s", info.dli_fname);
    char *slash = strrchr(out, '/');
    if (slash) *slash = 0;
    else snprintf(out, n, ".");
}

void *embed_symbol(const char *name) {
    void *p = dlsym(RTLD_DEFAULT, name);
    return p || !library ? p : dlsym(library, name);
}

int embed_interpreter_of(const char *prefix, char *out, size_t n) {
    static const char *const names[] = {"%s/bin/python3", "%s/bin/python"};
    for (size_t i = 0; i < 2; i++)
        if ((size_t)snprintf(out, n, names[i], prefix) < n && embed_exists(out)) return 0;
    out[0] = 0;
    return -1;
}

int embed_library_of(const char *home, const char *version, char *out, size_t n) {
    static const char *const places[] = {"%s/../lib/" NAME, "%s/../lib64/" NAME, "%s/" NAME};
    for (size_t i = 0; version[0] && i < sizeof places / sizeof *places; i++)
        if ((size_t)snprintf(out, n, places[i], home, version) < n && embed_exists(out)) return 0;
    out[0] = 0;
    return -1;
}

int embed_load(const embed_place *place, char *error, size_t n) {
    char name[64] = "";
    const char *first = place->library;
    if (place->version[0]) snprintf(name, sizeof name, NAME, place->version);
    if (first[0]) library = dlopen(first, RTLD_NOW | RTLD_GLOBAL);
    if (!library && name[0]) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (library) return 0;
    const char *why = dlerror();
    snprintf(error, n, "no shared library of Python %s (%s): %s. Install it (Debian: libpython3), or run `colibri-edge config --libs` once",
             place->version, first[0] ? first : name, why ? why : "its version is unknown");
    return -1;
}
#else
typedef int colibri_embed_posix_is_empty_here;
#endif
