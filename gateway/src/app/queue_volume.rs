//! The gateway's queue volume: claimed before anything else starts, opened once the table fits.
//!
//! Owner: the main thread, which claims and opens it once.

use super::Event;
use crate::{admin::health::Status, source::opening, volume::spool::Spool};
use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender};
use sluice_gateway_config::{Commit, GatewayConfig, QueueMode};
use sluice_spool::Volume;
use std::{path::Path, time::Duration};

/// The cost of `delivery.commit: AfterEnqueue`, as a warning.
pub const AFTER_ENQUEUE: &str = "offsets are committed once their rows are on the queue volume, which is then their only copy: if the \
                                 volume is lost, they are lost; duplicates are no more likely than without it";

/// How long the gateway waits for another process to release the queue volume. Chosen: what a container runtime takes to end a container
/// that was deleted by force, and less than the minute that the startup probe allows.
const VOLUME_WAIT: Duration = Duration::from_secs(10);

/// Claims the queue volume, if there is to be one. A signal ends the wait for another process.
pub(super) fn claim(config: &GatewayConfig, events: &Receiver<Event>) -> anyhow::Result<Option<Volume>> {
    if config.queue.mode == QueueMode::Disabled {
        return Ok(None);
    }
    let identity = sluice_spool::Identity::of(&config.pipeline.namespace, &config.pipeline.name);
    let mut is_told = false;
    let wait = |pause| {
        if !std::mem::replace(&mut is_told, true) {
            let seconds = VOLUME_WAIT.as_secs();
            tracing::info!(seconds, "another process has the queue volume open; waiting for it");
        }
        events.recv_timeout(pause).is_err()
    };
    let claimed = Volume::claim_within(Path::new(&config.queue.path), &identity, VOLUME_WAIT, wait);
    Ok(Some(claimed?))
}

/// Opens the queue on the volume that was claimed, if there is one.
pub(super) fn open(
    config: &GatewayConfig,
    status: &Status,
    events: Sender<Event>,
) -> anyhow::Result<Option<Spool>> {
    let Some(space) = status.volume_space() else { return Ok(None) };
    let path = Path::new(&config.queue.path);
    if let Some(what) = opening::left(path)?.of_logs() {
        anyhow::bail!(
            "the queue volume {} has {what} of a gateway with source.otlp: empty it first, with that config",
            path.display()
        );
    }
    let identity = sluice_spool::Identity::of(&config.pipeline.namespace, &config.pipeline.name);
    let bytes_max = config.queue.bytes_max(space.context("cannot read the size of the queue volume")?.total);
    let enqueues = config.delivery.commit == Commit::AfterEnqueue;
    let options = sluice_spool::Options::new(identity.number(), bytes_max, enqueues);
    // Reads only part of a large volume first, so that joining the group does not wait.
    let options = sluice_spool::Options { reads_all: false, ..options };
    let (spool, found) = Spool::start(path, options, move |fatal| {
        #[expect(clippy::disallowed_methods, reason = "on the volume's thread, which has ended its work")]
        let sent = events.send(Event::VolumeFailed(fatal));
        if sent.is_err() {
            // The process is ending already.
        }
    })?;
    tracing::info!(bytes_max, blocks = found.blocks, rows = found.rows, "the queue volume is open");
    for cut in &found.cut {
        tracing::warn!(
            ?cut,
            "the last records of a file on the queue volume are incomplete or damaged; they are cut off"
        );
    }
    for aside in &found.set_aside {
        tracing::error!(?aside, "a file on the queue volume is damaged; it is kept under another name");
    }
    if enqueues {
        tracing::warn!("delivery.commit AfterEnqueue: {AFTER_ENQUEUE}");
    }
    status.spools(spool.clone());
    Ok(Some(spool))
}
