/* Threads and cores by the Win32 API. */
#if defined(_WIN32)
#include "os.h"
#include <stdlib.h>

struct start { void (*fn)(void *); void *arg; };

static DWORD WINAPI trampoline(void *p) {
    struct start s = *(struct start *)p;
    free(p);
    s.fn(s.arg);
    return 0;
}

int32_t cl_thread_start(cl_thread *t, void (*fn)(void *), void *arg) {
    struct start *s = (struct start *)malloc(sizeof *s);
    if (!s) return -1;
    s->fn = fn;
    s->arg = arg;
    *t = CreateThread(NULL, 0, trampoline, s, 0, NULL);
    if (!*t) {
        free(s);
        return (int32_t)GetLastError();
    }
    return 0;
}
void cl_thread_join(cl_thread *t) {
    WaitForSingleObject(*t, INFINITE);
    CloseHandle(*t);
}
void cl_thread_yield(void) { SwitchToThread(); }
void cl_mutex_init(cl_mutex *m) { InitializeSRWLock(m); }
void cl_mutex_destroy(cl_mutex *m) { (void)m; }
void cl_mutex_lock(cl_mutex *m) { AcquireSRWLockExclusive(m); }
void cl_mutex_unlock(cl_mutex *m) { ReleaseSRWLockExclusive(m); }
void cl_cond_init(cl_cond *c) { InitializeConditionVariable(c); }
void cl_cond_destroy(cl_cond *c) { (void)c; }
void cl_cond_wait(cl_cond *c, cl_mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
void cl_cond_broadcast(cl_cond *c) { WakeAllConditionVariable(c); }
void cl_cond_signal(cl_cond *c) { WakeConditionVariable(c); }
uint32_t cl_fork_generation(void) { return 0; }

int32_t cl_fast_cores(void) {
    DWORD_PTR mine = 0, all = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return 1;
    DWORD bytes = 0;
    GetLogicalProcessorInformation(NULL, &bytes);
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION *info = (SYSTEM_LOGICAL_PROCESSOR_INFORMATION *)malloc(bytes ? bytes : 1);
    int32_t n = 0;
    if (info && GetLogicalProcessorInformation(info, &bytes))
        for (DWORD i = 0; i < bytes / sizeof *info; i++) n += info[i].Relationship == RelationProcessorCore && (info[i].ProcessorMask & mine);
    free(info);
    return CL_MAX(1, n);
}
#else
typedef int cl_os_win32_is_empty_here;
#endif
