/*
 * A wall clock that jumps, for one process: preloaded, it adds the seconds that a file holds to every reading of the time of day.
 *
 * The file, named by SLUICE_WALL_CLOCK, is one signed 64-bit number in the machine's byte order; whoever changes it makes the clock
 * jump. Every other clock is left alone, as a real jump leaves them. The kernel is asked directly: the functions of the C library
 * that are replaced here call each other.
 *
 * Whoever waits until a time of day waits until this clock shows it, and notices a jump meanwhile, as the kernel's waits do.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const int64_t *seconds;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("SLUICE_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED)
        seconds = at;
}

static int64_t jump(void)
{
    return seconds ? __atomic_load_n(seconds, __ATOMIC_RELAXED) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int refused = (int)syscall(SYS_clock_gettime, clock, now);
    if (!refused && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += jump();
    return refused;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out)
        *out = precise.tv_sec;
    return precise.tv_sec;
}

/* How long a wait goes on before it looks whether the clock has jumped: 20 ms. */
#define LOOK_AGAIN_NS 20000000L

static int is_before(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec != other->tv_sec ? one->tv_sec < other->tv_sec : one->tv_nsec < other->tv_nsec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    for (;;) {
        struct timespec shown, soon;
        clock_gettime(CLOCK_REALTIME, &shown);
        if (!is_before(&shown, until))
            return ETIMEDOUT;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &soon);
        soon.tv_nsec += LOOK_AGAIN_NS;
        if (soon.tv_nsec >= 1000000000L) {
            soon.tv_sec += 1;
            soon.tv_nsec -= 1000000000L;
        }
        int waited = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &soon);
        if (waited != ETIMEDOUT)
            return waited;
    }
}

/* In glibc the threads of C11 are those of POSIX. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    int waited = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    return waited == 0 ? thrd_success : waited == ETIMEDOUT ? thrd_timedout : thrd_error;
}
