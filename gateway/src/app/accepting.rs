//! `source.otlp` of the gateway: its front is started before the table is known, and ends before the poll thread does.
//!
//! Owner: the main thread.

use super::Event;
use crate::{
    admin::health::Status,
    ground::metrics::Metrics,
    source::front::{Front, FrontDeps},
};
use anyhow::Context as _;
use crossbeam_channel::Sender;
use sluice_gateway_config::CheckedConfig;
use std::sync::Arc;
use tokio::{runtime::Runtime, task::JoinHandle};

/// The source, and its end once that has begun.
pub(super) struct Accepting {
    pub front: Front,
    ending: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Starts the source, if the config has one.
pub(super) fn start(
    checked: &CheckedConfig,
    metrics: &Arc<Metrics>,
    (io, status): (&Runtime, &Status),
    events: Sender<Event>,
) -> anyhow::Result<Option<Accepting>> {
    let Some(otlp) = &checked.config().source.otlp else { return Ok(None) };
    let space = status.volume_space().context("source.otlp has a queue volume")?;
    let deps = FrontDeps {
        checked,
        otlp,
        metrics: metrics.clone(),
        drain: status.drain_asked(),
        volume_bytes: space.context("cannot read the size of the queue volume")?.total,
        on_fatal: Arc::new(move |fatal| {
            if events.try_send(Event::VolumeFailed(fatal)).is_err() {
                // The process is ending already.
            }
        }),
        opened: &|numbers, keeper| status.accepts(numbers.clone(), keeper.clone()),
    };
    Ok(Some(Accepting { front: Front::start(deps, io)?, ending: None }))
}

impl Accepting {
    /// Begins to end: no request is accepted soon. Does nothing the second time.
    pub fn begin_to_end(&mut self, io: &Runtime) {
        if let Some(ending) = self.front.begin_to_end(io) {
            self.ending = Some(ending);
        }
    }

    /// Ends: waits for the requests under way, and for the logs to close.
    pub fn end(mut self, io: &Runtime) -> anyhow::Result<()> {
        self.begin_to_end(io);
        let ended = self.ending.map_or(Ok(Ok(())), |ending| io.block_on(ending));
        let ended = ended.context("the end of the OTLP server");
        self.front.close()?;
        ended?
    }
}
