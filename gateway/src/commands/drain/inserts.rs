//! The inserts of a drain: the same shipments as a gateway's, for blocks whose partitions this process does not own.
//!
//! Owner: the command's thread, on its own runtime. Limits: [`SENDING_PER_INSERT`] blocks per shard and concurrent insert are sent at a
//! time; waiting blocks are on the volume.

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
    rows::carry::Carrying,
    table::{
        sink::{self, Sink},
        table_watch::TableWatch,
    },
    volume::{only_copy::Tables, ready_block::Ready, spool::Spool},
};
use sluice_clickhouse::{column::TableColumns, row_ends::RowShape};
use sluice_gateway_config::{GatewayConfig, Kafka, budget::BLOCK_BYTES_MAX};
use sluice_kafka::dead_letter::{DeadLetters, StartError};
use std::sync::Arc;

/// Why the inserts cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inserts cannot be prepared.
    #[error(transparent)]
    Sink(sink::Error),
    /// The client for the dead-letter topic cannot be started.
    #[error("cannot prepare dead letters: {0}")]
    DeadLetters(#[source] StartError),
    /// The thread that reads messages again cannot be started.
    #[error("cannot start the thread that reads messages again: {0}")]
    Originals(#[source] std::io::Error),
}

/// Blocks that wait or are being sent.
pub struct Inserts {
    shards: Shards,
    columns: u64,
    places: Places<(Arc<Shard>, Ready)>,
}

impl Inserts {
    /// Prepares the inserts. Sends nothing, but asks the servers about the guarantee.
    pub async fn new(
        (config, kafka): (&GatewayConfig, &Kafka),
        shards: Vec<Sink>,
        columns: &TableColumns,
        metrics: &Arc<Metrics>,
        spool: &Spool,
    ) -> Result<Self, Error> {
        let standing = Arc::new(GuaranteeState::new(metrics.guarantee.clone(), shards.len(), []));
        // This process has no consumer, so the watch gets empty statistics.
        let mut watch = Watch::new(shards.clone(), standing.clone(), Arc::default());
        let clock = Clock::start();
        watch.look(clock.now()).await;
        tokio::spawn(watch.run(move || clock.now()));
        let letters = &config.delivery.dead_letter;
        let carrying = Carrying::of(&config.attributes);
        let client_id = identity(config).client_id;
        let started = DeadLetters::start(kafka, letters.topic.as_deref(), &client_id);
        let dead_letters = started.map_err(Error::DeadLetters)?;
        let originals = Originals::start(kafka).map_err(Error::Originals)?;
        let shape = Arc::new(RowShape::of(columns));
        let concurrency = config.sink.clickhouse.insert.concurrency;
        // There is no poll thread here: shipments of only copies send no reports.
        let reports = AsyncSender::new(crossbeam_channel::bounded(1).0);
        let places = Places::new(SENDING_PER_INSERT * concurrency.max(1) as usize);
        let deliveries: Result<Vec<_>, Error> = shards
            .into_iter()
            .map(|sink| {
                Ok(Delivery {
                    targets: sink.targets(columns).map_err(Error::Sink)?,
                    // A table change does not end the command: blocks for other columns wait until the table is fixed, or the time is over.
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
                    carrying: carrying.clone(),
                    reading: config.reading(),
                    kafka: Some(kafka.clone()),
                    // Blocks from a volume are sent as rows.
                    native: None,
                    shape: shape.clone(),
                    metrics: metrics.clone(),
                    spool: Some(spool.clone()),
                })
            })
            .collect();
        let deliveries = deliveries?;
        let columns = deliveries.first().map_or(0, |delivery| delivery.targets.columns());
        // Nothing is read here, so the pool only needs room for one block in parts.
        let pool = Arc::new(Pool::new(BLOCK_BYTES_MAX, 0, 0));
        let shards = Shards::new(deliveries, &pool);
        Ok(Self { shards, columns, places })
    }

    /// The tables to check the columns of blocks against.
    pub fn tables(&self) -> Tables {
        Tables { columns: self.columns, shards: self.shards.sinks() }
    }

    /// The shards that receive the blocks.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Adds a block that is sent when it has a place.
    pub fn add(&mut self, mut ready: Ready) {
        self.shards.count_in();
        let shard = self.shards.of(&mut ready);
        self.places.add(shard.place(), (shard, ready));
    }

    /// Starts sending blocks that have a place, and waits until the next one has ended. `false` if there is none.
    pub async fn next(&mut self) -> bool {
        self.places.send(|(shard, ready)| Shipment::new(shard, ready).run());
        self.places.ended().await.is_some()
    }
}
