/* Finds or starts a Python interpreter in this process and fetches a capsule from it. Private to libcolibri. */
#ifndef COLIBRI_EMBED_H
#define COLIBRI_EMBED_H
#include <stddef.h>
#include <stdio.h>

void embed_lock(void);
void embed_unlock(void);
/* The pointer in capsule `name` of `module`; NULL with the reason in error [n]. The calling thread holds no Python lock afterwards that it
   did not hold before. */
void *embed_capsule(const char *module, const char *name, char *error, size_t n);

/* ---- what embed_posix.c and embed_win32.c give ---- */
enum { EMBED_PATH = 4096 };
typedef struct {
    char executable[EMBED_PATH]; /* the interpreter whose packages are to be found; "" = its default */
    char library[EMBED_PATH];    /* its shared library; "" = the usual name */
    char version[16];            /* "3.11"; "" = unknown */
} embed_place;
void embed_own_folder(char *out, size_t n);           /* where libcolibri lies, without a last separator; "" when unknown */
int embed_exists(const char *path);
FILE *embed_open(const char *path); /* for reading text, path in UTF-8; NULL when it cannot be opened */
/* A function of Python, in this process or in `library` once that is loaded; NULL when there is none. */
void *embed_symbol(const char *name);
/* Loads the shared library of `place` for all modules to see. 0, or -1 with the reason. */
int embed_load(const embed_place *place, char *error, size_t n);
/* Path of the interpreter and of its library inside a folder: 0 when there. */
int embed_interpreter_of(const char *prefix, char *out, size_t n);
int embed_library_of(const char *home, const char *version, char *out, size_t n);
#endif
