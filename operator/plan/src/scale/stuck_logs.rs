//! Gateways with `source.otlp` that insert nothing of what is in their logs, while other gateways insert.
//!
//! No other gateway reads these logs. So what waits there is no reason for more gateways, and a failure to insert it says nothing of
//! ClickHouse.

use super::{
    logs::GatewayLogs,
    sample::{History, PodSample},
    window::began_anew,
};

/// Nothing was inserted for so many seconds. Chosen: twice as long as a block stays open at the most.
const STAND_SECONDS: u32 = 120;

/// A gateway that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckLog {
    /// Its number.
    pub ordinal: u32,
    /// Messages in its logs that are not committed.
    pub waiting: u64,
}

/// Those of the newest sample, by number. Where no log advances, the cause is not a log.
pub fn stuck(history: &History) -> Vec<StuckLog> {
    let Some(last) = history.last() else { return Vec::new() };
    let seconds = f64::from(STAND_SECONDS);
    let before = history.before(STAND_SECONDS).filter(|before| last.at.seconds_since(before.at) >= seconds);
    let Some(before) = before else { return Vec::new() };
    let then = |pod: &PodSample| {
        let old = before.pods.iter().find(|old| old.ordinal == pod.ordinal)?;
        old.logs.filter(|_| !began_anew(old, pod))
    };
    let both = last.pods.iter().filter_map(|pod| Some((pod.ordinal, then(pod)?, pod.logs?)));
    let both: Vec<(u32, GatewayLogs, GatewayLogs)> = both.collect();
    if !both.iter().any(|(_, then, now)| then.committed() < now.committed()) {
        return Vec::new();
    }
    let stands = |then: GatewayLogs, now: GatewayLogs| {
        then.waiting > 0 && now.waiting > 0 && then.committed() == now.committed()
    };
    let stuck = both.into_iter().filter(|(_, then, now)| stands(*then, *now));
    let mut stuck: Vec<StuckLog> =
        stuck.map(|(ordinal, _, now)| StuckLog { ordinal, waiting: now.waiting }).collect();
    stuck.sort_unstable_by_key(|one| one.ordinal);
    stuck
}

#[cfg(test)]
mod tests {
    use super::{super::sample::Sample, *};
    use crate::ground::moment::Moment;

    /// Polls of two gateways. Ten requests a second come to each. They insert what comes, but for the first one's requests from
    /// this second on, and the other one's from that second on.
    fn polls(until: [u64; 2], seconds: u64) -> History {
        let mut history = History::default();
        for second in (0..=seconds).step_by(15) {
            let at = Moment(second * 1_000);
            let pod = |(ordinal, until): (u32, &u64)| {
                let appended = 10 * second + 5;
                let logs = GatewayLogs { appended, waiting: appended - 10 * second.min(*until) };
                PodSample { at, ordinal, logs: Some(logs), ..PodSample::default() }
            };
            let pods = (0..).zip(&until).map(pod).collect();
            history.push(Sample { at, group_stable: true, pods, ..Sample::default() });
        }
        history
    }

    #[test]
    fn a_log_is_stuck_after_two_minutes_in_which_others_were_inserted() {
        let all = u64::MAX;
        for (until, seconds, expected) in [
            ([all, all], 300, vec![]),
            ([60, all], 165, vec![]),
            ([60, all], 180, vec![(0, 1_205)]),
            ([all, 60], 300, vec![(1, 2_405)]),
            // Nothing is inserted anywhere: that is ClickHouse.
            ([60, 60], 300, vec![]),
        ] {
            let found: Vec<_> =
                stuck(&polls(until, seconds)).iter().map(|one| (one.ordinal, one.waiting)).collect();
            assert_eq!(found, expected, "{until:?} after {seconds} s");
        }
    }

    #[test]
    fn a_gateway_that_began_anew_has_its_time() {
        let mut history = History::default();
        let all: Vec<Sample> = polls([60, u64::MAX], 300).within(300).cloned().collect();
        for mut sample in all.into_iter().rev() {
            // Its process ended a minute before the last sample.
            sample.pods[0].messages = if sample.at < Moment(240_000) { 600 } else { 0 };
            history.push(sample);
        }
        assert!(stuck(&history).is_empty());
    }
}
