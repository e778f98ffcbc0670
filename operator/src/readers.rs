//! Counts partitions that no gateway reads, and remembers since when: as many as Kafka has, less those that gateways say they own.
//!
//! It is known only while each gateway that runs has said what it owns; a silent one may own any of them. One that does not run reads nothing,
//! also while its group keeps partitions for it. One small entry per pipeline, forgotten with it.

use crate::{
    gateways::{Gateway, looks::Look},
    memory::Key,
    observe::Facts,
};
use k8s_openapi::api::core::v1::Pod;
use sluice_plan::{Moment, observed::UnreadSeen, pods::is_running};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// While partitions have no reader, they are counted again after so many seconds.
pub const LOOK_SECONDS: u64 = 10;

#[derive(Debug, Clone, Copy)]
struct Known {
    /// When gateways were asked last.
    at: Moment,
    /// Since when some have none.
    since: Moment,
    unread: UnreadSeen,
}

/// Partitions without a reader of each pipeline that has some.
#[derive(Debug, Default)]
pub struct Readers {
    known: Mutex<HashMap<Key, Known>>,
}

/// What gateways own together.
enum Owned {
    /// So many partitions.
    Partitions(u64),
    /// One of them has given no answer, or an older one does not say it.
    Unknown,
    /// One of them has not been asked yet.
    Later,
}

impl Readers {
    /// What is known by now.
    pub fn count(&self, key: &Key, facts: &Facts) -> Option<UnreadSeen> {
        let kafka = facts.kafka.as_ref().filter(|kafka| kafka.missing.is_empty());
        let of =
            kafka.map(|kafka| kafka.topics.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count)));
        let mut known = self.known();
        let (Some(of), Some(look)) = (of, facts.look.as_deref()) else {
            known.remove(key);
            return None;
        };
        let owned = match owned(&facts.pods, look) {
            Owned::Partitions(owned) => owned,
            // What is said goes on being said, and nothing new is said, until all of them have answered.
            Owned::Later | Owned::Unknown => {
                return known.get(key).map(|known| UnreadSeen { seconds: 0, ..known.unread });
            }
        };
        let partitions = of.saturating_sub(u32::try_from(owned).unwrap_or(u32::MAX));
        if partitions == 0 {
            known.remove(key);
            return None;
        }
        let at = look.at;
        // A clock that went back begins anew.
        let since = known.get(key).filter(|known| known.at <= at).map_or(at, |known| known.since);
        let unread = UnreadSeen { partitions, of, seconds: at.0.saturating_sub(since.0) / 1_000 };
        known.insert(key.clone(), Known { at, since, unread });
        Some(unread)
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        // Whatever the thread that held it died of: at worst it is counted from now on.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
