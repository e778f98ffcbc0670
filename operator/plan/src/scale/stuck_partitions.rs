//! Which partitions are stuck at an offset, and which only wait for their turn.
//!
//! A gateway that owns more partitions than it may read at the same time reads them in turns, and the waiting ones do not advance
//! meanwhile. With a thousand partitions a round takes minutes, so a partition that stands for less than its gateway's rounds may only be
//! waiting. If the gateway reports a partition as stuck, it counts at once, because the gateway knows whose turn it was.

use super::{
    sample::{History, PartitionSample, PodSample, Sample},
    window::{began_anew, lag},
};
use crate::pipeline::policy::Policy;

/// A partition stands for at least so many seconds before it is looked into: as long as the gateways take for it.
const STAND_SECONDS_MIN: f64 = 60.0;
/// A partition that changes its gateway stands for up to so many seconds more. A partition that stood before keeps counting as stuck. If
/// each rescale forgot that, its lag would look like a need for gateways, and cause the next rescale.
const MOVE_SECONDS: f64 = 60.0;
/// Seconds of a turn: the gateway's `turns::TURN`.
const TURN_SECONDS: u32 = 2;
/// Rounds without having been read that are too many: a partition that replays keeps its turn eight times, so that a round in which
/// all do takes eight of them; and two for the polls.
const ROUNDS_MAX: u32 = 10;

/// For each partition of the newest sample, whether it stands while others advance. Where nothing advances, the cause is not a partition.
pub fn stuck(policy: &Policy, history: &History) -> Vec<bool> {
    let Some(last) = history.last() else { return Vec::new() };
    let none = vec![false; last.partitions.len()];
    let Some(minute) = since(history, last, STAND_SECONDS_MIN) else { return none };
    if !advances(minute, last) {
        return none;
    }
    let owners = owners(last);
    // A gateway that does not name its partitions may have any partition that no other gateway names.
    let silent = last.pods.iter().find(|pod| pod.partitions.is_empty());
    let terms = |pod| {
        let seconds = stand_seconds(pod, last.partitions.len());
        Terms { since: since(history, last, seconds), moved: since(history, last, seconds + MOVE_SECONDS) }
    };
    let of_pods: Vec<Terms<'_>> = last.pods.iter().map(terms).collect();
    let of_silent = silent.map(terms);
    let is_stuck = |(number, seen): (usize, &Option<PartitionSample>)| {
        let Some(seen) = seen.filter(|seen| lag(policy, *seen).0 > 0) else { return false };
        let stood =
            |before: Option<&Sample>| before.is_some_and(|before| stood(policy, before, number, seen));
        let Some(owner) = owners.get(number).copied().flatten() else {
            return of_silent.as_ref().is_some_and(|terms| stood(terms.since));
        };
        let (Some(pod), Some(terms)) = (last.pods.get(owner), of_pods.get(owner)) else { return false };
        let says = u32::try_from(number).is_ok_and(|number| pod.still.contains(&number));
        says || stood(terms.since.filter(|before| had(before, pod, number))) || stood(terms.moved)
    };
    last.partitions.iter().enumerate().map(is_stuck).collect()
}

/// Since when a partition of a gateway has to stand.
struct Terms<'a> {
    /// One that it has had since.
    since: Option<&'a Sample>,
    /// Any.
    moved: Option<&'a Sample>,
}

/// The newest sample that is so much older than the last one; `None` when nothing is remembered for so long.
fn since<'a>(history: &'a History, last: &Sample, seconds: f64) -> Option<&'a Sample> {
    // Rounded up, which is how the others count it.
    let whole = super::numbers::ceil(seconds);
    history.before(whole).filter(|before| last.at.seconds_since(before.at) >= seconds)
}

/// How long one of its partitions may stand for no other reason than that others have their turn.
fn stand_seconds(pod: &PodSample, partitions: usize) -> f64 {
    let owned = if pod.partitions.is_empty() { partitions } else { pod.partitions.len() };
    let turns = u32::try_from(owned).unwrap_or(u32::MAX).div_ceil(pod.partitions_active.max(1));
    let round = if turns > 1 { turns.saturating_mul(TURN_SECONDS) } else { 0 };
    f64::from(round.saturating_mul(ROUNDS_MAX)).max(STAND_SECONDS_MIN)
}

/// By partition, the place among the pods of the one that reads it. Partitions of a gateway that is down stand too, but not because of an
/// unreadable message.
fn owners(sample: &Sample) -> Vec<Option<usize>> {
    let mut owners = vec![None; sample.partitions.len()];
    for (place, pod) in sample.pods.iter().enumerate() {
        for number in &pod.partitions {
            let owner = usize::try_from(*number).ok().and_then(|number| owners.get_mut(number));
            if let Some(owner) = owner {
                *owner = Some(place);
            }
        }
    }
    owners
}

/// Whether a gateway had a partition then already, and has run since: a new owner has not had the time to read it.
fn had(before: &Sample, pod: &PodSample, number: usize) -> bool {
    let old = before.pods.iter().find(|old| old.ordinal == pod.ordinal);
    let names = |old: &PodSample| u32::try_from(number).is_ok_and(|number| old.partitions.contains(&number));
    old.is_some_and(|old| !began_anew(old, pod) && (old.partitions.is_empty() || names(old)))
}

/// Whether messages waited, more have come, and none was read.
fn stood(policy: &Policy, before: &Sample, number: usize, seen: PartitionSample) -> bool {
    let Some(before) = before.partitions.get(number).copied().flatten() else { return false };
    before.read().is_some()
        && before.read() == seen.read()
        && seen.end > before.end
        && lag(policy, before).0 > 0
}

fn advances(before: &Sample, last: &Sample) -> bool {
    let mut both = before.partitions.iter().zip(&last.partitions);
    both.any(|(before, seen)| before.and_then(|seen| seen.read()) < seen.and_then(|seen| seen.read()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::moment::Moment;

    /// Polls of one gateway that has `owned` partitions, reads `active` of them at the same time in turns of `turn` seconds, and never gets past
    /// the first one's offset 5.
    fn polls(owned: u32, active: u32, turn: u64, still: &[u32]) -> History {
        let mut history = History::default();
        let mut read = vec![5_u64; owned as usize];
        for second in 0..=480_u64 {
            let first = second / turn * u64::from(active);
            for place in first..first + u64::from(active) {
                let number = usize::try_from(place % u64::from(owned)).unwrap();
                if number > 0 {
                    read[number] = 10 * second + 10;
                }
            }
            if second % 15 > 0 {
                continue;
            }
            let of = |read: &u64| {
                let (end, position) = (10 * second + 20, Some(*read));
                Some(PartitionSample { end, position, committed: Some(0), ..PartitionSample::default() })
            };
            let at = Moment(second * 1_000);
            let (partitions, still) = ((0..owned).collect(), still.to_vec());
            let pod = PodSample { at, partitions, still, partitions_active: active, ..PodSample::default() };
            let partitions = read.iter().map(of).collect();
            history.push(Sample { at, group_stable: true, partitions, pods: vec![pod], silent: 0 });
        }
        history
    }

    fn found(history: &History) -> Vec<usize> {
        let stuck = stuck(&Policy::default(), history);
        stuck.iter().enumerate().filter(|(_, stuck)| **stuck).map(|(number, _)| number).collect()
    }

    #[test]
    fn who_waits_for_its_turn_is_not_stuck_however_long_that_takes() {
        // Rounds of 0, 6, 40, 60 and 250 s, and one of 40 s in which all have eight turns. Ten rounds of 60 s are longer than what is
        // remembered, so that nothing is said of what stands then.
        for (owned, turn, expected) in [
            (8, 2, vec![0]),
            (24, 2, vec![0]),
            (160, 2, vec![0]),
            (160, 16, vec![0]),
            (240, 2, vec![]),
            (1_000, 2, vec![]),
        ] {
            assert_eq!(found(&polls(owned, 8, turn, &[])), expected, "{owned} in turns of {turn} s");
        }
    }

    #[test]
    fn what_a_gateway_says_of_a_partition_counts_whatever_its_rounds() {
        assert_eq!(found(&polls(1_000, 8, 2, &[0])), [0]);
        assert_eq!(found(&polls(8, 8, 2, &[3])), [0, 3]);
    }

    #[test]
    fn who_has_just_got_a_partition_has_its_time() {
        let mut history = History::default();
        let all = polls(8, 8, 2, &[]);
        let kept: Vec<Sample> = all.within(120).cloned().collect();
        for (place, mut sample) in kept.into_iter().rev().enumerate() {
            sample.pods[0].ordinal = u32::from(place > 6);
            history.push(sample);
            // Two minutes in which it has stood are eight polls; the change of its gateway is at the seventh.
            let expected = if (4..7).contains(&place) || place >= 8 { vec![0] } else { vec![] };
            assert_eq!(found(&history), expected, "{place}");
        }
    }
}
