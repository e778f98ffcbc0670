//! The scenarios: memory limits that the gateway must keep, and faults of the sink at the same time.

use std::time::Duration;

use super::front::Behaviour;
use super::load::Filling;

const MIB: u64 = 1 << 20;

/// A memory limit, and what the gateway reads within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its name, the first half of a scenario's.
    pub name: &'static str,
    /// The limit, of the gateway and of the kernel, MiB.
    pub limit_mib: u64,
    /// `recordBatchBytesMax`, MiB.
    pub record_batch_mib: u64,
    /// Partitions of the topic, all of them assigned to the one gateway.
    pub partitions: i32,
    /// `partitionsActiveMax`.
    pub active: u32,
    pub filling: Filling,
    /// Divides the number of spans: padded batches hold few.
    pub spans_divisor: u64,
}

/// Batches as a load generator makes them: 8,192 spans and 989 KB a message.
const fn loadgen(batch_mib: u64) -> Filling {
    Filling { batch_bytes: batch_mib * MIB, message_spans: 8_192, padded: false, codec: "zstd" }
}

/// The smallest limit; the other sizes differ from it.
const SMALLEST: Size = Size {
    name: "192",
    limit_mib: 192,
    record_batch_mib: 1,
    partitions: 8,
    active: 8,
    filling: loadgen(1),
    spans_divisor: 1,
};

/// Sizes, the reference ones first.
pub const SIZES: [Size; 5] = [
    SMALLEST,
    Size { name: "384", limit_mib: 384, record_batch_mib: 16, filling: loadgen(16), ..SMALLEST },
    Size { name: "1024", limit_mib: 1_024, record_batch_mib: 64, filling: loadgen(64), ..SMALLEST },
    Size { name: "turns", partitions: 64, ..SMALLEST },
    // The worst case that the batch limit allows: a fetch of a few KiB becomes a whole MiB, many times.
    Size {
        name: "padded",
        filling: Filling { batch_bytes: MIB, message_spans: 256, padded: true, codec: "zstd" },
        spans_divisor: 4,
        ..SMALLEST
    },
];

/// What the sink does for a while, in the middle of the backlog or from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Its name, the second half of a scenario's.
    pub name: &'static str,
    /// What it does; `None` for a sink that always works.
    pub behaviour: Option<Behaviour>,
    /// The fault begins as soon as the gateway reads, after its check of the table.
    pub from_start: bool,
}

/// How long a slow sink takes to answer an INSERT that it has taken.
const SLOW_ANSWER: Duration = Duration::from_secs(20);

pub const OUTAGES: [Outage; 6] = [
    Outage { name: "steady", behaviour: None, from_start: false },
    Outage { name: "slow", behaviour: Some(Behaviour::Slow(SLOW_ANSWER)), from_start: false },
    Outage { name: "refused", behaviour: Some(Behaviour::Refused), from_start: false },
    Outage { name: "silent", behaviour: Some(Behaviour::Silent), from_start: false },
    // Everything that is read must be kept. The sink comes back at the end, only so that the rows can be counted.
    Outage { name: "never-there", behaviour: Some(Behaviour::Refused), from_start: true },
    Outage { name: "never-answers", behaviour: Some(Behaviour::Silent), from_start: true },
];

/// Codecs of the batch that is larger than the budget allows, by Kafka's names.
pub const CODECS: [&str; 5] = ["zstd", "gzip", "lz4", "snappy", "none"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The gateway reads a backlog while the sink has an outage.
    Backlog(Size, Outage),
    /// One batch of this codec is larger than the budget allows.
    Oversized(&'static str),
}

impl Scenario {
    /// All scenarios; those that share a topic are next to each other.
    pub fn all() -> Vec<Scenario> {
        let backlogs = SIZES.iter().flat_map(|size| {
            OUTAGES.iter().map(|outage| Scenario::Backlog(*size, *outage)).collect::<Vec<_>>()
        });
        backlogs.chain(CODECS.iter().map(|codec| Scenario::Oversized(codec))).collect()
    }

    pub fn name(&self) -> String {
        match self {
            Scenario::Backlog(size, outage) => format!("{}-{}", size.name, outage.name),
            Scenario::Oversized(codec) => format!("oversized-{codec}"),
        }
    }

    pub fn limit_mib(&self) -> u64 {
        match self {
            Scenario::Backlog(size, _) => size.limit_mib,
            Scenario::Oversized(_) => SIZES[0].limit_mib,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Scenario::Backlog(size, outage) => {
                let kind = if size.filling.padded { " that compress to almost nothing" } else { "" };
                let sink = match outage.behaviour {
                    None | Some(Behaviour::Normal) => "a sink that always works",
                    Some(Behaviour::Slow(_)) => "a sink that answers after 20 s for a while",
                    Some(Behaviour::Refused) => "a sink that refuses connections for a while",
                    Some(Behaviour::Silent) => "a sink that never answers for a while",
                };
                let since = if outage.from_start { ", from the first span on" } else { "" };
                format!(
                    "{} MiB, {} of {} partitions active, batches up to {} MiB{kind}; {sink}{since}",
                    size.limit_mib, size.active, size.partitions, size.record_batch_mib
                )
            }
            Scenario::Oversized(codec) => format!(
                "{} MiB; one batch, compressed by {codec}, has {} MiB: its partition stops, the others continue",
                SIZES[0].limit_mib,
                oversized_mib(codec)
            ),
        }
    }
}

/// The size of the oversized batch, decompressed, MiB. A third of the limit, and far above the gateway's setting of 1 MiB. Without
/// compression, it is the most that the gateway receives from a broker (`ANSWER_BYTES_MIN` of its budget).
pub fn oversized_mib(codec: &str) -> u64 {
    if codec == "none" { 8 } else { 64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_scenario_has_a_name_of_its_own() {
        let all = Scenario::all();
        let names: BTreeSet<String> = all.iter().map(Scenario::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.contains("1024-silent") && names.contains("oversized-lz4"));
    }
}
