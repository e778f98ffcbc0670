//! The inserts of a drain: the same shipments as a gateway's, of blocks that no partition is owned for.
//!
//! Owner: the command's thread, on a runtime of its own. Limits: [`SENDING_PER_INSERT`] blocks a shard and insert are under way; what waits
//! is on the volume.

use crate::{
    app::identity,
    blocks::buffers::Pool,
    delivery::{
        originals::Originals,
        places::Places,
        shipment::{Shard, Shipment},
        task::{Delivery, SENDING_PER_INSERT, Shards},
    },
    ground::{async_sender::AsyncSender, clock::Clock, metrics::Metrics},
    guarantee::{GuaranteeState, Watch},
    table::{
        sink::{self, Sink},
        table_watch::TableWatch,
    },
    volume::{only_copy::Tables, ready_block::Ready, spool::Spool},
};
use sluice_clickhouse::{column::TableColumns, row_ends::RowShape};
use sluice_gateway_config::{GatewayConfig, budget::BLOCK_BYTES_MAX};
use sluice_kafka::dead_letter::{DeadLetters, StartError};
use std::sync::Arc;

/// Why nothing can be inserted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inserts cannot be prepared.
    #[error(transparent)]
    Sink(sink::Error),
    /// There is no way to the dead-letter topic.
    #[error("cannot prepare dead letters: {0}")]
    DeadLetters(#[source] StartError),
    /// The thread that reads messages again cannot be started.
    #[error("cannot start the thread that reads messages again: {0}")]
    Originals(#[source] std::io::Error),
}

/// Blocks on their way into the table.
pub struct Inserts {
    shards: Shards,
    columns: u64,
    places: Places<(Arc<Shard>, Ready)>,
}

impl Inserts {
    /// Prepares them; nothing is sent, but what the guarantee rests on is asked.
    pub async fn new(
        config: &GatewayConfig,
        shards: Vec<Sink>,
        columns: &TableColumns,
        metrics: &Arc<Metrics>,
        spool: &Spool,
    ) -> Result<Self, Error> {
        let standing = Arc::new(GuaranteeState::new(metrics.guarantee.clone(), shards.len(), []));
        // Nothing is read here, so that nothing is known of what would be.
        let mut watch = Watch::new(shards.clone(), standing.clone(), Arc::default());
        let clock = Clock::start();
        watch.look(clock.now()).await;
        tokio::spawn(watch.run(move || clock.now()));
        let kafka = &config.source.kafka;
        let letters = &config.delivery.dead_letter;
        let client_id = identity(config).client_id;
        let started = DeadLetters::start(kafka, letters.topic.as_deref(), &client_id);
        let dead_letters = started.map_err(Error::DeadLetters)?;
        let originals = Originals::start(kafka).map_err(Error::Originals)?;
        let shape = Arc::new(RowShape::of(columns));
        let concurrency = config.sink.clickhouse.insert.concurrency;
        // Nobody owns a partition here: shipments of only copies report to nobody.
        let reports = AsyncSender::new(crossbeam_channel::bounded(1).0);
        let places = Places::new(SENDING_PER_INSERT * concurrency.max(1) as usize);
        let deliveries: Result<Vec<_>, Error> = shards
            .into_iter()
            .map(|sink| {
                Ok(Delivery {
                    targets: sink.targets(columns).map_err(Error::Sink)?,
                    // What was encoded for other columns waits until the table is mended, or the time is over.
                    watch: TableWatch::new(sink.clone(), columns.clone(), metrics.clone(), |changed| {
                        tracing::error!("{changed}");
                    }),
                    standing: standing.clone(),
                    sink,
                    concurrency,
                    reports: reports.clone(),
                    dead_letters: dead_letters.clone(),
                    on_missing: letters.on_missing,
                    originals: originals.clone(),
                    kafka: kafka.clone(),
                    // What is on a volume goes as rows.
                    native: None,
                    shape: shape.clone(),
                    metrics: metrics.clone(),
                    spool: Some(spool.clone()),
                })
            })
            .collect();
        let deliveries = deliveries?;
        let columns = deliveries.first().map_or(0, |delivery| delivery.targets.columns());
        // Nothing is read here that would need the pool: it is what one block in parts may have.
        let pool = Arc::new(Pool::new(BLOCK_BYTES_MAX, 0, 0));
        let shards = Shards::new(deliveries, &pool);
        Ok(Self { shards, columns, places })
    }

    /// Where it is looked whether blocks fit.
    pub fn tables(&self) -> Tables {
        Tables { columns: self.columns, shards: self.shards.sinks() }
    }

    /// Where blocks go.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Takes a block in, to be sent in its turn.
    pub fn add(&mut self, ready: Ready) {
        self.shards.count_in();
        let shard = self.shards.of(&ready.sealed.block, &ready.release);
        self.places.add(shard.place(), (shard, ready));
    }

    /// Sends what may be sent and waits until the next block has ended. `false` when there is none.
    pub async fn next(&mut self) -> bool {
        self.places.send(|(shard, ready)| Shipment::new(shard, ready).run());
        self.places.ended().await.is_some()
    }
}
