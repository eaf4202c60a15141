/* Files, cores and shared libraries by the Win32 API. Paths come as UTF-8; both separators are good. */
#if defined(_WIN32)
#include "host.h"
#include <stdio.h>
#include <stdlib.h>

static wchar_t *wide(const char *path) {
    int n = MultiByteToWideChar(CP_UTF8, 0, path, -1, NULL, 0);
    wchar_t *w = n > 0 ? (wchar_t *)malloc(sizeof(wchar_t) * (size_t)n) : NULL;
    if (w) MultiByteToWideChar(CP_UTF8, 0, path, -1, w, n);
    return w;
}

static int32_t open_file(const char *path, HANDLE *h, uint64_t *size) {
    LARGE_INTEGER li;
    wchar_t *w = wide(path);
    if (!w) return cl_fail(-1, "%s: the path is not UTF-8", path);
    *h = CreateFileW(w, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    free(w);
    if (*h == INVALID_HANDLE_VALUE) return cl_fail(-1, "%s: cannot open: Windows error %u", path, (unsigned)GetLastError());
    if (!GetFileSizeEx(*h, &li)) {
        CloseHandle(*h);
        return cl_fail(-1, "%s: not a regular file", path);
    }
    *size = (uint64_t)li.QuadPart;
    return 0;
}

static int32_t read_all(HANDLE h, uint8_t *p, uint64_t n) {
    while (n) {
        DWORD got = 0, ask = (DWORD)CL_MIN(n, (uint64_t)1 << 30);
        if (!ReadFile(h, p, ask, &got, NULL) || got == 0) return -1;
        p += got;
        n -= got;
    }
    return 0;
}

int32_t cl_host_peek(const char *path, void *out, size_t n, uint64_t *size) {
    HANDLE h;
    if (open_file(path, &h, size)) return -1;
    int32_t rc = *size < n ? -2 : read_all(h, (uint8_t *)out, n) ? cl_fail(-1, "%s: cannot read", path) : 0;
    CloseHandle(h);
    return rc;
}

int32_t cl_host_open(const char *path, int32_t how, size_t head, size_t skew, cl_host_file *f) {
    HANDLE h;
    memset(f, 0, sizeof *f);
    if (open_file(path, &h, &f->size)) return -1;
    f->kind = how;
    if (how == CL_HOST_MAP) {
        HANDLE m = CreateFileMappingW(h, NULL, PAGE_READONLY, 0, 0, NULL);
        void *p = m ? MapViewOfFile(m, FILE_MAP_READ, 0, 0, 0) : NULL;
        if (m) CloseHandle(m);
        CloseHandle(h);
        if (!p) return cl_fail(-1, "%s: cannot map %llu bytes", path, (unsigned long long)f->size);
        f->handle = p;
        f->data = (const uint8_t *)p;
        return 0;
    }
    f->handle = _aligned_malloc((size_t)f->size + 2 * CL_CACHE_LINE + skew, CL_CACHE_LINE);
    if (!f->handle) {
        CloseHandle(h);
        return cl_fail(-1, "%s: no memory for %llu bytes", path, (unsigned long long)f->size);
    }
    uint8_t *data = (uint8_t *)f->handle + CL_ROUND_UP(head, (size_t)CL_CACHE_LINE) - head + skew;
    f->data = data;
    int32_t rc = read_all(h, data, f->size);
    CloseHandle(h);
    if (!rc) return 0;
    cl_host_close(f);
    return cl_fail(-1, "%s: cannot read it to its end", path);
}

void cl_host_close(cl_host_file *f) {
    if (f->handle && f->kind == CL_HOST_MAP) UnmapViewOfFile(f->handle);
    else if (f->handle) _aligned_free(f->handle);
    memset(f, 0, sizeof *f);
}

int32_t cl_affinity_known(void) { return 1; }
int32_t cl_cpu_list(int32_t *cpus, int32_t max) {
    DWORD_PTR mine = 0, all = 0;
    int32_t n = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return 0;
    for (int32_t c = 0; c < (int32_t)(8 * sizeof mine) && n < max; c++)
        if (mine >> c & 1) cpus[n++] = c;
    return n;
}
int32_t cl_bind_thread(int32_t cpu, cl_cpu_mask *before) {
    DWORD_PTR old = SetThreadAffinityMask(GetCurrentThread(), (DWORD_PTR)1 << cpu);
    if (before) before->words[0] = (uint64_t)old;
    return old ? 0 : -1;
}
void cl_unbind_thread(const cl_cpu_mask *before) { SetThreadAffinityMask(GetCurrentThread(), (DWORD_PTR)before->words[0]); }

void *cl_library_open(const char *path) {
    wchar_t *w = wide(path);
    HMODULE m = w ? LoadLibraryExW(w, NULL, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS) : NULL;
    free(w);
    return (void *)m;
}
void *cl_library_symbol(void *lib, const char *name) {
    FARPROC f = GetProcAddress((HMODULE)lib, name);
    void *p = NULL;
    memcpy(&p, &f, sizeof p);
    return p;
}
const char *cl_library_error(void) {
    static char text[32];
    snprintf(text, sizeof text, "Windows error %u", (unsigned)GetLastError());
    return text;
}
#else
typedef int cl_host_win32_is_empty_here;
#endif
