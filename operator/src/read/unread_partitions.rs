//! Counts partitions that no gateway reads, and since when: the partitions in Kafka minus those that gateways report as their own.
//!
//! The number is known only if each running gateway has reported: a silent one may own any partition. A gateway that does not run reads nothing,
//! also while the group keeps partitions for it.

use super::{
    gateways::{Gateway, looks::Look},
    observe::Facts,
};
use crate::world::memory::{Key, Memory, UnreadMemory};
use k8s_openapi::api::core::v1::Pod;
use sluice_plan::{observed::UnreadSeen, pods::is_running};

/// While partitions have no reader, they are counted again after so many seconds.
pub const LOOK_SECONDS: u64 = 10;

/// What gateways own together.
enum Owned {
    /// So many partitions.
    Partitions(u64),
    /// One of them has given no answer, or an older one does not say it.
    Unknown,
    /// One of them has not been asked yet.
    Later,
}

/// The partitions without a reader; `None` if there are none, or if it is not known.
pub fn count(key: &Key, facts: &Facts, memory: &Memory) -> Option<UnreadSeen> {
    memory.with(key, |memory| count_since(&mut memory.unread, facts))
}

fn count_since(memory: &mut Option<UnreadMemory>, facts: &Facts) -> Option<UnreadSeen> {
    let kafka = facts.kafka.as_ref().filter(|kafka| kafka.missing.is_empty());
    let of = kafka.map(|kafka| kafka.topics.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count)));
    let (Some(of), Some(look)) = (of, facts.look.as_deref()) else {
        *memory = None;
        return None;
    };
    let owned = match owned(&facts.pods, look) {
        Owned::Partitions(owned) => owned,
        // Until all gateways have answered, the last count holds, and no new one is reported.
        Owned::Later | Owned::Unknown => {
            return memory.map(|known| UnreadSeen { seconds: 0, ..known.unread });
        }
    };
    let partitions = of.saturating_sub(u32::try_from(owned).unwrap_or(u32::MAX));
    if partitions == 0 {
        *memory = None;
        return None;
    }
    let at = look.at;
    // If the clock went back, the time begins again.
    let since = memory.filter(|known| known.at <= at).map_or(at, |known| known.since);
    let unread = UnreadSeen { partitions, of, seconds: at.0.saturating_sub(since.0) / 1_000 };
    *memory = Some(UnreadMemory { at, since, unread });
    Some(unread)
}

fn owned(pods: &[Pod], look: &Look) -> Owned {
    let mut owned = Owned::Unknown;
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        let Some(gateway) = Gateway::of(pod) else { return Owned::Unknown };
        let said = look.said.iter().find(|said| said.gateway.is_same_process(&gateway));
        // One that has become ready since then owns more now.
        let Some(said) = said.filter(|said| said.gateway.is_ready == gateway.is_ready) else {
            return Owned::Later;
        };
        let Some(numbers) = said.report.as_ref().ok().and_then(|report| report.numbers.as_ref().ok()) else {
            return Owned::Unknown;
        };
        let before = if let Owned::Partitions(before) = owned { before } else { 0 };
        owned = Owned::Partitions(before.saturating_add(numbers.partitions_owned));
    }
    owned
}
