//! One owner of the partition in one generation: the worker's and the poll thread's halves, with a queue between them.

use super::Mistake;
use crate::{
    Closed, ClusterNumber, Committed, Content, Cut, Cutter, Found, Generation, Now, Offer, OffsetRange,
    Overtaken, Plan, Ranges, RefusedParts, Rule, Settings, SpooledRange, Verdict, Version, flight::Progress,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Rows of the largest block. A message has 1 to 3.
const BLOCK_ROWS_MAX: i64 = 9;

#[derive(Debug, Clone)]
pub struct Message {
    pub offset: i64,
    pub value: Vec<u8>,
}

impl Message {
    fn rows(&self) -> i64 {
        1 + self.offset % 3
    }
}

/// An encoded range that is waiting to be sent.
#[derive(Debug, Clone)]
pub struct Block {
    pub range: OffsetRange,
    pub content: Content,
    /// The cluster by whose id its token is made.
    pub cluster: Option<ClusterNumber>,
    pub offsets: Vec<i64>,
}

/// A block on a volume, with its record.
pub type OnVolume = (SpooledRange, Block);

/// What a worker tells the poll thread.
#[derive(Debug)]
enum Told {
    Closed(Closed),
    Overtaken(Overtaken),
}

#[derive(Debug)]
pub struct Owner {
    pub process: usize,
    /// The group's generation that its commits carry.
    pub membership: u64,
    pub generation: Generation,
    pub ranges: Ranges,
    pub cutter: Cutter,
    /// Whether it is active.
    pub acts: bool,
    pub commits: bool,
    /// The horizon of the last plan that it knows to be stored.
    pub horizon: i64,
    /// The horizon of the commit in flight.
    pub horizon_asked: i64,
    open: Vec<i64>,
    told: VecDeque<Told>,
    pub blocks: BTreeMap<i64, Block>,
    /// Records for blocks that may go to the volume.
    pub kept: BTreeMap<i64, SpooledRange>,
    /// Ranges that it called doubtful.
    pub doubtful: Vec<OffsetRange>,
    mistake: Option<Mistake>,
    /// The rule under which the next message is read.
    next_rule: Option<Rule>,
}

pub fn now(seconds: u64) -> Now {
    Now { steady: Duration::from_secs(seconds), unix_seconds: 1_000 + seconds }
}

/// Number of settings.
pub const SETTINGS: u64 = 8;

/// One of the settings: two versions of the rule, two sizes of each, and one shard or two for each of those.
pub fn settings(number: u64) -> Settings {
    let version = Version::KNOWN[usize::try_from(number % 2).unwrap()];
    let (bytes, messages) = if number % 4 < 2 { (12, 5) } else { (7, 3) };
    let rule = Rule { version, bytes, messages };
    let routing_epoch = u32::from(number >= SETTINGS / 2);
    Settings { rule, routing_epoch, destination: None, topic_id: Some([1; 16]), cluster: None }
}

/// The plan as read by an owner with this mistake.
fn misread(offset: i64, metadata: &str, settings: &Settings, mistake: Option<Mistake>) -> String {
    let Ok(mut plan) = Plan::decode(offset, metadata) else { return metadata.to_owned() };
    match mistake {
        Some(Mistake::ForgetsCuts) => plan.cuts.clear(),
        Some(Mistake::SwitchesAtOnce) => plan.rule = settings.rule,
        Some(Mistake::ForgetsTheRoute) => plan.routing_epoch = settings.routing_epoch,
        Some(Mistake::ForgetsTheAge) => plan.t0 = u64::MAX >> 2,
        Some(Mistake::ForgetsTheDoubt) => plan.doubtful_up_to = 0,
        Some(Mistake::ForgetsTheCluster) => plan.cluster = settings.cluster,
        _ => {}
    }
    plan.encode()
}

/// A range on the volume as seen by an owner with this mistake.
fn mistaken(kept: SpooledRange, committed: &Committed<'_>, mistake: Option<Mistake>) -> SpooledRange {
    let plan = committed.commit.and_then(|(offset, text)| Plan::decode(offset, text).ok());
    match (mistake, plan) {
        (Some(Mistake::TakesCutsOverUnplanned), _) => SpooledRange { is_derivable: true, ..kept },
        (Some(Mistake::TakesRulesOver), Some(plan)) => SpooledRange { rule: plan.rule, ..kept },
        _ => kept,
    }
}

impl Owner {
    /// A new owner with the blocks that an earlier run left on its volume. Also returns what it found, and how many blocks were taken over.
    pub fn assigned(
        (process, membership): (usize, u64),
        committed: &Committed<'_>,
        (settings, left): (Settings, &[OnVolume]),
        mistake: Option<Mistake>,
        seconds: u64,
    ) -> (Self, Found, usize) {
        let read = committed.commit.map(|(offset, text)| (offset, misread(offset, text, &settings, mistake)));
        let horizon = committed
            .commit
            .and_then(|(offset, text)| Plan::decode(offset, text).ok())
            .map_or(0, |plan| plan.horizon);
        let committed =
            Committed { commit: read.as_ref().map(|(offset, text)| (*offset, text.as_str())), ..*committed };
        let generation = Generation(membership);
        let of_block = |(kept, block): &OnVolume| {
            let is_renamed = block.cluster != settings.cluster;
            SpooledRange { is_renamed, ..mistaken(*kept, &committed, mistake) }
        };
        let kept: Vec<SpooledRange> = left.iter().map(of_block).collect();
        let (ranges, cutter, found, taken) =
            Ranges::assigned_with(generation, &committed, settings, now(seconds), &kept)
                .expect("every version is known");
        let is_taken = |on_volume: &&OnVolume| taken.iter().any(|kept| kept.range == on_volume.0.range);
        let of_taken = |(kept, block): &OnVolume| (kept.range.first, (*kept, block.clone()));
        let taken: BTreeMap<i64, OnVolume> = left.iter().filter(is_taken).map(of_taken).collect();
        let owner = Self {
            process,
            membership,
            generation,
            ranges,
            cutter,
            acts: true,
            commits: false,
            horizon,
            horizon_asked: 0,
            open: Vec::new(),
            told: VecDeque::new(),
            blocks: taken.iter().map(|(first, (_, block))| (*first, block.clone())).collect(),
            kept: taken.iter().map(|(first, (kept, _))| (*first, *kept)).collect(),
            doubtful: Vec::new(),
            mistake,
            next_rule: None,
        };
        (owner, found, taken.len())
    }

    /// The worker reads the next message. `false` if there is none, or it must not be taken.
    pub fn read(&mut self, log: &[Message], log_start: i64) -> (bool, Option<Overtaken>) {
        if let Some(rule) = self.next_rule.take() {
            self.cutter.adopt(rule);
        }
        if let Some(overtaken) = self.cutter.overtaken(log_start) {
            self.told.push_back(Told::Overtaken(overtaken));
            return (true, Some(overtaken));
        }
        let at = log.partition_point(|message| message.offset < self.cutter.position());
        let Some(message) = log.get(at) else { return (false, None) };
        let rows: i64 = self.open.iter().map(|offset| 1 + offset % 3).sum();
        match self.cutter.offer(message.offset, message.value.len() as u64) {
            Offer::Hold => return (false, None),
            Offer::Seen => unreachable!("the model reads from the position on"),
            Offer::Close(closed) => self.end(closed),
            Offer::Take if rows + message.rows() > BLOCK_ROWS_MAX => {
                let closed = self.cutter.split().expect("there are rows");
                self.end(closed);
            }
            Offer::Take => {
                self.open.push(message.offset);
                if let Some(closed) = self.cutter.take(message.offset, Some(&message.value)) {
                    self.end(closed);
                }
            }
        }
        (true, None)
    }

    /// The timer. `false` if no range ends.
    pub fn flush(&mut self) -> bool {
        let anywhere = matches!(
            self.mistake,
            Some(Mistake::EndsByTimeWhileReplaying | Mistake::HorizonBoundsBeginnings)
        );
        let closed = if anywhere { self.cutter.split() } else { self.cutter.flush() };
        closed.inspect(|closed| self.end(*closed)).is_some()
    }

    /// Everything was read up to this offset.
    pub fn caught_up(&mut self, end: i64) {
        while let Some(closed) = self.cutter.caught_up(end) {
            self.end(closed);
        }
    }

    fn end(&mut self, closed: Closed) {
        let offsets = std::mem::take(&mut self.open);
        assert_eq!(closed.fill.messages, offsets.len() as u64);
        let cluster = self.ranges.settings.cluster;
        let block = Block { range: closed.range, content: closed.content, cluster, offsets };
        self.blocks.insert(closed.range.first, block);
        self.doubtful.extend(closed.doubtful.then_some(closed.range));
        self.kept.extend(SpooledRange::of(&closed).map(|kept| (closed.range.first, kept)));
        self.told.push_back(Told::Closed(closed));
    }

    /// The poll thread takes one report. Returns the block that an owner with a mistake sends at once, and when it was first sent.
    pub fn hear(&mut self, seconds: u64) -> Option<(Block, u64)> {
        match self.told.pop_front()? {
            Told::Overtaken(overtaken) => {
                self.ranges.overtaken(self.generation, &overtaken);
                None
            }
            Told::Closed(closed) => {
                self.ranges.closed(self.generation, &closed);
                if closed.fill.messages == 0 {
                    self.blocks.remove(&closed.range.first);
                    self.kept.remove(&closed.range.first);
                    self.ranges.settled(self.generation, closed.range);
                    return None;
                }
                let by_time = matches!(closed.cut, Cut::Time);
                let at_once = match self.mistake {
                    Some(Mistake::SendsBeforeThePlan) => by_time,
                    Some(Mistake::IgnoresTheHorizon) => closed.cut.is_derivable(),
                    Some(Mistake::SendsOutOfOrder) => {
                        closed.cut.is_derivable() && closed.decided <= self.horizon
                    }
                    Some(Mistake::HorizonBoundsBeginnings) => {
                        closed.cut.is_derivable() && closed.range.first < self.horizon
                    }
                    _ => false,
                };
                // All other rules are kept.
                let may = at_once && !self.ranges.is_unproved(now(seconds)) && self.ranges.is_planned;
                let first_sent = self.ranges.inherited.first_sent(closed.range.first, now(seconds)) - 1_000;
                may.then(|| (self.blocks[&closed.range.first].clone(), first_sent))
            }
        }
    }

    /// The poll thread learns that the worker has stopped or reads on, which may have been so for long.
    pub fn stand(&mut self, stands: bool) {
        self.ranges.stands(self.generation, stands);
    }

    /// Whether the poll thread has taken all reports.
    pub fn is_heard(&self) -> bool {
        self.told.is_empty()
    }

    /// Blocks with a token of the cluster's former id.
    pub fn renamed(&self) -> u64 {
        self.blocks.values().filter(|block| block.cluster != self.ranges.settings.cluster).count() as u64
    }

    /// The server refused the block of a sent range: it is sent in parts. Returns whether there is such a range.
    pub fn part(&mut self, number: usize) -> bool {
        let sent = self.ranges.flight.iter().filter(|range| range.progress == Progress::Sent);
        let sent: Vec<OffsetRange> = sent.map(|range| range.range).collect();
        let Some(range) = sent.get(number % sent.len().max(1)).copied() else { return false };
        let parts = RefusedParts { check: 1, rows: 4, height: 0, code: 1, refused: vec![0] };
        self.ranges.part(self.generation, range, parts) == Verdict::Recorded
    }

    /// The poll thread begins a commit.
    pub fn commit(&mut self, seconds: u64) -> Option<(i64, String)> {
        let commit = self.ranges.commit(now(seconds))?;
        self.commits = true;
        self.horizon_asked = Plan::decode(commit.offset, &commit.metadata).unwrap().horizon;
        Some((commit.offset, commit.metadata))
    }

    /// The commit in flight was answered. Returns whether another rule takes effect.
    pub fn answered(&mut self, outcome: crate::CommitOutcome) -> bool {
        self.commits = false;
        if outcome == crate::CommitOutcome::Stored {
            self.horizon = self.horizon_asked;
        }
        let before = self.ranges.in_force;
        self.ranges.committed(self.generation, outcome);
        let rule = self.ranges.in_force.rule;
        let is_switched = self.ranges.in_force != before;
        self.next_rule = is_switched.then_some(rule).or(self.next_rule);
        is_switched
    }
}
