/*
 * Prevents that a static member fences its own instance id.
 *
 * If a member hears nothing from its coordinator for a session (45 s), librdkafka 2.12 drops its member id and joins again. Heartbeats and
 * commits that are sent before it has a new id contain no member id, but still the group.instance.id. A coordinator that has returned in
 * the meantime still knows that instance by the old id. It answers FENCED_INSTANCE_ID, as if another process were the same member, and
 * librdkafka ends the consumer for good. (confluentinc/librdkafka#5585; since 1.6.0.) Here such a request is sent without the instance id.
 * The answer is then UNKNOWN_MEMBER_ID: it commits nothing, and the member continues to join. JoinGroup, which has no member id at first
 * and takes the instance over, is unchanged. Another process that takes the instance is still noticed, by requests that have a member id.
 *
 * Calls arrive here at link time (-Wl,--wrap, see batch_limit.c). Signatures and types are those of librdkafka 2.12.1 (rdkafka_request.h,
 * rdkafka_cgrp.h, rdkafka_proto.h, rdkafka_op.h). Owner: librdkafka's main thread.
 */

#include <stddef.h>
#include <stdint.h>

/* rd_kafkap_str_t. */
typedef struct {
        int len;
        const char *str;
} str_t;

/* rd_kafka_consumer_group_metadata_t. */
typedef struct {
        char *group_id;
        int32_t generation_id;
        char *member_id;
        char *group_instance_id;
} group_metadata_t;

/* rd_kafka_replyq_t of a build without ENABLE_DEVEL. */
typedef struct {
        void *queue;
        int32_t version;
} replyq_t;

typedef void respond_t(void *client, void *broker, int error, void *answer, void *request, void *opaque);

void __real_rd_kafka_HeartbeatRequest(void *broker, const str_t *group, int32_t generation, const str_t *member, const str_t *instance,
                                      replyq_t replyq, respond_t *respond, void *opaque);
void __wrap_rd_kafka_HeartbeatRequest(void *broker, const str_t *group, int32_t generation, const str_t *member, const str_t *instance,
                                      replyq_t replyq, respond_t *respond, void *opaque);
int __real_rd_kafka_OffsetCommitRequest(void *broker, group_metadata_t *metadata, void *offsets, replyq_t replyq, respond_t *respond,
                                        void *opaque, const char *reason);
int __wrap_rd_kafka_OffsetCommitRequest(void *broker, group_metadata_t *metadata, void *offsets, replyq_t replyq, respond_t *respond,
                                        void *opaque, const char *reason);
void sluice_name_member(group_metadata_t *sent);

void __wrap_rd_kafka_HeartbeatRequest(void *broker, const str_t *group, int32_t generation, const str_t *member, const str_t *instance,
                                      replyq_t replyq, respond_t *respond, void *opaque) {
        if (member->len <= 0)
                instance = NULL;
        __real_rd_kafka_HeartbeatRequest(broker, group, generation, member, instance, replyq, respond, opaque);
}

/* The sender of a commit. Without a generation the coordinator would take it for a commit of a group without members, and store it. */
void sluice_name_member(group_metadata_t *sent) {
        if (sent->group_instance_id == NULL || (sent->member_id != NULL && sent->member_id[0] != '\0'))
                return;
        sent->group_instance_id = NULL;
        if (sent->generation_id < 0)
                sent->generation_id = 0;
}

int __wrap_rd_kafka_OffsetCommitRequest(void *broker, group_metadata_t *metadata, void *offsets, replyq_t replyq, respond_t *respond,
                                        void *opaque, const char *reason) {
        group_metadata_t sent = *metadata;
        sluice_name_member(&sent);
        return __real_rd_kafka_OffsetCommitRequest(broker, &sent, offsets, replyq, respond, opaque, reason);
}
