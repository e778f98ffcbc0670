//! The figures of a run: as lines for people and as JSON for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::kinds::Kinds;
use super::rest::{Measured, writes};
use super::{Order, Times};
use e2e_fixtures::local_operator::{Calls, Verb};

/// Changed objects that the report names; it only counts the others.
const CHANGED_NAMED_MAX: usize = 5;

/// Longest time for an edit, seconds. Chosen: twice the time in which the operator collects events and writes objects.
const EDIT_S_MAX: f64 = 5.0;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub pipelines: u32,
    pub with: Kinds,
    #[serde(flatten)]
    pub times: Times,
    /// The operator's requests before it was at rest, by verb.
    pub requests: BTreeMap<String, u64>,
    /// The same by verb and resource.
    pub requests_by_resource: BTreeMap<String, u64>,
    /// Seconds of rest that were counted.
    pub quiet_s: u64,
    pub requests_at_rest: BTreeMap<String, u64>,
    /// Writes at rest, without those of the Lease: must be 0.
    pub writes_at_rest: u64,
    /// Objects that changed at rest: must be none.
    pub changed_at_rest: BTreeSet<String>,
    pub memory_peak_mib: u64,
    /// CPU time of the operator until the end of the rest, seconds.
    pub cpu_s: f64,
    /// Percentage of the gateways that answered nothing.
    pub silent_percent: u32,
    /// The longest time from an edit of a pipeline whose gateway answers until it was applied, seconds.
    pub edit_s_max: f64,
}

impl Report {
    pub(super) fn new(order: &Order, times: Times, measured: Measured, edited: Duration) -> Report {
        let named = |calls: &Calls| calls.iter().map(|(call, count)| (call.to_string(), *count)).collect();
        Report {
            pipelines: order.pipelines,
            with: Kinds::of(order.pipelines),
            times,
            requests: by_verb(&measured.calls),
            requests_by_resource: named(&measured.calls),
            quiet_s: order.quiet.as_secs(),
            writes_at_rest: writes(&measured.at_rest),
            requests_at_rest: named(&measured.at_rest),
            changed_at_rest: measured.changed,
            memory_peak_mib: measured.usage.resident_peak_bytes >> 20,
            cpu_s: measured.usage.cpu_seconds,
            silent_percent: order.silent.0,
            edit_s_max: edited.as_secs_f64(),
        }
    }

    /// Whether at rest only the Lease was written and no object changed, and edits were applied in time.
    pub fn holds(&self) -> bool {
        self.writes_at_rest == 0 && self.changed_at_rest.is_empty() && self.edit_s_max <= EDIT_S_MAX
    }

    pub fn lines(&self) -> Vec<String> {
        let joined = |counts: &BTreeMap<String, u64>| {
            counts.iter().map(|(what, count)| format!("{what} {count}")).collect::<Vec<_>>().join(", ")
        };
        let Times { created_s, applied_s, ready_s } = self.times;
        let changed: Vec<_> = self.changed_at_rest.iter().take(CHANGED_NAMED_MAX).cloned().collect();
        vec![
            format!(
                "{} pipelines: created {created_s:.1} s, applied {applied_s:.1} s, Ready {ready_s:.1} s",
                self.pipelines
            ),
            format!(
                "of these {} with a Secret, {} scaled by load, {} with queue volumes",
                self.with.secrets, self.with.scaled, self.with.volumes
            ),
            format!("requests: {}", joined(&self.requests)),
            format!("          {}", joined(&self.requests_by_resource)),
            format!(
                "edits: applied within {:.1} s, while {} % of the gateways do not answer",
                self.edit_s_max, self.silent_percent
            ),
            format!("memory: at most {} MiB; CPU {:.1} s", self.memory_peak_mib, self.cpu_s),
            format!(
                "{} s at rest: {} writes except of the Lease, {} objects changed {changed:?}; {}",
                self.quiet_s,
                self.writes_at_rest,
                self.changed_at_rest.len(),
                joined(&self.requests_at_rest)
            ),
        ]
    }
}

fn by_verb(calls: &Calls) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::<Verb, u64>::new();
    for (call, count) in calls {
        *sums.entry(call.verb).or_default() += count;
    }
    sums.into_iter().map(|(verb, count)| (format!("{verb:?}").to_lowercase(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use e2e_fixtures::local_operator::Silent;
    use e2e_fixtures::local_operator::{Call, Usage};

    fn report(at_rest: Calls, changed: &[&str]) -> Report {
        edited(at_rest, changed, Duration::from_secs(5))
    }

    fn edited(at_rest: Calls, changed: &[&str], edited: Duration) -> Report {
        let call = |verb, resource: &str| Call { verb, resource: resource.to_owned() };
        let calls = Calls::from([
            (call(Verb::Apply, "services"), 2),
            (call(Verb::Apply, "configmaps"), 3),
            (call(Verb::Watch, "pods"), 1),
        ]);
        let changed = changed.iter().map(ToString::to_string).collect();
        let measured = Measured { calls, at_rest, changed, usage: Usage::default() };
        let order = Order { pipelines: 2, quiet: Duration::from_mins(1), silent: Silent(0) };
        Report::new(&order, Times::default(), measured, edited)
    }

    #[test]
    fn requests_are_summed_by_verb() {
        let found = report(Calls::new(), &[]);
        assert_eq!(found.requests, BTreeMap::from([("apply".to_owned(), 5), ("watch".to_owned(), 1)]));
        assert!(found.holds());
    }

    #[test]
    fn a_write_or_a_change_at_rest_is_a_failure() {
        let write = Call { verb: Verb::Create, resource: "events".to_owned() };
        assert!(!report(Calls::from([(write, 1)]), &[]).holds());
        assert!(!report(Calls::new(), &["StatefulSet/a"]).holds());
        let lease = Call { verb: Verb::Apply, resource: "leases".to_owned() };
        assert!(report(Calls::from([(lease, 12)]), &[]).holds());
        assert!(!edited(Calls::new(), &[], Duration::from_millis(5_001)).holds());
    }
}
