/*
 * Limits the memory that librdkafka uses for a record batch.
 *
 * librdkafka 2.12 decompresses whole record batches, all batches of a partition's answer in a row. It bounds only zstd, by
 * `receive.message.max.bytes`: a gzip batch of 1 MiB may become 1 GiB. Here its four decompressors are replaced at link time
 * (`-Wl,--wrap=NAME`, see gateway/build.rs: a call to NAME arrives at __wrap_NAME). The replacements write into a buffer of the size
 * that is left of the limit, and stop when it is full. So memory is bounded before it is allocated.
 *
 * The messages of an uncompressed batch are in the answer itself, which librdkafka keeps until the last of them is done.
 * A broker sends the first batch of an answer whole, however large it is. So a batch above the limit is not parsed at all: nothing
 * refers to the answer then, and it is freed at once.
 *
 *   rd_kafka_msgset_parse     one partition's part of an answer begins: nothing of the limit is used yet
 *   rd_kafka_*_decompress,    a batch: decompressed into what is left of the limit, or refused
 *   rd_gz_..., ..._snappy_...
 *   rd_slice_narrow_relative  a batch that is not compressed: its bytes count as if they were decompressed
 *   rd_kafka_q_init0          tells which queue the answer's messages and errors go to
 *   rd_kafka_consumer_err     reports to the worker: a batch that fits the limit but not the rest of it is QUEUE_FULL, and fetched
 *                             again when the queue is empty; one that can never fit stays BAD_COMPRESSION
 *   rd_kafka_conf_set, _get   input and output: properties sluice.batch.bytes.max and sluice.refused.bytes
 *
 * Owner: librdkafka's broker threads, each parses one answer at a time; what belongs to an answer is thread-local. Limit and the
 * last refused size are atomic: one consumer per process reads batches.
 *
 * The signatures are those of librdkafka 2.12.1 (rdgz.h, rdkafka_lz4.h, rdkafka_zstd.h, snappy.h, rdkafka_msgset.h, rdkafka_op.h, rdbuf.h,
 * rdkafka_queue.h). Message sets of Kafka before 0.11 have another form, are practically extinct, and are not bounded here.
 * The end-to-end tests `oversized` fail if a newer librdkafka calls other functions.
 */

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rd_kafka_resp_err_t and rd_kafka_conf_res_t, as far as they are used. */
enum { ERR_NONE = 0, ERR_BAD_COMPRESSION = -198, ERR_QUEUE_FULL = -184 };
enum { CONF_OK = 0, CONF_INVALID = -1, CONF_UNKNOWN = -2 };

/* zlib.h, as far as it is used; the stream's layout is part of zlib's stable interface. */
typedef struct {
        const unsigned char *next_in;
        unsigned avail_in;
        unsigned long total_in;
        unsigned char *next_out;
        unsigned avail_out;
        unsigned long total_out;
        const char *msg;
        void *state, *zalloc, *zfree, *opaque;
        int data_type;
        unsigned long adler, reserved;
} z_stream;
int inflateInit2_(z_stream *, int window_bits, const char *version, int stream_size);
int inflate(z_stream *, int flush);
int inflateEnd(z_stream *);
enum { Z_OK = 0, Z_STREAM_END = 1, Z_BUF_ERROR = -5 };

/* lz4frame.h and zstd.h. */
size_t LZ4F_createDecompressionContext(void **context, unsigned version);
size_t LZ4F_freeDecompressionContext(void *context);
size_t LZ4F_decompress(void *context, void *out, size_t *out_bytes, const void *in, size_t *in_bytes, const void *options);
unsigned LZ4F_isError(size_t code);
size_t ZSTD_decompress(void *out, size_t out_bytes, const void *in, size_t in_bytes);
unsigned ZSTD_isError(size_t code);
int ZSTD_getErrorCode(size_t code);
unsigned long long ZSTD_getFrameContentSize(const void *in, size_t in_bytes);
/* An upper bound of the size of all frames: what their heads tell, or 128 KiB for each block. */
unsigned long long ZSTD_decompressBound(const void *in, size_t in_bytes);
enum { ZSTD_DST_SIZE_TOO_SMALL = 70 };

static _Atomic uint64_t limit_bytes = UINT64_MAX;
/* The size of the last batch that was refused; 0 when it is not known. */
static _Atomic uint64_t refused_bytes;

static _Thread_local uint64_t used_bytes;
/* The batch that was just refused would fit an empty queue. */
static _Thread_local bool later;
/* The size of the batch that was just refused and can never fit; 0 when it is not known, or when the batch is broken. */
static _Thread_local uint64_t too_large_bytes;

/* What may still be decompressed of this answer, at most INT_MAX as zlib counts. */
static size_t room(void) {
        uint64_t limit = atomic_load(&limit_bytes);
        uint64_t left  = limit > used_bytes ? limit - used_bytes : 0;
        return left < INT32_MAX ? (size_t)left : INT32_MAX;
}

/* Records a batch that did not fit. `bytes` is its size, 0 when it is not known. */
static void refuse(uint64_t bytes) {
        later           = used_bytes > 0 && bytes <= atomic_load(&limit_bytes);
        too_large_bytes = later ? 0 : bytes;
}

/* A buffer of so many bytes, at least 1. Callers handle NULL as librdkafka does. */
static void *buffer_of(size_t bytes) {
        return malloc(bytes > 0 ? bytes : 1);
}

/* Frees the unused rest of a buffer. */
static void *shrunk(void *buffer, size_t bytes) {
        void *smaller = realloc(buffer, bytes > 0 ? bytes : 1);
        return smaller ? smaller : buffer;
}

/* --- gzip: one pass into what is left. --- */

/* Bytes written to `out`, or -1 for a broken stream, or -2 when `room` was not enough. With `out` NULL it only counts. */
static int64_t gunzip(const void *in, unsigned in_bytes, unsigned char *out, size_t room_bytes) {
        z_stream stream;
        unsigned char nowhere[4096];
        int64_t written = 0;
        int code;
        memset(&stream, 0, sizeof(stream));
        /* 15 + 32: the largest window, gzip or zlib head. */
        if (inflateInit2_(&stream, 15 + 32, "1", (int)sizeof(stream)) != Z_OK)
                return -1;
        stream.next_in  = in;
        stream.avail_in = in_bytes;
        do {
                stream.next_out  = out ? out + written : nowhere;
                stream.avail_out = out ? (unsigned)(room_bytes - (size_t)written) : (unsigned)sizeof(nowhere);
                unsigned before  = stream.avail_out;
                code             = inflate(&stream, 0);
                written += before - stream.avail_out;
        } while (code == Z_OK && (stream.avail_out == 0 ? !out || (size_t)written < room_bytes : stream.avail_in > 0));
        inflateEnd(&stream);
        if (code == Z_STREAM_END)
                return written;
        return (code == Z_OK || code == Z_BUF_ERROR) && out && (size_t)written == room_bytes ? -2 : -1;
}

void *__wrap_rd_gz_decompress(const void *in, int in_bytes, uint64_t *out_bytes) {
        size_t most = room();
        void *out   = buffer_of(most);
        if (!out)
                return NULL;
        int64_t written = gunzip(in, (unsigned)in_bytes, out, most);
        if (written >= 0) {
                used_bytes += (uint64_t)written;
                *out_bytes = (uint64_t)written;
                return shrunk(out, (size_t)written);
        }
        free(out);
        if (written == -2) {
                int64_t whole = gunzip(in, (unsigned)in_bytes, NULL, 0);
                refuse(whole > 0 ? (uint64_t)whole : 0);
        }
        return NULL;
}

/* --- LZ4 frames. --- */

int __real_rd_kafka_lz4_decompress(void *broker, int proper_hc, int64_t offset, char *in, size_t in_bytes, void **out,
                                   size_t *out_bytes);

/* As gunzip. */
static int64_t unlz4(const char *in, size_t in_bytes, char *out, size_t room_bytes) {
        void *context;
        static _Thread_local char nowhere[65536];
        size_t at = 0, written = 0, code = 1;
        if (LZ4F_isError(LZ4F_createDecompressionContext(&context, 100)))
                return -1;
        while (at < in_bytes && code != 0) {
                size_t take = in_bytes - at, give = out ? room_bytes - written : sizeof(nowhere);
                code        = LZ4F_decompress(context, out ? out + written : nowhere, &give, in + at, &take, NULL);
                if (LZ4F_isError(code) || (take == 0 && give == 0))
                        break;
                at += take;
                written += give;
        }
        LZ4F_freeDecompressionContext(context);
        if (code == 0 && at == in_bytes)
                return (int64_t)written;
        return !LZ4F_isError(code) && out && written == room_bytes ? -2 : -1;
}

int __wrap_rd_kafka_lz4_decompress(void *broker, int proper_hc, int64_t offset, char *in, size_t in_bytes, void **out,
                                   size_t *out_bytes) {
        /* Message sets of Kafka before 0.10 need their heads mended; they are as good as extinct. */
        if (!proper_hc)
                return __real_rd_kafka_lz4_decompress(broker, proper_hc, offset, in, in_bytes, out, out_bytes);
        size_t most  = room();
        char *buffer = buffer_of(most);
        *out         = NULL;
        if (!buffer)
                return ERR_BAD_COMPRESSION;
        int64_t written = unlz4(in, in_bytes, buffer, most);
        if (written >= 0) {
                used_bytes += (uint64_t)written;
                *out       = shrunk(buffer, (size_t)written);
                *out_bytes = (size_t)written;
                return ERR_NONE;
        }
        free(buffer);
        if (written == -2) {
                int64_t whole = unlz4(in, in_bytes, NULL, 0);
                refuse(whole > 0 ? (uint64_t)whole : 0);
        }
        return later ? ERR_QUEUE_FULL : ERR_BAD_COMPRESSION;
}

/* --- zstd. --- */

int __wrap_rd_kafka_zstd_decompress(void *broker, char *in, size_t in_bytes, void **out, size_t *out_bytes) {
        (void)broker;
        size_t most = room();
        /* The two largest values mean unknown and broken. */
        unsigned long long told = ZSTD_getFrameContentSize(in, in_bytes);
        bool known              = told < UINT64_MAX - 1;
        if (known && told > most) {
                refuse(told);
                return later ? ERR_QUEUE_FULL : ERR_BAD_COMPRESSION;
        }
        /* The head is that of the first frame alone, and a batch may be several. Where the bound of all is above what is left, the
         * batch may still fit: sizes that are not told are rounded up. The two largest values mean broken. */
        unsigned long long bound = ZSTD_decompressBound(in, in_bytes);
        size_t wanted            = bound < most ? (size_t)bound : most;
        void *buffer             = buffer_of(wanted);
        if (!buffer)
                return ERR_BAD_COMPRESSION;
        size_t written = ZSTD_decompress(buffer, wanted, in, in_bytes);
        if (!ZSTD_isError(written)) {
                used_bytes += written;
                *out       = shrunk(buffer, written);
                *out_bytes = written;
                return ERR_NONE;
        }
        free(buffer);
        if (ZSTD_getErrorCode(written) == ZSTD_DST_SIZE_TOO_SMALL)
                /* Whether it would fit an empty queue is tried there. */
                refuse(used_bytes > 0 ? 1 : bound < UINT64_MAX - 1 ? bound : 0);
        return later ? ERR_QUEUE_FULL : ERR_BAD_COMPRESSION;
}

/* --- Snappy, plain and in snappy-java's frames: both say their length before anything is allocated. --- */

bool __real_rd_kafka_snappy_uncompressed_length(const char *in, size_t in_bytes, size_t *out_bytes);
char *__real_rd_kafka_snappy_java_uncompress(const char *in, size_t in_bytes, size_t *out_bytes, char *error,
                                             size_t error_bytes);

bool __wrap_rd_kafka_snappy_uncompressed_length(const char *in, size_t in_bytes, size_t *out_bytes) {
        if (!__real_rd_kafka_snappy_uncompressed_length(in, in_bytes, out_bytes))
                return false;
        if (*out_bytes > room()) {
                refuse(*out_bytes);
                return false;
        }
        used_bytes += *out_bytes;
        return true;
}

char *__wrap_rd_kafka_snappy_java_uncompress(const char *in, size_t in_bytes, size_t *out_bytes, char *error,
                                             size_t error_bytes) {
        uint64_t whole = 0;
        for (size_t at = 0; at + 4 <= in_bytes;) {
                const unsigned char *head = (const unsigned char *)in + at;
                size_t chunk = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
                size_t bytes;
                at += 4;
                if (chunk > in_bytes - at || !__real_rd_kafka_snappy_uncompressed_length(in + at, chunk, &bytes))
                        break; /* librdkafka reports the error. */
                at += chunk;
                whole += bytes;
        }
        if (whole > room()) {
                refuse(whole);
                snprintf(error, error_bytes, "it decompresses to %llu bytes, which is over the limit",
                         (unsigned long long)whole);
                return NULL;
        }
        used_bytes += whole;
        return __real_rd_kafka_snappy_java_uncompress(in, in_bytes, out_bytes, error, error_bytes);
}

/* --- An answer and its errors. --- */

void __real_rd_kafka_consumer_err(void *queue, int32_t broker, int error, int32_t version, const char *topic, void *partition,
                                  int64_t offset, const char *format, ...);

void __wrap_rd_kafka_consumer_err(void *queue, int32_t broker, int error, int32_t version, const char *topic, void *partition,
                                  int64_t offset, const char *format, ...) {
        char text[2048]; /* librdkafka's own limit */
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        if (later && (error == ERR_BAD_COMPRESSION || error == ERR_QUEUE_FULL))
                error = ERR_QUEUE_FULL;
        /* Also for a broken batch: the size of an earlier one is not its reason. */
        if (error == ERR_BAD_COMPRESSION)
                atomic_store(&refused_bytes, too_large_bytes);
        later           = false;
        too_large_bytes = 0;
        __real_rd_kafka_consumer_err(queue, broker, error, version, topic, partition, offset, "%s", text);
}

/* --- Batches that are not compressed. --- */

/* rdbuf.h: where librdkafka reads, and up to where. */
typedef struct {
        const void *buffer, *segment;
        size_t segment_offset, start, end;
} rd_slice_t;

/* rdkafka_partition.h. */
typedef struct {
        void *partition;
        int32_t version;
} rd_kafka_toppar_ver;

/* The part of an answer that is being parsed; `partition` is NULL between two. */
static _Thread_local struct {
        void *partition;
        int32_t version;
        /* Where its messages and errors go. */
        void *queue;
        /* Where it is read from, once that was cut short: `cut_end` is where it ends now, `end` where it ended. */
        rd_slice_t *cut;
        size_t cut_end, end;
} answer;

int __real_rd_kafka_msgset_parse(void *buffer, void *request, void *partition, void *aborted, const rd_kafka_toppar_ver *version);
void __real_rd_kafka_q_init0(void *queue, void *client, uint8_t for_consume, const char *function, int line);
int __real_rd_slice_narrow_relative(rd_slice_t *slice, rd_slice_t *before, size_t bytes);
size_t rd_slice_read(rd_slice_t *slice, void *to, size_t bytes);

int __wrap_rd_kafka_msgset_parse(void *buffer, void *request, void *partition, void *aborted, const rd_kafka_toppar_ver *version) {
        used_bytes      = 0;
        later           = false;
        too_large_bytes = 0;
        memset(&answer, 0, sizeof(answer));
        answer.partition = partition;
        answer.version   = version->version;
        int error        = __real_rd_kafka_msgset_parse(buffer, request, partition, aborted, version);
        answer.partition = NULL;
        if (answer.cut) {
                /* The next partition's part begins behind all of this one's; librdkafka has read to where it was cut. */
                answer.cut->end = answer.end;
                rd_slice_read(answer.cut, NULL, answer.end - answer.cut_end);
        }
        return error;
}

void __wrap_rd_kafka_q_init0(void *queue, void *client, uint8_t for_consume, const char *function, int line) {
        /* The first that is made while an answer is parsed; a second one is that of batches within a batch. */
        if (answer.partition && !answer.queue)
                answer.queue = queue;
        __real_rd_kafka_q_init0(queue, client, for_consume, function, line);
}

/* Called for nothing else while an answer is parsed. `bytes` are those of the batch's messages, and are there. */
int __wrap_rd_slice_narrow_relative(rd_slice_t *slice, rd_slice_t *before, size_t bytes) {
        if (!answer.partition || !answer.queue)
                return __real_rd_slice_narrow_relative(slice, before, bytes);
        if (bytes <= room()) {
                used_bytes += bytes;
                return __real_rd_slice_narrow_relative(slice, before, bytes);
        }
        refuse(bytes);
        /* -1: no broker, -1001: no offset; what is said of the partition needs neither. */
        __wrap_rd_kafka_consumer_err(answer.queue, -1, ERR_BAD_COMPRESSION, answer.version, NULL, answer.partition, -1001,
                                     "A batch of %zu bytes that is not compressed is over the limit", bytes);
        /* One byte is shorter than any message: librdkafka takes the answer for one that was truncated, and the batch for one that
         * it has not read yet. Nor is there anything behind it, should it skip the batch as one of an aborted transaction. */
        answer.cut = slice;
        answer.end = slice->end;
        int done   = __real_rd_slice_narrow_relative(slice, before, 1);
        before->end = answer.cut_end = slice->end;
        return done;
}

/* --- Input and output. --- */

static const char LIMIT[] = "sluice.batch.bytes.max", REFUSED[] = "sluice.refused.bytes";

int __real_rd_kafka_conf_set(void *conf, const char *name, const char *value, char *error, size_t error_bytes);
int __real_rd_kafka_conf_get(const void *conf, const char *name, char *out, size_t *out_bytes);

int __wrap_rd_kafka_conf_set(void *conf, const char *name, const char *value, char *error, size_t error_bytes) {
        if (strcmp(name, LIMIT) != 0)
                return __real_rd_kafka_conf_set(conf, name, value, error, error_bytes);
        char *end;
        unsigned long long limit = strtoull(value, &end, 10);
        if (limit == 0 || *end != '\0') {
                snprintf(error, error_bytes, "%s is a number of bytes above 0, not \"%s\"", LIMIT, value);
                return CONF_INVALID;
        }
        atomic_store(&limit_bytes, limit);
        return CONF_OK;
}

int __wrap_rd_kafka_conf_get(const void *conf, const char *name, char *out, size_t *out_bytes) {
        if (strcmp(name, REFUSED) != 0)
                return __real_rd_kafka_conf_get(conf, name, out, out_bytes);
        char text[24];
        size_t bytes = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)atomic_load(&refused_bytes)) + 1;
        if (out)
                memcpy(out, text, bytes < *out_bytes ? bytes : *out_bytes);
        *out_bytes = bytes;
        return CONF_OK;
}
