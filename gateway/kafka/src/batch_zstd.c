/*
 * Compresses record batches with zstd in contexts that are kept.
 *
 * librdkafka 2.12 makes a context for each batch, and passes the batch to it in pieces, which the context copies. For 64 KiB of spans the
 * context has 500 KB, which are allocated and freed each time. Here a batch is copied into one piece and compressed at once. Its context
 * has 300 KB, and the next batch uses it again. Level and ratio are the same. Calls arrive here at link time (-Wl,--wrap, see
 * batch_limit.c).
 *
 * A batch above WHOLE_BYTES_MAX is a single message, and its copy would be large. librdkafka compresses it. It also compresses a batch for
 * which memory is missing.
 *
 * The signatures are those of librdkafka 2.12.1 (rdkafka_zstd.h, rdbuf.h). Owner: librdkafka's broker threads; a context has one at a time.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* zstd.h, as far as it is used. */
typedef struct ZSTD_CCtx_s context_t;
context_t *ZSTD_createCCtx(void);
size_t ZSTD_freeCCtx(context_t *context);
size_t ZSTD_compressCCtx(context_t *context, void *out, size_t out_bytes, const void *in, size_t in_bytes, int level);
size_t ZSTD_compressBound(size_t in_bytes);
unsigned ZSTD_isError(size_t code);

/* rdbuf.h: where librdkafka reads, and up to where. */
typedef struct {
        const void *buffer, *segment;
        size_t segment_offset, start, end;
} rd_slice_t;
size_t rd_slice_reader(rd_slice_t *slice, const void **piece);

/* Above every batch of several messages: twice the edge's `batch.size`. A context for it has 0.6 MB at level 1. */
enum { WHOLE_BYTES_MAX = 256 << 10 };

/* Contexts that are kept until the process ends. More are made, and freed, while more broker threads compress at the same time. */
enum { KEPT = 4 };
static _Atomic(context_t *) kept[KEPT];

/* rd_kafka_resp_err_t is an int here. */
int __real_rd_kafka_zstd_compress(void *broker, int level, rd_slice_t *slice, void **out, size_t *out_bytes);
int __wrap_rd_kafka_zstd_compress(void *broker, int level, rd_slice_t *slice, void **out, size_t *out_bytes);

/* How many contexts are kept now; for tests. */
int sluice_zstd_contexts(void);
int sluice_zstd_contexts(void) {
        int count = 0;
        for (int at = 0; at < KEPT; at++)
                count += atomic_load(&kept[at]) != NULL;
        return count;
}

static context_t *take_context(void) {
        for (int at = 0; at < KEPT; at++) {
                context_t *context = atomic_exchange(&kept[at], NULL);
                if (context)
                        return context;
        }
        return ZSTD_createCCtx();
}

static void keep_context(context_t *context) {
        for (int at = 0; at < KEPT; at++) {
                context_t *none = NULL;
                if (atomic_compare_exchange_strong(&kept[at], &none, context))
                        return;
        }
        ZSTD_freeCCtx(context);
}

/* The bytes of a slice in one piece; NULL if memory is missing. The slice is a copy, so the caller's is not moved. `bytes` is an upper
 * bound before, and how many were read after. */
static char *whole(rd_slice_t slice, size_t *bytes) {
        char *copy = malloc(*bytes);
        const void *piece;
        size_t at = 0, length;
        while (copy && (length = rd_slice_reader(&slice, &piece)) > 0) {
                memcpy(copy + at, piece, length);
                at += length;
        }
        *bytes = at;
        return copy;
}

/* Compressed bytes in `out`, or 0. */
static size_t compress(int level, const char *in, size_t in_bytes, char *out, size_t room) {
        context_t *context = take_context();
        if (!context)
                return 0;
        size_t written = ZSTD_compressCCtx(context, out, room, in, in_bytes, level);
        keep_context(context);
        return ZSTD_isError(written) ? 0 : written;
}

int __wrap_rd_kafka_zstd_compress(void *broker, int level, rd_slice_t *slice, void **out, size_t *out_bytes) {
        /* librdkafka passes a slice that was not read yet, so all of it is left. */
        size_t bytes = slice->end - slice->start;
        if (bytes == 0 || bytes > WHOLE_BYTES_MAX)
                return __real_rd_kafka_zstd_compress(broker, level, slice, out, out_bytes);
        char *in       = whole(*slice, &bytes);
        size_t room    = ZSTD_compressBound(bytes);
        char *buffer   = in ? malloc(room) : NULL;
        size_t written = buffer ? compress(level, in, bytes, buffer, room) : 0;
        free(in);
        if (written == 0) {
                free(buffer);
                return __real_rd_kafka_zstd_compress(broker, level, slice, out, out_bytes);
        }
        *out       = buffer;
        *out_bytes = written;
        return 0;
}
