//! The log, the group, the wire and time.

use super::{
    Mistake, Random, Tally,
    oracle::{Destination, Oracle, Violation},
    owner::{Block, Message, Owner, SETTINGS, now, settings},
    volumes::{PODS, Volumes},
};
use crate::{
    ClusterNumber, CommitOutcome, Committed, Log, OffsetRange, Overtaken, PROOF_AGE_MAX, PartitionId,
    Renamed, Settings, SpooledRange, Token,
};

/// Seconds that an insert may be on the wire.
const WIRE_SECONDS: u64 = 10;

/// The age of a token, in seconds since it was first sent, up to which it is sent again without asking the server.
const AGE_MAX: u64 = 150;

#[path = "topic.rs"]
mod topic;

#[derive(Debug)]
struct CommitOnTheWire {
    owner: usize,
    offset: i64,
    metadata: String,
}

/// A range that an owner's delivery sends until it is stored.
#[derive(Debug, Clone)]
struct Delivery {
    owner: usize,
    block: Block,
    destination: Destination,
    first_sent: u64,
}

#[derive(Debug)]
struct InsertOnTheWire {
    delivery: Delivery,
    begun: u64,
}

pub struct World {
    random: Random,
    seconds: u64,
    mistake: Option<Mistake>,
    log: Vec<Message>,
    /// Every message that there ever was.
    history: Vec<i64>,
    log_start: i64,
    log_end: i64,
    /// The cluster reports one of this many ids at a time.
    clusters: u64,
    membership: u64,
    committed: Option<(i64, String)>,
    owners: Vec<Owner>,
    processes: usize,
    volumes: Volumes,
    commits: Vec<CommitOnTheWire>,
    answers: Vec<(usize, CommitOutcome)>,
    idle: Vec<Delivery>,
    inserts: Vec<InsertOnTheWire>,
    oracle: Oracle,
    /// Whether no more faults occur.
    calm: bool,
    /// Whether the server refuses many blocks, and the topic keeps its messages for a short time.
    is_harsh: bool,
    pub tally: Tally,
    traced: bool,
    pub trace: Vec<String>,
}

type Step = Result<(), Violation>;

/// How many ids the cluster of a schedule has. A mistake about something else is looked for with one, so that the oracle detects it by what it
/// breaks.
fn clusters(seed: u64, mistake: Option<Mistake>) -> u64 {
    let can_change = mistake.is_none_or(|mistake| mistake == Mistake::ForgetsTheCluster);
    if can_change && seed % 4 == 2 { 2 } else { 1 }
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>, traced: bool) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x2545_F491_4F6C_DD1D)),
            seconds: 0,
            mistake,
            log: Vec::new(),
            history: Vec::new(),
            log_start: 0,
            log_end: 0,
            clusters: clusters(seed, mistake),
            membership: 0,
            committed: None,
            owners: Vec::new(),
            processes: 0,
            volumes: Volumes::default(),
            commits: Vec::new(),
            answers: Vec::new(),
            idle: Vec::new(),
            inserts: Vec::new(),
            oracle: Oracle::default(),
            calm: false,
            is_harsh: seed % 4 == 3,
            tally: Tally::default(),
            traced,
            trace: Vec::new(),
        };
        world.assign();
        world
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.traced {
            let line = format!("{:4} s  {}", self.seconds, text(self));
            self.trace.push(line);
        }
    }

    pub fn step(&mut self) -> Step {
        match self.random.below(100) {
            0..12 => self.append(),
            12..65 => self.act(),
            65..72 => return self.carry_commit(),
            72..78 => self.answer(),
            78..83 => return self.attempt(),
            // What is refused is sent in parts later.
            83..90 if self.is_harsh && self.random.one_in(2) => {}
            83..90 => self.carry_insert(),
            90..94 => self.pass_time(),
            94..97 => return self.rebalance(),
            97 => self.crash(),
            98 => self.learn(),
            _ => self.retain(),
        }
        Ok(())
    }

    /// One of the active owners does something.
    fn act(&mut self) {
        let acting: Vec<usize> = (0..self.owners.len()).filter(|owner| self.owners[*owner].acts).collect();
        let Some(owner) = acting.get(self.random.index(acting.len().max(1))).copied() else { return };
        if self.is_harsh && self.random.one_in(8) {
            self.release(owner);
            self.tally.parted += u64::from(self.owners[owner].part(self.random.index(8)));
            return self.commit(owner);
        }
        match self.random.below(24) {
            0..9 => while self.random.below(3) > 0 && self.read(owner) {},
            9 | 10 => {
                if self.owners[owner].flush() {
                    self.note(|_| format!("owner {owner} ends a range by time"));
                }
            }
            11..15 => self.hear(owner),
            15 => self.see_end(owner),
            16 | 17 => self.commit(owner),
            19 => self.owners[owner].stand(self.random.one_in(2)),
            20..23 => self.spill(owner),
            23 => self.tally.parted += u64::from(self.owners[owner].part(self.random.index(8))),
            _ => self.release(owner),
        }
    }

    fn read(&mut self, owner: usize) -> bool {
        let (progressed, overtaken) = self.owners[owner].read(&self.log, self.log_start);
        self.announce(owner, overtaken);
        if !progressed && !self.owners[owner].cutter.is_holding() {
            self.owners[owner].caught_up(self.log_end);
        }
        progressed
    }

    /// Blocks move to the owner's volume: those that wait or were sent, and now and then some that are inserted and were not removed
    /// there.
    fn spill(&mut self, owner: usize) {
        let Some(pod) = self.volumes.pod(owner) else { return };
        let Owner { kept, blocks, ranges, .. } = &self.owners[owner];
        let from = if self.random.one_in(4) { 0 } else { ranges.offset() };
        let most = self.random.index(8);
        let run: Vec<SpooledRange> = kept.range(from..).map(|(_, kept)| *kept).take(most).collect();
        for kept in &run {
            self.volumes.put(pod, (*kept, blocks[&kept.range.first].clone()));
        }
        self.note(|_| {
            let run: Vec<OffsetRange> = run.iter().map(|kept| kept.range).collect();
            format!("owner {owner} has {run:?} on volume {pod}")
        });
    }

    fn hear(&mut self, owner: usize) {
        if let Some((block, first_sent)) = self.owners[owner].hear(self.seconds) {
            let shard = self.owners[owner].ranges.in_force.routing_epoch;
            self.deliver(owner, block, shard, first_sent);
        }
    }

    fn see_end(&mut self, owner: usize) {
        let position = self.owners[owner].cutter.position();
        let behind = (self.log_end - position).max(0).unsigned_abs();
        let mut seen = position + i64::try_from(self.random.below(behind + 1)).unwrap();
        if self.mistake == Some(Mistake::HorizonBoundsBeginnings) {
            seen += 10;
        }
        self.owners[owner].ranges.log_ends(seen);
    }

    fn commit(&mut self, owner: usize) {
        if self.owners[owner].commits {
            return;
        }
        let Some((offset, metadata)) = self.owners[owner].commit(self.seconds) else { return };
        self.note(|_| {
            let plan = crate::Plan::decode(offset, &metadata);
            format!("owner {owner} begins to commit {plan:?}")
        });
        self.commits.push(CommitOnTheWire { owner, offset, metadata });
    }

    fn release(&mut self, owner: usize) {
        let seconds = self.seconds;
        let stale_proof = self.mistake == Some(Mistake::SendsUnproved);
        let at = if stale_proof { now(0) } else { now(seconds) };
        for release in self.owners[owner].ranges.release(at) {
            let block = self.owners[owner].blocks[&release.range.first].clone();
            if self.owners[owner].membership != self.membership {
                self.tally.first_sent_left_behind += 1;
            }
            let first_sent = if stale_proof { seconds } else { release.first_sent - 1_000 };
            self.deliver(owner, block, release.routing_epoch, first_sent);
            if self.mistake == Some(Mistake::SettlesWhenSent) {
                let generation = self.owners[owner].generation;
                self.owners[owner].ranges.settled(generation, release.range);
            }
        }
    }

    /// The partition has another shard in each epoch.
    fn deliver(&mut self, owner: usize, block: Block, shard: u32, first_sent: u64) {
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        let token = Token::of(&format!("{:?}", block.cluster), &id, block.range, block.content);
        self.note(|_| {
            format!("owner {owner} may send {:?} to shard {shard}, first sent at {first_sent}", block.range)
        });
        self.idle.push(Delivery { owner, block, destination: (shard, token), first_sent });
    }

    /// A commit reaches the coordinator, or does not.
    fn carry_commit(&mut self) -> Step {
        if self.commits.is_empty() {
            return Ok(());
        }
        let CommitOnTheWire { owner, offset, metadata } =
            self.commits.swap_remove(self.random.index(self.commits.len()));
        if !self.calm && self.random.one_in(10) {
            self.answers.push((owner, CommitOutcome::Unknown));
            return Ok(());
        }
        let outcome = if self.owners[owner].membership == self.membership {
            self.note(|_| format!("the commit of {offset} by owner {owner} is stored"));
            self.oracle.committed(offset, self.history.iter().copied())?;
            self.committed = Some((offset, metadata));
            CommitOutcome::Stored
        } else {
            self.tally.fenced += 1;
            CommitOutcome::Fenced
        };
        let lost = !self.calm && self.random.one_in(5);
        self.answers.push((owner, if lost { CommitOutcome::Unknown } else { outcome }));
        Ok(())
    }

    fn answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let (owner, outcome) = self.answers.swap_remove(self.random.index(self.answers.len()));
        self.note(|_| format!("owner {owner} hears that its commit is {outcome:?}"));
        self.tally.adopted += u64::from(self.owners[owner].answered(outcome));
        if outcome == CommitOutcome::Fenced {
            self.owners[owner].acts = false;
        }
    }

    /// A delivery tries to insert. If the token is too old, it asks the server first.
    fn attempt(&mut self) -> Step {
        if self.idle.is_empty() {
            return Ok(());
        }
        let mut delivery = self.idle.swap_remove(self.random.index(self.idle.len()));
        if self.seconds.saturating_sub(delivery.first_sent) >= AGE_MAX {
            self.tally.asked += 1;
            let Owner { generation, ref mut ranges, .. } = self.owners[delivery.owner];
            if self.oracle.knows(delivery.destination) {
                ranges.settled(generation, delivery.block.range);
                return Ok(());
            }
            // It was not stored until now, so its token is as good as new.
            delivery.first_sent = self.seconds;
        }
        self.oracle.sent(delivery.block.range, delivery.destination)?;
        self.inserts.push(InsertOnTheWire { delivery, begun: self.seconds });
        Ok(())
    }

    /// An insert reaches the server, or does not.
    fn carry_insert(&mut self) {
        if self.inserts.is_empty() {
            return;
        }
        let InsertOnTheWire { delivery, begun } =
            self.inserts.swap_remove(self.random.index(self.inserts.len()));
        if self.seconds - begun > WIRE_SECONDS || (!self.calm && self.random.one_in(8)) {
            self.retry(delivery);
            return;
        }
        let Delivery { owner, block, destination, .. } = &delivery;
        self.note(|_| format!("the server has {:?} of owner {owner}", block.range));
        if self.oracle.insert(*destination, &block.offsets, self.seconds) {
            self.tally.ranges += 1;
        } else {
            self.tally.duplicates_dropped += 1;
        }
        if !self.calm && self.random.one_in(4) {
            self.retry(delivery);
            return;
        }
        let Owner { generation, ref mut ranges, .. } = self.owners[delivery.owner];
        ranges.settled(generation, delivery.block.range);
    }

    fn retry(&mut self, delivery: Delivery) {
        if self.owners[delivery.owner].process != usize::MAX {
            self.idle.push(delivery);
        }
    }

    fn pass_time(&mut self) {
        let long = self.random.one_in(12);
        let seconds =
            if long { PROOF_AGE_MAX.as_secs() + self.random.below(150) } else { self.random.below(6) };
        self.seconds += seconds;
        self.note(|_| format!("{seconds} s pass"));
    }

    /// The partition moves to another owner. The previous one may leave properly, or continue without knowing.
    fn rebalance(&mut self) -> Step {
        let last = self.owners.len() - 1;
        if self.owners[last].acts && self.random.one_in(2) {
            self.owners[last].ranges.leave();
            while !self.owners[last].is_heard() {
                self.hear(last);
            }
            if let Some(at) = self.commits.iter().position(|commit| commit.owner == last) {
                self.commits.swap(0, at);
                let commit = self.commits.swap_remove(0);
                self.owners[last].answered(CommitOutcome::Unknown);
                self.note(|_| format!("the commit of {} by owner {last} is lost", commit.offset));
            }
            self.answers.retain(|(owner, _)| *owner != last);
            self.owners[last].commits = false;
            if let Some((offset, metadata)) = self.owners[last].commit(self.seconds) {
                self.oracle.committed(offset, self.history.iter().copied())?;
                self.committed = Some((offset, metadata));
            }
            self.owners[last].ranges.lost();
            self.owners[last].acts = false;
            self.note(|_| format!("owner {last} leaves"));
        }
        self.assign();
        Ok(())
    }

    fn assign(&mut self) {
        let pod = self.random.one_in(2).then(|| self.random.index(PODS));
        // A pod's volume has one process at a time.
        if let Some(owner) = pod.and_then(|pod| self.volumes.owner(pod)) {
            self.die(owner);
        }
        let cluster_id = if self.clusters > 1 { self.random.below(self.clusters) } else { 0 };
        let cluster = Some(ClusterNumber::of(&cluster_id.to_string()));
        let mut left = pod.map(|pod| self.volumes.left(pod)).unwrap_or_default();
        self.membership += 1;
        self.tally.generations += 1;
        let wants = settings(if self.is_harsh { 0 } else { self.random.below(SETTINGS) });
        let wants = Settings { cluster, ..wants };
        let commit = self.committed.as_ref().map(|(offset, text)| (*offset, text.as_str()));
        let committed = Committed { commit, begin: 0, log: Log { start: self.log_start, end: self.log_end } };
        // Others have the token of an id that is neither today's nor the one of the plan.
        let ids = [cluster, committed.former_cluster(&wants)];
        left.retain(|(_, block)| ids.contains(&block.cluster));
        self.processes += 1;
        let (owner, found, taken) = Owner::assigned(
            (self.processes, self.membership),
            &committed,
            (wants, &left),
            self.mistake,
            self.seconds,
        );
        self.owners.push(owner);
        let number = self.owners.len() - 1;
        if let Some(pod) = pod {
            let taken_over = &self.owners[number].kept;
            self.tally.taken_over_alone += self.volumes.begin(pod, number, taken_over, self.log_start);
        }
        self.tally.taken_over += taken as u64;
        self.tally.taken_over_renamed += self.owners[number].renamed();
        self.note(|_| format!("owner {number} takes {taken} blocks over from {pod:?}, wants {wants:?}"));
        self.note(|world| format!("it begins at {:?}", world.committed));
        self.announce(number, found.overtaken);
        if let Some(Renamed { then, doubtful }) = found.renamed {
            self.tally.renamed += 1;
            self.note(|_| format!("owner {number} announces {doubtful:?} sent with {then:?}"));
            self.oracle.rename(doubtful);
        }
    }

    fn announce(&mut self, owner: usize, overtaken: Option<Overtaken>) {
        if let Some(Overtaken { lost, doubtful, .. }) = overtaken {
            self.tally.overtaken += 1;
            self.note(|_| format!("owner {owner} announces {lost:?} lost, {doubtful:?} doubtful"));
            self.oracle.announce(lost, doubtful);
        }
    }

    /// An owner's process dies. Its commits and inserts on the wire may still arrive.
    fn crash(&mut self) {
        let owner = self.random.index(self.owners.len());
        self.die(owner);
    }

    fn die(&mut self, owner: usize) {
        self.owners[owner].acts = false;
        self.owners[owner].process = usize::MAX;
        self.idle.retain(|delivery| delivery.owner != owner);
        self.note(|_| format!("owner {owner} dies"));
    }

    /// An owner that was left behind learns that it lost the partition.
    fn learn(&mut self) {
        let owner = self.random.index(self.owners.len());
        if self.owners[owner].membership != self.membership && self.owners[owner].acts {
            self.owners[owner].ranges.lost();
            self.owners[owner].acts = false;
            self.note(|_| format!("owner {owner} learns that it lost the partition"));
        }
    }

    /// A last owner without faults inserts everything.
    pub fn come_to_rest(&mut self) -> Step {
        self.calm = true;
        self.assign();
        let last = self.owners.len() - 1;
        for _ in 0..400 {
            for _ in 0..10 {
                self.act();
            }
            while self.read(last) {}
            self.owners[last].flush();
            while !self.owners[last].is_heard() {
                self.hear(last);
            }
            self.owners[last].ranges.log_ends(self.log_end);
            self.commit(last);
            while !self.commits.is_empty() {
                self.carry_commit()?;
            }
            while !self.answers.is_empty() {
                self.answer();
            }
            self.release(last);
            for _ in 0..self.idle.len() {
                self.attempt()?;
            }
            while !self.inserts.is_empty() {
                self.carry_insert();
            }
            self.seconds += 1;
            if self.is_at_rest(last) {
                let counted: Vec<_> = self.owners.iter().flat_map(|owner| &owner.doubtful).copied().collect();
                return self.oracle.judge(self.history.iter().copied(), &counted);
            }
        }
        let offset = self.owners[last].ranges.offset();
        Err(Violation::Stuck { offset, end: self.log_end })
    }

    fn is_at_rest(&self, last: usize) -> bool {
        let owner = &self.owners[last];
        let read = self.log.last().is_none_or(|message| message.offset < owner.cutter.position());
        read && owner.cutter.fill().messages == 0
            && owner.is_heard()
            && owner.ranges.is_drained()
            && owner.ranges.offset() >= owner.cutter.position().min(self.log_end)
            && self.idle.is_empty()
            && self.committed.as_ref().is_some_and(|(offset, _)| *offset == owner.ranges.offset())
    }
}
