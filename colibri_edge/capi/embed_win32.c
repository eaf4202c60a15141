/* Finding Python's DLL on Windows. */
#if defined(_WIN32)
#include "embed.h"

#ifndef WIN32_LEAN_AND_MEAN
#  define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

static SRWLOCK lock = SRWLOCK_INIT;
static HMODULE library;

void embed_lock(void) { AcquireSRWLockExclusive(&lock); }
void embed_unlock(void) { ReleaseSRWLockExclusive(&lock); }

static int to_wide(const char *s, wchar_t *out, int n) { return MultiByteToWideChar(CP_UTF8, 0, s, -1, out, n) > 0; }

int embed_exists(const char *path) {
    wchar_t w[EMBED_PATH];
    return to_wide(path, w, EMBED_PATH) && GetFileAttributesW(w) != INVALID_FILE_ATTRIBUTES;
}

FILE *embed_open(const char *path) {
    wchar_t w[EMBED_PATH];
    return to_wide(path, w, EMBED_PATH) ? _wfopen(w, L"r") : NULL;
}

void embed_own_folder(char *out, size_t n) {
    static const int here = 0;
    HMODULE self = NULL;
    wchar_t w[EMBED_PATH];
    out[0] = 0;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, (LPCWSTR)(const void *)&here, &self))
        return;
    DWORD len = GetModuleFileNameW(self, w, EMBED_PATH);
    if (len == 0 || len >= EMBED_PATH) return;
    WideCharToMultiByte(CP_UTF8, 0, w, -1, out, (int)n, NULL, NULL);
    char *slash = strrchr(out, '\\');
    if (slash) *slash = 0;
}

void *embed_symbol(const char *name) {
    HMODULE m = library ? library : GetModuleHandleW(L"python3.dll");
    FARPROC f = m ? GetProcAddress(m, name) : NULL;
    void *p = NULL;
    memcpy(&p, &f, sizeof p);
    return p;
}

int embed_interpreter_of(const char *prefix, char *out, size_t n) {
    static const char *const names[] = {"%s\\Scripts\\python.exe", "%s\\python.exe"};
    for (size_t i = 0; i < 2; i++)
        if ((size_t)snprintf(out, n, names[i], prefix) < n && embed_exists(out)) return 0;
    out[0] = 0;
    return -1;
}

/* python3.dll, the stable ABI, for any version; it lies beside the interpreter. */
int embed_library_of(const char *home, const char *version, char *out, size_t n) {
    static const char *const places[] = {"%s\\python3.dll", "%s\\..\\python3.dll"};
    (void)version;
    for (size_t i = 0; i < 2; i++)
        if ((size_t)snprintf(out, n, places[i], home) < n && embed_exists(out)) return 0;
    out[0] = 0;
    return -1;
}

/* python3.dll only points into python313.dll or the like. The loader does not look for that beside python3.dll once GetProcAddress asks,
   so it has to be loaded before. Changes path. */
static void load_real_beside(wchar_t *path) {
    WIN32_FIND_DATAW found;
    wchar_t *name = wcsrchr(path, L'\\');
    size_t room = name ? EMBED_PATH - (size_t)(++name - path) : 0;
    if (room < sizeof found.cFileName / sizeof *name) return;
    wcscpy(name, L"python3*.dll");
    HANDLE h = FindFirstFileW(path, &found);
    if (h == INVALID_HANDLE_VALUE) return;
    do {
        size_t digits = wcsspn(found.cFileName + 6, L"0123456789");
        if (digits < 2 || found.cFileName[6 + digits] != L'.') continue; /* python3.dll itself, python313t.dll */
        wcscpy(name, found.cFileName);
        if (LoadLibraryExW(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH)) break;
    } while (FindNextFileW(h, &found));
    FindClose(h);
}

int embed_load(const embed_place *place, char *error, size_t n) {
    wchar_t w[EMBED_PATH];
    if (place->library[0] && to_wide(place->library, w, EMBED_PATH)) {
        for (wchar_t *c = w; *c; c++)
            if (*c == L'/') *c = L'\\'; /* LoadLibraryEx takes the folder of its path for the search, but knows one separator only */
        library = LoadLibraryExW(w, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
        if (library) load_real_beside(w);
    }
    if (!library) library = LoadLibraryW(L"python3.dll");
    if (library) return 0;
    snprintf(error, n, "cannot load python3.dll (%s): Windows error %u", place->library[0] ? place->library : "search path", (unsigned)GetLastError());
    return -1;
}
#else
typedef int colibri_embed_win32_is_empty_here;
#endif
