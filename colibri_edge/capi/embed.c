/* Starting Python inside a C program. Owns: where the interpreter is (embed.cfg beside libcolibri, else the environment that libcolibri lies
   in), start without signal handlers, import of one module. Refuses: ending the interpreter again: other users of it may live on. */
#include "embed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* The functions of Python's stable ABI that are used; objects stay opaque. */
static struct {
    int (*is_initialized)(void);
    void (*initialize)(int signals);
    void (*set_program_name)(const wchar_t *);                  /* before 3.14 */
    wchar_t *(*decode)(const char *, size_t *);
    void *(*config_new)(void);                                  /* from 3.14 on */
    int (*config_str)(void *, const char *, const char *);
    int (*config_int)(void *, const char *, int64_t);
    int (*config_start)(void *);
    int (*config_error)(void *, const char **);
    void (*config_free)(void *);
    void *(*save_thread)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*import_module)(const char *);
    void *(*capsule)(const char *, int);
    void (*fetch)(void **, void **, void **);
    void (*normalize)(void **, void **, void **);
    void *(*str)(void *);
    const char *(*utf8)(void *, intptr_t *);
    void (*decref)(void *);
} py;

static int find(void *to, const char *name) {
    void *p = embed_symbol(name);
    memcpy(to, &p, sizeof p);
    return p != NULL;
}

static int find_all(void) {
    int ok = find(&py.is_initialized, "Py_IsInitialized");
    ok &= find(&py.initialize, "Py_InitializeEx");
    ok &= find(&py.decode, "Py_DecodeLocale");
    ok &= find(&py.save_thread, "PyEval_SaveThread");
    ok &= find(&py.ensure, "PyGILState_Ensure");
    ok &= find(&py.release, "PyGILState_Release");
    ok &= find(&py.import_module, "PyImport_ImportModule");
    ok &= find(&py.capsule, "PyCapsule_Import");
    ok &= find(&py.fetch, "PyErr_Fetch");
    ok &= find(&py.normalize, "PyErr_NormalizeException");
    ok &= find(&py.str, "PyObject_Str");
    ok &= find(&py.utf8, "PyUnicode_AsUTF8AndSize");
    ok &= find(&py.decref, "Py_DecRef");
    if (find(&py.config_new, "PyInitConfig_Create"))
        ok &= find(&py.config_str, "PyInitConfig_SetStr") & find(&py.config_int, "PyInitConfig_SetInt") &
              find(&py.config_start, "Py_InitializeFromInitConfig") & find(&py.config_error, "PyInitConfig_GetError") &
              find(&py.config_free, "PyInitConfig_Free");
    else
        ok &= find(&py.set_program_name, "Py_SetProgramName");
    return ok;
}

/* ---- where Python is ---- */

/* Value of `key = value` or `key=value` in a small text file. */
static int setting(const char *file, const char *key, char *out, size_t n) {
    char line[EMBED_PATH + 64];
    size_t len = strlen(key);
    int found = 0;
    FILE *f = embed_open(file);
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        char *v = line + len;
        if (strncmp(line, key, len)) continue;
        v += strspn(v, " \t");
        if (*v++ != '=') continue;
        v += strspn(v, " \t");
        v[strcspn(v, "\r\n")] = 0;
        snprintf(out, n, "%.*s", (int)n - 1, v);
        found = 1;
    }
    fclose(f);
    return found;
}

/* "3.11" of the last folder named python3.11 in path. */
static void version_in(const char *path, char *out, size_t n) {
    for (const char *p = path; (p = strstr(p, "python3.")) != NULL; p++) {
        size_t len = strspn(p + 6, "0123456789.");
        if (len > 2 && len < n) snprintf(out, n, "%.*s", (int)len, p + 6);
    }
}

static void two_numbers(char *version) { /* "3.11.7" -> "3.11" */
    char *dot = strchr(version, '.');
    if (dot && (dot = strchr(dot + 1, '.')) != NULL) *dot = 0;
}

/* Looks upwards from libcolibri for the environment it is installed in. */
static void find_place(embed_place *p) {
    char here[EMBED_PATH], up[EMBED_PATH], file[EMBED_PATH + 32], home[EMBED_PATH] = "";
    memset(p, 0, sizeof *p);
    embed_own_folder(here, sizeof here);
    snprintf(file, sizeof file, "%s/embed.cfg", here);
    if (setting(file, "executable", p->executable, sizeof p->executable)) {
        setting(file, "library", p->library, sizeof p->library);
        setting(file, "version", p->version, sizeof p->version);
        return;
    }
    version_in(here, p->version, sizeof p->version);
    memcpy(up, here, sizeof up);
    for (;;) {
        char *slash = strrchr(up, '/'), *back = strrchr(up, '\\');
        if (back > slash) slash = back;
        if (!slash || slash == up) return; /* no environment: the interpreter's own rules */
        *slash = 0;
        snprintf(file, sizeof file, "%s/pyvenv.cfg", up);
        if (setting(file, "home", home, sizeof home)) {
            if (!p->version[0] && (setting(file, "version", p->version, sizeof p->version) ||
                                   setting(file, "version_info", p->version, sizeof p->version)))
                two_numbers(p->version);
            break;
        }
        if (!embed_interpreter_of(up, home, sizeof home)) { /* a plain installation: <prefix>/bin/python3 */
            memcpy(p->executable, home, sizeof p->executable);
            snprintf(home, sizeof home, "%.*s/bin", (int)sizeof home - 8, up);
            embed_library_of(home, p->version, p->library, sizeof p->library);
            return;
        }
    }
    embed_interpreter_of(up, p->executable, sizeof p->executable);
    embed_library_of(home, p->version, p->library, sizeof p->library);
}

/* ---- starting it ---- */

static int start_by_config(const embed_place *p, char *error, size_t n) {
    const char *why = NULL;
    void *c = py.config_new();
    int rc = c ? 0 : -1;
    if (!rc && p->executable[0]) rc = py.config_str(c, "program_name", p->executable);
    if (!rc) rc = py.config_int(c, "install_signal_handlers", 0);
    if (!rc) rc = py.config_start(c);
    if (rc && c) py.config_error(c, &why);
    if (rc) snprintf(error, n, "Python did not start: %s", why ? why : "no memory");
    if (c) py.config_free(c);
    return rc;
}

static int start(char *error, size_t n) {
    static embed_place place; /* Python keeps the name */
    find_place(&place);
    if (!find_all() && (embed_load(&place, error, n) || !find_all())) {
        if (!error[0]) snprintf(error, n, "the shared library of Python lacks functions that are needed; wanted Python 3.11 or newer");
        return -1;
    }
    if (py.is_initialized()) return 0;
    if (py.config_new) {
        if (start_by_config(&place, error, n)) return -1;
    } else {
        static wchar_t *name; /* Python asks for it to stay */
        name = place.executable[0] ? py.decode(place.executable, NULL) : NULL;
        if (name) py.set_program_name(name);
        py.initialize(0);
    }
    py.save_thread(); /* nobody holds the lock now: any thread may take it */
    return 0;
}

static void tell(char *error, size_t n, const char *what) {
    void *type = NULL, *value = NULL, *trace = NULL, *text = NULL;
    const char *s = NULL;
    py.fetch(&type, &value, &trace);
    py.normalize(&type, &value, &trace);
    if (value) text = py.str(value);
    if (text) s = py.utf8(text, NULL);
    snprintf(error, n, "cannot import %s: %s. Is colibri-edge installed for the Python that libcolibri belongs to?", what, s ? s : "no reason given");
    if (text) py.decref(text);
    if (type) py.decref(type);
    if (value) py.decref(value);
    if (trace) py.decref(trace);
}

void *embed_capsule(const char *module, const char *name, char *error, size_t n) {
    void *m, *p = NULL;
    int state;
    if (start(error, n)) return NULL;
    state = py.ensure();
    m = py.import_module(module);
    if (m) {
        p = py.capsule(name, 0);
        py.decref(m); /* sys.modules keeps it */
    }
    if (!p) tell(error, n, module);
    py.release(state);
    return p;
}
