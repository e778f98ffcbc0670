/*
 * A disk that fails or stops, for one process: preloaded, it refuses with EIO to write files below a folder, to make them durable, or to read
 * them, or holds such a call, once a file says so.
 *
 * SLUICE_DISK_FAILS names that file: three signed 64-bit numbers in the machine's byte order.
 *
 *   at  0  what fails: 1 syncs, 2 reads, 3 writes; 0 nothing
 *   at  8  what is held: 1 a write to a segment (a name that ends in .spool), 2 its sync, 3 the end of its sync; 4, 5 and 6 the same of a
 *          log's committed offset (a file named offsets); 0 nothing. A call is held until the number is another one
 *   at 16  calls that were held, counted here
 *
 * SLUICE_DISK_FOLDER names the folder, without symbolic links. What a failed sync leaves of what was written is not changed: the
 * process must not rely on it, and this cannot show whether it does. Reads and writes are those at a position, as the gateway reads and
 * writes its volume.
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

enum { SYNCS_FAIL = 1, READS_FAIL = 2, WRITES_FAIL = 3 };
enum { WRITE = 1, SYNC = 2, SYNCED = 3, OF_OFFSETS = 3 };
enum { LOOK_AGAIN_US = 1000 };

struct disk {
    int64_t fails;
    int64_t holds;
    int64_t held;
};

static struct disk *disk;
static const char *folder;

__attribute__((constructor)) static void open_switch(void)
{
    const char *path = getenv("SLUICE_DISK_FAILS");
    folder = getenv("SLUICE_DISK_FOLDER");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED)
        disk = at;
}

/* The path of a file that is the folder or below it; 0 for another one. */
static int path_below(int file, char path[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    size_t wanted = folder ? strlen(folder) : 0;
    if (length < 0 || wanted == 0)
        return 0;
    path[length] = 0;
    return strncmp(path, folder, wanted) == 0 && (path[wanted] == 0 || path[wanted] == '/');
}

static int does_fail(int what, int file)
{
    char path[PATH_MAX];
    return disk && __atomic_load_n(&disk->fails, __ATOMIC_RELAXED) == what && path_below(file, path);
}

static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

/* Waits while calls of this file are held at this moment. */
static void hold(int moment, int file)
{
    char path[PATH_MAX];
    int64_t holds = disk ? __atomic_load_n(&disk->holds, __ATOMIC_RELAXED) : 0;
    if (holds == 0 || !path_below(file, path))
        return;
    int is_held = holds == moment ? ends_with(path, ".spool")
                                  : holds == moment + OF_OFFSETS && ends_with(path, "/offsets");
    if (!is_held)
        return;
    __atomic_fetch_add(&disk->held, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&disk->holds, __ATOMIC_RELAXED) == holds)
        usleep(LOOK_AGAIN_US);
}

static int sync_file(long call, int file)
{
    hold(SYNC, file);
    if (does_fail(SYNCS_FAIL, file)) {
        errno = EIO;
        return -1;
    }
    int synced = (int)syscall(call, file);
    int error = errno;
    hold(SYNCED, file);
    errno = error;
    return synced;
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

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at)
{
    hold(WRITE, file);
    if (does_fail(WRITES_FAIL, file)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pwrite64, file, bytes, count, at);
}
