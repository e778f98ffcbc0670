//! What can happen to a pipeline with queue volumes, in any order.

use super::cluster::GATEWAYS;
use proptest::prelude::*;
use sluice_crds::{DeletionPolicy, OnTimeout};

#[derive(Debug, Clone)]
pub enum Action {
    /// A user edits the spec.
    Commits(bool),
    OnTimeout(OnTimeout),
    Keeps {
        scaled: bool,
    },
    /// How it is to go one day.
    Goes(DeletionPolicy),
    Wants(u32),
    Suspends(bool),
    /// Another client scales the StatefulSet.
    Scaled(u32),
    /// Kubernetes starts and ends pods.
    Controlled,
    /// It brings a pod to the newest config.
    Rolled(u32),
    /// A pod restarts, with its revision and config.
    Restarted(u32),
    /// Gateways put rows on their volumes.
    Written,
    /// `ClickHouse` was away for longer than Kafka keeps messages.
    Forgotten,
    /// `ClickHouse` is there: gateways insert what is on their volumes.
    Inserted,
    /// Jobs that run do their work, if no other pod has the volume, or fail.
    Worked {
        fails: bool,
    },
    /// The operator asks gateways what is queued.
    Asked,
    /// The operator looks, and does this number of its writes; some time later it looks again.
    Reconciled {
        writes: usize,
        seconds: u64,
    },
}

pub fn action() -> impl Strategy<Value = Action> {
    let on_timeout = prop_oneof![Just(OnTimeout::Abort), Just(OnTimeout::Force), Just(OnTimeout::Job)];
    prop_oneof![
        2 => any::<bool>().prop_map(Action::Commits),
        1 => on_timeout.prop_map(Action::OnTimeout),
        1 => any::<bool>().prop_map(|scaled| Action::Keeps { scaled }),
        1 => policy().prop_map(Action::Goes),
        3 => (1..=GATEWAYS).prop_map(Action::Wants),
        1 => any::<bool>().prop_map(Action::Suspends),
        1 => (0..=GATEWAYS).prop_map(Action::Scaled),
        4 => Just(Action::Controlled),
        4 => (0..GATEWAYS).prop_map(Action::Rolled),
        1 => (0..GATEWAYS).prop_map(Action::Restarted),
        4 => Just(Action::Written),
        2 => Just(Action::Inserted),
        2 => Just(Action::Forgotten),
        3 => any::<bool>().prop_map(|fails| Action::Worked { fails }),
        3 => Just(Action::Asked),
        2 => (0_usize..8, 0..90_u64).prop_map(|(writes, seconds)| Action::Reconciled { writes, seconds }),
        8 => (0..90_u64).prop_map(|seconds| Action::Reconciled { writes: usize::MAX, seconds }),
    ]
}

pub fn policy() -> impl Strategy<Value = DeletionPolicy> {
    prop_oneof![Just(DeletionPolicy::Immediate), Just(DeletionPolicy::Drain), Just(DeletionPolicy::Orphan)]
}
