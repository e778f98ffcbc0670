//! Metrics by service: the largest ones, and all others as one. They are put together at a scrape.

use super::Maker;
use crate::rows::services::{Largest, OTHER, Services};
use prometheus::{
    IntCounterVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use sluice_gateway_config::{OtherServices, ServiceVolume, ServiceVolumes};
use std::sync::{Arc, Mutex, PoisonError};

/// Writes the counts of services as series.
#[derive(Clone)]
struct ServiceCollector {
    services: Arc<Services>,
    /// Spans and bytes of the last scrape; one scrape at a time.
    series: Arc<Mutex<[IntCounterVec; 2]>>,
    descriptions: Vec<Desc>,
}

/// Creates and registers the metrics; workers count into what it returns.
pub(super) fn services(make: &Maker) -> Arc<Services> {
    let services = Arc::new(Services::default());
    let series = [
        ("service_spans_total", "Spans of the services with the most bytes; all others are one."),
        ("service_row_bytes_total", "Bytes of the rows of these services, before compression."),
    ]
    .map(|(name, help)| of_service(make.opts(name, help)));
    let descriptions = series.iter().flat_map(Collector::desc).cloned().collect();
    let collector =
        ServiceCollector { services: services.clone(), series: Arc::new(Mutex::new(series)), descriptions };
    make.registered(Ok(collector));
    services
}

fn of_service(opts: Opts) -> IntCounterVec {
    IntCounterVec::new(opts, &["service_name"])
        .expect("the name and the label of a metric are constants that are valid")
}

impl Collector for ServiceCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Largest { services, other, .. } = self.services.look();
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let [spans, bytes] = &*series;
        // A service that is no longer among the largest has no series.
        spans.reset();
        bytes.reset();
        let named = services.iter().map(|(name, volume)| (&**name, *volume));
        for (name, volume) in named.chain([(OTHER, other)]) {
            spans.with_label_values(&[name]).inc_by(volume.spans);
            bytes.with_label_values(&[name]).inc_by(volume.row_bytes);
        }
        series.iter().flat_map(Collector::collect).collect()
    }
}

/// The largest services in the state.
pub(super) fn state(services: &Services) -> ServiceVolumes {
    let Largest { services, rest, .. } = services.look();
    let volume = |(name, volume): (Arc<str>, crate::rows::services::Volume)| ServiceVolume {
        name: name.to_string(),
        spans: volume.spans,
        row_bytes: volume.row_bytes,
    };
    ServiceVolumes {
        largest: services.into_iter().map(volume).collect(),
        other: OtherServices { spans: rest.spans, row_bytes: rest.row_bytes },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ground::metrics::reference, rows::services::ServiceTally};
    use sluice_clickhouse::row_frames::RowTotals;

    #[test]
    fn services_are_series_and_part_of_the_state() {
        let metrics = reference::metrics();
        let mut tally = ServiceTally::new(metrics.services.clone());
        tally.begin();
        tally.resource(b"shop \"1\"", RowTotals { rows: 0, raw_bytes: 0 });
        tally.resource(OTHER.as_bytes(), RowTotals { rows: 2, raw_bytes: 20 });
        tally.commit(RowTotals { rows: 3, raw_bytes: 25 });
        for _ in 0..2 {
            let text = metrics.text().unwrap();
            for line in [
                "sluice_gateway_service_spans_total{service_name=\"shop \\\"1\\\"\"} 2",
                "sluice_gateway_service_spans_total{service_name=\"other\"} 1",
                "sluice_gateway_service_row_bytes_total{service_name=\"shop \\\"1\\\"\"} 20",
                "sluice_gateway_service_row_bytes_total{service_name=\"other\"} 5",
            ] {
                assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
            }
        }
        let ServiceVolumes { largest, other } = metrics.sample().services.unwrap();
        assert_eq!((largest.len(), largest[0].spans, other.row_bytes), (1, 2, 5));
    }
}
