//! The conditions of each pipeline as metrics: they show what is wrong also while no gateway runs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus::{GaugeVec, Opts, Registry};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Type, status and reason of one condition.
type Said = [String; 3];

/// One series for each condition with its current status and reason. Series of former values are removed.
#[derive(Debug)]
pub(super) struct ConditionMetrics {
    gauge: GaugeVec,
    /// The current series of each pipeline. Their number is bounded, since all reasons are constants of the operator.
    said: Mutex<HashMap<[String; 2], Vec<Said>>>,
}

impl ConditionMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let options = Opts::new(
            "sluice_operator_pipeline_condition",
            "1 for each condition of a pipeline, with its current status and reason.",
        );
        let gauge = GaugeVec::new(options, &["namespace", "name", "type", "status", "reason"])?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(Self { gauge, said: Mutex::default() })
    }

    pub(super) fn set(&self, of: [&str; 2], conditions: &[Condition]) {
        let now: Vec<Said> = conditions
            .iter()
            .map(|one| [one.type_.clone(), one.status.clone(), one.reason.clone()])
            .collect();
        let before = self.said().insert(of.map(str::to_owned), now.clone()).unwrap_or_default();
        for gone in before.iter().filter(|said| !now.contains(said)) {
            self.remove(of, gone);
        }
        for [kind, status, reason] in &now {
            self.gauge.with_label_values(&[of[0], of[1], kind, status, reason]).set(1.0);
        }
    }

    pub(super) fn forget(&self, of: [&str; 2]) {
        for said in self.said().remove(&of.map(str::to_owned)).unwrap_or_default() {
            self.remove(of, &said);
        }
    }

    fn remove(&self, [namespace, name]: [&str; 2], [kind, status, reason]: &Said) {
        // An error means that there was no such series.
        self.gauge.remove_label_values(&[namespace, name, kind, status, reason]).ok();
    }

    fn said(&self) -> MutexGuard<'_, HashMap<[String; 2], Vec<Said>>> {
        // If a thread panicked while it held the lock, at worst an outdated series stays.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use prometheus::{Encoder as _, TextEncoder};

    fn condition(kind: &str, status: &str, reason: &str) -> Condition {
        Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: reason.into(),
            status: status.into(),
            type_: kind.into(),
        }
    }

    #[test]
    fn a_condition_has_one_series_and_what_was_said_before_has_none() {
        let registry = Registry::new();
        let metrics = ConditionMetrics::new(&registry).unwrap();
        let text = || {
            let mut text = Vec::new();
            TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |kind: &str, status: &str, reason: &str| {
            format!(
                "sluice_operator_pipeline_condition{{name=\"prod\",namespace=\"tracing\",reason=\"{reason}\",\
                 status=\"{status}\",type=\"{kind}\"}} 1"
            )
        };
        let of = ["tracing", "prod"];
        metrics.set(of, &[condition("Ready", "True", "Running"), condition("Stalled", "False", "Ok")]);
        metrics.set(of, &[condition("Ready", "False", "RolledBack"), condition("Stalled", "False", "Ok")]);
        assert_eq!(text(), [line("Stalled", "False", "Ok"), line("Ready", "False", "RolledBack")]);
        metrics.forget(of);
        assert!(text().is_empty());
    }
}
