//! Metrics from a pipeline's status: the number of gateways and its cause, and volumes without a gateway.

use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};
use sluice_crds::{ScalingStatus, TracePipelineStatus};
use sluice_plan::scale::{Cause, Hold};
use std::cmp::Ordering;

const UP: &str = "up";
const DOWN: &str = "down";

/// A number of a status.
type Read = fn(&TracePipelineStatus) -> Option<f64>;

/// Names, help and values of the gauges that have only the pipeline as labels.
const GAUGES: [(&str, &str, Read); 8] = [
    ("ready_replicas", "Ready gateways.", |status| status.ready_replicas.map(f64::from)),
    ("desired_replicas", "Desired gateways.", |status| status.desired_replicas.map(f64::from)),
    (
        "recommended_replicas",
        "Gateways that the load needs, whether or not the operator scales to it.",
        |status| scaling(status)?.recommended_replicas.map(f64::from),
    ),
    ("leaving_replicas", "Gateways that drain before they are removed.", |status| {
        let drain = scaling(status).and_then(|scaling| scaling.drain.as_ref());
        Some(drain.map_or(0.0, |drain| f64::from(drain.from.saturating_sub(drain.target))))
    }),
    (
        "arrival_messages_per_second",
        "Messages per second that arrive in a pipeline's topics, two significant digits.",
        |status| scaling(status)?.arrival_rate.map(float),
    ),
    (
        "capacity_messages_per_second",
        "Learned capacity of one gateway in messages per second, two significant digits.",
        |status| scaling(status)?.capacity_per_replica.map(float),
    ),
    ("lag_seconds", "Lag in seconds of arrivals, two significant digits.", |status| {
        scaling(status)?.lag_seconds.map(float)
    }),
    ("orphaned_volumes", "Queue volumes that no gateway uses and that may hold blocks.", |status| {
        Some(f64::from(status.volumes.as_ref()?.orphaned))
    }),
];

/// The metrics. The series of a pipeline are removed with it.
#[derive(Debug)]
pub(super) struct ScalingMetrics {
    gauges: Vec<(GaugeVec, Read)>,
    cause: GaugeVec,
    held: GaugeVec,
    rescales: IntCounterVec,
}

impl ScalingMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let metric = GaugeVec::new(Opts::new(format!("sluice_operator_pipeline_{name}"), help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let rescales = IntCounterVec::new(
            Opts::new(
                "sluice_operator_pipeline_rescales_total",
                "Changes of the desired number of gateways.",
            ),
            &["namespace", "name", "direction"],
        )?;
        registry.register(Box::new(rescales.clone()))?;
        let gauges = GAUGES
            .into_iter()
            .map(|(name, help, read)| Ok((gauge(name, help, &["namespace", "name"])?, read)))
            .collect::<Result<_, prometheus::Error>>()?;
        Ok(Self {
            gauges,
            cause: gauge(
                "scaling_cause",
                "1 for the cause of present or expected lag, 0 for the other causes.",
                &["namespace", "name", "cause"],
            )?,
            held: gauge(
                "scaling_held",
                "1 for the reason that keeps the number of gateways, 0 for the other reasons.",
                &["namespace", "name", "reason"],
            )?,
            rescales,
        })
    }

    /// Sets the metrics from the status `after`, and counts rescales since the status `before`. An unknown number has no series.
    pub(super) fn set(&self, of: [&str; 2], before: &TracePipelineStatus, after: &TracePipelineStatus) {
        for (gauge, read) in &self.gauges {
            match read(after) {
                Some(number) => gauge.with_label_values(&of).set(number),
                None => absent(gauge.remove_label_values(&of)),
            }
        }
        self.count(of, before.desired_replicas, after.desired_replicas);
        let (cause, held) = scaling(after)
            .map_or((None, None), |scaling| (scaling.cause.as_deref(), scaling.held.as_deref()));
        choose(&self.cause, of, cause, &Cause::ALL.map(Cause::word));
        choose(&self.held, of, held, &Hold::ALL.map(Hold::word));
    }

    pub(super) fn forget(&self, of: [&str; 2]) {
        let [namespace, name] = of;
        for (gauge, _) in &self.gauges {
            absent(gauge.remove_label_values(&of));
        }
        for word in Cause::ALL.map(Cause::word) {
            absent(self.cause.remove_label_values(&[namespace, name, word]));
        }
        for word in Hold::ALL.map(Hold::word) {
            absent(self.held.remove_label_values(&[namespace, name, word]));
        }
        for direction in [UP, DOWN] {
            absent(self.rescales.remove_label_values(&[namespace, name, direction]));
        }
    }

    fn count(&self, [namespace, name]: [&str; 2], before: Option<u32>, after: Option<u32>) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let direction = match after.cmp(&before) {
            Ordering::Greater => UP,
            Ordering::Less => DOWN,
            Ordering::Equal => return,
        };
        self.rescales.with_label_values(&[namespace, name, direction]).inc();
    }
}

fn scaling(status: &TracePipelineStatus) -> Option<&ScalingStatus> {
    status.scaling.as_ref()
}

/// Sets the series of one word to 1 and those of the others to 0.
fn choose(gauge: &GaugeVec, [namespace, name]: [&str; 2], said: Option<&str>, words: &[&str]) {
    for word in words {
        let is_said = said == Some(*word);
        gauge.with_label_values(&[namespace, name, word]).set(f64::from(u8::from(is_said)));
    }
}

/// Ignores the error of a removal, which means that there was no such series.
fn absent(_removed: Result<(), prometheus::Error>) {}

/// A number of a status as a float.
#[expect(clippy::cast_precision_loss, reason = "numbers of two significant digits")]
fn float(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Encoder as _, TextEncoder};
    use sluice_crds::VolumesStatus;

    fn status(desired: u32, cause: &str) -> TracePipelineStatus {
        let scaling = ScalingStatus {
            recommended_replicas: Some(desired + 1),
            lag_seconds: Some(12),
            cause: Some(cause.into()),
            ..ScalingStatus::default()
        };
        let volumes = VolumesStatus { orphaned: 1, ..VolumesStatus::default() };
        TracePipelineStatus {
            desired_replicas: Some(desired),
            scaling: Some(scaling),
            volumes: Some(volumes),
            ..TracePipelineStatus::default()
        }
    }

    fn text(registry: &Registry) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_status_is_told_and_a_rescale_counted_once() {
        let registry = Registry::new();
        let metrics = ScalingMetrics::new(&registry).unwrap();
        let of = ["tracing", "prod"];
        let (two, four) = (status(2, "ComputeLimited"), status(4, "SinkLimited"));
        metrics.set(of, &two, &two);
        metrics.set(of, &two, &four);
        metrics.set(of, &four, &four);
        let told = text(&registry);
        for line in [
            r#"sluice_operator_pipeline_desired_replicas{name="prod",namespace="tracing"} 4"#,
            r#"sluice_operator_pipeline_recommended_replicas{name="prod",namespace="tracing"} 5"#,
            r#"sluice_operator_pipeline_leaving_replicas{name="prod",namespace="tracing"} 0"#,
            r#"sluice_operator_pipeline_lag_seconds{name="prod",namespace="tracing"} 12"#,
            r#"sluice_operator_pipeline_orphaned_volumes{name="prod",namespace="tracing"} 1"#,
            r#"sluice_operator_pipeline_scaling_cause{cause="SinkLimited",name="prod",namespace="tracing"} 1"#,
            r#"sluice_operator_pipeline_scaling_cause{cause="ComputeLimited",name="prod",namespace="tracing"} 0"#,
            r#"sluice_operator_pipeline_rescales_total{direction="up",name="prod",namespace="tracing"} 1"#,
        ] {
            assert!(told.contains(line), "{line} is missing in\n{told}");
        }
        assert!(!told.contains("arrival_messages"), "what is not known is not told\n{told}");
        metrics.forget(of);
        assert!(!text(&registry).contains("prod"));
    }
}
