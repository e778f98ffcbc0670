//! What a new owner finds at the group coordinator, and where it starts. Pure.

use super::{
    ClusterNumber, Settings,
    cut::{Beginning, Overtaken, doubtful_up_to},
    gaps::GAPS_MAX,
    in_force::InForce,
    plan::{Newer, Plan, Unread},
};
use crate::OffsetRange;
use std::fmt;

/// Why a previous owner's ranges are unknown. Until the first commit of this owner, its ranges in flight may be inserted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// The group has committed nothing: there was no previous owner.
    NeverCommitted,
    /// Another program committed the offset, or a tool reset it.
    Foreign,
    /// The metadata cannot be read.
    Damaged,
    /// The plan belongs to a deleted topic of the same name: its topic id differs, or the log ends before the committed offset and an id is
    /// not known. (If brokers lost the log's end by an unclean election, the latter looks the same. Reading the whole log again may then
    /// double rows. Not reading it would lose rows if the topic was created again.)
    ///
    /// When a topic is deleted, the coordinator deletes its committed offsets. A member that did not notice may commit later, under the
    /// new topic's name; only the topic id shows this.
    TopicRecreated,
    /// The log of the same topic, by its id, ends before the committed offset: brokers have lost its end. What it still has is stored.
    LogShorter,
}

impl Fresh {
    /// Whether unknown ranges may be in flight.
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::Foreign | Self::Damaged | Self::TopicRecreated)
    }
}

impl fmt::Display for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverCommitted => "the group has committed nothing",
            Self::Foreign => "another program committed the offset, or a tool reset it",
            Self::Damaged => {
                "the metadata of the committed offset begin like a plan, but are cut short, were changed, or belong to another offset"
            }
            Self::TopicRecreated => {
                "the plan belongs to a deleted topic of the same name, or brokers without topic ids have lost the log's end"
            }
            Self::LogShorter => "brokers have lost the log's end, below the committed offset",
        })
    }
}

/// What was found when the partition was assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Why the previous owner's ranges are unknown; `None` if its plan was found.
    pub fresh: Option<Fresh>,
    /// Offsets that Kafka no longer had.
    pub overtaken: Option<Overtaken>,
    /// Offsets of the plan that lie behind the end of the log. The log was longer when the plan was made: brokers have lost its end, for
    /// instance by an unclean election. Messages with these offsets are still to come, and differ from those that were read.
    pub cut_off: Option<OffsetRange>,
    /// Set if ranges in flight have tokens that were made with another id of the cluster.
    pub renamed: Option<Renamed>,
}

/// The cluster reported another id when the plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The cluster as the plan names it.
    pub then: ClusterNumber,
    /// Offsets of ranges that the server may have under other tokens.
    pub doubtful: OffsetRange,
}

/// Why this version must not read a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Its plan has a newer format.
    #[error(
        "a newer version of the gateway planned ranges of this partition in a format that this version cannot read"
    )]
    NewerFormat,
    /// Its plan has a size rule that this version does not know.
    #[error(
        "a newer version of the gateway planned ranges of this partition by size rule {version}, unknown to this version"
    )]
    UnknownRule { version: u8 },
}

/// The first and the next offset of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Where it begins.
    pub start: i64,
    /// Where it ends, read after the commit: the horizon never lies behind it.
    pub end: i64,
}

/// The committed offset and the log when a partition is assigned.
#[derive(Debug, Clone, Copy)]
pub struct Committed<'a> {
    /// The committed offset and its metadata.
    pub commit: Option<(i64, &'a str)>,
    /// Where a partition without a committed offset starts.
    pub begin: i64,
    pub log: Log,
}

/// Where the new owner starts.
#[derive(Debug)]
pub struct Start {
    pub found: Found,
    /// The plan that was found, if it is valid.
    pub plan: Option<Plan>,
    pub(super) beginning: Beginning,
    /// No range of the found plan is in flight, and the plan is to be replaced: nothing is sent before the first commit.
    pub replaced: bool,
}

impl Committed<'_> {
    /// Determines the start.
    pub fn start(&self, settings: &Settings) -> Result<Start, Halt> {
        let Some((offset, metadata)) = self.commit else {
            return Ok(self.fresh(Fresh::NeverCommitted, self.begin, settings));
        };
        match Plan::decode(offset, metadata) {
            Ok(plan) if plan.offset > self.log.end && is_same_topic(&plan, settings) => {
                Ok(self.shorter(&plan, settings))
            }
            Ok(plan) if recreated(&plan, settings) || plan.offset > self.log.end => {
                Ok(self.fresh(Fresh::TopicRecreated, self.log.start, settings))
            }
            Ok(plan) => Ok(self.resumed(plan, settings)),
            Err(Unread::Newer(Newer::Format)) => Err(Halt::NewerFormat),
            Err(Unread::Newer(Newer::Rule(version))) => Err(Halt::UnknownRule { version }),
            Err(_) if offset > self.log.end => {
                Ok(self.fresh(Fresh::TopicRecreated, self.log.start, settings))
            }
            Err(Unread::Foreign) => Ok(self.fresh(Fresh::Foreign, offset, settings)),
            Err(Unread::Damaged) => Ok(self.fresh(Fresh::Damaged, offset, settings)),
        }
    }

    /// The cluster by whose id the tokens of the ranges in flight are made, if it is the one of the settings under its former id.
    pub fn former_cluster(&self, settings: &Settings) -> Option<ClusterNumber> {
        let (offset, metadata) = self.commit?;
        let plan = Plan::decode(offset, metadata).ok().filter(|plan| is_same_topic(plan, settings))?;
        cluster_then(&plan, settings)
    }

    fn fresh(&self, why: Fresh, offset: i64, settings: &Settings) -> Start {
        let first = offset.max(self.log.start);
        let lost = OffsetRange { first: offset, next: first };
        let doubtful = OffsetRange { first, next: first };
        let overtaken = (offset < first).then_some(Overtaken { lost, doubtful, first });
        let rule = settings.rule;
        Start {
            found: Found { fresh: Some(why), overtaken, cut_off: None, renamed: None },
            plan: None,
            beginning: Beginning {
                rule,
                first,
                planned: Vec::new(),
                horizon: first,
                log_end: None,
                doubtful_up_to: 0,
                renamed: OffsetRange { first, next: first },
                switches: false,
            },
            replaced: true,
        }
    }

    /// Messages below the end were stored before the offset was committed. Those that will have the offsets behind it are others.
    fn shorter(&self, plan: &Plan, settings: &Settings) -> Start {
        let end = self.log.end;
        let cut_off = Some(OffsetRange { first: end, next: plan.offset.max(plan.horizon) });
        let start = self.fresh(Fresh::LogShorter, end, settings);
        Start { found: Found { cut_off, ..start.found }, ..start }
    }

    fn resumed(&self, plan: Plan, settings: &Settings) -> Start {
        let first = plan.offset.max(self.log.start);
        // Below the horizon no range ends by time. If the log ends before the horizon, that would last until it reaches it.
        let end = self.log.end;
        let cut_off = (plan.horizon > end).then_some(OffsetRange { first: end, next: plan.horizon });
        let horizon = plan.horizon.min(end);
        let cuts: Vec<i64> = plan.cuts.iter().copied().filter(|cut| *cut <= end).collect();
        let overtaken = (plan.offset < first).then(|| Overtaken {
            lost: OffsetRange { first: plan.offset, next: first },
            doubtful: OffsetRange { first, next: doubtful_up_to(first, &cuts, horizon) },
            first,
        });
        let renamed = cluster_then(&plan, settings)
            .filter(|_| first < horizon)
            .map(|then| Renamed { then, doubtful: OffsetRange { first, next: horizon } });
        let otherwise_doubtful =
            overtaken.map_or(0, |overtaken| overtaken.doubtful.next).max(plan.doubtful_up_to.min(end));
        let renamed_up_to = renamed.map_or(0, |renamed| renamed.doubtful.next);
        // The next owner must find the mark that it gives these ranges other tokens; a gap may be added before.
        let is_certain = is_same_topic(&plan, settings) && plan.gaps.len() + 1 < GAPS_MAX;
        let planned = cuts.into_iter().filter(|cut| *cut > first).collect();
        let differs = InForce::planned(&plan, settings) != InForce::wanted(settings);
        let replaced = differs && first >= horizon;
        let beginning = Beginning {
            rule: if replaced { settings.rule } else { plan.rule },
            first,
            planned,
            horizon,
            log_end: cut_off.map(|_| end),
            doubtful_up_to: otherwise_doubtful.max(renamed_up_to),
            renamed: OffsetRange {
                first: otherwise_doubtful,
                next: if is_certain { renamed_up_to } else { 0 },
            },
            switches: differs && !replaced,
        };
        let found = Found { fresh: None, overtaken, cut_off, renamed };
        Start { found, plan: Some(plan), beginning, replaced }
    }
}

/// Whether both ids are known and equal.
fn is_same_topic(plan: &Plan, settings: &Settings) -> bool {
    plan.topic_id.zip(settings.topic_id).is_some_and(|(then, now)| then == now)
}

/// Whether both ids are known and differ.
fn recreated(plan: &Plan, settings: &Settings) -> bool {
    plan.topic_id.zip(settings.topic_id).is_some_and(|(then, now)| then != now)
}

/// The cluster of the plan, if both are known and differ.
fn cluster_then(plan: &Plan, settings: &Settings) -> Option<ClusterNumber> {
    plan.cluster.filter(|then| settings.cluster.is_some_and(|now| now != *then))
}
