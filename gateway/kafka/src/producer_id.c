/*
 * Whether a producer has its id.
 *
 * librdkafka 2.12 reports the id in its statistics alone. They have to be on for the whole life of a client, and then every request is measured
 * under a lock. So the state is read here, as librdkafka's own threads read it. This file is compiled with the headers of the librdkafka
 * that is linked: it copies no layout.
 *
 * Owner: the calling thread. It takes librdkafka's lock of the client for reading, which no thread keeps while it waits for a broker.
 */

#include "rdkafka_int.h"
#include "rdkafka_idempotence.h"

int sluice_has_producer_id(rd_kafka_t *client);

/* 1 if messages can be sent with the id. 0 before the first id, while epochs change, and after a fatal error. */
int sluice_has_producer_id(rd_kafka_t *client) {
        rd_kafka_pid_t id = rd_kafka_idemp_get_pid(client);
        return rd_kafka_pid_valid(id) ? 1 : 0;
}
