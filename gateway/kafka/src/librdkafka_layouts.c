/*
 * Compiled, never linked: the other C files copy signatures and layouts of librdkafka, and this one compares the copies with the headers of the
 * librdkafka that is built. It does not compile if one of them has changed; then the file that copies it must be changed first.
 */

#include "rdkafka_int.h"
#include "rdkafka_cgrp.h"
#include "rdkafka_lz4.h"
#include "rdkafka_msgset.h"
#include "rdkafka_op.h"
#include "rdkafka_partition.h"
#include "rdkafka_queue.h"
#include "rdkafka_request.h"
#include "rdkafka_zstd.h"
#include "rdgz.h"
#include "snappy.h"

#define SIGNATURE(function, ...)                                                                                                      \
        _Static_assert(__builtin_types_compatible_p(__typeof__(function), __VA_ARGS__), #function " has another signature")
#define OFFSET(type, member, bytes) _Static_assert(offsetof(type, member) == (bytes), #type "." #member " is elsewhere")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")

/* batch_limit.c */
SIGNATURE(rd_gz_decompress, void *(const void *, int, uint64_t *));
SIGNATURE(rd_kafka_lz4_decompress, rd_kafka_resp_err_t(rd_kafka_broker_t *, int, int64_t, char *, size_t, void **, size_t *));
SIGNATURE(rd_kafka_zstd_decompress, rd_kafka_resp_err_t(rd_kafka_broker_t *, char *, size_t, void **, size_t *));
SIGNATURE(rd_kafka_snappy_uncompressed_length, bool(const char *, size_t, size_t *));
SIGNATURE(rd_kafka_snappy_java_uncompress, char *(const char *, size_t, size_t *, char *, size_t));
SIGNATURE(rd_kafka_msgset_parse, rd_kafka_resp_err_t(rd_kafka_buf_t *, rd_kafka_buf_t *, rd_kafka_toppar_t *, rd_kafka_aborted_txns_t *,
                                                     const struct rd_kafka_toppar_ver *));
SIGNATURE(rd_kafka_q_init0, void(rd_kafka_q_t *, rd_kafka_t *, rd_bool_t, const char *, int));
SIGNATURE(rd_slice_narrow_relative, int(rd_slice_t *, rd_slice_t *, size_t));
SIGNATURE(rd_slice_read, size_t(rd_slice_t *, void *, size_t));
SIGNATURE(rd_kafka_consumer_err, void(rd_kafka_q_t *, int32_t, rd_kafka_resp_err_t, int32_t, const char *, rd_kafka_toppar_t *, int64_t,
                                      const char *, ...));
SIZE(rd_bool_t, 1);
SIZE(rd_kafka_resp_err_t, sizeof(int));
OFFSET(rd_slice_t, start, 24);
OFFSET(rd_slice_t, end, 32);
SIZE(rd_slice_t, 40);
OFFSET(struct rd_kafka_toppar_ver, version, 8);
_Static_assert(RD_KAFKA_RESP_ERR__BAD_COMPRESSION == -198 && RD_KAFKA_RESP_ERR__QUEUE_FULL == -184, "an error has another number");
_Static_assert(RD_KAFKA_CONF_OK == 0 && RD_KAFKA_CONF_INVALID == -1 && RD_KAFKA_CONF_UNKNOWN == -2, "a result has another number");

/* batch_zstd.c */
SIGNATURE(rd_kafka_zstd_compress, rd_kafka_resp_err_t(rd_kafka_broker_t *, int, rd_slice_t *, void **, size_t *));
SIGNATURE(rd_slice_reader, size_t(rd_slice_t *, const void **));

/* foreign_text.c, and properties of batch_limit.c: librdkafka's public interface. */
SIGNATURE(rd_kafka_committed, rd_kafka_resp_err_t(rd_kafka_t *, rd_kafka_topic_partition_list_t *, int));
SIGNATURE(rd_kafka_header_get_all, rd_kafka_resp_err_t(const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *));
SIGNATURE(rd_kafka_conf_set, rd_kafka_conf_res_t(rd_kafka_conf_t *, const char *, const char *, char *, size_t));
SIGNATURE(rd_kafka_conf_get, rd_kafka_conf_res_t(const rd_kafka_conf_t *, const char *, char *, size_t *));

OFFSET(rd_kafka_topic_partition_t, metadata, 24);
OFFSET(rd_kafka_topic_partition_t, metadata_size, 32);
SIZE(rd_kafka_topic_partition_t, 64);
OFFSET(rd_kafka_topic_partition_list_t, cnt, 0);
OFFSET(rd_kafka_topic_partition_list_t, elems, 8);

/* own_fence.c */
SIGNATURE(rd_kafka_HeartbeatRequest, void(rd_kafka_broker_t *, const rd_kafkap_str_t *, int32_t, const rd_kafkap_str_t *,
                                          const rd_kafkap_str_t *, rd_kafka_replyq_t, rd_kafka_resp_cb_t *, void *));
SIGNATURE(rd_kafka_OffsetCommitRequest, int(rd_kafka_broker_t *, rd_kafka_consumer_group_metadata_t *, rd_kafka_topic_partition_list_t *,
                                            rd_kafka_replyq_t, rd_kafka_resp_cb_t *, void *, const char *));
OFFSET(rd_kafkap_str_t, len, 0);
OFFSET(rd_kafka_consumer_group_metadata_t, generation_id, 8);
OFFSET(rd_kafka_consumer_group_metadata_t, member_id, 16);
OFFSET(rd_kafka_consumer_group_metadata_t, group_instance_id, 24);
SIZE(rd_kafka_consumer_group_metadata_t, 32);
OFFSET(rd_kafka_replyq_t, version, 8);
SIZE(rd_kafka_replyq_t, 16);

/* steady_wait.c */
SIGNATURE(cnd_timedwait, int(cnd_t *, mtx_t *, const struct timespec *));
