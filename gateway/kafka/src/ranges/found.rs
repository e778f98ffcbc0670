//! What a new owner finds at the group's coordinator, and where it begins. Pure.

use super::{
    Settings,
    cut::{Beginning, Overtaken, doubtful_up_to},
    in_force::InForce,
    plan::{Newer, Plan, Unread},
};
use crate::partition::OffsetRange;

/// Why nothing is known of the ranges of an owner before. Until the first own commit, what it had in flight may be doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// The group has committed nothing: nobody was there before.
    NeverCommitted,
    /// Another program committed the offset, or a tool moved it.
    Foreign,
    /// The metadata cannot be read.
    Damaged,
    /// The plan belongs to a topic of this name that is gone: its id is another one, or the log ends in front of the committed
    /// offset. (Brokers that lost the log's end by an unclean election look the same. Reading all of the log again may then
    /// double rows; not reading it would lose them where the topic was made anew.)
    ///
    /// The coordinator forgets what a group has committed for a topic that is deleted; what a member commits afterwards, which did not
    /// notice, stands under the new topic's name, and only the id tells.
    TopicRecreated,
}

impl Fresh {
    /// Whether ranges may be in flight of which nothing is known.
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::Foreign | Self::Damaged | Self::TopicRecreated)
    }
}

/// What was found when the partition was assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Why nothing was known of an owner before; `None` when its plan was found.
    pub fresh: Option<Fresh>,
    /// What Kafka no longer had.
    pub overtaken: Option<Overtaken>,
    /// Offsets behind the end of the log that the plan speaks of. The log was longer when the plan was made: brokers have lost its end, for
    /// instance by an unclean election. Messages with these offsets are still to come, and are other ones than those that were read.
    pub cut_off: Option<OffsetRange>,
}

/// Why a partition must not be read by this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Its plan has a newer format.
    #[error(
        "a newer version of this program planned ranges of this partition in a format that this one cannot read"
    )]
    NewerFormat,
    /// Its plan has a rule that this program does not know.
    #[error(
        "a newer version of this program planned ranges of this partition by size rule {version}, unknown to this one"
    )]
    UnknownRule {
        /// The rule's version.
        version: u8,
    },
}

/// The first and the next offset of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Where it begins.
    pub start: i64,
    /// Where it ends, asked for after the commit was read: the horizon is never taken to lie behind it.
    pub end: i64,
}

/// What the coordinator and the log say when a partition is assigned.
#[derive(Debug, Clone, Copy)]
pub struct Committed<'a> {
    /// The committed offset and its metadata.
    pub commit: Option<(i64, &'a str)>,
    /// Where a partition without a committed offset begins.
    pub begin: i64,
    /// The log.
    pub log: Log,
}

/// Where the new owner begins.
#[derive(Debug)]
pub struct Start {
    pub found: Found,
    /// The plan that was found, if it counts.
    pub plan: Option<Plan>,
    pub(super) beginning: Beginning,
    /// Nothing of the found plan is in flight and it is to be replaced: nothing is sent before the first commit.
    pub replaced: bool,
}

impl Committed<'_> {
    /// Finds out.
    pub fn start(&self, settings: &Settings) -> Result<Start, Halt> {
        let Some((offset, metadata)) = self.commit else {
            return Ok(self.fresh(Fresh::NeverCommitted, self.begin, settings));
        };
        match Plan::decode(offset, metadata) {
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

    fn fresh(&self, why: Fresh, offset: i64, settings: &Settings) -> Start {
        let first = offset.max(self.log.start);
        let lost = OffsetRange { first: offset, next: first };
        let doubtful = OffsetRange { first, next: first };
        let overtaken = (offset < first).then_some(Overtaken { lost, doubtful, first });
        let rule = settings.rule;
        Start {
            found: Found { fresh: Some(why), overtaken, cut_off: None },
            plan: None,
            beginning: Beginning {
                rule,
                first,
                planned: Vec::new(),
                horizon: first,
                log_end: None,
                switches: false,
            },
            replaced: true,
        }
    }

    fn resumed(&self, plan: Plan, settings: &Settings) -> Start {
        let first = plan.offset.max(self.log.start);
        // Below the horizon nothing ends by time. Where the log no longer reaches it, that would last until it does.
        let end = self.log.end;
        let cut_off = (plan.horizon > end).then_some(OffsetRange { first: end, next: plan.horizon });
        let horizon = plan.horizon.min(end);
        let cuts: Vec<i64> = plan.cuts.iter().copied().filter(|cut| *cut <= end).collect();
        let overtaken = (plan.offset < first).then(|| Overtaken {
            lost: OffsetRange { first: plan.offset, next: first },
            doubtful: OffsetRange { first, next: doubtful_up_to(first, &cuts, horizon) },
            first,
        });
        let planned = cuts.into_iter().filter(|cut| *cut > first).collect();
        let differs = InForce::planned(&plan, settings) != InForce::wanted(settings);
        let replaced = differs && first >= horizon;
        let beginning = Beginning {
            rule: if replaced { settings.rule } else { plan.rule },
            first,
            planned,
            horizon,
            log_end: cut_off.map(|_| end),
            switches: differs && !replaced,
        };
        Start { found: Found { fresh: None, overtaken, cut_off }, plan: Some(plan), beginning, replaced }
    }
}

/// Whether both ids are known and differ.
fn recreated(plan: &Plan, settings: &Settings) -> bool {
    plan.topic_id.zip(settings.topic_id).is_some_and(|(then, now)| then != now)
}
