//! Rates and shares: what changed between samples.
//!
//! Arrivals are the larger of a long and a short window, so they rise fast and fall slowly. The workers' shares come from the last
//! interval and from the last minute. Time that is neither work nor waiting for messages is waiting for ClickHouse. The worker's own
//! counter of that wait is not used, because it counts a wait only when it ends.

use super::{
    capacity::FULL,
    merges::MergesBehind,
    numbers,
    sample::{History, PartitionSample, PodSample, Sample},
    stuck_logs::{self, StuckLog},
    stuck_partitions,
};
use crate::pipeline::policy::{InitialOffset, Policy};

/// Arrivals are averaged over so many seconds: a minute's noise does not add a gateway.
pub const LONG_SECONDS: u32 = 180;
/// Or over so many, when that is more.
const SHORT_SECONDS: u32 = 60;
/// A minute's shares need at least so many seconds: three polls.
const SHORT_SECONDS_MIN: f64 = 40.0;
/// Gateways refuse requests if that is this share of them. Chosen: fewer than the utilization leaves room for; a client with requests that are
/// too large, or a single busy second, does not keep all gateways.
const REFUSED_SHARE: f64 = 0.01;
/// Fewer messages a second are not told from none: one in the longest window.
const ARRIVAL_MIN: f64 = 1.0 / 180.0;

/// What one gateway does now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodRates {
    /// Messages a second.
    pub rate: f64,
    /// Share of the workers' time that is work, 0 to 1.
    pub busy: f64,
    /// Share that is waiting for messages.
    pub source: f64,
    /// Share that is waiting for ClickHouse: the rest.
    pub sink: f64,
    /// Whether its blocks waited for ClickHouse. What of its time is neither work nor waiting for messages is no measure of it then.
    pub behind: bool,
    /// Partitions it reads.
    pub partitions: Vec<u32>,
}

/// What one partition does now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartitionRates {
    /// Messages a second that arrive.
    pub arrival: f64,
    /// Messages that are not read.
    pub lag: f64,
    /// Whether it stands still while others advance.
    pub stuck: bool,
}

/// All of it.
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// By number.
    pub partitions: Vec<PartitionRates>,
    /// Gateways whose logs stand still while others are inserted. Nothing of them is in the shares of the others, nor in the lag.
    pub stuck_logs: Vec<StuckLog>,
    /// Gateways that were seen twice.
    pub pods: Vec<PodRates>,
    /// Messages a second that arrive where something advances.
    pub arrival: f64,
    /// Messages that wait where something advances.
    pub lag: f64,
    /// Messages a second that the gateways read.
    pub processed: f64,
    /// Mean share of work in the last interval.
    pub busy_now: f64,
    /// Mean share of waiting for ClickHouse in the last interval.
    pub sink_now: f64,
    /// The same of the gateways that had messages all the time; 0 when none had. Those that read little do not wait, and say nothing
    /// of what more of them would do.
    pub sink_of_full: f64,
    /// The mean of all over the last minute; `None` before there is one.
    pub sink_minute: Option<f64>,
    /// Share of the gateways whose sealed blocks wait for ClickHouse. A queue volume takes them as long as it has room: the workers
    /// read on then and wait for nothing.
    pub behind_now: f64,
    /// The least such share in the last minute; `None` before there is one.
    pub behind_minute: Option<f64>,
    /// The parts of the table that is nearest to its limit, while a gateway says that merges of ClickHouse are behind.
    pub merges: Option<MergesBehind>,
    /// Whether gateways refused many requests lately, for want of memory, room or time: these are in no rate. Of gateways whose logs stand still,
    /// this is not asked: fewer of the others would not change it.
    pub refuses: bool,
    /// Whether inserts failed in the last interval.
    pub insert_failures: bool,
    /// Whether they did so in the two last ones.
    pub inserts_keep_failing: bool,
    /// Messages that retention deleted before they were read, or that another topic of the same name had.
    pub lost: u64,
    /// Whether a topic was made anew: what the group has read is behind its end.
    pub anew: bool,
    /// Bytes of a message; `None` when none was read.
    pub message_bytes: Option<f64>,
    /// The largest share of a memory limit in use.
    pub memory_share: f64,
    /// Rows of all gateways that are not settled.
    pub rows_in_flight: u64,
    /// Blocks on queue volumes.
    pub spool_blocks: u64,
}

impl Rates {
    /// Lag in seconds of arrivals.
    pub fn lag_seconds(&self) -> f64 {
        self.lag / self.arrival.max(ARRIVAL_MIN)
    }

    /// Partitions that stand still, by number.
    pub fn stuck(&self) -> Vec<usize> {
        let numbered = self.partitions.iter().enumerate();
        numbered.filter(|(_, partition)| partition.stuck).map(|(number, _)| number).collect()
    }
}

/// Compares samples; `None` when there are no two whose offsets only went forward.
pub fn rates(policy: &Policy, history: &History) -> Option<Rates> {
    let stuck = stuck_partitions::stuck(policy, history);
    let stuck_logs = stuck_logs::stuck(history).unwrap_or_default();
    let ordinals: Vec<u32> = stuck_logs.iter().map(|log| log.ordinal).collect();
    let moving = (!ordinals.is_empty()).then(|| history.without(&ordinals));
    let history = moving.as_ref().unwrap_or(history);
    let mut rates = Rates { refuses: refuses(history), ..Rates::default() };
    let last = history.last()?;
    let arrivals = arrivals(history, last)?;
    let minute =
        history.before(SHORT_SECONDS).filter(|before| last.at.seconds_since(before.at) >= SHORT_SECONDS_MIN);
    for ((seen, arrival), stuck) in last.partitions.iter().zip(arrivals).zip(stuck) {
        let seen = (*seen)?;
        let (waiting, gone) = lag(policy, seen);
        rates.anew |= seen.read().is_some_and(|read| read > seen.end);
        rates.lost = rates.lost.saturating_add(gone);
        rates.partitions.push(PartitionRates { arrival, lag: numbers::count(waiting), stuck });
    }
    for partition in rates.partitions.iter().filter(|partition| !partition.stuck) {
        rates.arrival += partition.arrival;
        rates.lag += partition.lag;
    }
    for log in &stuck_logs {
        rates.lag = (rates.lag - numbers::count(log.waiting)).max(0.0);
    }
    rates.stuck_logs = stuck_logs;
    let before = history.before(1)?;
    add_pods(&mut rates, before, last);
    let earlier = history.before_that(before);
    rates.inserts_keep_failing =
        rates.insert_failures && earlier.is_some_and(|earlier| failed(earlier, before));
    rates.sink_minute = minute.and_then(|before| mean(pairs(before, last), |pod| pod.sink));
    rates.behind_now = behind_lately(before, last);
    rates.behind_minute = minute.map(|_| history.within(SHORT_SECONDS).map(behind).fold(1.0, f64::min));
    Some(rates)
}

fn add_pods(rates: &mut Rates, before: &Sample, last: &Sample) {
    rates.pods = pairs(before, last).collect();
    rates.processed = rates.pods.iter().map(|pod| pod.rate).sum();
    rates.busy_now = mean(rates.pods.iter().cloned(), |pod| pod.busy).unwrap_or_default();
    rates.sink_now = mean(rates.pods.iter().cloned(), |pod| pod.sink).unwrap_or_default();
    let full = rates.pods.iter().filter(|pod| pod.source < FULL);
    rates.sink_of_full = mean(full.cloned(), |pod| pod.sink).unwrap_or_default();
    rates.rows_in_flight = total(last.pods.iter().map(|pod| pod.rows_in_flight));
    rates.merges = MergesBehind::worst(last.pods.iter().filter_map(|pod| pod.merges));
    rates.spool_blocks = total(last.pods.iter().map(|pod| pod.spool_blocks));
    let limited = last.pods.iter().filter(|pod| pod.memory_limit_bytes > 0);
    let shares = limited.map(|pod| numbers::count(pod.memory_bytes) / numbers::count(pod.memory_limit_bytes));
    rates.memory_share = shares.fold(0.0, f64::max);
    let both = || twice(before, last);
    rates.insert_failures = failed(before, last);
    let messages = total(both().map(|(before, pod)| pod.messages.saturating_sub(before.messages)));
    let bytes = total(both().map(|(before, pod)| pod.message_bytes.saturating_sub(before.message_bytes)));
    rates.message_bytes = (messages > 0).then(|| numbers::count(bytes) / numbers::count(messages));
}

/// The sum of what gateways say, which may be any numbers.
fn total(said: impl Iterator<Item = u64>) -> u64 {
    said.fold(0, u64::saturating_add)
}

/// Whether gateways have refused many of the requests of the longest window. Clients send again after seconds or half a minute.
fn refuses(history: &History) -> bool {
    let (mut refused, mut taken) = (0_u64, 0_u64);
    for pod in history.last().iter().flat_map(|last| &last.pods) {
        let before = history.within(LONG_SECONDS).flat_map(|sample| &sample.pods);
        let Some(old) = before.filter(|old| old.ordinal == pod.ordinal && !began_anew(old, pod)).last()
        else {
            continue;
        };
        let appended = |pod: &PodSample| pod.logs.map_or(0, |logs| logs.appended);
        refused = refused.saturating_add(pod.requests_refused.saturating_sub(old.requests_refused));
        taken = taken.saturating_add(appended(pod).saturating_sub(appended(old)));
    }
    let all = numbers::count(refused.saturating_add(taken));
    refused > 0 && numbers::count(refused) >= REFUSED_SHARE * all
}

/// Whether inserts failed between two samples.
fn failed(before: &Sample, last: &Sample) -> bool {
    twice(before, last).any(|(before, pod)| pod.insert_failures > before.insert_failures)
}

/// Share of the gateways that answered whose blocks wait; 0 when none did.
fn behind(sample: &Sample) -> f64 {
    share_behind(sample.pods.iter())
}

/// The same of those whose answer is newer than the one before, where there are any: an old one says nothing of now.
fn behind_lately(before: &Sample, last: &Sample) -> f64 {
    let news = || last.pods.iter().filter(|pod| is_news(before, pod));
    if news().next().is_some() { share_behind(news()) } else { behind(last) }
}

fn share_behind<'a>(pods: impl Iterator<Item = &'a PodSample>) -> f64 {
    let (waiting, all) =
        pods.fold((0_u32, 0_u32), |(waiting, all), pod| (waiting + u32::from(pod.sink_behind), all + 1));
    f64::from(waiting) / f64::from(all.max(1))
}

/// Arrivals by partition over the longest window in which no offset went back; the short one when it has more.
fn arrivals(history: &History, last: &Sample) -> Option<Vec<f64>> {
    let over = |seconds| history.before(seconds).and_then(|before| slopes(before, last));
    let (long, short) = (over(LONG_SECONDS), over(SHORT_SECONDS));
    let total = |slopes: &Option<Vec<f64>>| slopes.as_ref().map_or(-1.0, |slopes| slopes.iter().sum::<f64>());
    let windowed = if total(&short) > total(&long) { short } else { long };
    windowed.or_else(|| over(1))
}

fn slopes(before: &Sample, last: &Sample) -> Option<Vec<f64>> {
    let seconds = last.at.seconds_since(before.at);
    let slope = |number: usize, seen: &Option<PartitionSample>| {
        // A partition that is new has no slope yet, and holds the decision for one poll.
        let before = (*before.partitions.get(number)?)?;
        Some(numbers::count((*seen)?.end.checked_sub(before.end)?) / seconds)
    };
    let numbered = last.partitions.iter().enumerate();
    (seconds > 0.0).then(|| numbered.map(|(number, seen)| slope(number, seen)).collect())?
}

/// Messages that wait, and messages that are gone.
pub fn lag(policy: &Policy, seen: PartitionSample) -> (u64, u64) {
    let from = match (seen.read(), policy.initial_offset) {
        (None, InitialOffset::Earliest) => seen.log_start,
        (None, InitialOffset::Latest) => seen.end,
        // The topic was made anew: what was committed belongs to the old one.
        (Some(read), _) if read > seen.end => seen.log_start,
        (Some(read), _) => read,
    };
    let lost = seen.committed.max(seen.position).map_or(0, |read| seen.log_start.saturating_sub(read));
    (seen.end.saturating_sub(from), lost)
}

/// Whether an answer is of the time since a sample was taken: an older one says nothing of that.
fn is_news(before: &Sample, pod: &PodSample) -> bool {
    pod.at > before.at && before.pods.iter().all(|old| old.ordinal != pod.ordinal || pod.at > old.at)
}

/// Gateways that are in both samples and did not begin anew between them.
fn twice<'a>(
    before: &'a Sample,
    last: &'a Sample,
) -> impl Iterator<Item = (&'a PodSample, &'a PodSample)> + use<'a> {
    last.pods.iter().filter_map(|pod| {
        let old = before.pods.iter().find(|old| old.ordinal == pod.ordinal)?;
        (!began_anew(old, pod) && is_news(before, pod)).then_some((old, pod))
    })
}

/// Whether a gateway's counters began anew between two of its answers.
pub fn began_anew(old: &PodSample, pod: &PodSample) -> bool {
    pod.busy_seconds < old.busy_seconds
        || pod.source_seconds < old.source_seconds
        || pod.messages < old.messages
}

fn pairs<'a>(before: &'a Sample, last: &'a Sample) -> impl Iterator<Item = PodRates> + use<'a> {
    twice(before, last).map(|(before, pod)| {
        let seconds = pod.at.seconds_since(before.at).max(0.001);
        let time = seconds * f64::from(pod.workers.max(1));
        let busy = ((pod.busy_seconds - before.busy_seconds) / time).clamp(0.0, 1.0);
        let source = ((pod.source_seconds - before.source_seconds) / time).clamp(0.0, 1.0 - busy);
        PodRates {
            rate: numbers::count(pod.messages - before.messages) / seconds,
            busy,
            source,
            sink: 1.0 - busy - source,
            behind: before.sink_behind || pod.sink_behind,
            partitions: pod.partitions.clone(),
        }
    })
}

fn mean(pods: impl Iterator<Item = PodRates>, share: impl Fn(&PodRates) -> f64) -> Option<f64> {
    let (sum, pods) = pods.fold((0.0, 0.0), |(sum, pods), pod| (sum + share(&pod), pods + 1.0));
    (pods > 0.0).then(|| sum / pods)
}

#[cfg(test)]
mod tests {
    use super::{super::logs::GatewayLogs, *};
    use crate::ground::moment::Moment;

    fn partition(log_start: u64, end: u64, committed: Option<u64>) -> PartitionSample {
        PartitionSample { log_start, end, committed, position: None }
    }

    fn sample(second: u64, partitions: &[PartitionSample], pod: PodSample) -> Sample {
        let pod = PodSample { at: Moment(second * 1_000), ..pod };
        let partitions = partitions.iter().copied().map(Some).collect();
        Sample { at: Moment(second * 1_000), group_stable: true, partitions, pods: vec![pod], silent: 0 }
    }

    #[test]
    fn lag_is_counted_from_what_is_kept_and_what_is_committed() {
        let (earliest, latest) = (InitialOffset::Earliest, InitialOffset::Latest);
        for (initial_offset, seen, expected) in [
            (earliest, partition(0, 100, Some(40)), (60, 0)),
            (earliest, partition(50, 100, Some(40)), (50, 10)),
            (earliest, partition(5, 100, None), (95, 0)),
            (latest, partition(5, 100, None), (0, 0)),
            (earliest, partition(0, 100, Some(900)), (100, 0)),
            (earliest, PartitionSample { position: Some(90), ..partition(0, 100, Some(40)) }, (10, 0)),
        ] {
            let policy = Policy { initial_offset, ..Policy::default() };
            assert_eq!(lag(&policy, seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn waiting_that_no_counter_shows_yet_is_waiting_for_clickhouse() {
        let mut history = History::default();
        let pod = PodSample { workers: 2, ..PodSample::default() };
        history.push(sample(0, &[partition(0, 0, Some(0))], pod.clone()));
        let pod = PodSample { busy_seconds: 3.0, source_seconds: 6.0, messages: 300, ..pod };
        history.push(sample(15, &[partition(0, 1_500, Some(300))], pod));
        let rates = rates(&Policy::default(), &history).unwrap();
        assert!((rates.sink_now - 0.7).abs() < 1e-9, "{rates:?}");
        assert!((rates.arrival - 100.0).abs() < 1e-9 && (rates.lag - 1_200.0).abs() < 1e-9);
    }

    #[test]
    fn a_counter_that_went_back_is_a_pod_that_began_anew() {
        let mut history = History::default();
        let old = PodSample { workers: 1, busy_seconds: 50.0, messages: 9, ..PodSample::default() };
        history.push(sample(0, &[partition(0, 0, Some(0))], old.clone()));
        history.push(sample(15, &[partition(0, 9, Some(9))], PodSample { busy_seconds: 1.0, ..old }));
        assert!(rates(&Policy::default(), &history).unwrap().pods.is_empty());
    }

    #[test]
    fn numbers_of_gateways_whose_sum_is_too_large_are_added_all_the_same() {
        let mut history = History::default();
        for (second, said) in [(0, 0), (15, u64::MAX)] {
            let pod = PodSample {
                messages: said,
                message_bytes: said,
                spool_blocks: said,
                rows_in_flight: said,
                ..PodSample::default()
            };
            let mut both = sample(second, &[partition(0, 0, Some(0))], pod.clone());
            both.pods.push(PodSample { ordinal: 1, at: Moment(second * 1_000), ..pod });
            history.push(both);
        }
        let rates = rates(&Policy::default(), &history).unwrap();
        assert_eq!((rates.spool_blocks, rates.rows_in_flight), (u64::MAX, u64::MAX));
        assert!(rates.message_bytes.is_some_and(|bytes| (bytes - 1.0).abs() < 1e-9), "{rates:?}");
    }

    #[test]
    fn a_few_refused_requests_are_none() {
        for (refused, expected) in [(0, false), (17, false), (19, true)] {
            let mut history = History::default();
            for (second, requests_refused, appended) in [(0, 5, 100), (15, 5 + refused, 1_900)] {
                let logs = Some(GatewayLogs { readable: 1, appended, ..GatewayLogs::default() });
                let pod = PodSample { requests_refused, logs, ..PodSample::default() };
                history.push(sample(second, &[partition(0, appended, Some(appended))], pod));
            }
            assert_eq!(rates(&Policy::default(), &history).unwrap().refuses, expected, "{refused}");
        }
    }

    #[test]
    fn an_end_that_went_back_drops_the_sample() {
        let mut history = History::default();
        history.push(sample(0, &[partition(0, 100, Some(0))], PodSample::default()));
        history.push(sample(15, &[partition(0, 9, Some(0))], PodSample::default()));
        assert_eq!(rates(&Policy::default(), &history), None);
        history.push(sample(30, &[partition(0, 39, Some(0))], PodSample::default()));
        assert!((rates(&Policy::default(), &history).unwrap().arrival - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_partition_that_stands_is_stuck_only_while_others_advance() {
        for (others_advance, expected) in [(true, vec![1]), (false, vec![])] {
            let mut history = History::default();
            for second in (0..=75).step_by(15) {
                let read = if others_advance { 9 * second } else { 0 };
                let partitions =
                    [partition(0, 10 * second + 10, Some(read)), partition(0, 10 * second + 10, Some(5))];
                history.push(sample(second, &partitions, PodSample::default()));
            }
            assert_eq!(rates(&Policy::default(), &history).unwrap().stuck(), expected);
        }
    }
}
