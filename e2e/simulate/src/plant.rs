//! A group of gateways between Kafka and `ClickHouse`, in turns of 5 s.
//!
//! Partitions have fixed weights and go to gateways by number, as a consumer group assigns them. Gateways start late and drain late, and
//! every change pauses the group for a while. A gateway exports what the real one does ([`gateway`]): seconds of its worker for each
//! activity, where waiting for `ClickHouse` is the rest; blocks on a queue volume; inserts that fail now and then; answers that are as old
//! as the poll before; more time per message when there are few messages. A rule sees no more than that.

mod gateway;

use sluice_plan::{
    Moment,
    scale::{PartitionSample, Sample, Samples, WorkloadSample},
};

use super::{
    chance::Chance,
    numbers::{count, whole},
};
use gateway::{Gateway, LIMIT_BYTES, memory};

pub use gateway::{CAPACITY, Queue};

pub const TURN_SECONDS: f64 = 5.0;
const TURN_MILLISECONDS: u64 = 5_000;
/// Seconds until a new gateway is ready.
const START_SECONDS: f64 = 40.0;
/// Seconds for which the group reads nothing after its members change.
const PAUSE_SECONDS: f64 = 10.0;
/// Seconds that a leaving gateway still runs, until its blocks are inserted.
const DRAIN_SECONDS: f64 = 20.0;
/// Share of the polls in which a gateway's answer is that of the poll before.
const OLD_ANSWER: f64 = 0.25;
/// The start must be later than the Unix epoch: otherwise moments are smaller than windows.
const BEGIN_MILLISECONDS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Messages a second that arrived.
    pub arrival: f64,
    /// Messages a second that were inserted.
    pub processed: f64,
    /// Mean share of work of the gateways.
    pub busy: f64,
    /// Whether `ClickHouse` slowed the gateways down.
    pub blocked: bool,
}

/// The conditions of one turn.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Messages that arrive a second.
    pub arrival: f64,
    /// Messages a second that `ClickHouse` accepts.
    pub sink: f64,
    pub stuck: Option<usize>,
    /// Bytes a second that each gateway leaks.
    pub leak: f64,
}

#[derive(Debug)]
pub struct Plant {
    queue: Queue,
    weights: Vec<f64>,
    ends: Vec<f64>,
    unread: Vec<f64>,
    held: Vec<f64>,
    gateways: Vec<Gateway>,
    wanted: u32,
    join_at: Option<f64>,
    drained_at: f64,
    draining: u32,
    pause_until: f64,
    seconds: f64,
    turns: u64,
    chance: Chance,
    /// A separate source, so that failed inserts do not change the age of answers.
    failing: Chance,
    killed_at: Option<Moment>,
    /// Whether the plant may scale to zero.
    pub may_rest: bool,
    /// Changes of the number of gateways.
    pub rescales: u32,
    /// Gateways times hours, including gateways that start or drain.
    pub replica_hours: f64,
}

impl Plant {
    /// A plant of one gateway, with partitions of these weights.
    pub fn new(weights: Vec<f64>, queue: Queue) -> Self {
        let none = vec![0.0; weights.len()];
        Self {
            queue,
            weights,
            ends: none.clone(),
            unread: none.clone(),
            held: none,
            gateways: vec![Gateway::default()],
            wanted: 1,
            join_at: None,
            drained_at: 0.0,
            draining: 0,
            pause_until: -1.0,
            seconds: 0.0,
            turns: 0,
            chance: Chance::new(23),
            failing: Chance::new(29),
            killed_at: None,
            may_rest: false,
            rescales: 0,
            replica_hours: 0.0,
        }
    }

    pub fn partitions(&self) -> u32 {
        u32::try_from(self.weights.len()).expect("partitions are counted in the command line")
    }

    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Gateways that read.
    pub fn ready(&self) -> u32 {
        u32::try_from(self.gateways.len()).expect("there are no more gateways than partitions")
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Messages that are not read, or wait for `ClickHouse`. Messages in open blocks do not count: nothing delays them.
    pub fn lag(&self) -> f64 {
        let waiting: f64 = self.gateways.iter().map(|gateway| gateway.waiting).sum();
        self.unread.iter().sum::<f64>() + waiting
    }

    /// Sets the wanted number of gateways: at least 1, or 0 if scaling to zero is allowed, and at most one per partition.
    pub fn scale(&mut self, replicas: u32) {
        let replicas = replicas.clamp(u32::from(!self.may_rest), self.partitions());
        if replicas == self.wanted {
            return;
        }
        self.wanted = replicas;
        self.rescales += 1;
        let starts = replicas > self.ready();
        self.join_at = Some(self.seconds + if starts { START_SECONDS } else { 0.0 });
    }

    /// Five seconds.
    pub fn turn(&mut self, world: &World) -> Turn {
        self.join();
        self.restart(world.leak);
        let draining = if self.seconds < self.drained_at { self.draining } else { 0 };
        let there = self.ready().max(self.wanted) + draining;
        self.replica_hours += f64::from(there) * TURN_SECONDS / 3_600.0;
        for ((end, unread), weight) in self.ends.iter_mut().zip(&mut self.unread).zip(&self.weights) {
            let came = world.arrival * weight * TURN_SECONDS;
            *end += came;
            *unread += came;
        }
        let mut done = Turn { arrival: world.arrival, ..Turn::default() };
        if self.gateways.is_empty() {
            // Messages that arrive now wait in Kafka.
        } else if self.seconds < self.pause_until {
            self.gateways.iter_mut().for_each(Gateway::pause);
        } else {
            self.work(world, &mut done);
        }
        self.seconds += TURN_SECONDS;
        self.turns += 1;
        done
    }

    /// Wanted gateways have started, or leaving ones have gone. The group assigns its partitions again, and gateways read again what was
    /// not inserted.
    fn join(&mut self) {
        if self.join_at.is_none_or(|at| self.seconds < at) {
            return;
        }
        self.join_at = None;
        if self.wanted < self.ready() {
            self.draining = self.ready() - self.wanted;
            self.drained_at = self.seconds + DRAIN_SECONDS;
        }
        self.gateways.resize_with(usize::try_from(self.wanted).unwrap_or(usize::MAX), Gateway::default);
        self.pause_until = self.seconds + PAUSE_SECONDS;
        for (unread, held) in self.unread.iter_mut().zip(&mut self.held) {
            *unread += std::mem::take(held);
        }
        self.gateways.iter_mut().for_each(Gateway::give_up);
    }

    /// Gateways leak and are killed; each comes back as the same member with the same partitions.
    fn restart(&mut self, leak: f64) {
        let each = count(self.weights.len() as u64) / f64::from(self.ready());
        let now = self.now();
        let replicas = self.gateways.len();
        for (number, gateway) in self.gateways.iter_mut().enumerate() {
            gateway.leaked += leak * TURN_SECONDS;
            if gateway.back_at.is_none() && memory(gateway.leaked, each) > LIMIT_BYTES {
                *gateway = Gateway::default();
                gateway.back_at = Some(self.seconds + START_SECONDS);
                self.killed_at = Some(now);
                for partition in (number..self.held.len()).step_by(replicas) {
                    self.unread[partition] += std::mem::take(&mut self.held[partition]);
                }
            }
            if gateway.back_at.is_some_and(|at| self.seconds >= at) {
                gateway.back_at = None;
            }
        }
    }

    fn work(&mut self, world: &World, done: &mut Turn) {
        let replicas = self.gateways.len();
        let mut demands = vec![0.0; replicas];
        for (partition, unread) in self.unread.iter().enumerate() {
            if Some(partition) != world.stuck {
                demands[partition % replicas] += unread;
            }
        }
        let mut possible = Vec::with_capacity(replicas);
        for (gateway, demand) in self.gateways.iter().zip(&demands) {
            let works = gateway.back_at.is_none();
            possible.push(if works { demand.min(CAPACITY * TURN_SECONDS) } else { 0.0 });
        }
        let offers = self.gateways.iter().zip(&possible).map(|(gateway, possible)| gateway.offers(*possible));
        let sent = (world.sink * TURN_SECONDS / offers.sum::<f64>().max(1.0)).min(1.0);
        let mut shares = Vec::with_capacity(replicas);
        for ((gateway, demand), possible) in self.gateways.iter_mut().zip(&demands).zip(&possible) {
            let (read, inserted) = gateway.work(*possible, sent, (self.queue, &mut self.failing), done);
            shares.push((read / demand.max(1e-9), inserted));
        }
        done.busy /= count(replicas as u64);
        for (partition, (unread, held)) in self.unread.iter_mut().zip(&mut self.held).enumerate() {
            let (read, inserted) = shares[partition % replicas];
            if Some(partition) != world.stuck {
                let moved = *unread * read;
                *unread -= moved;
                *held += moved;
            }
            *held -= *held * inserted;
        }
    }

    /// What a poll sees. Each call is a new poll: two calls in a turn return different answers.
    pub fn sample(&mut self) -> (Sample, WorkloadSample) {
        let at = self.now();
        // While a gateway is down, no other gateway reads its partitions: members are static.
        let is_whole = self.gateways.iter().all(|gateway| gateway.back_at.is_none());
        // Without gateways, no partition has a reader.
        let stable = is_whole && !self.gateways.is_empty() && self.seconds >= self.pause_until;
        let partitions =
            self.ends.iter().zip(self.unread.iter().zip(&self.held)).map(|(end, (unread, held))| {
                let (end, position) = (whole(*end), whole(end - unread));
                let committed = Some(whole(count(end) - unread - held).min(position));
                Some(PartitionSample { log_start: 0, end, committed, position: Some(position.min(end)) })
            });
        let partitions: Vec<_> = partitions.collect();
        let replicas = self.gateways.len();
        let mut pods = Vec::with_capacity(replicas);
        for (number, gateway) in self.gateways.iter_mut().enumerate().filter(|(_, one)| one.back_at.is_none())
        {
            let own = (number..self.weights.len()).step_by(replicas);
            let own: Vec<u32> = own.filter_map(|partition| u32::try_from(partition).ok()).collect();
            let now = gateway.answer(number, at, own, self.queue);
            let is_old = self.chance.share() < OLD_ANSWER;
            let answer = gateway.old.replace(now.clone()).filter(|_| is_old).unwrap_or(now);
            pods.push(answer);
        }
        let ready = self.gateways.iter().filter(|gateway| gateway.back_at.is_none()).count();
        let workload = WorkloadSample {
            desired: self.wanted,
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            killed_at: self.killed_at,
            ..WorkloadSample::default()
        };
        (Sample { at, group_stable: stable, partitions, pods, silent: 0 }, workload)
    }

    /// Adds a poll to what a decision sees; the older samples stay.
    pub fn observe(&mut self, samples: &mut Samples) {
        let (sample, workload) = self.sample();
        samples.history.push(sample);
        samples.workload = workload;
    }

    pub fn now(&self) -> Moment {
        Moment(BEGIN_MILLISECONDS + self.turns * TURN_MILLISECONDS)
    }
}
