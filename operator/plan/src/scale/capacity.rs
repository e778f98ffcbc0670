//! What one gateway can process, learned from what its workers did with their time.
//!
//! Messages by busy second is what a gateway could do if it never waited. Nothing is learned while it waits for
//! ClickHouse or is idle: blocks are then smaller, and a second holds more than work.

use super::{numbers, window::PodRates};

/// Nothing is learned from a gateway that is busy for a smaller share of the time.
const BUSY_MIN: f64 = 0.15;
/// As long as nothing is known, that is learned too: it is too little rather than too much.
const BUSY_MIN_FIRST: f64 = 0.02;
/// Nothing is learned from a gateway that waits for ClickHouse for a larger share of the time.
const SINK_MAX: f64 = 0.2;
/// A gateway that waits for messages for a smaller share is full: what it does is what it can.
pub const FULL: f64 = 0.05;
/// Weight of a new measurement: half of what is known is older than 45 s.
const WEIGHT: f64 = 0.2;
/// Pods from slow to fast; the capacity is that of the one a quarter of the way, as partitions go to the slow ones too.
const QUARTILE: usize = 4;

/// What the pods show now, in messages a second; `None` when nothing can be learned.
fn measured(pods: &[PodRates], busy_min: f64) -> Option<f64> {
    let mut each: Vec<f64> = pods.iter().filter_map(|pod| of_pod(pod, busy_min)).collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / QUARTILE).copied()
}

fn of_pod(pod: &PodRates, busy_min: f64) -> Option<f64> {
    if pod.busy < busy_min || pod.sink > SINK_MAX || pod.rate <= 0.0 {
        return None;
    }
    let possible = pod.rate / pod.busy;
    Some(if pod.source < FULL { possible.min(pod.rate) } else { possible })
}

/// What is known after the pods were seen, in whole messages a second.
pub fn learned(known: Option<f64>, pods: &[PodRates]) -> Option<f64> {
    let Some(known) = known else { return measured(pods, BUSY_MIN_FIRST).map(f64::round) };
    let measured = measured(pods, BUSY_MIN);
    Some(measured.map_or(known, |measured| numbers::blend(known, measured, WEIGHT).round()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(rate: f64, busy: f64, sink: f64) -> PodRates {
        PodRates { rate, busy, sink, source: (1.0 - busy - sink).max(0.0), ..PodRates::default() }
    }

    #[test]
    fn capacity_is_learned_only_from_work() {
        for (pods, expected) in [
            (vec![], None),
            (vec![pod(5_000.0, 0.5, 0.0)], Some(10_000.0)),
            (vec![pod(500.0, 0.05, 0.0)], None),
            (vec![pod(5_000.0, 0.5, 0.5)], None),
            (vec![pod(9_000.0, 0.9, 0.1)], Some(9_000.0)),
            // The slow one counts, not the mean.
            (vec![pod(8_000.0, 0.5, 0.0), pod(4_000.0, 0.5, 0.0), pod(8_000.0, 0.5, 0.0)], Some(8_000.0)),
        ] {
            assert_eq!(measured(&pods, BUSY_MIN), expected, "{pods:?}");
        }
    }

    #[test]
    fn one_measurement_moves_what_is_known_by_a_fifth() {
        assert_eq!(learned(None, &[pod(100.0, 0.05, 0.0)]), Some(2_000.0), "idle is better than unknown");
        assert_eq!(learned(Some(100.0), &[pod(100.0, 0.05, 0.0)]), Some(100.0));
        assert_eq!(learned(Some(100.0), &[pod(100.0, 0.5, 0.0)]), Some(120.0));
    }
}
