//! Creates metrics of one registry, and keeps a list of their families.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
    core::{Collector, Desc},
    proto::MetricType,
};
use std::cell::RefCell;

/// A registered metric, with or without series.
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

/// Creates metrics of one registry with the program's prefix.
pub(crate) struct Maker {
    prefix: &'static str,
    pub(crate) registry: Registry,
    pub(crate) families: RefCell<Vec<Family>>,
}

impl Default for Maker {
    fn default() -> Self {
        Self::with_prefix("sluice_gateway")
    }
}

impl Maker {
    /// Metrics whose names begin with this and an underscore.
    pub(crate) fn with_prefix(prefix: &'static str) -> Self {
        Self { prefix, registry: Registry::default(), families: RefCell::default() }
    }

    pub(crate) fn registered<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("the name and labels of a metric are constants that are valid");
        self.families.borrow_mut().extend(Family::of(&collector));
        self.registry.register(Box::new(collector.clone())).expect("every metric has a name of its own");
        collector
    }

    pub(super) fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(self.name(name), help)
    }

    fn name(&self, name: &str) -> String {
        format!("{}_{name}", self.prefix)
    }

    pub(crate) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.registered(IntCounter::with_opts(self.opts(name, help)))
    }

    pub(crate) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.registered(IntCounterVec::new(self.opts(name, help), labels))
    }

    /// Counters by reason, all present from the start: `rate` misses the first value of a series that appears later.
    pub(crate) fn by_reason(&self, name: &str, help: &str, reasons: &[&str]) -> IntCounterVec {
        let counters = self.counters(name, help, &["reason"]);
        for reason in reasons {
            counters.with_label_values(&[reason]);
        }
        counters
    }

    pub(crate) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.registered(IntGauge::with_opts(self.opts(name, help)))
    }

    pub(crate) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.registered(IntGaugeVec::new(self.opts(name, help), labels))
    }

    pub(crate) fn real(&self, name: &str, help: &str) -> Gauge {
        self.registered(Gauge::with_opts(self.opts(name, help)))
    }

    pub(crate) fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.registered(GaugeVec::new(self.opts(name, help), labels))
    }

    pub(crate) fn seconds(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::new(self.name(name), help).buckets(buckets.to_vec());
        self.registered(Histogram::with_opts(opts))
    }
}
