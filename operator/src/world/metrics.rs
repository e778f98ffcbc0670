//! The operator's Prometheus metrics. Handles are made once, here. Labels come from closed sets, except namespace and name of a pipeline:
//! their series are removed when the pipeline is gone.

mod conditions;
mod kafka_clients;
pub mod resizes;
mod scaling;

pub use kafka_clients::KafkaClientMetrics;

use conditions::ConditionMetrics;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use resizes::ResizeMetrics;
use scaling::ScalingMetrics;
use sluice_crds::TracePipelineStatus;
use std::time::Duration;

/// Buckets for the duration of a reconcile, in seconds. The highest is the sum of the timeouts inside a reconcile.
const RECONCILE_SECONDS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// The operator's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconcile_total: IntCounterVec,
    reconcile_seconds: Histogram,
    errors_total: IntCounterVec,
    writes_total: IntCounterVec,
    leader: IntGauge,
    pipelines: IntGauge,
    lag: GaugeVec,
    failures: IntGaugeVec,
    watch_failing: IntGaugeVec,
    kafka_clients: KafkaClientMetrics,
    scaling: ScalingMetrics,
    resizes: ResizeMetrics,
    conditions: ConditionMetrics,
}

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The cluster is as the pipeline wants it.
    Done,
    /// Something outside is missing or in progress; the next reconcile follows soon.
    Waiting,
    /// The spec is invalid; nothing changes until the spec does.
    Refused,
    /// An error; the operator retries with a growing delay.
    Failed,
    /// Skipped: the watches have not listed yet.
    Unlisted,
    /// Another operator looks after the pipeline, or the operator has only written whether it does.
    Left,
}

impl ReconcileResult {
    const ALL: [Self; 6] =
        [Self::Done, Self::Waiting, Self::Refused, Self::Failed, Self::Unlisted, Self::Left];

    fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unlisted => "unlisted",
            Self::Left => "left",
        }
    }
}

impl Metrics {
    /// Creates and registers all metrics, with every label of the closed sets at zero.
    ///
    /// # Errors
    /// Never in practice: names are constants and registered once. Prometheus has no infallible form.
    pub fn new(version: &str, error_reasons: &[&str]) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let reconcile_total =
            counter("sluice_operator_reconcile_total", "Reconciles by result.", &["result"])?;
        let errors_total =
            counter("sluice_operator_errors_total", "Failed reconciles by error class.", &["reason"])?;
        let writes_total = counter(
            "sluice_operator_writes_total",
            "Write requests to the API server by object; writes of the Lease are not counted.",
            &["object"],
        )?;
        for result in ReconcileResult::ALL {
            reconcile_total.with_label_values(&[result.label()]);
        }
        for reason in error_reasons {
            errors_total.with_label_values(&[reason]);
        }
        build_info(&registry, version)?;
        Ok(Self {
            reconcile_seconds: reconcile_seconds(&registry)?,
            leader: gauge("sluice_operator_leader", "1 while this process holds the Lease.")?,
            pipelines: gauge("sluice_operator_pipelines", "TracePipelines that the operator manages.")?,
            lag: lag(&registry)?,
            failures: failures(&registry)?,
            watch_failing: watch_failing(&registry)?,
            kafka_clients: KafkaClientMetrics::new(&registry)?,
            scaling: ScalingMetrics::new(&registry)?,
            resizes: ResizeMetrics::new(&registry)?,
            conditions: ConditionMetrics::new(&registry)?,
            reconcile_total,
            errors_total,
            writes_total,
            registry,
        })
    }

    /// Counts one reconcile.
    pub fn reconciled(&self, result: ReconcileResult, took: Duration) {
        self.reconcile_total.with_label_values(&[result.label()]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Counts one failed reconcile under the class of its error.
    pub fn failed(&self, reason: &'static str) {
        self.errors_total.with_label_values(&[reason]).inc();
    }

    /// Counts one write request.
    pub fn wrote(&self, object: &'static str) {
        self.writes_total.with_label_values(&[object]).inc();
    }

    /// Number of write requests, of all objects.
    pub fn writes(&self) -> u64 {
        use prometheus::core::Collector;
        let families = self.writes_total.collect();
        // Counters are whole numbers; the exposition type is a float.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        families
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|metric| metric.get_counter().get_value() as u64)
            .sum()
    }

    /// Sets whether this process holds the Lease.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Sets the number of managed pipelines.
    pub fn set_pipelines(&self, count: usize) {
        self.pipelines.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the lag of one pipeline, in messages.
    pub fn set_lag(&self, namespace: &str, name: &str, messages: u64) {
        // A gauge is a float: a lag above 2^53 messages loses its last digits, which does not matter.
        #[expect(clippy::cast_precision_loss)]
        self.lag.with_label_values(&[namespace, name]).set(messages as f64);
    }

    /// Sets the number of consecutive failed reconciles of one pipeline.
    pub fn set_failures(&self, (namespace, name): (&str, &str), count: u32) {
        self.failures.with_label_values(&[namespace, name]).set(count.into());
    }

    /// Adds to the failing watches of this kind: 1 when one begins to fail, -1 when it works again, 0 to create the series.
    pub fn add_failing_watches(&self, kind: &str, more: i64) {
        self.watch_failing.with_label_values(&[kind]).add(more);
    }

    /// Metric handles of the Kafka clients.
    pub fn kafka_clients(&self) -> KafkaClientMetrics {
        self.kafka_clients.clone()
    }

    /// Sets the scaling metrics of a pipeline from its status, and counts its memory resizes.
    pub fn set_scaling(
        &self,
        (namespace, name): (&str, &str),
        before: &TracePipelineStatus,
        after: &TracePipelineStatus,
    ) {
        self.scaling.set([namespace, name], before, after);
        self.resizes.count([namespace, name], before, after);
    }

    /// Sets the conditions of a pipeline.
    pub fn set_conditions(&self, (namespace, name): (&str, &str), conditions: &[Condition]) {
        self.conditions.set([namespace, name], conditions);
    }

    /// Removes the series of a pipeline that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.scaling.forget([namespace, name]);
        self.resizes.forget([namespace, name]);
        self.conditions.forget([namespace, name]);
        // An error means that there was no such series.
        self.lag.remove_label_values(&[namespace, name]).ok();
        self.failures.remove_label_values(&[namespace, name]).ok();
    }

    /// The text that `/metrics` serves.
    ///
    /// # Errors
    /// If a metric cannot be written as text, which would be a bug of the operator.
    pub fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

fn reconcile_seconds(registry: &Registry) -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts::new("sluice_operator_reconcile_seconds", "Duration of a reconcile.")
        .buckets(RECONCILE_SECONDS.to_vec());
    let family = HistogramVec::new(options, &[])?;
    registry.register(Box::new(family.clone()))?;
    Ok(family.with_label_values::<&str>(&[]))
}

fn lag(registry: &Registry) -> Result<GaugeVec, prometheus::Error> {
    let options = Opts::new("sluice_operator_pipeline_lag_messages", "Lag of a pipeline in messages.");
    let metric = GaugeVec::new(options, &["namespace", "name"])?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn failures(registry: &Registry) -> Result<IntGaugeVec, prometheus::Error> {
    let options = Opts::new(
        "sluice_operator_pipeline_failed_reconciles",
        "Consecutive failed reconciles of a pipeline; 0 after a success.",
    );
    let metric = IntGaugeVec::new(options, &["namespace", "name"])?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn watch_failing(registry: &Registry) -> Result<IntGaugeVec, prometheus::Error> {
    let options = Opts::new("sluice_operator_watch_failing", "Failing watches by kind of object.");
    let metric = IntGaugeVec::new(options, &["kind"])?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn build_info(registry: &Registry, version: &str) -> Result<(), prometheus::Error> {
    let metric = IntGaugeVec::new(
        Opts::new("sluice_operator_build_info", "Always 1; the label is the operator's version."),
        &["version"],
    )?;
    registry.register(Box::new(metric.clone()))?;
    metric.with_label_values(&[version]).set(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use prometheus::proto::LabelPair;
    use sluice_crds::{MemoryResize, MemoryResizeState, ScalingStatus, VolumesStatus};
    use std::collections::BTreeMap;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().unwrap()).unwrap()
    }

    #[test]
    fn every_label_of_the_closed_sets_is_there_from_the_start() {
        let text = text(&Metrics::new("1.2.3", &["conflict"]).unwrap());
        for line in [
            "sluice_operator_reconcile_total{result=\"refused\"} 0",
            "sluice_operator_errors_total{reason=\"conflict\"} 0",
            "sluice_operator_build_info{version=\"1.2.3\"} 1",
            "sluice_operator_leader 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn a_pipeline_that_is_gone_leaves_no_series() {
        let metrics = Metrics::new("1", &[]).unwrap();
        metrics.set_lag("tracing", "prod", 12);
        metrics.set_failures(("tracing", "prod"), 3);
        let status = TracePipelineStatus { desired_replicas: Some(3), ..TracePipelineStatus::default() };
        metrics.set_scaling(("tracing", "prod"), &TracePipelineStatus::default(), &status);
        let line = "sluice_operator_pipeline_lag_messages{name=\"prod\",namespace=\"tracing\"} 12";
        assert!(text(&metrics).contains(line));
        metrics.forget("tracing", "prod");
        assert!(!text(&metrics).contains("prod"));
    }

    /// Rows of the table that describe the operator's metrics: name with type, unit and labels.
    fn rows() -> BTreeMap<&'static str, [&'static str; 3]> {
        const TABLE: &str = include_str!("../../../config/prometheus/METRICS.md");
        let rows = TABLE.lines().filter_map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, name, kind, unit, labels, meaning, _] = cells[..] else { return None };
            let name = name.trim_matches('`');
            let is_ours = name.starts_with("sluice_operator_");
            assert!(!is_ours || meaning.ends_with('.'), "{name} has no meaning: {meaning}");
            is_ours.then_some((name, [kind, unit, labels]))
        });
        rows.collect()
    }

    /// Every metric with a series of it.
    fn all() -> Metrics {
        let metrics = Metrics::new("1", &["conflict"]).unwrap();
        let scaling = ScalingStatus {
            recommended_replicas: Some(2),
            arrival_rate: Some(1),
            capacity_per_replica: Some(1),
            lag_seconds: Some(1),
            ..ScalingStatus::default()
        };
        let resize = MemoryResize {
            pod: "prod-gateway-0".into(),
            uid: "u".into(),
            memory: "320Mi".into(),
            ends: 1,
            state: MemoryResizeState::Done,
            message: String::new(),
        };
        let of = |desired| TracePipelineStatus {
            memory_resizes: if desired == 2 { vec![resize.clone()] } else { Vec::new() },
            ready_replicas: Some(1),
            desired_replicas: Some(desired),
            scaling: Some(scaling.clone()),
            volumes: Some(VolumesStatus::default()),
            ..TracePipelineStatus::default()
        };
        metrics.set_scaling(("tracing", "prod"), &of(1), &of(2));
        metrics.set_lag("tracing", "prod", 1);
        metrics.set_failures(("tracing", "prod"), 1);
        metrics.add_failing_watches("Pod", 0);
        let ready = Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: "Running".into(),
            status: "True".into(),
            type_: "Ready".into(),
        };
        metrics.set_conditions(("tracing", "prod"), &[ready]);
        metrics.wrote("ConfigMap");
        metrics
    }

    #[test]
    fn the_table_of_metrics_is_what_is_exported() {
        let metrics = all();
        let mut rows = rows();
        let families = metrics.registry.gather();
        for family in &families {
            let name = family.name();
            let Some([kind, unit, labels]) = rows.remove(name) else {
                panic!("config/prometheus/METRICS.md has no row for {name}");
            };
            let mut told: Vec<_> = labels.split(", ").map(|label| label.trim_matches('`')).collect();
            told.retain(|label| !label.is_empty());
            told.sort_unstable();
            let found: Vec<_> = family.get_metric()[0].get_label().iter().map(LabelPair::name).collect();
            assert_eq!(told, found, "{name}");
            assert_eq!(kind.to_uppercase(), format!("{:?}", family.get_field_type()), "{name}");
            assert!(!unit.is_empty() && (!name.ends_with("_seconds") || unit == "seconds"), "{name}: {unit}");
        }
        assert!(
            rows.is_empty(),
            "config/prometheus/METRICS.md names what nothing exports: {:?}",
            rows.keys()
        );
        // One without a series in `all` would not be gathered: every name that this file makes must be among them.
        let source = include_str!("metrics.rs").split("#[cfg(test)]").next().unwrap();
        for name in source.split("\"sluice_operator_").skip(1).filter_map(|rest| rest.split('"').next()) {
            let name = format!("sluice_operator_{name}");
            assert!(families.iter().any(|family| family.name() == name), "`all` makes no series of {name}");
        }
    }

    #[test]
    fn writes_are_summed_over_all_objects() {
        let metrics = Metrics::new("1", &[]).unwrap();
        metrics.wrote("ConfigMap");
        metrics.wrote("status");
        metrics.wrote("status");
        assert_eq!(metrics.writes(), 3);
    }
}
