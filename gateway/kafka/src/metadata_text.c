/*
 * The metadata of committed offsets, made text.
 *
 * Other programs may commit any bytes; the Rust client panics on metadata that is not UTF-8, and a panic ends the process. So the
 * answer to rd_kafka_committed passes through here (`-Wl,--wrap=NAME`, as in batch_limit.c): bytes beyond ASCII, which none of our
 * plans has, become question marks. Such metadata is foreign with or without them.
 *
 * Owner: the thread that asks. The types are those of librdkafka's public interface (rdkafka.h).
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

int __real_rd_kafka_committed(void *client, partition_list_t *partitions, int timeout_ms);

int __wrap_rd_kafka_committed(void *client, partition_list_t *partitions, int timeout_ms) {
        int error = __real_rd_kafka_committed(client, partitions, timeout_ms);
        for (int i = 0; i < partitions->cnt; i++) {
                unsigned char *text = partitions->elems[i].metadata;
                for (size_t at = 0; text && at < partitions->elems[i].metadata_size; at++)
                        if (text[at] > 0x7f)
                                text[at] = '?';
        }
        return error;
}
