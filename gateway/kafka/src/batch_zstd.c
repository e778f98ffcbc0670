/*
 * Compresses record batches with zstd in contexts that are kept, at a level that librdkafka does not have.
 *
 * librdkafka 2.12 makes a context for each batch, and passes the batch to it in pieces, which the context copies. For 64 KiB of spans the
 * context has 500 KB, which are allocated and freed each time. Here a batch is copied into one piece and compressed at once. Its context
 * has 300 KB, and the next batch uses it again, with the memory for the piece. librdkafka holds what it gets until the acknowledgement: it
 * gets as many bytes as there are, and not as there could be. Calls arrive here at link time (-Wl,--wrap, see batch_limit.c), from the edge
 * and for dead letters.
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
unsigned ZSTD_isError(size_t code);

/* rdbuf.h: where librdkafka reads, and up to where. */
typedef struct {
        const void *buffer, *segment;
        size_t segment_offset, start, end;
} rd_slice_t;
size_t rd_slice_reader(rd_slice_t *slice, const void **piece);

/* The level. librdkafka takes -1 as "the default". Chosen by measurement, with batches of 256 KiB of spans: 8.4 times smaller at 1,290 MB/s;
 * level 1, 8.7 times at 1,180; level -2, 7.6 times at 1,300 (30 November 2026). */
enum { LEVEL = -1 };

/* Above every batch of several messages: twice the edge's `batch.size`. A context for it has 0.6 MB. */
enum { WHOLE_BYTES_MAX = 512 << 10 };

/* ZSTD_compressBound of that. */
enum { OUT_BYTES_MAX = WHOLE_BYTES_MAX + (WHOLE_BYTES_MAX >> 8) };

/* What a thread compresses with: a context, and memory for a batch before and after. Pages that no batch reaches are never resident. */
typedef struct {
        context_t *context;
        char in[WHOLE_BYTES_MAX];
        char out[OUT_BYTES_MAX];
} press_t;

/* Presses that are kept until the process ends. More are made, and freed, while more broker threads compress at the same time. */
enum { KEPT = 4 };
static _Atomic(press_t *) kept[KEPT];

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

static void free_press(press_t *press) {
        ZSTD_freeCCtx(press->context);
        free(press);
}

/* A press; NULL if memory is missing. */
static press_t *take_press(void) {
        for (int at = 0; at < KEPT; at++) {
                press_t *press = atomic_exchange(&kept[at], NULL);
                if (press)
                        return press;
        }
        press_t *press = malloc(sizeof(*press));
        if (!press)
                return NULL;
        press->context = ZSTD_createCCtx();
        if (press->context)
                return press;
        free(press);
        return NULL;
}

static void keep_press(press_t *press) {
        for (int at = 0; at < KEPT; at++) {
                press_t *none = NULL;
                if (atomic_compare_exchange_strong(&kept[at], &none, press))
                        return;
        }
        free_press(press);
}

/* Compresses a slice of at most WHOLE_BYTES_MAX into the press. Returns how many bytes that has then, or 0. The slice is a copy, so the
 * caller's is not moved. */
static size_t compress(press_t *press, rd_slice_t slice) {
        const void *piece;
        size_t bytes = 0, length;
        while ((length = rd_slice_reader(&slice, &piece)) > 0) {
                memcpy(press->in + bytes, piece, length);
                bytes += length;
        }
        size_t written = ZSTD_compressCCtx(press->context, press->out, OUT_BYTES_MAX, press->in, bytes, LEVEL);
        return ZSTD_isError(written) ? 0 : written;
}

/* The same as memory of its own, of `bytes` bytes; NULL if that is missing, or if compression failed. */
static void *compressed(const rd_slice_t *slice, size_t *bytes) {
        press_t *press = take_press();
        if (!press)
                return NULL;
        *bytes    = compress(press, *slice);
        void *own = *bytes > 0 ? malloc(*bytes) : NULL;
        if (own)
                memcpy(own, press->out, *bytes);
        keep_press(press);
        return own;
}

int __wrap_rd_kafka_zstd_compress(void *broker, int level, rd_slice_t *slice, void **out, size_t *out_bytes) {
        /* librdkafka passes a slice that was not read yet, so all of it is left. */
        size_t bytes = slice->end - slice->start, written = 0;
        void *own    = bytes > 0 && bytes <= WHOLE_BYTES_MAX ? compressed(slice, &written) : NULL;
        if (!own)
                return __real_rd_kafka_zstd_compress(broker, level, slice, out, out_bytes);
        *out       = own;
        *out_bytes = written;
        return 0;
}
