//! Why there is lag. More gateways help against `ComputeLimited`, a little against `MemoryLimited`, and never against the others.

use super::window::Rates;
use crate::pipeline::policy::{Load, Policy};
use serde::{Deserialize, Serialize};

/// Waiting for ClickHouse above this share for a minute, of the workers' time or of the gateways: it is what limits.
const SINK_LIMITED: f64 = 0.5;
/// Above this share in the last interval nothing is added: what limits is not sure, and may well be ClickHouse.
pub const SINK_DOUBTFUL: f64 = 0.2;
/// A partition that needs more than this share of a gateway by itself is too much for any.
pub const HOT: f64 = 0.95;

/// And is skewed when it needs at least so many times the mean; when all need too much, they are too few.
const SKEWED: f64 = 2.0;

/// What limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The gateways' work; more of them do more.
    #[default]
    ComputeLimited,
    /// ClickHouse; more gateways make it worse.
    SinkLimited,
    /// Some partition has more than one gateway can do.
    PartitionSkewed,
    /// Some partition stands in front of a message, or some gateway inserts nothing of its logs.
    PartitionStuck,
    /// The gateways' memory; fewer partitions each take less.
    MemoryLimited,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ComputeLimited,
        Self::SinkLimited,
        Self::PartitionSkewed,
        Self::PartitionStuck,
        Self::MemoryLimited,
    ];

    /// Its word in a status.
    pub fn word(self) -> &'static str {
        match self {
            Self::ComputeLimited => "ComputeLimited",
            Self::SinkLimited => "SinkLimited",
            Self::PartitionSkewed => "PartitionSkewed",
            Self::PartitionStuck => "PartitionStuck",
            Self::MemoryLimited => "MemoryLimited",
        }
    }
}

/// What the classification is made from, beside the rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// Messages a second of one gateway.
    pub capacity: Option<f64>,
    /// Whether adding gateways did not help a short while ago.
    pub in_vain: bool,
    /// Whether memory is under pressure.
    pub memory_pressure: bool,
}

/// The first that applies. A stuck partition is not waiting for ClickHouse, so it comes second. Requests go to other gateways than the one whose
/// log is stuck, and memory limits these all the same. Merges that are behind make nothing wait yet, so a stuck partition and memory come
/// before them: a gateway that is killed for its memory inserts nothing.
pub fn classify(policy: &Policy, rates: &Rates, known: Known) -> Cause {
    let doubtful = rates.sink_now > SINK_DOUBTFUL;
    let waited = rates.sink_minute.is_some_and(|share| share > SINK_LIMITED);
    let behind = rates.behind_minute.is_some_and(|share| share > SINK_LIMITED);
    let is_stuck = rates.partitions.iter().any(|partition| partition.stuck) || !rates.stuck_logs.is_empty();
    let is_memory_first = known.memory_pressure && policy.load == Load::Requests;
    if known.in_vain
        || behind
        || rates.inserts_keep_failing
        || (doubtful && (waited || rates.insert_failures))
    {
        Cause::SinkLimited
    } else if is_stuck && !is_memory_first {
        Cause::PartitionStuck
    } else if rates.merges.is_some() && !known.memory_pressure {
        Cause::SinkLimited
    } else if known.capacity.is_some_and(|capacity| is_skewed(policy, rates, capacity)) {
        Cause::PartitionSkewed
    } else if known.memory_pressure {
        Cause::MemoryLimited
    } else {
        Cause::ComputeLimited
    }
}

fn is_skewed(policy: &Policy, rates: &Rates, capacity: f64) -> bool {
    let moving = rates.partitions.iter().filter(|partition| !partition.stuck);
    let loads = moving.map(|partition| partition.arrival + partition.lag / policy.catch_up_seconds);
    let (most, sum, count) = loads
        .fold((0.0, 0.0, 0.0), |(most, sum, count), load: f64| (load.max(most), sum + load, count + 1.0));
    most > HOT * capacity && most * count >= SKEWED * sum
}

#[cfg(test)]
mod tests {
    use super::{
        super::{merges::MergesBehind, stuck_logs::StuckLog, window::PartitionRates},
        *,
    };

    #[test]
    fn the_first_cause_that_applies_is_named() {
        let calm = Rates {
            partitions: vec![PartitionRates { arrival: 10.0, ..PartitionRates::default() }],
            ..Rates::default()
        };
        let sink = Rates { sink_now: 0.9, sink_minute: Some(0.6), ..calm.clone() };
        let recovered = Rates { sink_now: 0.1, ..sink.clone() };
        let failing = Rates { sink_now: 0.3, insert_failures: true, ..calm.clone() };
        // A queue volume takes what ClickHouse does not, and the workers are busy.
        let behind = Rates { behind_now: 1.0, behind_minute: Some(0.6), ..calm.clone() };
        let behind_just_now = Rates { behind_minute: Some(0.0), ..behind.clone() };
        // Nothing waits yet.
        let merges = Some(MergesBehind { parts: 600, delay_from: 1_000 });
        let merging = Rates { merges, ..calm.clone() };
        let mut stuck = calm.clone();
        stuck.partitions[0].stuck = true;
        let stuck_and_merging = Rates { merges, ..stuck.clone() };
        let mut skewed = calm.clone();
        skewed.partitions.push(skewed.partitions[0]);
        skewed.partitions.push(PartitionRates { arrival: 96.0, ..PartitionRates::default() });
        let too_few = Rates { partitions: vec![skewed.partitions[2]; 3], ..calm.clone() };
        let known = Known { capacity: Some(100.0), in_vain: false, memory_pressure: false };
        for (rates, known, expected) in [
            (&calm, known, Cause::ComputeLimited),
            (&sink, known, Cause::SinkLimited),
            (&recovered, known, Cause::ComputeLimited),
            (&failing, known, Cause::SinkLimited),
            (&behind, known, Cause::SinkLimited),
            (&behind_just_now, known, Cause::ComputeLimited),
            (&merging, known, Cause::SinkLimited),
            (&merging, Known { memory_pressure: true, ..known }, Cause::MemoryLimited),
            (&stuck_and_merging, known, Cause::PartitionStuck),
            (&calm, Known { in_vain: true, ..known }, Cause::SinkLimited),
            (&stuck, known, Cause::PartitionStuck),
            (&skewed, known, Cause::PartitionSkewed),
            (&too_few, known, Cause::ComputeLimited),
            (&skewed, Known { capacity: None, ..known }, Cause::ComputeLimited),
            (&calm, Known { memory_pressure: true, ..known }, Cause::MemoryLimited),
        ] {
            assert_eq!(classify(&Policy::default(), rates, known), expected, "{rates:?}");
        }
        // Requests go to other gateways than the one whose log stands, and memory limits these.
        let stuck_logs = vec![StuckLog { ordinal: 1, waiting: 9, refuses: false }];
        let stands = Rates { stuck_logs, ..calm };
        let requests = Policy { load: Load::Requests, ..Policy::default() };
        for (memory_pressure, expected) in [(false, Cause::PartitionStuck), (true, Cause::MemoryLimited)] {
            let known = Known { memory_pressure, ..known };
            assert_eq!(classify(&requests, &stands, known), expected);
        }
    }
}
