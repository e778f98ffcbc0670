//! Metrics of the delivery guarantee, and of what is in doubt.

use super::Maker;
use crate::ground::at_least_once::{Doubt, Reason};
use prometheus::{Gauge, IntCounter, IntGauge, IntGaugeVec};
use sluice_clickhouse::durability::{self, Durability, UNKNOWN};
use sluice_gateway_config::DeliveryState;

/// The label if every row is in the table once.
const EXACTLY_ONCE: &str = "exactly_once_effect";
/// The label if every row is in the table at least once.
const AT_LEAST_ONCE: &str = "at_least_once";
/// The reason label of `exactly_once_effect`.
const NO_REASON: &str = "none";

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct GuaranteeMetrics {
    guarantee: IntGaugeVec,
    durability: IntGaugeVec,
    /// Rows that may be in the table twice.
    pub possible_duplicate_rows: IntCounter,
    /// Blocks whose rows are in the table while a view below it may lack them.
    pub view_gaps: IntCounter,
    window_used: Gauge,
    in_doubt: IntGauge,
    oldest_in_doubt_seconds: Gauge,
}

impl GuaranteeMetrics {
    /// Creates and registers them. Initially, only "at least once" holds.
    pub(super) fn new(make: &Maker) -> Self {
        let metrics = Self {
            guarantee: make.gauges(
                "delivery_guarantee",
                "1 for the delivery guarantee that holds, with the reason if it is at_least_once.",
                &["guarantee", "reason"],
            ),
            durability: make.gauges(
                "durability",
                "1 for the failure that acknowledged rows survive: the weakest of all shards and servers.",
                &["durability"],
            ),
            possible_duplicate_rows: make.counter(
                "possible_duplicate_rows_total",
                "Rows sent again after the server may have forgotten their deduplication token, or after they may have been sent to another server; and rows of doubtful ranges.",
            ),
            view_gaps: make.counter(
                "view_gaps_total",
                "Blocks that are in the table and that materialized views below it have refused.",
            ),
            window_used: make.real(
                "dedup_window_used_ratio",
                "The largest share of its shard's deduplication window that a range in doubt has used.",
            ),
            in_doubt: make.gauge("in_doubt_ranges", "Ranges that were sent and may or may not be stored."),
            oldest_in_doubt_seconds: make.real(
                "oldest_in_doubt_seconds",
                "Seconds since the oldest range in doubt was sent; 0 without any.",
            ),
        };
        metrics.promise(Some(Reason::NotProbed));
        metrics.survives(None);
        metrics
    }

    /// Records the guarantee that holds: `None` is exactly once, otherwise the reason why it is not.
    pub fn promise(&self, reason: Option<Reason>) {
        let labels = match reason {
            None => [EXACTLY_ONCE, NO_REASON],
            Some(reason) => [AT_LEAST_ONCE, reason.label()],
        };
        // The new series first: a scrape in between sees two, never none.
        self.guarantee.with_label_values(&labels).set(1);
        let all = Reason::ALL.map(|reason| [AT_LEAST_ONCE, reason.label()]);
        for others in all.iter().chain([&[EXACTLY_ONCE, NO_REASON]]).filter(|others| **others != labels) {
            self.guarantee.with_label_values(others).set(0);
        }
    }

    /// Records the failures that acknowledged rows survive; `None` if unknown.
    pub fn survives(&self, known: Option<Durability>) {
        let label = durability::label(known);
        // The new series first, as above.
        self.durability.with_label_values(&[label]).set(1);
        let all = Durability::ALL.map(Durability::label).into_iter().chain([UNKNOWN]);
        for other in all.filter(|other| *other != label) {
            self.durability.with_label_values(&[other]).set(0);
        }
    }

    /// What is recorded. `None` while another thread changes the guarantee: never more than holds.
    pub(super) fn state(&self) -> Option<DeliveryState> {
        let holds = |labels: [&str; 2]| self.guarantee.with_label_values(&labels).get() == 1;
        let reason = Reason::ALL.into_iter().map(Reason::label).find(|reason| holds([AT_LEAST_ONCE, reason]));
        let is_once = reason.is_none() && holds([EXACTLY_ONCE, NO_REASON]);
        let guarantee = if is_once { EXACTLY_ONCE } else { AT_LEAST_ONCE };
        // Two for a moment, while it changes: the lesser one.
        let all = std::iter::once(UNKNOWN).chain(Durability::ALL.map(Durability::label));
        let durability = all.into_iter().find(|label| self.durability.with_label_values(&[label]).get() == 1);
        (is_once || reason.is_some()).then(|| DeliveryState {
            guarantee: guarantee.to_owned(),
            reason: reason.map(str::to_owned),
            durability: durability.map(str::to_owned),
        })
    }

    /// Records what is in doubt.
    pub fn doubt(&self, doubt: &Doubt) {
        self.in_doubt.set(i64::try_from(doubt.ranges).unwrap_or(i64::MAX));
        self.oldest_in_doubt_seconds.set(doubt.oldest.as_secs_f64());
        self.window_used.set(doubt.window_used_ratio);
    }
}
