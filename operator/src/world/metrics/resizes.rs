//! Counts memory resizes of OOM-killed gateways by result, from the difference of two statuses.

use prometheus::{IntCounterVec, Opts, Registry};
use sluice_crds::{MemoryResize, MemoryResizeState as State, TracePipelineStatus};

/// The counted states, with their labels.
const RESULTS: [(State, &str); 5] = [
    (State::Done, "done"),
    (State::Deferred, "deferred"),
    (State::Infeasible, "infeasible"),
    (State::Refused, "refused"),
    (State::AtBound, "at_bound"),
];

/// The resizes that changed their state between two statuses, or are about another OOM kill.
pub fn changed<'a>(
    before: &'a [MemoryResize],
    after: &'a [MemoryResize],
) -> impl Iterator<Item = &'a MemoryResize> {
    let state = |entry: &MemoryResize| (entry.uid.clone(), entry.ends, entry.state);
    after.iter().filter(move |now| before.iter().all(|was| state(was) != state(now)))
}

/// The counter. The series of a pipeline are removed with it.
#[derive(Debug)]
pub(super) struct ResizeMetrics {
    resizes: IntCounterVec,
}

impl ResizeMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = "sluice_operator_pipeline_memory_resizes_total";
        let help = "OOM-killed gateways by result of the memory increase in place.";
        let resizes = IntCounterVec::new(Opts::new(name, help), &["namespace", "name", "result"])?;
        registry.register(Box::new(resizes.clone()))?;
        Ok(Self { resizes })
    }

    pub(super) fn count(
        &self,
        [namespace, name]: [&str; 2],
        before: &TracePipelineStatus,
        after: &TracePipelineStatus,
    ) {
        for entry in changed(&before.memory_resizes, &after.memory_resizes) {
            if let Some((_, result)) = RESULTS.iter().find(|(state, _)| *state == entry.state) {
                self.resizes.with_label_values(&[namespace, name, result]).inc();
            }
        }
    }

    pub(super) fn forget(&self, [namespace, name]: [&str; 2]) {
        for (_, result) in RESULTS {
            // An error means that there was no such series.
            self.resizes.remove_label_values(&[namespace, name, result]).ok();
        }
    }
}
