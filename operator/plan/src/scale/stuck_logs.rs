//! Gateways with `source.otlp` that insert nothing of what is in their logs, while other gateways insert.
//!
//! No other gateway reads these logs. So what waits there is no reason for more gateways, and a failure to insert it says nothing of
//! ClickHouse.

use super::{
    logs::GatewayLogs,
    sample::{History, PodSample},
    window::began_anew,
};

/// Nothing was inserted for so many seconds. While ClickHouse is slow, a block stays open for a minute, an insert takes up to 30 s, and one that
/// failed is sent again after 10 s: 130 s. Chosen: the next whole minute.
const STAND_SECONDS: u32 = 180;

/// A gateway that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckLog {
    /// Its number.
    pub ordinal: u32,
    /// Messages in its logs that are not committed.
    pub waiting: u64,
    /// Whether it has refused requests in this time, as one does whose volume is full.
    pub refuses: bool,
}

/// Those of the newest sample, by number; `None` while that is not known: a ready gateway gave no answer, or the samples are of less time. Where
/// no log advances, the cause is not a log.
pub fn stuck(history: &History) -> Option<Vec<StuckLog>> {
    let last = history.last().filter(|last| last.silent == 0 && !last.pods.is_empty())?;
    history.older(STAND_SECONDS).next()?;
    // A sample without its answer says nothing of it.
    let then = |pod: &PodSample| {
        let mut older = history.older(STAND_SECONDS).flat_map(|sample| &sample.pods);
        older.find(|old| old.ordinal == pod.ordinal).filter(|old| !began_anew(old, pod))
    };
    let both = last.pods.iter().filter_map(|pod| Pair::of(then(pod)?, pod));
    let both: Vec<Pair<'_>> = both.collect();
    if !both.iter().any(Pair::advances) {
        return Some(Vec::new());
    }
    let mut stuck: Vec<StuckLog> = both.iter().filter(|pair| pair.stands()).map(Pair::stuck_log).collect();
    stuck.sort_unstable_by_key(|one| one.ordinal);
    Some(stuck)
}

/// The same logs of one gateway at two moments.
struct Pair<'a> {
    old: &'a PodSample,
    pod: &'a PodSample,
    then: GatewayLogs,
    now: GatewayLogs,
}

impl<'a> Pair<'a> {
    fn of(old: &'a PodSample, pod: &'a PodSample) -> Option<Self> {
        let (then, now) = (old.logs?, pod.logs?);
        (then.readable == now.readable).then_some(Self { old, pod, then, now })
    }

    fn advances(&self) -> bool {
        self.then.committed() < self.now.committed()
    }

    fn stands(&self) -> bool {
        self.then.waiting > 0 && self.now.waiting > 0 && self.then.committed() == self.now.committed()
    }

    fn stuck_log(&self) -> StuckLog {
        let refuses = self.old.requests_refused < self.pod.requests_refused;
        StuckLog { ordinal: self.pod.ordinal, waiting: self.now.waiting, refuses }
    }
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
                let waiting = appended - 10 * second.min(*until);
                let logs = Some(GatewayLogs { readable: 1, appended, waiting, ..GatewayLogs::default() });
                PodSample { ordinal, at, logs, ..PodSample::default() }
            };
            let pods = (0..).zip(&until).map(pod).collect();
            history.push(Sample { at, group_stable: true, pods, ..Sample::default() });
        }
        history
    }

    fn found(history: &History) -> Option<Vec<(u32, u64)>> {
        Some(stuck(history)?.iter().map(|one| (one.ordinal, one.waiting)).collect())
    }

    #[test]
    fn a_log_is_stuck_after_three_minutes_in_which_others_were_inserted() {
        let all = u64::MAX;
        for (until, seconds, expected) in [
            ([0, all], 165, None),
            ([all, all], 360, Some(vec![])),
            ([60, all], 225, Some(vec![])),
            ([60, all], 240, Some(vec![(0, 1_805)])),
            ([all, 60], 360, Some(vec![(1, 3_005)])),
            // Nothing is inserted anywhere: that is ClickHouse.
            ([60, 60], 360, Some(vec![])),
        ] {
            assert_eq!(found(&polls(until, seconds)), expected, "{until:?} after {seconds} s");
        }
    }

    #[test]
    fn a_poll_without_an_answer_says_nothing_then_and_later() {
        let mut history = History::default();
        for mut sample in
            polls([60, u64::MAX], 420).within(420).cloned().collect::<Vec<_>>().into_iter().rev()
        {
            let second = sample.at.0 / 1_000;
            if second == 240 {
                (sample.pods, sample.silent) = (Vec::new(), 2);
            }
            history.push(sample);
            let expected = match second {
                0..180 | 240 => None,
                180..240 => Some(vec![]),
                _ => Some(vec![(0, 10 * second + 5 - 600)]),
            };
            assert_eq!(found(&history), expected, "{second}");
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
        assert_eq!(found(&history), Some(vec![]));
    }
}
