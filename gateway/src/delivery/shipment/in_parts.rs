//! Sends in parts a block that the server does not accept whole.
//!
//! Job: follows the block's [`Bisection`]: writes each level into the partition's plan, sends its windows, each with its own tries, and
//! dead-letters the remaining rows. Place in the flow: a shipment calls it after a refusal, or at once if the plan says that an earlier
//! owner has started. Owner: the shipment's task. One block per process has the turn ([`super::IN_PARTS_MAX`]). It returns the turn
//! whenever it waits: for a plan, for memory, for someone to act, or for its servers.
//!
//! Memory: [`PARTS_BYTES`](sluice_gateway_config::budget::PARTS_BYTES) of the budget belong to the block that has the turn. The frames
//! are in chunks of the pool. Those of a block on the queue volume are read back for each window, into chunks that the pool lends. Blocks
//! in memory need no loan, so they overtake a block that waits for one, and free their chunks.
//!
//! Nothing is sent before the poll thread has reported that the plan is stored: until then another owner would send the block whole. The
//! progress of a block that is the [only copy](crate::volume::only_copy) of its rows is written to the queue volume instead.

use super::{Sending, Sent, Shipment};
use crate::{
    blocks::buffers::Loan,
    delivery::{
        bisect::{self, Bisection, Excess, Outcome, Step, Window},
        retry::{self, Pace},
        tries::Replica,
    },
    volume::spool::{Note, Unreadable},
};
use bytes::Bytes;
use sluice_clickhouse::{block_rows::Header, body::InsertBody, outcome::Actor};
use sluice_kafka::{PlanStored, Report};
use sluice_ranges::RefusedParts;
use std::{sync::PoisonError, time::Duration};
use tokio::sync::OwnedSemaphorePermit;

/// How often the pool is checked for room for a block of the queue volume. Chosen: inserts take about as long.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// The progress of the block, beside the bisection's state.
#[derive(Default)]
pub(super) struct PartsProgress {
    turn: Option<OwnedSemaphorePermit>,
    /// The room of frames that were read back from the queue volume. The frames are dropped before it.
    loan: Option<Loan>,
    /// When an earlier owner may have sent windows of this level for the first time.
    first_sent: Option<Duration>,
    /// Number of halts in a row.
    halts: u32,
}

impl Shipment {
    /// The state of a block that an earlier owner has started to send in parts.
    pub(super) fn gone_on_with(&self) -> Option<Bisection> {
        let parts = self.release.parts.as_ref()?;
        let found = Bisection::resume(self.block.token, self.block.rows, parts);
        if found.is_none() {
            tracing::warn!(
                partition = %self.block.id,
                "a block that was sent in parts has other messages now: rows of the earlier ones may be duplicated"
            );
            self.count_double(true);
        }
        found
    }

    /// Sends the block in parts until all rows are stored except the refused ones, and these are dead-lettered. Returns their number;
    /// `None` when its generation is over. `first_sent` says when an earlier owner may have started.
    pub(super) async fn send_in_parts(
        &mut self,
        mut bisection: Bisection,
        first_sent: Option<Duration>,
    ) -> Option<u64> {
        tracing::debug!(partition = %self.block.id, rows = self.block.rows, "a block is sent in parts");
        self.shard.delivery.metrics.refused.blocks_in_parts.inc();
        self.is_in_parts = true;
        self.frames.begin_parts().await;
        let mut course = PartsProgress { first_sent, ..PartsProgress::default() };
        loop {
            self.have_turn(&mut course).await?;
            match bisection.step() {
                Step::Send(window) => bisection.take(self.send_window(&window, &mut course).await?),
                Step::Note(parts) if parts.height == 0 && !self.admits(parts.refused.len()) => {
                    self.halt(Excess::Quota, &mut course).await;
                }
                Step::Note(parts) => {
                    self.give_turn_back(&mut course);
                    self.note(parts).await?;
                    bisection.noted();
                    course.first_sent = None;
                }
                Step::Halt(excess) => {
                    self.halt(excess, &mut course).await;
                    bisection.renew();
                }
                Step::Done(rows) => {
                    self.drop_frames(&mut course);
                    self.permit = None;
                    return self.dead_letter(rows, &mut course).await;
                }
            }
        }
    }

    /// Waits for the turn, unless this block has the turn. `None` when its generation is over.
    pub(super) async fn have_turn(&self, course: &mut PartsProgress) -> Option<()> {
        if self.is_over() {
            return None;
        }
        if course.turn.is_none() {
            let turns = self.shard.in_parts.clone();
            tokio::select! {
                turn = turns.acquire_owned() => course.turn = Some(turn.expect("the semaphore is never closed")),
                () = self.over() => return None,
            }
        }
        Some(())
    }

    /// Returns the turn: others may use the memory.
    pub(super) fn give_turn_back(&mut self, course: &mut PartsProgress) {
        self.drop_frames(course);
        self.permit = None;
        course.turn = None;
    }

    /// Drops the frames of the last window.
    fn drop_frames(&mut self, course: &mut PartsProgress) {
        self.sending.body = InsertBody::new(Vec::new());
        course.loan = None;
    }

    /// Writes a level into the plan. `None` when the generation is over before it is stored.
    async fn note(&self, parts: RefusedParts) -> Option<()> {
        let noted = PlanStored::default();
        let (id, generation, range) = (self.block.id.clone(), self.block.generation, self.block.range);
        if let Some(spool) = self.shard.spool().filter(|_| self.frames.is_only_copy()) {
            // Its range is in no plan: the next process with this volume reads the note.
            spool.note(Note { token: self.block.token, range, parts }).await;
            return Some(());
        }
        let report = Report::Parted { id, generation, range, parts, noted: noted.clone() };
        // Without a poll thread nothing is committed any more: the process is ending.
        self.shard.delivery.reports.send(report).await.ok()?;
        tokio::select! {
            () = noted.told() => Some(()),
            () = self.over() => None,
        }
    }

    /// Sends a window until there is an outcome. `None` when the generation is over.
    async fn send_window(&mut self, window: &Window, course: &mut PartsProgress) -> Option<Outcome> {
        let tries = match course.first_sent {
            Some(first_sent) => self.sending.tries.of_inherited_part(first_sent),
            None => self.sending.tries.of_part(),
        };
        self.leave_doubt();
        let body = self.body(window, course).await?;
        self.sending = Sending {
            token: window.token.clone(),
            rows: window.rows.end - window.rows.start,
            body,
            tries,
            attempts: 0,
            released: self.shard.clock.now(),
        };
        loop {
            match self.send().await {
                Sent::In => {
                    course.halts = 0;
                    return Some(Outcome::Stored);
                }
                Sent::Refused(refusal) => return Some(Outcome::Refused(refusal)),
                Sent::Over => return None,
                // Its servers may be away for hours, while those of other shards are not.
                Sent::Again(after, replica) => {
                    self.give_turn_back(course);
                    self.pause(after, replica).await;
                    self.have_turn(course).await?;
                    self.sending.body = self.body(window, course).await?;
                }
                Sent::Halted(actor, after) => {
                    self.give_turn_back(course);
                    if self.sending.rows == 1 {
                        // The cause is this row, and the partition waits for it.
                        self.say_halted().await;
                        self.counts_as_halted();
                    }
                    self.wait_for_actor(actor, after).await;
                    self.have_turn(course).await?;
                    self.sending.body = self.body(window, course).await?;
                }
            }
        }
    }

    /// The rows of a window. `None` if the block cannot be read, or its generation is over. Finding them takes tens of milliseconds, so
    /// it runs on a blocking thread, not on the I/O thread.
    async fn body(&mut self, window: &Window, course: &mut PartsProgress) -> Option<InsertBody> {
        let frames = self.frames(course).await?;
        let shape = self.shape();
        let window = window.clone();
        let made =
            tokio::task::spawn_blocking(move || bisect::body(&shape, &frames, Header::None, &window)).await;
        match made {
            Ok(body) => Some(body.expect("a block in memory has the rows that were written to it")),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// The block's frames in memory.
    async fn frames(&mut self, course: &mut PartsProgress) -> Option<Vec<Bytes>> {
        self.drop_frames(course);
        loop {
            let loaded = self.frames.load(self.shard.spool(), self.shard.now_ms()).await;
            let loaded = loaded.map_err(|damage| self.damage = Some(damage)).ok()?;
            if let Some(chunks) = loaded.body.chunks() {
                return Some(chunks.to_vec());
            }
            course.loan = self.shard.pool.lend(loaded.body.len());
            if course.loan.is_some() {
                let read = loaded.body.read().await;
                return read.map_err(|broken| self.damage = Some(Unreadable(broken.to_string()))).ok();
            }
            drop(loaded);
            self.give_turn_back(course);
            self.pause(ROOM_WAIT, Replica::Same).await;
            self.have_turn(course).await?;
        }
    }

    fn admits(&self, rows: usize) -> bool {
        // Poisoning is harmless: the value is two numbers.
        let mut quota = self.shard.quota.lock().unwrap_or_else(PoisonError::into_inner);
        quota.admits(self.shard.clock.now(), rows)
    }

    /// Reports to the poll thread why the partition stands still. An only copy delays no partition, so nothing is reported for it.
    pub(super) async fn say_halted(&self) {
        let (id, generation, range) = (self.block.id.clone(), self.block.generation, self.block.range);
        if !self.frames.is_only_copy()
            && self.shard.delivery.reports.send(Report::Halted { id, generation, range }).await.is_err()
        {
            // The poll thread has ended and does not need the report.
        }
    }

    /// Says that too much is refused, and waits for someone to act.
    async fn halt(&mut self, excess: Excess, course: &mut PartsProgress) {
        self.give_turn_back(course);
        course.halts = course.halts.saturating_add(1);
        let shard = self.shard.clone();
        let refused = &shard.delivery.metrics.refused;
        refused.blocks_halted.inc();
        self.counts_as_halted();
        if course.halts == 1 {
            self.say_halted().await;
            let (partition, actor) = (&self.block.id, Actor::Table.label());
            let advice = Actor::Table.advice();
            tracing::error!(
                %partition,
                actor,
                advice,
                %excess,
                "a block cannot be inserted until the cause is fixed (see advice); it is tried again automatically"
            );
        }
        let wait = retry::wait(Pace::Slow, course.halts, self.random());
        self.wait_for_actor(Actor::Table, wait).await;
        refused.blocks_halted.dec();
    }
}
