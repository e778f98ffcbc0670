/*
 * Converts bytes of other programs to UTF-8 where the Rust client expects text: the metadata of committed offsets, and the names of
 * message headers.
 *
 * Any program can write any bytes there, and brokers do not check them. The Rust client panics on bytes that are not UTF-8, and the
 * panic would end the process after every restart. So the answers to rd_kafka_committed and rd_kafka_header_get_all pass through here
 * (`-Wl,--wrap=NAME`, as in batch_limit.c). If they are not UTF-8, all bytes beyond ASCII become question marks. Such metadata is never a
 * plan of the gateway, and such a name is never a header that the gateway reads.
 *
 * Owner: the calling thread, which owns the metadata or message. The types are those of librdkafka's public interface (rdkafka.h).
 * Cost: one look at each byte.
 */

#include <stddef.h>
#include <stdint.h>

/* rd_kafka_topic_partition_t and its list. */
typedef struct {
        char *topic;
        int32_t partition;
        int64_t offset;
        void *metadata;
        size_t metadata_size;
        void *opaque;
        int err;
        void *_private;
} partition_t;

typedef struct {
        int cnt;
        int size;
        partition_t *elems;
} partition_list_t;

/* Bytes of the first character; 0 if there is no valid one. Source: the table of well-formed sequences in chapter 3 of
 * Unicode (3-7). */
static size_t character(const unsigned char *text, size_t size) {
        unsigned char first = text[0], least = 0x80, most = 0xbf;
        size_t length;

        if (first < 0x80)
                return 1;
        if (first >= 0xc2 && first <= 0xdf)
                length = 2;
        else if (first >= 0xe0 && first <= 0xef)
                length = 3;
        else if (first >= 0xf0 && first <= 0xf4)
                length = 4;
        else
                return 0;
        if (first == 0xe0)
                least = 0xa0;
        else if (first == 0xed)
                most = 0x9f;
        else if (first == 0xf0)
                least = 0x90;
        else if (first == 0xf4)
                most = 0x8f;
        if (length > size || text[1] < least || text[1] > most)
                return 0;
        for (size_t at = 2; at < length; at++)
                if (text[at] < 0x80 || text[at] > 0xbf)
                        return 0;
        return length;
}

static void make_text(unsigned char *text, size_t size) {
        size_t length = 1;

        for (size_t at = 0; at < size && length; at += length)
                length = character(text + at, size - at);
        for (size_t at = 0; at < size && !length; at++)
                if (text[at] > 0x7f)
                        text[at] = '?';
}

int __real_rd_kafka_committed(void *client, partition_list_t *partitions, int timeout_ms);

int __wrap_rd_kafka_committed(void *client, partition_list_t *partitions, int timeout_ms) {
        int error = __real_rd_kafka_committed(client, partitions, timeout_ms);
        for (int i = 0; i < partitions->cnt; i++)
                if (partitions->elems[i].metadata)
                        make_text(partitions->elems[i].metadata, partitions->elems[i].metadata_size);
        return error;
}

int __real_rd_kafka_header_get_all(const void *headers, size_t index, const char **name, const void **value, size_t *size);

int __wrap_rd_kafka_header_get_all(const void *headers, size_t index, const char **name, const void **value, size_t *size) {
        int error = __real_rd_kafka_header_get_all(headers, index, name, value, size);
        if (!error) {
                size_t length = 0;
                while ((*name)[length])
                        length++;
                /* The copy that librdkafka made for this message. */
                make_text((unsigned char *)*name, length);
        }
        return error;
}
