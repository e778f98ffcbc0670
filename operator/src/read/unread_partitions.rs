//! Counts partitions that no gateway reads, and since when: the partitions in Kafka minus those that gateways report as their own.
//!
//! The number is known only if each running gateway has reported: a silent one may own any partition. A gateway that does not run reads nothing,
//! also while the group keeps partitions for it, and so does one that drains. The partitions are named as well if each gateway names all that it owns.

use super::{
    gateways::{Gateway, looks::Look},
    observe::Facts,
};
use crate::world::memory::{Key, Memory, UnreadMemory};
use k8s_openapi::api::core::v1::Pod;
use sluice_plan::{
    drain::undrain::Says,
    observed::{SILENT_SECONDS, UNREAD_NAMED_MAX, UnreadSeen},
    pods::is_running,
};
use std::collections::BTreeSet;

/// While partitions have no reader, they are counted again after this many seconds.
pub const LOOK_SECONDS: u64 = 10;

/// What gateways own together.
enum Owned {
    /// These.
    Partitions(Partitions),
    /// One of them has given no answer, or an older one does not say it.
    Unknown,
    /// One of them has not been asked yet.
    Later,
}

/// Partitions that gateways own.
struct Partitions {
    count: u64,
    /// By topic and number; `None` if a gateway does not name all of its own.
    named: Option<BTreeSet<(String, u32)>>,
}

/// The partitions without a reader; `None` if there are none, or if it is not known.
pub fn count(key: &Key, facts: &Facts, memory: &Memory) -> Option<UnreadSeen> {
    memory.with(key, |memory| count_since(&mut memory.unread, facts))
}

fn count_since(memory: &mut Option<UnreadMemory>, facts: &Facts) -> Option<UnreadSeen> {
    let kafka = facts.kafka.as_ref().filter(|kafka| kafka.missing.is_empty());
    let (Some(kafka), Some(look)) = (kafka, facts.look.as_deref()) else {
        *memory = None;
        return None;
    };
    let owned = match owned(&facts.pods, look) {
        Owned::Partitions(owned) => owned,
        // Until all gateways have answered, the last count holds, and its time stands still: what is reported is not taken back.
        Owned::Later => return memory.as_ref().map(|known| known.unread.clone()),
        // A silent gateway may own them: nothing new is reported, and nothing at all once its silence is.
        Owned::Unknown => {
            memory.take_if(|known| look.at.0.saturating_sub(known.at.0) / 1_000 >= SILENT_SECONDS);
            return memory.as_ref().map(|known| UnreadSeen { seconds: 0, ..known.unread.clone() });
        }
    };
    let of = kafka.topics.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let partitions = of.saturating_sub(u32::try_from(owned.count).unwrap_or(u32::MAX));
    if partitions == 0 {
        *memory = None;
        return None;
    }
    let at = look.at;
    // If the clock went back, the time begins again.
    let since = memory.as_ref().filter(|known| known.at <= at).map_or(at, |known| known.since);
    let seconds = at.0.saturating_sub(since.0) / 1_000;
    let named = owned.named.map(|owned| without_reader(&kafka.topics, &owned, partitions));
    let unread = UnreadSeen { partitions, of, seconds, named: named.unwrap_or_default() };
    *memory = Some(UnreadMemory { at, since, unread: unread.clone() });
    Some(unread)
}

/// The first of the partitions without a reader; none if they are not as many as were counted, as in a rebalance, when two gateways may name the
/// same one.
fn without_reader(topics: &[(String, u32)], owned: &BTreeSet<(String, u32)>, partitions: u32) -> Vec<String> {
    let all = topics.iter().flat_map(|(topic, count)| (0..*count).map(move |number| (topic.clone(), number)));
    let unread: Vec<_> = all.filter(|partition| !owned.contains(partition)).collect();
    if u32::try_from(unread.len()) != Ok(partitions) {
        return Vec::new();
    }
    unread.iter().take(UNREAD_NAMED_MAX).map(|(topic, number)| format!("{topic}/{number}")).collect()
}

fn owned(pods: &[Pod], look: &Look) -> Owned {
    let mut owned = None;
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        let Some(gateway) = Gateway::of(pod) else { return Owned::Unknown };
        let said = look.said.iter().find(|said| said.gateway.is_same_process(&gateway));
        // One that has become ready since then owns more now.
        let Some(said) = said.filter(|said| said.gateway.is_ready == gateway.is_ready) else {
            return Owned::Later;
        };
        let sum = owned.get_or_insert_with(|| Partitions { count: 0, named: Some(BTreeSet::new()) });
        // It has stopped reading, and owns its partitions until it is empty.
        if said.says == Says::Drains {
            continue;
        }
        let Some(numbers) = said.report.as_ref().ok().and_then(|report| report.numbers.as_ref().ok()) else {
            return Owned::Unknown;
        };
        sum.count = sum.count.saturating_add(numbers.partitions_owned);
        sum.named = sum.named.take().zip(numbers.named()).map(|(mut named, own)| {
            named.extend(own.iter().cloned());
            named
        });
    }
    owned.map_or(Owned::Unknown, Owned::Partitions)
}

#[cfg(test)]
mod tests {
    use super::super::gateways::{
        Absence,
        looks::Said,
        sample::report::{Report, tests::exported},
    };
    use super::*;
    use serde_json::json;
    use sluice_plan::Moment;
    use std::time::Duration;

    #[test]
    fn a_gateway_that_drains_reads_none_of_what_it_owns() {
        let pod = json!({"metadata": {"namespace": "tracing", "name": "prod-gateway-1", "uid": "one"}, "status": {
            "podIP": "10.0.0.1", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let count = |says| {
            let gateway = Gateway::of(&pod).unwrap();
            let (absence, report) = (Absence::None, Ok(Report::of(&exported())));
            let said = vec![Said { gateway, after: Duration::ZERO, absence, says, report }];
            match owned(std::slice::from_ref(&pod), &Look { at: Moment(0), said }) {
                Owned::Partitions(owned) => owned.count,
                Owned::Unknown | Owned::Later => panic!("it has answered"),
            }
        };
        assert!(count(Says::TakesPart) > 0);
        assert_eq!(count(Says::Drains), 0);
    }

    #[test]
    fn partitions_without_a_reader_are_named_if_they_are_as_many_as_were_counted() {
        let topics = [("other".to_owned(), 2), ("spans".to_owned(), 6)];
        let owned =
            BTreeSet::from([("spans".to_owned(), 1), ("spans".to_owned(), 4), ("other".to_owned(), 0)]);
        assert_eq!(without_reader(&topics, &owned, 5), ["other/1", "spans/0", "spans/2"]);
        assert!(without_reader(&topics, &owned, 4).is_empty(), "two gateways name the same one");
    }
}
