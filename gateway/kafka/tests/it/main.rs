//! What needs a process of its own: librdkafka has one limit for all consumers.

mod batch_limit;
