//! Two pipelines with one consumer group at the same brokers would take each other's partitions: the older one has the group.

use crate::{Names, gateway_config};
use sluice_crds::TracePipeline;

/// The older pipeline that reads with the same consumer group from the same brokers, as `namespace/name`; `None` when there is none.
///
/// Of two that were made in the same second the first in the alphabet is the older one, so that the two agree. Brokers are the same
/// when one address is: that two addresses lead to one cluster cannot be known here.
pub fn rival<'a>(pipeline: &TracePipeline, all: impl Iterator<Item = &'a TracePipeline>) -> Option<String> {
    let own = Member::of(pipeline)?;
    let older = all.filter_map(Member::of).filter(|other| other.age < own.age && other.shares_with(&own));
    older.min_by(|one, other| one.age.cmp(&other.age)).map(|other| format!("{}/{}", other.age.1, other.age.2))
}

/// What decides.
struct Member<'a> {
    group: String,
    brokers: &'a [String],
    /// When it was made, its namespace and its name.
    age: (i64, &'a str, &'a str),
}

impl<'a> Member<'a> {
    /// `None` for one without a usable name, which has no gateways.
    fn of(pipeline: &'a TracePipeline) -> Option<Self> {
        let (meta, kafka) = (&pipeline.metadata, &pipeline.spec.source.kafka);
        let names = Names::of(pipeline).ok()?;
        let created = meta.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
        Some(Self {
            group: gateway_config::consumer_group(&names, &pipeline.spec),
            brokers: &kafka.bootstrap_servers,
            age: (created, meta.namespace.as_deref()?, meta.name.as_deref()?),
        })
    }

    fn shares_with(&self, other: &Self) -> bool {
        self.group == other.group && self.brokers.iter().any(|broker| other.brokers.contains(broker))
    }
}
