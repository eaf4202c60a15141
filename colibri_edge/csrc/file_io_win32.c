/* Reads at offsets by ReadFile with an OVERLAPPED; direct through a second handle without buffering. */
#if defined(_WIN32)
#include "file_io.h"
#include "os.h"
#include <stdlib.h>

struct cl_file { HANDLE plain, direct; };

static HANDLE open_as(const wchar_t *path, DWORD flags) {
    return CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, flags, NULL);
}

cl_file *cl_file_open(const char *path, int32_t direct, int32_t *error) {
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *wide = n > 0 ? (wchar_t *)malloc(sizeof *wide * (size_t)n) : NULL;
    cl_file *f = (cl_file *)malloc(sizeof *f);
    if (!wide || !f) {
        *error = 22;
        free(wide);
        free(f);
        return NULL;
    }
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, n);
    f->plain = open_as(wide, FILE_ATTRIBUTE_NORMAL);
    *error = f->plain == INVALID_HANDLE_VALUE ? 2 : 0;
    f->direct = direct && !*error ? open_as(wide, FILE_FLAG_NO_BUFFERING) : INVALID_HANDLE_VALUE;
    free(wide);
    if (!*error) return f;
    free(f);
    return NULL;
}

int32_t cl_file_is_direct(const cl_file *f) { return f->direct != INVALID_HANDLE_VALUE; }

int64_t cl_file_read(cl_file *f, int32_t direct, uint8_t *dst, size_t n, uint64_t offset, int32_t *error) {
    OVERLAPPED at;
    DWORD got = 0;
    memset(&at, 0, sizeof at);
    at.Offset = (DWORD)offset;
    at.OffsetHigh = (DWORD)(offset >> 32);
    if (ReadFile(direct ? f->direct : f->plain, dst, (DWORD)CL_MIN(n, (size_t)1 << 30), &got, &at)) return (int64_t)got;
    if (GetLastError() == ERROR_HANDLE_EOF) return 0;
    *error = (int32_t)GetLastError();
    return -1;
}

void cl_file_drop(cl_file *f, uint64_t offset, size_t n) { (void)f; (void)offset; (void)n; }

void cl_file_close(cl_file *f) {
    if (f->direct != INVALID_HANDLE_VALUE) CloseHandle(f->direct);
    CloseHandle(f->plain);
    free(f);
}
#else
typedef int cl_file_io_win32_is_empty_here;
#endif
