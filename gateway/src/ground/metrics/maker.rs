//! Creates metrics of one registry, and keeps a list of their families.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
    core::{Collector, Desc},
    proto::MetricType,
};
use std::cell::RefCell;

/// A metric as it is registered, with or without series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in their order.
    pub labels: Vec<String>,
}

impl Family {
    fn of(collector: &impl Collector) -> Vec<Self> {
        let kinds = collector.collect().into_iter().map(|family| match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::HISTOGRAM => "histogram",
            _ => "gauge",
        });
        let described = collector.desc().into_iter().zip(kinds);
        let family = |(desc, kind): (&Desc, _)| Self {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
        };
        described.map(family).collect()
    }
}

/// Creates metrics of one registry with the gateway's prefix.
#[derive(Default)]
pub(super) struct Maker {
    pub(super) registry: Registry,
    pub(super) families: RefCell<Vec<Family>>,
}

impl Maker {
    pub(super) fn registered<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("the name and labels of a metric are constants that are valid");
        self.families.borrow_mut().extend(Family::of(&collector));
        self.registry.register(Box::new(collector.clone())).expect("every metric has a name of its own");
        collector
    }

    pub(super) fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("sluice_gateway_{name}"), help)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.registered(IntCounter::with_opts(Self::opts(name, help)))
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.registered(IntCounterVec::new(Self::opts(name, help), labels))
    }

    /// Counters by reason, all present from the start: `rate` misses the first value of a series that appears later.
    pub(super) fn by_reason(&self, name: &str, help: &str, reasons: &[&str]) -> IntCounterVec {
        let counters = self.counters(name, help, &["reason"]);
        for reason in reasons {
            counters.with_label_values(&[reason]);
        }
        counters
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.registered(IntGauge::with_opts(Self::opts(name, help)))
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.registered(IntGaugeVec::new(Self::opts(name, help), labels))
    }

    pub(super) fn real(&self, name: &str, help: &str) -> Gauge {
        self.registered(Gauge::with_opts(Self::opts(name, help)))
    }

    pub(super) fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.registered(GaugeVec::new(Self::opts(name, help), labels))
    }

    pub(super) fn seconds(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::new(format!("sluice_gateway_{name}"), help).buckets(buckets.to_vec());
        self.registered(Histogram::with_opts(opts))
    }
}
