/*
 * Makes librdkafka's waits use a clock that does not jump.
 *
 * librdkafka 2.12 waits until a time of day (rd_timeout_init_timespec, cnd_timedwait). If the machine's clock is set back by an hour
 * during a wait, the wait takes an hour longer, and so do waits for librdkafka's threads. No data is lost, but all work stops.
 * (confluentinc/librdkafka#2145.) Here the length of a wait is computed once, when it starts, and measured by the monotonic clock.
 * Calls arrive here at link time (-Wl,--wrap, see batch_limit.c).
 *
 * A second wait for the same time of day, started after the clock was set back, takes too long: at most WAIT_SECONDS_MAX. A longer
 * wait ends early, as if its time had passed; all callers with such long waits check again.
 *
 * Owner: any thread of librdkafka, and its callers. In glibc, condition variables and mutexes of C11 are those of POSIX.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <threads.h>
#include <time.h>

/* Above every time that we give librdkafka for an answer, and as long as a partition may stand still before it is named. */
enum { WAIT_SECONDS_MAX = 60 };

enum { NANOSECONDS = 1000000000 };

int __wrap_cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until);

int __wrap_cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
        struct timespec now, deadline;
        clock_gettime(CLOCK_REALTIME, &now);
        time_t seconds   = until->tv_sec - now.tv_sec;
        long nanoseconds = until->tv_nsec - now.tv_nsec;
        if (nanoseconds < 0) {
                seconds -= 1;
                nanoseconds += NANOSECONDS;
        }
        if (seconds < 0)
                return thrd_timedout;
        if (seconds >= WAIT_SECONDS_MAX) {
                seconds     = WAIT_SECONDS_MAX;
                nanoseconds = 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &deadline);
        deadline.tv_sec += seconds;
        deadline.tv_nsec += nanoseconds;
        if (deadline.tv_nsec >= NANOSECONDS) {
                deadline.tv_sec += 1;
                deadline.tv_nsec -= NANOSECONDS;
        }
        int waited =
            pthread_cond_clockwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, CLOCK_MONOTONIC, &deadline);
        return waited == 0 ? thrd_success : waited == ETIMEDOUT ? thrd_timedout : thrd_error;
}
