//! What the metrics say to the operator in the answer to `GET /state`. No disk and no lock that is held for long: an I/O thread may call it.
//!
//! What metrics copy from elsewhere at a scrape is not taken from here: `admin::state` reads it where it is.

use super::{Metrics, ROW_REFUSED, services};
use prometheus::{
    IntCounterVec,
    core::Collector as _,
    proto::{LabelPair, Metric, MetricFamily},
};
use sluice_clickhouse::outcome::Class;
use sluice_gateway_config::GatewaySample;
use std::collections::BTreeSet;

impl Metrics {
    /// The fields that these metrics count. All other fields have their defaults.
    pub fn sample(&self) -> GatewaySample {
        let mut sample = GatewaySample {
            dead_letters_refused: sum(&self.dead_letters_refused),
            requests_refused: self.requests.refused_for_want(),
            rows_inserted: self.rows_inserted.get(),
            rows_refused: self.dead_letters.with_label_values(&[ROW_REFUSED]).get(),
            blocks_inserted: Some(self.blocks_inserted.get()),
            insert_error: self.insert_error.state(),
            sink_behind: Some(self.sink_behind.get() > 0),
            delivery: self.guarantee.state(),
            table_parts: self.table_parts.state(),
            services: Some(services::state(&self.services)),
            memory_limit_bytes: Some(self.memory_limit_bytes),
            ..GatewaySample::default()
        };
        self.messages.fill(&mut sample);
        self.fill_failures(&mut sample);
        self.fill_workers(&mut sample);
        sample
    }

    fn fill_failures(&self, sample: &mut GatewaySample) {
        for class in Class::ALL {
            let failures = self.insert_failures.with_label_values(&[class.label()]).get();
            match class {
                Class::Poison | Class::Split => sample.insert_failures_of_rows += failures,
                Class::Done
                | Class::Retry
                | Class::BackPressure
                | Class::InDoubt
                | Class::RefreshSchema
                | Class::Halt => sample.insert_failures += failures,
            }
        }
    }

    fn fill_workers(&self, sample: &mut GatewaySample) {
        let families = self.worker_seconds.collect();
        let series = || families.iter().flat_map(MetricFamily::get_metric);
        let of = |state: &str| {
            let values = series().filter(|one| label(one, "state") == Some(state));
            values.map(|one| one.get_counter().get_value()).reduce(|sum, seconds| sum + seconds)
        };
        (sample.busy_seconds, sample.source_seconds) = (of("busy"), of("source"));
        let workers: BTreeSet<&str> = series().filter_map(|one| label(one, "worker")).collect();
        sample.workers = u32::try_from(workers.len()).unwrap_or(u32::MAX);
    }
}

fn label<'a>(series: &'a Metric, name: &str) -> Option<&'a str> {
    series.get_label().iter().find(|label| label.name() == name).map(LabelPair::value)
}

/// The sum over all labels.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter of whole numbers")]
fn sum(of: &IntCounterVec) -> u64 {
    let values = of.collect();
    let values = values.iter().flat_map(MetricFamily::get_metric).map(|one| one.get_counter().get_value());
    values.map(|value| value as u64).sum()
}
