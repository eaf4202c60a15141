/* The last error of each thread. Refuses: allocation. */
#include "colibri/host.h"
#include <stdarg.h>
#include <stdio.h>

#if defined(_MSC_VER)
#  define THREAD_LOCAL __declspec(thread)
#else
#  define THREAD_LOCAL _Thread_local
#endif

static THREAD_LOCAL char text[1024];

int32_t cl_fail(int32_t code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return code;
}
const char *cl_last_error(void) { return text; }
void cl_clear_error(void) { text[0] = 0; }
