/* Loads libchdb.so ($CHDB_LIB) and runs its clickhouse-local entry point with this program's arguments. In C, because calling
 * into a loaded library is unsafe code, which the Rust packages forbid.
 * cc -O2 -Wall -o clickhouse-launcher launcher.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct chdb_result_ chdb_result;

int main(int argc, char **argv)
{
    const char *library = getenv("CHDB_LIB");
    void *handle = dlopen(library ? library : "libchdb.so", RTLD_NOW | RTLD_GLOBAL);
    if (!handle) { fprintf(stderr, "dlopen: %s\n", dlerror()); return 127; }
    chdb_result *(*run)(int, char **) = dlsym(handle, "chdb_query_cmdline");
    char *(*text)(chdb_result *) = dlsym(handle, "chdb_result_buffer");
    size_t (*length)(chdb_result *) = dlsym(handle, "chdb_result_length");
    const char *(*error)(chdb_result *) = dlsym(handle, "chdb_result_error");
    if (!run || !text || !length || !error) { fprintf(stderr, "%s lacks the chdb symbols\n", library); return 127; }
    chdb_result *result = run(argc, argv);
    if (!result) { fprintf(stderr, "no result\n"); return 1; }
    const char *failure = error(result);
    if (failure && *failure) { fprintf(stderr, "%s\n", failure); return 1; }
    fwrite(text(result), 1, length(result), stdout);
    fflush(stdout);
    /* A server is started with a query that never ends: coming back here means that it failed (port taken, directory locked). */
    _exit(getenv("CHDB_DAEMON") ? 3 : 0);
}
