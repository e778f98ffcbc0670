//! Gateways with `source.otlp` that do not insert what is in their logs, as `Ready` names them: in every mode, also while the decision is held.

use super::{
    sample::{History, Sample},
    stuck_logs,
};

/// A log could not be read for so many seconds: a read that fails once is no news. Chosen.
const UNREADABLE_SECONDS: u32 = 60;

/// Such gateways, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Those whose logs stand still while others are inserted.
    pub stuck: Vec<u32>,
    /// Those that cannot read one of their logs.
    pub unreadable: Vec<u32>,
}

impl Standing {
    /// `None` while it is not known: a ready gateway gave no answer, or the samples are of too short a time.
    pub fn of(history: &History) -> Option<Self> {
        let stuck = stuck_logs::stuck(history)?.iter().map(|log| log.ordinal).collect();
        let logs = |sample: &Sample, ordinal: u32| {
            sample.pods.iter().find(|pod| pod.ordinal == ordinal).and_then(|pod| pod.logs)
        };
        let lasts = |ordinal: &u32| {
            let mut lately = history.within(UNREADABLE_SECONDS).filter_map(|sample| logs(sample, *ordinal));
            lately.all(|logs| logs.unreadable > 0)
        };
        let pods = history.last().into_iter().flat_map(|last| &last.pods);
        let unreadable = pods.filter(|pod| pod.logs.is_some()).map(|pod| pod.ordinal).filter(lasts);
        let mut unreadable: Vec<u32> = unreadable.collect();
        unreadable.sort_unstable();
        Some(Self { stuck, unreadable })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{logs::GatewayLogs, sample::PodSample},
        *,
    };
    use crate::ground::moment::Moment;

    /// Polls of a gateway whose log cannot be read from this second on.
    fn polls(from: u64, seconds: u64) -> History {
        let mut history = History::default();
        for second in (0..=seconds).step_by(15) {
            let at = Moment(second * 1_000);
            let unreadable = u32::from(second >= from);
            let logs = Some(GatewayLogs { readable: 1, unreadable, ..GatewayLogs::default() });
            let pods = vec![PodSample { at, ordinal: 4, logs, ..PodSample::default() }];
            history.push(Sample { at, group_stable: true, pods, ..Sample::default() });
        }
        history
    }

    #[test]
    fn a_gateway_that_cannot_read_a_log_is_named_after_a_minute() {
        for (from, seconds, expected) in
            [(0, 165, None), (0, 180, Some(vec![4])), (285, 330, Some(vec![])), (270, 330, Some(vec![4]))]
        {
            let found = Standing::of(&polls(from, seconds)).map(|standing| standing.unreadable);
            assert_eq!(found, expected, "from {from} s, after {seconds} s");
        }
    }
}
