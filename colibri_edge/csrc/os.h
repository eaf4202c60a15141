/* What differs between POSIX and Windows: threads, cores, fork. */
#ifndef COLIBRI_OS_H
#define COLIBRI_OS_H
#include "colibri/base.h"

#if defined(_WIN32)
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  ifndef NOMINMAX
#    define NOMINMAX
#  endif
#  include <windows.h>
typedef HANDLE cl_thread;
typedef SRWLOCK cl_mutex;
typedef CONDITION_VARIABLE cl_cond;
#else
#  include <pthread.h>
typedef pthread_t cl_thread;
typedef pthread_mutex_t cl_mutex;
typedef pthread_cond_t cl_cond;
#endif

int32_t cl_thread_start(cl_thread *t, void (*fn)(void *), void *arg); /* 0 or an error number */
void cl_thread_join(cl_thread *t);
void cl_thread_yield(void);
void cl_mutex_init(cl_mutex *m);
void cl_mutex_destroy(cl_mutex *m);
void cl_mutex_lock(cl_mutex *m);
void cl_mutex_unlock(cl_mutex *m);
void cl_cond_init(cl_cond *c);
void cl_cond_destroy(cl_cond *c);
void cl_cond_wait(cl_cond *c, cl_mutex *m);
void cl_cond_broadcast(cl_cond *c);
void cl_cond_signal(cl_cond *c); /* wakes one thread */
uint32_t cl_fork_generation(void); /* counts the forks between the first process and this one */
int32_t cl_fast_cores(void);       /* physical cores of the fastest cluster inside the affinity mask, at least 1 */

#if defined(_MSC_VER)
#  include <intrin.h>
#  if defined(_M_ARM64)
#    define cl_cpu_relax() __yield()
#  else
#    define cl_cpu_relax() _mm_pause()
#  endif
#elif defined(__x86_64__)
#  include <immintrin.h>
#  define cl_cpu_relax() _mm_pause()
#elif defined(__aarch64__)
#  define cl_cpu_relax() __asm__ volatile("isb" ::: "memory")
#else
#  define cl_cpu_relax() ((void)0)
#endif
#endif
