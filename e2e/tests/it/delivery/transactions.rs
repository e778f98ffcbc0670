//! A producer with transactions: committed messages are in the table once, aborted ones never. The markers at the ends of transactions are
//! no messages, but the group commits past them; otherwise it would have lag until the next message. Messages behind an open transaction
//! are no lag, and a metric reports them.

use std::ops::Range;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::delivery::process::{self, Gateway, Stage};
use crate::prelude::*;

/// How long the broker may take to begin, commit or abort a transaction.
const BROKER_TIMEOUT: Duration = Duration::from_secs(30);

/// The partition whose transactions are committed.
const COMMITTED: i32 = 0;

/// The partition whose first transaction is aborted.
const ABORTED: i32 = 1;

/// Sends spans in transactions, and records which must be in the table.
struct Producer {
    client: BaseProducer,
    topic: String,
    generator: Generator,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
}

impl Producer {
    fn new(stage: &Stage, run: Run) -> Result<Producer> {
        let topic = stage.topic.name().to_owned();
        let client: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", stage.kafka())
            .set("transactional.id", &topic)
            .create()
            .context("make a producer")?;
        client.init_transactions(BROKER_TIMEOUT).context("take the transactional id")?;
        let generator = Generator::new(Shape::Numbered, run);
        Ok(Producer { client, topic, generator, sent: Sent::default() })
    }

    /// One transaction with these spans in one message.
    fn transaction(&mut self, partition: i32, spans: Range<u64>, end: End) -> Result<()> {
        self.begin(partition, spans.clone())?;
        match end {
            End::Commit => self.commit(spans),
            End::Abort => self.client.abort_transaction(BROKER_TIMEOUT).context("abort the transaction"),
        }
    }

    /// Begins a transaction with these spans in one message, and leaves it open.
    fn begin(&mut self, partition: i32, spans: Range<u64>) -> Result<()> {
        self.client.begin_transaction().context("begin a transaction")?;
        let message = self.generator.message(spans);
        let record = BaseRecord::<(), [u8]>::to(&self.topic).partition(partition).payload(message);
        self.client.send(record).map_err(|(error, _)| error).context("send a message")?;
        self.client.flush(BROKER_TIMEOUT).context("wait for the broker")
    }

    fn commit(&mut self, spans: Range<u64>) -> Result<()> {
        self.client.commit_transaction(BROKER_TIMEOUT).context("commit the transaction")?;
        self.sent.acked.insert(spans);
        Ok(())
    }
}

#[test]
#[ignore = "group delivery"]
fn ends_of_transactions_are_no_lag() -> Result<()> {
    process::run("transactions", 2, async |stage: &Stage| {
        let run = Run::fresh();
        let mut producer = Producer::new(stage, run)?;
        // Some end before the gateway reads, some while it reads, and one comes behind a committed marker.
        producer.transaction(COMMITTED, 0..100, End::Commit)?;
        producer.transaction(ABORTED, 100..200, End::Abort)?;
        let gateway = stage.start("ends", &json!({})).await?;
        gateway.wait_lag(0).await?;
        producer.transaction(COMMITTED, 200..300, End::Abort)?;
        gateway.wait_lag(0).await?;
        producer.transaction(COMMITTED, 300..400, End::Commit)?;
        producer.transaction(ABORTED, 400..500, End::Commit)?;
        gateway.wait_lag(0).await?;
        waits_behind_an_open_transaction(&mut producer, &gateway).await?;
        let verdict = gateway.oracle(run).wait_until_complete(&producer.sent, PATIENCE, |_| {}).await?;
        ensure!(verdict.lost == 0 && verdict.doubled == 0, "{verdict:?}");
        let rows = gateway.select("toUInt32(count())", "").await?;
        ensure!(rows == [[json!(400)]], "{rows:?}: what was aborted is not to be read");
        gateway.stop().await
    })
}

/// The metric reports it while the transaction is open, although there is no lag, and no longer after its end.
async fn waits_behind_an_open_transaction(producer: &mut Producer, gateway: &Gateway) -> Result<()> {
    let of = |metric: &str| {
        format!(
            "sluice_gateway_open_transaction_{metric}{{partition=\"{COMMITTED}\",topic=\"{}\"}}",
            producer.topic
        )
    };
    let (messages, first_offset, seconds) = (of("messages"), of("first_offset"), of("seconds"));
    producer.begin(COMMITTED, 500..600)?;
    gateway.wait_metric(&messages, Some(1.0)).await?;
    // Behind three messages and the markers of their transactions.
    gateway.wait_metric(&first_offset, Some(6.0)).await?;
    let age = gateway.metric(&seconds).await?;
    ensure!(age.is_some_and(|age| age < 60.0), "{age:?}");
    gateway.wait_lag(0).await?;
    producer.commit(500..600)?;
    gateway.wait_metric(&messages, None).await?;
    gateway.wait_lag(0).await
}
