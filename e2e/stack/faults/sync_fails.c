/*
 * A disk that fails to sync, for one process: preloaded, it refuses to make files below a folder durable, with EIO, once a file says so.
 *
 * SLUICE_SYNC_FAILS names that file: one signed 64-bit number in the machine's byte order, other than 0 from when on syncs fail.
 * SLUICE_SYNC_FOLDER names the folder, without symbolic links. What a failed sync leaves of what was written is not changed: the
 * process must not rely on it, and this cannot show whether it does.
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

static const int64_t *fails;
static const char *folder;

__attribute__((constructor)) static void open_switch(void)
{
    const char *path = getenv("SLUICE_SYNC_FAILS");
    folder = getenv("SLUICE_SYNC_FOLDER");
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

static int sync_file(long call, int file)
{
    if (fails && __atomic_load_n(fails, __ATOMIC_RELAXED) && is_below(file)) {
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
