//! The load of a round, and how much of it Kafka, or gateways with `source.otlp`, have taken.
//!
//! Owner: the round. Numbers continue after the last ones, so that all spans of a round are counted as one run.

use anyhow::{Context as _, Result, bail};

use super::Scene;
use crate::otlp_clients::Clients;
use e2e_fixtures::produce::{Compression, Feed, Load, Producer, Sent};
use e2e_fixtures::spans::{Encoding, Shape};

/// Load, spans a second: six messages a second and partition. Blocks close both by rows and by time, and the load uses little of two cores.
const SPANS_PER_SECOND: u64 = 5_000;

/// Inserts before a fault: by then, every partition has had its first blocks, and some offsets are committed.
pub const INSERTS_BEFORE: u64 = 12;

/// Spans after a fault before the load stops: more than two seconds of load.
pub const SPANS_AFTER: u64 = 12_000;

/// Spans on their way to gateways.
pub(super) enum Feeding {
    Kafka(Load),
    /// From clients to the gateway itself.
    Otlp(Clients),
}

impl Feeding {
    /// Spans that were taken so far.
    pub(super) fn acked(&self) -> u64 {
        match self {
            Feeding::Kafka(load) => load.acked(),
            Feeding::Otlp(clients) => clients.acked(),
        }
    }

    async fn stop(self) -> Result<Sent> {
        match self {
            Feeding::Kafka(load) => load.stop().await,
            Feeding::Otlp(clients) => clients.stop().await,
        }
    }
}

impl Scene<'_> {
    /// Starts a gateway and the load, and waits for the inserts before a fault. With a member name, the gateway is a static member.
    pub async fn start_under_load(&mut self, member: Option<&str>) -> Result<()> {
        self.start_gateway(member)?;
        self.begin_load().await
    }

    /// Starts the load, and waits for the inserts before a fault.
    pub async fn begin_load(&mut self) -> Result<()> {
        self.start_load();
        self.wait_inserts(INSERTS_BEFORE).await
    }

    /// Begins or continues the load: on all current partitions of the topic or, with `source.otlp`, from clients.
    pub fn start_load(&mut self) {
        self.start_load_of(SPANS_PER_SECOND);
    }

    /// As [`Self::start_load`], at another rate.
    pub fn start_load_of(&mut self, spans_per_second: u64) {
        let first = self.next_number();
        self.load = Some(if let Some(port) = &self.otlp {
            Feeding::Otlp(Clients::start(&port.address(), self.producer.run(), first, spans_per_second))
        } else {
            let feed = Feed { spans_per_second: Some(spans_per_second), ..self.feed(Encoding::OtlpProto) };
            Feeding::Kafka(Load::start_numbers(&self.producer, feed, first..u64::MAX))
        });
    }

    pub fn clients(&self) -> Result<&Clients> {
        match &self.load {
            Some(Feeding::Otlp(clients)) => Ok(clients),
            _ => bail!("no clients send"),
        }
    }

    /// Where gateways with `source.otlp` accept requests (`host:port`).
    pub fn otlp_address(&self) -> Result<String> {
        Ok(self.otlp.as_ref().context("gateways have no source.otlp")?.address())
    }

    /// A feed of all partitions at the usual rate.
    pub fn feed(&self, encoding: Encoding) -> Feed {
        Feed {
            topic: self.topic.name().to_owned(),
            partitions: self.topic.partitions(),
            shape: Shape::Numbered,
            encoding,
            spans_per_second: Some(SPANS_PER_SECOND),
        }
    }

    /// Produces this many spans at once and waits until all are acknowledged.
    pub async fn produce(&mut self, spans: u64) -> Result<()> {
        let feed = Feed { spans_per_second: None, ..self.feed(Encoding::OtlpProto) };
        let first = self.next_number();
        let sent = self.producer.produce(&feed, first..first + spans).await?;
        self.add(sent);
        Ok(())
    }

    /// Makes a new producer of the same run: the old one has the topic's former partitions in memory.
    pub fn renew_producer(&mut self) -> Result<()> {
        let run = self.producer.run();
        self.producer = Producer::new(&self.stage.servers.kafka(), Compression::default(), run)?;
        Ok(())
    }

    /// Spans of the load that were taken so far.
    pub fn acked(&self) -> u64 {
        self.sent.acked.count() + self.load.as_ref().map_or(0, Feeding::acked)
    }

    fn next_number(&self) -> u64 {
        let ends =
            |numbers: &e2e_fixtures::spans::Numbers| numbers.ranges().last().map_or(0, |last| last.end);
        let end = ends(&self.sent.acked).max(ends(&self.sent.doubtful));
        // Starts at a whole message, because its number decides its partition.
        end.next_multiple_of(Shape::Numbered.message_spans())
    }

    /// Records what was produced outside of the load.
    pub fn add(&mut self, sent: Sent) {
        self.sent = std::mem::take(&mut self.sent).and(sent);
    }

    /// Ends the load and says what was taken so far. It is an error if a client got an answer that no gateway should give.
    pub async fn stop_load(&mut self) -> Result<&Sent> {
        if let Some(load) = self.load.take() {
            let sent = load.stop().await?;
            self.add(sent);
        }
        Ok(&self.sent)
    }
}
