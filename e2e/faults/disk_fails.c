/*
 * A disk that fails, for one process: preloaded, it refuses with EIO to make files below a folder durable, or to read them, once a file
 * says so.
 *
 * SLUICE_DISK_FAILS names that file: one signed 64-bit number in the machine's byte order, 1 while syncs fail, 2 while reads do.
 * SLUICE_DISK_FOLDER names the folder, without symbolic links. What a failed sync leaves of what was written is not changed: the
 * process must not rely on it, and this cannot show whether it does. Reads are those at a position, as the gateway reads a queue.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SYNCS_FAIL = 1, READS_FAIL = 2 };

static const int64_t *fails;
static const char *folder;

__attribute__((constructor)) static void open_switch(void)
{
    const char *path = getenv("SLUICE_DISK_FAILS");
    folder = getenv("SLUICE_DISK_FOLDER");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof *fails, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED)
        fails = at;
}

/* Whether a file is the folder, or below it. */
static int is_below(int file)
{
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t wanted = folder ? strlen(folder) : 0;
    if (length < 0 || wanted == 0)
        return 0;
    path[length] = 0;
    return strncmp(path, folder, wanted) == 0 && (path[wanted] == 0 || path[wanted] == '/');
}

static int does_fail(int what, int file)
{
    return fails && __atomic_load_n(fails, __ATOMIC_RELAXED) == what && is_below(file);
}

static int sync_file(long call, int file)
{
    if (does_fail(SYNCS_FAIL, file)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, file);
}

int fsync(int file)
{
    return sync_file(SYS_fsync, file);
}

int fdatasync(int file)
{
    return sync_file(SYS_fdatasync, file);
}

ssize_t pread64(int file, void *bytes, size_t count, off64_t at)
{
    if (does_fail(READS_FAIL, file)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, file, bytes, count, at);
}
