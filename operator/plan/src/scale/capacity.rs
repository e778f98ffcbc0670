//! What one gateway can process, learned from what its workers did with their time.
//!
//! Messages per busy second are what a gateway could do if it never waited. Nothing is learned while it waits for ClickHouse or is idle,
//! because blocks are smaller then, and a second holds more than work. Nothing is learned while its blocks wait either, as on a queue
//! volume: a worker without messages does not count as waiting for them then, so the gateway would look full at any rate.

use super::{numbers, window::PodRates};

/// Nothing is learned from a gateway that is busy for a smaller share of the time.
const BUSY_MIN: f64 = 0.15;
/// While no capacity is known, this smaller share is enough: the result is too low rather than too high.
const BUSY_MIN_FIRST: f64 = 0.02;
/// Nothing is learned from a gateway that waits for ClickHouse for a larger share of the time.
const SINK_MAX: f64 = 0.2;
/// A gateway that waits for messages for a smaller share is full: what it does is what it can.
pub const FULL: f64 = 0.05;
/// Weight of a new measurement: half of what is known is older than 45 s.
pub const WEIGHT: f64 = 0.2;
/// A gateway does at least so many messages a second, one in a quarter of an hour: with nothing, no number of them would do.
pub const CAPACITY_MIN: f64 = 0.001;
/// A gateway that is busy for a smaller share of the time makes smaller blocks, and looks slower than it is.
const BUSY_HALF: f64 = 0.5;
/// By up to this share: so much less is no news of it.
const IDLE_COST: f64 = 0.1;
/// Pods from slow to fast; the capacity is that of the one a quarter of the way, as partitions go to the slow ones too.
const QUARTILE: usize = 4;

/// What the pods show now, in messages a second; `None` when nothing can be learned.
fn measured(known: Option<f64>, pods: &[PodRates], busy_min: f64) -> Option<f64> {
    let is_news = |pod: &PodRates, shown: f64| {
        let is_little_less = |known: f64| (known * (1.0 - IDLE_COST)..=known).contains(&shown);
        pod.busy >= BUSY_HALF || !known.is_some_and(is_little_less)
    };
    let shown = |pod| of_pod(pod, busy_min).filter(|shown| is_news(pod, *shown));
    let mut each: Vec<f64> = pods.iter().filter_map(shown).collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / QUARTILE).copied()
}

fn of_pod(pod: &PodRates, busy_min: f64) -> Option<f64> {
    if pod.busy < busy_min || pod.sink > SINK_MAX || pod.behind || pod.rate <= 0.0 {
        return None;
    }
    let possible = pod.rate / pod.busy;
    Some(if pod.source < FULL { possible.min(pod.rate) } else { possible })
}

/// What the pods show now that is worth learning, in messages a second. Not rounded: large messages are few.
pub fn shown(known: Option<f64>, pods: &[PodRates]) -> Option<f64> {
    measured(known, pods, if known.is_some() { BUSY_MIN } else { BUSY_MIN_FIRST })
}

/// What is known after that.
pub fn learned(known: Option<f64>, shown: f64) -> f64 {
    let learned = known.map_or(shown, |known| numbers::blend(known, shown, WEIGHT));
    numbers::written(learned).max(CAPACITY_MIN)
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
            assert_eq!(measured(None, &pods, BUSY_MIN), expected, "{pods:?}");
        }
    }

    #[test]
    fn nothing_is_learned_while_blocks_wait() {
        let spills = PodRates { behind: true, source: 0.0, ..pod(8_000.0, 0.82, 0.18) };
        assert_eq!(measured(None, &[spills], BUSY_MIN), None);
    }

    #[test]
    fn a_gateway_that_is_half_idle_teaches_no_small_losses() {
        for (busy, possible, expected) in
            [(0.3, 95.0, None), (0.3, 85.0, Some(85.0)), (0.3, 105.0, Some(105.0)), (0.6, 95.0, Some(95.0))]
        {
            let shown = shown(Some(100.0), &[pod(possible * busy, busy, 0.0)]);
            assert_eq!(shown.map(f64::round), expected, "{possible} at {busy}");
        }
    }

    fn after(known: Option<f64>, pods: &[PodRates]) -> Option<f64> {
        shown(known, pods).map(|shown| learned(known, shown)).or(known)
    }

    #[test]
    fn one_measurement_moves_what_is_known_by_a_fifth() {
        assert_eq!(after(None, &[pod(100.0, 0.05, 0.0)]), Some(2_000.0), "idle is better than unknown");
        assert_eq!(after(Some(100.0), &[pod(100.0, 0.05, 0.0)]), Some(100.0));
        assert_eq!(after(Some(100.0), &[pod(100.0, 0.5, 0.0)]), Some(120.0));
    }

    #[test]
    fn few_messages_a_second_are_learned_as_exactly_as_many() {
        for (first, then) in [(3.0, 1.0), (0.02, 0.4), (1_000.0, 1_001.0)] {
            let mut known = after(None, &[pod(first / 2.0, 0.5, 0.0)]);
            assert_eq!(known, Some(first));
            for _ in 0..60 {
                known = after(known, &[pod(then / 2.0, 0.5, 0.0)]);
            }
            assert!((known.unwrap() - then).abs() < then / 1_000.0, "{known:?}");
        }
        assert_eq!(after(None, &[pod(1e-9, 0.9, 0.0)]), Some(CAPACITY_MIN));
    }
}
