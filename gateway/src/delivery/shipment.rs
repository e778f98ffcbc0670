//! One block on its way into the table: sends it, and follows its [`Tries`] until it is stored.
//!
//! Place in the flow: delivery starts one per block whose range may be sent. Owner: its own task on the I/O runtime. A try holds one of its
//! [`Shard`]'s permits and a pass of the server. A waiting block holds neither, so a refused block does not delay others. A block that the
//! server does not accept whole is sent [in parts](in_parts).
//!
//! No error ends a shipment. It ends unsent only when its generation is over, because another owner then reads its messages. A block that
//! is the [only copy](crate::volume::only_copy) of its rows continues even then: no other process has the block, and the poll thread does
//! not track it.

mod doubt;
mod ending;
mod form;
mod halts;
mod in_parts;
mod letters;
mod shard;

pub use ending::End;
pub use shard::{IN_PARTS_MAX, Shard};

use form::Encoded;

use crate::{
    blocks::{block::Block, message_rows::MessageRows},
    delivery::{
        bisect::{Bisection, Fault, Refusal},
        breaker::Answer,
        retry,
        tries::{At, Failure, Next, Replica, Tries},
    },
    volume::{
        block_frames::{BlockFrames, Loaded},
        ready_block::{BlockWithFrames, GenerationStatus, Halting, Ready},
        spool::{Ended, Unreadable},
    },
};
use sluice_clickhouse::{
    body::InsertBody,
    insert::{InsertError, InsertId},
    outcome::{self, Actor, Class},
};
use sluice_ranges::{PROOF_AGE_MAX, Release};
use std::{
    hash::BuildHasher as _,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::sync::OwnedSemaphorePermit;

/// Nothing was sent; decides anew at once.
const AT_ONCE: Next = Next::SendAgain { after: Duration::ZERO, replica: Replica::Same, may_double: false };

/// One block on its way.
pub struct Shipment {
    shard: Arc<Shard>,
    block: Block,
    frames: BlockFrames,
    /// Why its record on the queue volume cannot be read.
    damage: Option<Unreadable>,
    release: Release,
    generation: Arc<GenerationStatus>,
    sending: Sending,
    last: Option<(usize, Replica)>,
    /// The permit of the last try, kept for the next one, so that each part of a block does not wait behind all other blocks.
    permit: Option<OwnedSemaphorePermit>,
    is_in_parts: bool,
    /// Whether it cannot be transposed into columns, or was refused as columns.
    goes_as_rows: bool,
    /// Set if it was encoded for other columns than new rows.
    encoded: Option<Encoded>,
    refused: Instant,
    /// The server's last answer.
    refusal: Option<(Option<u32>, String)>,
    /// Its number among the blocks in doubt.
    doubt: Option<u64>,
    /// Set while it waits for someone to act.
    halting: Option<Halting>,
    /// Its rows that may be duplicates once it is stored.
    rows_elsewhere: u64,
    /// The same until they are counted, then 0.
    rows_uncounted: u64,
    /// Whether the shipment gives the block back, instead of waiting, if the table lacks its columns.
    gives_back: bool,
}

/// What is sent under one token: the block, or a part of it.
struct Sending {
    token: String,
    rows: u64,
    /// The body of a part; the block's own body is loaded for each try.
    body: InsertBody,
    tries: Tries,
    attempts: u32,
    /// When it was first allowed to be sent: this process owned the partition then.
    released: Duration,
}

/// The outcome of sending.
enum Sent {
    /// It is stored.
    In,
    /// The server refuses it, or cannot take it at once.
    Refused(Refusal),
    /// Someone must act; send it again after this time.
    Halted(Actor, Duration),
    /// A part to send again after this time; others may have its turn meanwhile.
    Again(Duration, Replica),
    /// Its generation is over.
    Over,
}

impl Shipment {
    /// For a block that may be sent.
    pub fn new(shard: Arc<Shard>, ready: Ready) -> Self {
        let Ready { sealed: BlockWithFrames { block, frames }, release, generation, columns, rows_elsewhere } =
            ready;
        let encoded = columns.map(|columns| Encoded::new(&shard.delivery.sink, columns));
        let views = shard.delivery.standing.has_views(shard.place);
        let tries = if release.is_inherited {
            Tries::inherited(views, Duration::from_secs(release.first_sent))
        } else {
            Tries::new(views)
        };
        let sending = Sending {
            token: block.token.to_string(),
            rows: block.rows,
            body: InsertBody::new(Vec::new()),
            tries,
            attempts: 0,
            released: shard.clock.now(),
        };
        let refused = Instant::now();
        Self {
            shard,
            block,
            frames,
            damage: None,
            release,
            generation,
            sending,
            last: None,
            permit: None,
            is_in_parts: false,
            goes_as_rows: false,
            encoded,
            refused,
            refusal: None,
            doubt: None,
            halting: None,
            rows_elsewhere,
            rows_uncounted: rows_elsewhere,
            gives_back: false,
        }
    }

    /// For an only copy: gives it back to the volume if the table lacks its columns and these are not the columns of new rows.
    #[must_use]
    pub fn giving_back(self) -> Self {
        Self { gives_back: true, ..self }
    }

    /// Sends the block until it is stored, its generation is over, or it is given back.
    pub async fn run(mut self) -> End {
        let id = self.block.id.clone();
        // Skipped while no try can succeed: a block that was never sent must not be marked as sent.
        if !self.shard.is_failing() {
            let prepared = self.frames.prepare(self.shard.spool(), self.shard.now_ms()).await;
            self.damage = prepared.err();
        }
        End { id, is_given_up: self.deliver().await }
    }

    /// Returns whether it was given up.
    async fn deliver(mut self) -> bool {
        let refusal = match self.gone_on_with() {
            Some(bisection) => Err(bisection),
            None => Ok(self.send_whole().await),
        };
        let dead_lettered = match refusal {
            Ok(Sent::In) => Some(0),
            Ok(Sent::Refused(refusal)) => {
                let bisection = Bisection::new(self.block.token, self.block.rows, refusal);
                self.send_in_parts(bisection, None).await
            }
            Ok(Sent::Halted(..) | Sent::Again(..) | Sent::Over) => None,
            Err(bisection) => {
                let first_sent = Duration::from_secs(self.release.first_sent);
                self.send_in_parts(bisection, Some(first_sent)).await
            }
        };
        self.leave_doubt();
        let is_given_up = dead_lettered.is_none() && self.damage.is_none();
        match dead_lettered {
            Some(rows) => self.settle(rows).await,
            None if self.damage.is_some() => {
                self.frames.end(self.shard.spool(), Ended::Damaged).await;
                // After `end`, a block cannot become an only copy any more.
                if self.frames.is_only_copy() {
                    self.lose();
                } else {
                    self.read_again().await;
                }
            }
            None => {
                let ended = Ended::given_up(self.generation.is_leaving());
                self.frames.end(self.shard.spool(), ended).await;
                self.shard.abandon(self.block);
            }
        }
        is_given_up
    }

    /// Sends the whole block until there is an outcome other than waiting for someone to act.
    async fn send_whole(&mut self) -> Sent {
        loop {
            match self.send().await {
                // Its record stays on the volume, and the table's columns are checked before it is sent again.
                Sent::Halted(Actor::Table, _) if self.gives_back && self.encoded.is_some() => {
                    return Sent::Over;
                }
                Sent::Halted(actor, after) => self.wait_for_actor(actor, after).await,
                sent => return sent,
            }
        }
    }

    /// Sends the block or part until there is an outcome.
    async fn send(&mut self) -> Sent {
        let mut next = None;
        while !self.is_over() {
            let step = match next.take() {
                Some(step) => step,
                None => match self.attempt().await {
                    Some(step) => step,
                    None => return Sent::In,
                },
            };
            self.tell_doubt();
            let step = self.whole_or_row(step);
            match step {
                Next::SendAgain { after, replica, may_double } => {
                    self.count_double(may_double);
                    self.last = self.last.map(|(endpoint, _)| (endpoint, replica));
                    if self.is_in_parts && !after.is_zero() {
                        return Sent::Again(after, replica);
                    }
                    self.pause(after, replica).await;
                }
                Next::Describe => {
                    let found = self.look_at_table().await;
                    next = Some(self.sending.tries.described(found, &self.at()));
                }
                Next::Look => {
                    self.permit = None;
                    let was_asked = tokio::select! {
                        () = self.shard.delivery.standing.look(self.shard.place) => true,
                        () = self.over() => false,
                    };
                    let at = self.at();
                    if was_asked && self.sending.tries.must_look(&at) {
                        self.count_unanswered();
                    }
                    next = Some(self.sending.tries.looked(&at));
                }
                Next::AskFate(_) => next = Some(self.ask_fate().await),
                Next::Bisect { may_double } => return self.refused(Fault::Rows, may_double),
                Next::Split { may_double } => return self.refused(Fault::Size, may_double),
                Next::Halt { actor, after } => {
                    self.say_actor(actor);
                    return Sent::Halted(actor, after);
                }
                Next::Settle { views_incomplete } => {
                    if views_incomplete {
                        self.shard.delivery.metrics.guarantee.view_gaps.inc();
                    }
                    return Sent::In;
                }
            }
        }
        Sent::Over
    }

    /// From now on it does not count as a block that ClickHouse is behind with, because only its own rows delay it. A missing table or
    /// missing rights delay all blocks, and then ClickHouse counts as behind.
    fn counts_as_halted(&mut self) {
        let Self { halting, generation, .. } = self;
        halting.get_or_insert_with(|| Halting::of(generation));
    }

    /// Replaces a split of a single row, which cannot be split.
    fn whole_or_row(&self, step: Next) -> Next {
        match step {
            Next::Split { may_double } if self.sending.rows == 1 => {
                match self.sending.tries.indivisible(&self.at()) {
                    Next::Bisect { .. } => Next::Bisect { may_double },
                    halt => halt,
                }
            }
            step => step,
        }
    }

    fn refused(&mut self, fault: Fault, may_double: bool) -> Sent {
        self.count_double(may_double);
        let (code, text) = self.refusal.take().unwrap_or_default();
        Sent::Refused(Refusal { fault, code, text })
    }

    /// Sends it once. `None` when it is stored.
    async fn attempt(&mut self) -> Option<Next> {
        let shard = self.shard.clone();
        let (endpoint, pass, permit) = tokio::select! {
            pass = shard.pass(self.last, self.permit.take()) => pass,
            () = self.over() => {
                return Some(AT_ONCE);
            }
        };
        let Some(loaded) = self.load().await else {
            shard.give_up(endpoint, pass);
            return Some(AT_ONCE);
        };
        let native = self.native(&loaded.body).await;
        if self.is_over() {
            shard.give_up(endpoint, pass);
            return Some(AT_ONCE);
        }
        if self.is_unproved() {
            // This process may have been suspended, so that another owner has sent the block unnoticed.
            self.sending.tries.doubted(self.sending.released);
        }
        let at = self.at();
        if let Some(step) = self.sending.tries.sending(&at) {
            shard.give_up(endpoint, pass);
            return Some(step);
        }
        if !shard.is_failing() {
            self.count_elsewhere();
        }
        let query_id = shard.query_ids.attempt(&self.sending.token, self.sending.attempts);
        self.sending.attempts = self.sending.attempts.saturating_add(1);
        self.last = Some((endpoint, Replica::Same));
        let id = InsertId { token: Some(&self.sending.token), query_id: &query_id };
        let body = native.as_ref().unwrap_or(&loaded.body);
        let sent = shard.client.insert(self.targets().at(endpoint), body, id).await;
        let went_as_columns = native.is_some();
        drop((native, loaded));
        self.permit = Some(permit).filter(|_| self.is_in_parts);
        match sent {
            Ok(inserted) => {
                shard.give_back(endpoint, pass, Answer::Well, at.random);
                shard.delivery.metrics.insert_seconds.observe(inserted.elapsed.as_secs_f64());
                None
            }
            Err(mut error) => {
                self.refused = Instant::now();
                if went_as_columns {
                    self.refused_as_columns(&mut error);
                }
                if error.code.is_none() {
                    self.frames.recheck_crc();
                }
                let is_query_limit = outcome::is_query_limit(error.code, &error.message);
                let failure = Failure { class: error.class, code: error.code, is_query_limit };
                shard.give_back(endpoint, pass, Answer::of(failure), at.random);
                self.log_failure(&error);
                self.refusal = Some((error.code, error.message));
                Some(self.sending.tries.failed(failure, &self.at()))
            }
        }
    }

    /// The body of the next try. `None` if it cannot be read.
    async fn load(&mut self) -> Option<Loaded> {
        if self.is_in_parts {
            return Some(Loaded::part(self.sending.body.clone()));
        }
        let loaded = self.frames.load(self.shard.spool(), self.shard.now_ms()).await;
        loaded.map_err(|damage| self.damage = Some(damage)).ok()
    }

    /// The message of each of its rows. `None` if it cannot be read.
    async fn messages(&mut self) -> Option<MessageRows> {
        let messages = self.frames.messages(self.shard.spool(), self.shard.now_ms()).await;
        messages.map_err(|damage| self.damage = Some(damage)).ok()
    }

    /// Whether it is not to be sent any more.
    fn is_over(&self) -> bool {
        (self.generation.is_over() && !self.frames.is_only_copy()) || self.damage.is_some()
    }

    /// Waits until its generation is over, so that another owner reads its messages.
    fn over(&self) -> impl Future<Output = ()> + use<> {
        let (generation, is_only_copy) = (self.generation.clone(), self.frames.only_copy_flag());
        async move {
            generation.over().await;
            if is_only_copy.load(Ordering::Acquire) {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the partition may have had another owner since this block was first allowed to be sent.
    fn is_unproved(&self) -> bool {
        if self.frames.is_only_copy() {
            return false;
        }
        let since_release = self.shard.clock.now().saturating_sub(self.sending.released);
        let since_proof = sluice_kafka::clock::now().steady.saturating_sub(self.generation.proved());
        since_release.min(since_proof) > PROOF_AGE_MAX
    }

    fn at(&self) -> At {
        let (delivery, place, now) = (&self.shard.delivery, self.shard.place, self.shard.clock.now());
        At {
            now,
            age_budget: delivery.standing.age_budget(place, self.sending.tries.first_sent()),
            heard: delivery.standing.heard(place),
            insert_timeout: delivery.sink.insert_timeout(),
            random: self.random(),
        }
    }

    /// A number from 0 to 1 that differs between processes, blocks and tries.
    fn random(&self) -> f64 {
        let [_, _, _, _, a, b, c, d] =
            self.shard.jitter.hash_one((&self.sending.token, self.sending.attempts)).to_le_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
    }

    /// Waits before the next try. If no server could be reached, the next successful insert of any block ends the wait. After a refusal,
    /// the full wait applies.
    async fn pause(&mut self, wait: Duration, replica: Replica) {
        self.permit = None;
        let soonest = wait.min(retry::WAIT_MIN);
        tokio::time::sleep(soonest).await;
        let rest = tokio::time::sleep(wait.saturating_sub(soonest));
        let recovered = async {
            match replica {
                Replica::Another => self.shard.recovered.notified().await,
                Replica::Same => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rest => {}
            () = recovered => {}
            () = self.over() => {}
        }
    }

    fn log_failure(&self, error: &InsertError) {
        let metrics = &self.shard.delivery.metrics;
        metrics.insert_failures.with_label_values(&[error.class.label()]).inc();
        metrics.insert_error.note(error);
        // A refusal of one block says nothing about others.
        let said = match error.class {
            Class::Poison | Class::Split => &self.shard.refusing,
            Class::RefreshSchema if self.encoded.is_some() => &self.shard.refusing,
            _ => &self.shard.failing,
        };
        let first = !said.swap(true, Ordering::Relaxed);
        let (class, code) = (error.class.label(), error.code);
        if first {
            tracing::warn!(class, code, %error, partition = %self.block.id, "inserts fail; {}", halts::advice(error));
        } else {
            tracing::debug!(class, code, %error, partition = %self.block.id, "an insert failed again");
        }
    }
}
