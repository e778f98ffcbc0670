//! Two pipelines with one consumer group at the same brokers would take each other's partitions: whoever has the group keeps it, and
//! of two that begin the older one gets it.

use crate::{Names, gateway_config};
use sluice_crds::TracePipeline;

/// The pipeline that has the same consumer group at the same brokers and comes first, as `namespace/name`; `None` when there is none.
///
/// One whose gateways were started with that group there comes before one that is older: an edit of the older one takes no partitions
/// from gateways that read. Of two that were made in the same second the first in the alphabet is the older one, so that the two agree.
/// Brokers are the same when one address is: that two addresses lead to one cluster cannot be known here.
pub fn rival<'a>(pipeline: &TracePipeline, all: impl Iterator<Item = &'a TracePipeline>) -> Option<String> {
    let own = Member::of(pipeline)?;
    // Among all of them may be a newer version of this one, which has the group meanwhile.
    let others = all.filter_map(Member::of).filter(|other| !other.is_named_as(&own));
    let before = others.filter(|other| other.shares_with(&own) && other.is_before(&own));
    let first = before.reduce(|first, other| if other.is_before(&first) { other } else { first });
    first.map(|other| format!("{}/{}", other.age.1, other.age.2))
}

/// What decides.
struct Member<'a> {
    group: String,
    brokers: &'a [String],
    /// Where its gateways have that group already; nowhere when they have another one, or were never started.
    has_it_at: &'a [String],
    /// When it was made, its namespace and its name.
    age: (i64, &'a str, &'a str),
}

impl<'a> Member<'a> {
    /// `None` for one without a usable name, which has no gateways.
    fn of(pipeline: &'a TracePipeline) -> Option<Self> {
        let (meta, kafka) = (&pipeline.metadata, &pipeline.spec.source.kafka);
        let names = Names::of(pipeline).ok()?;
        let created = meta.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
        let group = gateway_config::consumer_group(&names, &pipeline.spec);
        let started = pipeline.status.as_ref().filter(|status| status.image.is_some());
        let having = started.filter(|status| status.consumer_group.as_ref() == Some(&group));
        Some(Self {
            group,
            brokers: &kafka.bootstrap_servers,
            has_it_at: having.map_or(&[][..], |status| &status.bootstrap_servers[..]),
            age: (created, meta.namespace.as_deref()?, meta.name.as_deref()?),
        })
    }

    fn is_named_as(&self, other: &Self) -> bool {
        (self.age.1, self.age.2) == (other.age.1, other.age.2)
    }

    fn shares_with(&self, other: &Self) -> bool {
        // One that is held back from brokers that do not answer reads on where it was.
        let places = |one: &Self| [one.brokers, one.has_it_at].concat();
        self.group == other.group && meet(&places(self), &places(other))
    }

    /// Of two that share, whether this one comes first; of any two, one does.
    fn is_before(&self, other: &Self) -> bool {
        let has_it = |one: &Self, other: &Self| {
            meet(one.has_it_at, other.brokers) || meet(one.has_it_at, other.has_it_at)
        };
        let (has, other_has) = (has_it(self, other), has_it(other, self));
        (!has, self.age) < (!other_has, other.age)
    }
}

fn meet(some: &[String], others: &[String]) -> bool {
    some.iter().any(|one| others.contains(one))
}
