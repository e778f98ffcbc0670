//! Asks the servers of every shard periodically for what the guarantee depends on.
//!
//! Owner: its own task. Limits: one server is asked at a time, each question within its timeout. A server that does not answer, or is too
//! busy to, changes nothing. For a shard that has never answered, only "at least once" holds. A server that has not answered recently, or
//! not since a try left a block in doubt, is asked again before the block is sent to it: it may have restarted with another version or
//! time zone.

use super::{BlockRate, GuaranteeState, LOOK_INTERVAL, Load, Reason, Verdict, places::TokenPlaces};
use crate::table::{row_expiry::RowExpiry, sink::Sink};
use sluice_clickhouse::{
    deduplication::{Deduplication, Version},
    durability::{self, Durability},
    probe_error::ProbeError,
    ttl::RowTtl,
};
use sluice_kafka::{ConsumerStats, watchdog};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How often the age of ranges in doubt is reported. Chosen: below the interval of any scrape.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// Asks the servers, and keeps a [`GuaranteeState`] up to date.
pub struct Watch {
    shards: Vec<OfShard>,
    standing: Arc<GuaranteeState>,
    consumer: Arc<ConsumerStats>,
    /// Receives the TTLs of the tables.
    expiry: Arc<RowExpiry>,
    /// The reasons that were logged last, joined by commas; empty for "once".
    pub(super) said: Option<String>,
    said_durability: Option<&'static str>,
}

/// The answers of a shard's servers.
struct Answered {
    verdict: Verdict,
    /// Why they do not know earlier tokens.
    forgot: Option<Reason>,
}

struct OfShard {
    sink: Sink,
    rate: BlockRate,
    version: Option<Version>,
    /// Time zones of the servers that answered last, if the table's partitions depend on them.
    zones: BTreeSet<String>,
    /// The UUID of the table at each address.
    tables: BTreeMap<usize, String>,
    /// The places where the servers behind each address keep their tokens.
    places: TokenPlaces,
    /// The TTLs of their tables.
    ttls: Vec<RowTtl>,
    /// The last error of a server that does not answer.
    error: Option<ProbeError>,
}

impl Watch {
    /// Asks nothing yet: call [`Self::look`] before the first block is sent, then [`Self::run`].
    pub fn new(shards: Vec<Sink>, standing: Arc<GuaranteeState>, consumer: Arc<ConsumerStats>) -> Self {
        let shards = shards.into_iter().map(OfShard::new).collect();
        Self { shards, standing, consumer, expiry: Arc::default(), said: None, said_durability: None }
    }

    /// Also keeps `expiry` up to date.
    #[must_use]
    pub fn with_expiry(self, expiry: Arc<RowExpiry>) -> Self {
        Self { expiry, ..self }
    }

    /// Asks and reports periodically. `clock` is the time on the scale of [`crate::delivery::tries`].
    pub async fn run(mut self, clock: impl Fn() -> Duration) {
        let mut looked = clock();
        loop {
            tokio::select! {
                () = tokio::time::sleep(TELL_INTERVAL) => {}
                () = self.standing.wanted() => {}
            }
            self.look_where_wanted(clock()).await;
            if clock().saturating_sub(looked) >= LOOK_INTERVAL {
                looked = clock();
                self.look(looked).await;
            }
            self.look_at_source(clock());
            self.report(clock());
        }
    }

    /// Records the reasons that the consumer knows against "once".
    pub(super) fn look_at_source(&self, now: Duration) {
        let is_compacted = self.consumer.is_topic_compacted.load(Ordering::Relaxed);
        self.standing.beside(Reason::TopicCompacted, is_compacted, now);
        let is_unplanned = self.consumer.still().iter().any(|still| still.reason == watchdog::Reason::Plan);
        self.standing.beside(Reason::PlanUnavailable, is_unplanned, now);
    }

    /// Asks every server of every shard.
    pub async fn look(&mut self, now: Duration) {
        for shard in 0..self.shards.len() {
            self.look_at(shard, now).await;
        }
        self.report(now);
    }

    /// Reports one verdict in the metrics, from which `/state` is read, and in the log; the same for the durability.
    pub(super) fn report(&mut self, now: Duration) {
        let verdict = self.standing.report(now);
        self.say_durability(self.standing.durability());
        self.say(&verdict);
    }

    /// Asks the servers of shards for which blocks wait.
    pub(super) async fn look_where_wanted(&mut self, now: Duration) {
        let wanted = self.standing.take_wanted();
        let shards: BTreeSet<usize> = wanted.iter().map(|(shard, _)| *shard).collect();
        for shard in shards {
            self.look_at(shard, now).await;
        }
    }

    /// Asks every server of one shard.
    async fn look_at(&mut self, shard: usize, now: Duration) {
        let Some(of) = self.shards.get_mut(shard) else { return };
        let Some(Answered { verdict, forgot }) = of.look(now).await else { return };
        self.standing.found(shard, verdict, forgot, now);
        // An error means that no server answers: the last result stays.
        if let Ok(durability) = of.sink.durability().await {
            self.standing.found_durability(shard, durability);
        }
        self.expiry.set(self.shards.iter().flat_map(|shard| &shard.ttls));
    }

    /// Logs the verdict when it changes.
    fn say(&mut self, verdict: &Verdict) {
        let reasons: Vec<_> = verdict.reasons.iter().map(|reason| reason.label()).collect();
        let reasons = reasons.join(",");
        if self.said.as_ref() == Some(&reasons) {
            return;
        }
        if verdict.reasons.is_empty() {
            tracing::info!("delivery guarantee: {verdict}");
        } else {
            let error = self.shards.iter().find_map(|shard| shard.error.as_ref()).map(ToString::to_string);
            tracing::warn!(reasons, error, "delivery guarantee: {verdict}");
        }
        self.said = Some(reasons);
    }

    /// Logs the durability when it changes.
    fn say_durability(&mut self, found: Option<Durability>) {
        let label = durability::label(found);
        if self.said_durability.replace(label) == Some(label) {
            return;
        }
        let wanted =
            self.shards.iter().map(|shard| shard.sink.table_spec().durability).max().unwrap_or_default();
        match found {
            Some(found) if found >= wanted => tracing::info!("durability {found}"),
            None if wanted == Durability::default() => {
                tracing::info!(
                    durability = label,
                    "the gateway cannot determine which failures acknowledged rows survive"
                );
            }
            _ => tracing::warn!(
                durability = label,
                "acknowledged rows survive less than schema.durability: {wanted:?} requires, or the gateway cannot determine it"
            ),
        }
    }
}

impl OfShard {
    fn new(sink: Sink) -> Self {
        Self {
            sink,
            rate: BlockRate::default(),
            version: None,
            zones: BTreeSet::new(),
            tables: BTreeMap::new(),
            places: TokenPlaces::default(),
            ttls: Vec::new(),
            error: None,
        }
    }

    /// Asks its servers. A server that does not answer changes nothing. `None` if none answers; then the last result stays.
    async fn look(&mut self, now: Duration) -> Option<Answered> {
        let (mut answers, mut errors): (Vec<Deduplication>, Vec<ProbeError>) = (Vec::new(), Vec::new());
        let (mut is_other, mut is_exchanged) = (false, false);
        for (address, answer) in self.sink.deduplication().await.into_iter().enumerate() {
            match answer {
                Ok(answer) => {
                    is_other |= self.places.see(address, &answer.token_places, now);
                    is_exchanged |= self.is_exchanged(address, answer.table_uuid.as_deref());
                    answers.push(answer);
                }
                Err(said) => errors.push(said),
            }
        }
        let refused = errors.iter().position(keeps_to_itself);
        self.error = refused.map(|place| errors.swap_remove(place)).or_else(|| errors.pop());
        if refused.is_some() {
            // Without its answer, nothing can be guaranteed.
            answers.clear();
        } else if answers.is_empty() {
            return None;
        }
        if let Some(blocks) = self.sink.blocks_written().await {
            self.rate.count(now, blocks);
        }
        let load =
            Load { blocks_per_second: self.rate.per_second(), insert_timeout: self.sink.insert_timeout() };
        let verdict = Verdict::of(&answers, self.sink.servers(), &load);
        let verdict = if self.places.vary() { verdict.and(Reason::AddressBalances) } else { verdict };
        let verdict = if self.places.are_apart() { verdict.and(Reason::ServersNotReplicas) } else { verdict };
        let version = answers.iter().map(|answer| answer.version).max();
        let is_upgraded = version.zip(self.version).is_some_and(|(now, before)| !now.knows_tokens_of(before));
        self.version = version.or(self.version);
        self.ttls = answers.iter().map(|answer| answer.engine.ttl.clone()).collect();
        let is_moved = self.moved(answers.into_iter().filter_map(|answer| answer.partition_zone).collect());
        let forgot = [
            (is_upgraded, Reason::ServerUpgraded),
            (is_other, Reason::AddressBalances),
            (is_exchanged, Reason::DestinationChanged),
            (is_moved, Reason::TimeZone),
        ];
        let forgot = forgot.into_iter().find_map(|(holds, reason)| holds.then_some(reason));
        Some(Answered { verdict, forgot })
    }

    /// Whether there is another table at this address than before. Records the current one.
    fn is_exchanged(&mut self, address: usize, uuid: Option<&str>) -> bool {
        let Some(uuid) = uuid else { return false };
        let before = self.tables.insert(address, uuid.to_owned());
        before.is_some_and(|before| before != uuid)
    }

    /// Whether a server has another time zone than those that answered before. Records the current ones.
    fn moved(&mut self, zones: BTreeSet<String>) -> bool {
        let is_moved = !self.zones.is_empty() && !zones.is_subset(&self.zones);
        if !zones.is_empty() {
            self.zones = zones;
        }
        is_moved
    }
}

/// Whether a server is healthy and does not answer this question, or a proxy answers instead; both may last forever.
fn keeps_to_itself(error: &ProbeError) -> bool {
    match error {
        ProbeError::Refused { .. } | ProbeError::Foreign { .. } => true,
        ProbeError::Other { .. } => !error.is_unanswered(),
        _ => false,
    }
}
