//! A topic whose record batches have an exact size.
//!
//! Job: put numbered spans into batches of the size and compressibility that a scenario needs. Place in the flow: before the gateway runs.
//! Limits: for each partition, one batch at a time is in memory and on its way.
//!
//! The producer lingers for longer than it takes to queue a batch, and the next batch of a partition is queued after the acknowledgement of
//! the one before. So each batch has exactly the queued messages. Padding is a field that OTLP does not know: zeros that readers skip. They
//! compress to almost nothing, and a consumer still has to decompress them.

use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::throughput::put_length;
use e2e_fixtures::produce::Topic;
use e2e_fixtures::spans::{Generator, Run, Shape};
use e2e_stack::process::interrupt;

/// How long the producer waits for more messages of a batch, ms. This is longer than queueing the largest batch takes, and short enough not
/// to matter if a batch is one message.
const LINGER_MS: u32 = 500;
const LINGER_ONE_MS: u32 = 5;

/// The largest batch of any scenario, before compression. Topics and producers allow this size.
pub const BATCH_BYTES_MAX: u64 = 96 << 20;

/// What a record takes in a batch beside its value, and the batch's own header: at most this many bytes of each message.
const RECORD_OVERHEAD: usize = 128;

/// A field number that OTLP's trace messages do not use, and never did.
const PADDING_FIELD: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Size of a batch before compression, bytes: as many messages as fit, and padding up to it if `padded`.
    pub batch_bytes: u64,
    pub message_spans: u64,
    /// One message a batch, padded with zeros up to the size.
    pub padded: bool,
    /// `compression.type` of the producer.
    pub codec: &'static str,
}

pub struct Load {
    pub topic: Topic,
    pub run: Run,
    /// Number of spans; they are numbered from 0.
    pub spans: u64,
    producer: FutureProducer,
    generator: Generator,
}

impl Load {
    /// Makes an empty topic on this broker, which accepts the largest batches.
    pub async fn create(broker: &str, partitions: i32, filling: &Filling) -> Result<Load> {
        let run = Run::fresh();
        let name = format!("sluice-memory-{:x}", run.id);
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", broker)
            .create()
            .context("make a Kafka admin client")?;
        let largest = BATCH_BYTES_MAX.to_string();
        let new =
            NewTopic::new(&name, partitions, TopicReplication::Fixed(1)).set("max.message.bytes", &largest);
        for made in admin.create_topics([&new], &AdminOptions::new()).await.context("create the topic")? {
            made.map_err(|(_, code)| code).with_context(|| format!("create topic {name}"))?;
        }
        let topic = Topic::ensure(broker, &name, partitions).await?;
        let one_message = filling.padded || filling.batch_bytes <= 1 << 20;
        let linger_ms = if one_message { LINGER_ONE_MS } else { LINGER_MS };
        let producer = ClientConfig::new()
            .set("bootstrap.servers", broker)
            .set("enable.idempotence", "true")
            .set("compression.type", filling.codec)
            .set("linger.ms", linger_ms.to_string())
            .set("batch.size", &largest)
            .set("message.max.bytes", &largest)
            .set("batch.num.messages", "100000")
            .set("queue.buffering.max.kbytes", (10 * BATCH_BYTES_MAX / 1024).to_string())
            .create()
            .context("make a Kafka producer")?;
        let generator = Generator::new(Shape::Loadgen, run);
        Ok(Load { topic, run, spans: 0, producer, generator })
    }

    /// Adds `spans` spans, batch after batch over the partitions in turn, one batch a partition at a time.
    pub async fn fill(&mut self, filling: &Filling, spans: u64) -> Result<()> {
        let end = self.spans + spans;
        let all: Vec<i32> = (0..self.topic.partitions()).collect();
        self.fill_partitions(filling, &all, end).await
    }

    /// Adds spans up to the number `end` to these partitions in turn.
    pub async fn fill_partitions(&mut self, filling: &Filling, partitions: &[i32], end: u64) -> Result<()> {
        ensure!(!partitions.is_empty(), "topic {} has no partitions to fill", self.topic.name());
        while self.spans < end {
            interrupt::check()?;
            let mut waiting = Vec::new();
            for partition in partitions {
                waiting.extend(self.queue(filling, *partition, end)?);
            }
            acknowledged(waiting).await?;
        }
        Ok(())
    }

    /// Adds one batch to one partition; returns the numbers in it, which end before `end`.
    pub async fn batch(&mut self, filling: &Filling, partition: i32, end: u64) -> Result<Range<u64>> {
        let first = self.spans;
        acknowledged(self.queue(filling, partition, end)?).await?;
        Ok(first..self.spans)
    }

    fn queue(&mut self, filling: &Filling, partition: i32, end: u64) -> Result<Vec<DeliveryFuture>> {
        let room = usize::try_from(filling.batch_bytes).context("a batch that fits into memory")?;
        let (mut used, mut acknowledgements) = (0, Vec::new());
        while self.spans < end && (used == 0 || !filling.padded) {
            let last = (self.spans + filling.message_spans).min(end);
            let bytes = self.generator.message(self.spans..last);
            if used > 0 && used + bytes.len() + RECORD_OVERHEAD > room {
                break;
            }
            let mut message = bytes.to_vec();
            if filling.padded {
                pad(&mut message, room - RECORD_OVERHEAD);
            }
            used += message.len() + RECORD_OVERHEAD;
            let record: FutureRecord<'_, [u8], [u8]> =
                FutureRecord::to(self.topic.name()).partition(partition).payload(&message);
            let queued = self.producer.send_result(record).map_err(|(error, _)| error);
            acknowledgements.push(queued.context("queue a message")?);
            self.spans = last;
        }
        Ok(acknowledgements)
    }
}

async fn acknowledged(waiting: Vec<DeliveryFuture>) -> Result<()> {
    for acknowledgement in waiting {
        let outcome = acknowledgement.await.context("the producer ended before the answer came")?;
        outcome.map_err(|(error, _)| error).context("the broker took no batch")?;
    }
    Ok(())
}

/// Appends an unknown field, so that the message has at least `bytes` bytes, and only a few more.
fn pad(message: &mut Vec<u8>, bytes: usize) {
    let missing = bytes.saturating_sub(message.len() + 16);
    // Wire type 2: length-delimited.
    put_length(message, PADDING_FIELD << 3 | 2);
    put_length(message, missing as u64);
    message.resize(message.len() + missing, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_one_field_that_fills_up_to_the_size() {
        let mut message = vec![7; 100];
        pad(&mut message, 1_000);
        assert!((984..=1_000).contains(&message.len()), "{}", message.len());
        // 1000 << 3 | 2 = 8002 = 0x1f42
        assert_eq!(message[100..102], [0xc2, 0x3e]);
        assert!(message[104..].iter().all(|byte| *byte == 0));
    }
}
