//! Two pipelines with one consumer group at the same brokers would take each other's partitions. So the pipeline that has the group keeps
//! it, and of two that start at the same time, the older one gets it.
//!
//! A pipeline that never ran and cannot start (its topic is missing, its schema Job fails, or it is in another team's namespace) does not
//! reserve the group.
//! What it waits for may come for several pipelines at once. So a pipeline whose wait ends first records that in its status
//! ([`asks_first`]) and starts at the next reconcile. By then it sees whether an older one has recorded the same.

use crate::{
    names::Names,
    pipeline::{Intent, gateway_config},
};
use sluice_crds::{
    TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};

/// The pipeline that has the same consumer group at the same brokers and comes first, as `namespace/name`; `None` when there is none.
///
/// One whose gateways were started with that group there comes before one that is older: an edit of the older one takes no partitions
/// from gateways that read. Of two that were made in the same second the first in the alphabet is the older one, so that the two agree.
/// Brokers are the same when one address is: that two addresses lead to one cluster cannot be known here.
pub fn group_owner<'a>(
    pipeline: &TracePipeline,
    all: impl Iterator<Item = &'a TracePipeline>,
) -> Option<String> {
    let own = Member::of(pipeline)?;
    let counts = |other: &Member<'_>| other.start != Start::Waits || other.has_it(&own);
    let before = own.others(all).filter(|other| counts(other) && other.is_before(&own));
    let first = before.reduce(|first, other| if other.is_before(&first) { other } else { first });
    first.map(|other| format!("{}/{}", other.age.1, other.age.2))
}

/// Whether a pipeline that could start now is to say so in its status first, and to start at the next look: others have the same group,
/// have not started either, and may be about to.
pub fn asks_first<'a>(pipeline: &TracePipeline, all: impl Iterator<Item = &'a TracePipeline>) -> bool {
    let Some(own) = Member::of(pipeline).filter(|own| own.start != Start::Said) else { return false };
    let mut others = own.others(all).peekable();
    others.peek().is_some() && !others.any(|other| own.has_it(&other))
}

/// The consumer group that a pipeline reads with; `None` for one without a usable name, which reads nothing, and for one without Kafka.
pub fn group_of(pipeline: &TracePipeline) -> Option<String> {
    let kafka = pipeline.spec.source.kafka.as_ref()?;
    Names::of(pipeline).ok().map(|names| gateway_config::consumer_group(&names, kafka))
}

/// What decides.
struct Member<'a> {
    group: String,
    brokers: &'a [String],
    /// Where its gateways have that group already; nowhere when they have another one, or were never started.
    has_it_at: &'a [String],
    /// Whether it may start.
    start: Start,
    /// When it was made, its namespace and its name.
    age: (i64, &'a str, &'a str),
}

/// Whether a pipeline may start, as far as its status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It waits for something, is refused, or is not to run.
    Waits,
    /// Its status is of another spec, or says nothing yet.
    NotKnown,
    /// It starts at the next look, or has.
    Said,
}

impl Start {
    fn of(pipeline: &TracePipeline) -> Self {
        if Intent::of(pipeline) != Intent::Run {
            return Self::Waits;
        }
        let generation = pipeline.metadata.generation;
        let status = pipeline
            .status
            .as_ref()
            .filter(|status| status.observed_generation == generation && !status.conditions.is_empty());
        match status {
            None => Self::NotKnown,
            Some(status) if is_waiting(status) => Self::Waits,
            Some(_) => Self::Said,
        }
    }
}

/// Whether a status says that something must come first.
fn is_waiting(status: &TracePipelineStatus) -> bool {
    let of = |kind: &str| status.condition(kind);
    let is_stalled = of(condition::STALLED).is_some_and(|stalled| stalled.status == "True");
    let waits = of(condition::RECONCILING)
        .is_some_and(|reconciling| reconciling.status == "True" && reconciling.reason == reason::WAITING);
    // While its first schema Job runs, the pipeline may start at any moment. Once the Job has failed, a person must act.
    let has_no_table = of(condition::SCHEMA_READY).is_some_and(|schema| schema.status == "False");
    // A pipeline that waits only for the next look may also start at any moment.
    let is_next = of(condition::READY).is_some_and(|ready| ready.reason == reason::PROGRESSING);
    is_stalled || ((waits || has_no_table) && !is_next)
}

impl<'a> Member<'a> {
    /// `None` for one without a usable name, which has no gateways, and for one without Kafka.
    fn of(pipeline: &'a TracePipeline) -> Option<Self> {
        let (meta, kafka) = (&pipeline.metadata, pipeline.spec.source.kafka.as_ref()?);
        let names = Names::of(pipeline).ok()?;
        let created = meta.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
        let group = gateway_config::consumer_group(&names, kafka);
        let started = pipeline.status.as_ref().filter(|status| status.image.is_some());
        let having = started.filter(|status| status.consumer_group.as_ref() == Some(&group));
        Some(Self {
            group,
            brokers: &kafka.bootstrap_servers,
            has_it_at: having.map_or(&[][..], |status| &status.bootstrap_servers[..]),
            start: Start::of(pipeline),
            age: (created, meta.namespace.as_deref()?, meta.name.as_deref()?),
        })
    }

    /// The others that share the group. Among all of them may be a newer version of this one, which has the group meanwhile.
    fn others<'o>(&self, all: impl Iterator<Item = &'o TracePipeline>) -> impl Iterator<Item = Member<'o>> {
        all.filter_map(Member::of).filter(|other| !other.is_named_as(self) && other.shares_with(self))
    }

    fn is_named_as(&self, other: &Self) -> bool {
        (self.age.1, self.age.2) == (other.age.1, other.age.2)
    }

    fn shares_with(&self, other: &Self) -> bool {
        // One that is held back from brokers that do not answer reads on where it was.
        let places = |one: &Self| [one.brokers, one.has_it_at].concat();
        self.group == other.group && meet(&places(self), &places(other))
    }

    /// Of two that share, whether the gateways of this one have the group that the other one wants.
    fn has_it(&self, other: &Self) -> bool {
        meet(self.has_it_at, other.brokers) || meet(self.has_it_at, other.has_it_at)
    }

    /// Whether this one comes first of two that share a group. Of any two, exactly one comes first. A pipeline that has recorded that it
    /// starts may have started since, whatever its status says of its gateways. So a pipeline that ends its wait later comes after it.
    fn is_before(&self, other: &Self) -> bool {
        let place = |one: &Self, other: &Self| (!one.has_it(other), one.start != Start::Said);
        (place(self, other), self.age) < (place(other, self), other.age)
    }
}

fn meet(some: &[String], others: &[String]) -> bool {
    some.iter().any(|one| others.contains(one))
}
