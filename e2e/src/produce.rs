//! Puts numbered spans into Kafka and says exactly which numbers the broker took.
//!
//! Job: produce a range at full speed or at a rate ([`Producer::produce`]), or in the background until stopped
//! ([`Load`]). Place in the flow: after `spans`, before the gateway; `oracle` counts against what [`Sent`] says. Owner:
//! any tokio task; librdkafka's threads do the network. Limits: at most [`IN_FLIGHT_BYTES_MAX`] bytes wait for their
//! acknowledgement.
//!
//! A number is `acked` when the broker acknowledged its message with all replicas in sync. A message that failed, or whose
//! answer never came, may still be stored: its numbers are `doubtful`, and neither lost nor foreign when found or not.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::spans::{Encoding, Generator, Numbers, Run, Shape};

mod topic;

pub use topic::{Lag, Topic, Watermarks};

/// Bytes that may wait for an acknowledgement, before compression: 30 of the largest messages, several round trips' worth
/// on one machine, and small beside the memory of the parts under test.
pub const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// Longest time a message may take, restarts of the broker included, milliseconds. Longer than any outage that a test makes.
const MESSAGE_TIMEOUT_MS: u32 = 300_000;

/// Largest message, bytes before compression: over the 989 KB of a `loadgen` message.
const MESSAGE_BYTES_MAX: u32 = 8 << 20;

/// How messages are compressed on their way to and in Kafka.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard, which the throughput figures are measured with.
    #[default]
    Zstd,
}

impl Compression {
    fn setting(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// Where spans go, what they look like and how fast they come.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Topic name.
    pub topic: String,
    /// Partitions to spread over, in turn by message: partition = message index modulo this.
    pub partitions: i32,
    /// What the spans look like.
    pub shape: Shape,
    /// How messages are encoded.
    pub encoding: Encoding,
    /// Spans a second, or as fast as the broker takes them.
    pub spans_per_second: Option<u64>,
}

/// What became of the produced numbers.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Numbers whose message the broker acknowledged.
    pub acked: Numbers,
    /// Numbers whose message failed, though it may be stored.
    pub doubtful: Numbers,
    /// Messages acknowledged.
    pub messages: u64,
    /// Bytes of the acknowledged messages before compression.
    pub bytes: u64,
    /// The first failure, in the client's words.
    pub failure: Option<String>,
}

/// An idempotent producer for one run. Cheap to clone; clones share the client.
#[derive(Clone)]
pub struct Producer {
    client: FutureProducer,
    run: Run,
}

/// A message on its way.
struct Delivered {
    numbers: Range<u64>,
    bytes: usize,
    /// Why it failed, if it did.
    failure: Option<String>,
}

impl Producer {
    /// A producer for `brokers` (`host:port`, comma-separated). Does not connect yet. The settings are those of the safest
    /// producer: idempotent, acknowledged by all replicas in sync.
    pub fn new(brokers: &str, compression: Compression, run: Run) -> Result<Producer> {
        let client = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("compression.type", compression.setting())
            // Small messages of a slow load still go out at once enough for a test; fast ones fill batches before.
            .set("linger.ms", "20")
            .set("message.timeout.ms", MESSAGE_TIMEOUT_MS.to_string())
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
            // Under the 1 MiB of `recordBatchBytesMax`, the default of a pipeline; a larger message goes alone.
            .set("batch.size", "1000000")
            // A restarted broker is found within a second, not ten.
            .set("reconnect.backoff.max.ms", "1000")
            // Twice our own bound, so that librdkafka's queue is never the one that is full.
            .set("queue.buffering.max.kbytes", (IN_FLIGHT_BYTES_MAX / 512).to_string())
            .create()
            .with_context(|| format!("make a Kafka producer for {brokers}"))?;
        Ok(Producer { client, run })
    }

    /// The run whose spans this producer makes.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Produces the spans of `numbers` and waits for every acknowledgement.
    pub async fn produce(&self, feed: &Feed, numbers: Range<u64>) -> Result<Sent> {
        let (_keep, never) = watch::channel(false);
        self.produce_until(feed, numbers, never, &AtomicU64::new(0)).await
    }

    /// Produces until `stop` turns true or the numbers end; counts acknowledged spans into `acked` as they come.
    async fn produce_until(
        &self,
        feed: &Feed,
        numbers: Range<u64>,
        mut stop: watch::Receiver<bool>,
        acked: &AtomicU64,
    ) -> Result<Sent> {
        let mut generator = Generator::new(feed.shape, self.run).encoded_as(feed.encoding);
        let mut sent = Sent::default();
        let mut in_flight = FuturesUnordered::new();
        let mut in_flight_bytes = 0;
        let pace = Pace::new(feed.spans_per_second, numbers.start);
        for message in messages(numbers, feed.shape.message_spans()) {
            while in_flight_bytes >= IN_FLIGHT_BYTES_MAX {
                let Some(delivered) = in_flight.next().await else { break };
                in_flight_bytes -= sent.add(delivered, acked);
            }
            while let Some(Some(delivered)) = futures::FutureExt::now_or_never(in_flight.next()) {
                in_flight_bytes -= sent.add(delivered, acked);
            }
            if !pace.wait(message.start, &mut stop).await {
                break;
            }
            let bytes = generator.message(message.clone());
            in_flight_bytes += bytes.len();
            in_flight.push(self.send(feed, message, bytes)?);
            // Generating never waits by itself; other tasks of a test need their turn.
            tokio::task::yield_now().await;
        }
        while let Some(delivered) = in_flight.next().await {
            sent.add(delivered, acked);
        }
        Ok(sent)
    }

    fn send(
        &self,
        feed: &Feed,
        numbers: Range<u64>,
        payload: &[u8],
    ) -> Result<BoxFuture<'static, Delivered>> {
        let index = numbers.start / feed.shape.message_spans();
        let partition = i32::try_from(index % u64::try_from(feed.partitions)?)?;
        let record: FutureRecord<'_, [u8], [u8]> =
            FutureRecord::to(&feed.topic).partition(partition).payload(payload);
        let delivery = self
            .client
            .send_result(record)
            .map_err(|(error, _)| error)
            .with_context(|| format!("queue spans {numbers:?} for topic {}", feed.topic))?;
        let bytes = payload.len();
        Ok(Box::pin(async move {
            let failure = match delivery.await {
                Ok(Ok(_)) => None,
                Ok(Err((error, _))) => Some(error.to_string()),
                Err(_) => Some("the producer ended before the answer came".to_owned()),
            };
            Delivered { numbers, bytes, failure }
        }))
    }
}

impl Sent {
    /// Counts a message whose answer came; returns its bytes.
    fn add(&mut self, delivered: Delivered, acked: &AtomicU64) -> usize {
        let Delivered { numbers, bytes, failure } = delivered;
        if failure.is_none() {
            acked.fetch_add(numbers.end - numbers.start, Ordering::Relaxed);
            self.acked.insert(numbers);
            self.messages += 1;
            self.bytes += bytes as u64;
        } else {
            self.doubtful.insert(numbers);
            self.failure = self.failure.take().or(failure);
        }
        bytes
    }
}

/// `numbers` cut where a message of `message_spans` ends, so that the cut depends on the numbers alone.
fn messages(numbers: Range<u64>, message_spans: u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = numbers.start;
    std::iter::from_fn(move || {
        let end = ((start / message_spans + 1) * message_spans).min(numbers.end);
        let message = start..end;
        start = end;
        (!message.is_empty()).then_some(message)
    })
}

/// When a span is due.
struct Pace {
    started: Instant,
    spans_per_second: Option<u64>,
    first: u64,
}

impl Pace {
    fn new(spans_per_second: Option<u64>, first: u64) -> Pace {
        Pace { started: Instant::now(), spans_per_second, first }
    }

    /// Waits until `number` is due; false when `stop` turned true (or its sender is gone) before.
    async fn wait(&self, number: u64, stop: &mut watch::Receiver<bool>) -> bool {
        if *stop.borrow() {
            return false;
        }
        let Some(due) = self.due(number) else { return true };
        tokio::select! {
            _ = stop.changed() => false,
            () = tokio::time::sleep_until((self.started + due).into()) => true,
        }
    }

    /// Time from the start at which `number` is due; none without a rate.
    fn due(&self, number: u64) -> Option<Duration> {
        let rate = self.spans_per_second?.max(1);
        let ahead = number - self.first;
        let nanoseconds = (ahead % rate) * 1_000_000_000 / rate;
        Some(Duration::from_secs(ahead / rate) + Duration::from_nanos(nanoseconds))
    }
}

/// Spans produced in the background, for faults under load. Ends with [`Load::stop`], or when dropped.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    acked: Arc<AtomicU64>,
    task: Option<JoinHandle<Result<Sent>>>,
}

impl Load {
    /// Starts producing from number 0 on.
    pub fn start(producer: &Producer, feed: Feed) -> Load {
        Load::start_numbers(producer, feed, 0..u64::MAX)
    }

    /// Starts producing these numbers; the load ends by itself after the last one.
    pub fn start_numbers(producer: &Producer, feed: Feed, numbers: Range<u64>) -> Load {
        let (stop, stopped) = watch::channel(false);
        let acked = Arc::new(AtomicU64::new(0));
        let (producer, counted) = (producer.clone(), Arc::clone(&acked));
        let task =
            tokio::spawn(async move { producer.produce_until(&feed, numbers, stopped, &counted).await });
        Load { stop, acked, task: Some(task) }
    }

    /// Whether every number was produced.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Spans acknowledged so far.
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    /// Stops producing, waits for the last acknowledgement and says what was acknowledged.
    pub async fn stop(mut self) -> Result<Sent> {
        self.stop.send_replace(true);
        match self.task.take() {
            Some(task) => task.await.context("the load's task ended by itself")?,
            None => Ok(Sent::default()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_multiples_whatever_the_start() {
        let cuts: Vec<_> = messages(250..501, 100).collect();
        assert_eq!(cuts, [250..300, 300..400, 400..500, 500..501]);
        assert_eq!(messages(7..7, 100).count(), 0);
    }

    #[test]
    fn a_span_is_due_after_the_spans_before_it() {
        let pace = Pace::new(Some(2_000), 500);
        assert_eq!(pace.due(500), Some(Duration::ZERO));
        assert_eq!(pace.due(501), Some(Duration::from_micros(500)));
        assert_eq!(pace.due(6_500), Some(Duration::from_secs(3)));
        assert_eq!(Pace::new(None, 0).due(9), None);
    }

    #[test]
    fn failed_messages_are_doubtful_and_the_first_failure_is_kept() {
        let (mut sent, acked) = (Sent::default(), AtomicU64::new(0));
        for (numbers, failure) in [(0..100, None), (100..200, Some("first")), (200..300, Some("second"))] {
            sent.add(Delivered { numbers, bytes: 10, failure: failure.map(str::to_owned) }, &acked);
        }
        assert_eq!((sent.acked.count(), sent.doubtful.count(), sent.messages), (100, 200, 1));
        assert_eq!(sent.failure.as_deref(), Some("first"));
        assert_eq!(acked.into_inner(), 100);
    }
}
