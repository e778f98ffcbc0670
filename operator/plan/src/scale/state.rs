//! What a decision remembers for the next: it lives in the pipeline's status, so it is bounded and an operator that
//! restarts goes on from it.
//!
//! What was learned holds as long as the pods' template; windows hold only as long as decisions follow one another.

use super::{
    capacity,
    cause::Cause,
    idle::{Quiet, Rest},
    memory::MemoryModel,
    numbers,
    rescale::Asked,
};
use crate::ground::moment::Moment;
use serde::{Deserialize, Serialize};

/// Moments of rescales that are remembered. Chosen: no policy needs more in an hour.
pub const RESCALES_MAX: usize = 60;
/// Decisions that are further apart do not follow one another: windows begin anew.
const GAP_SECONDS: f64 = 60.0;
/// A rescale is assumed to cost so many seconds of work before one was seen.
pub const DISRUPTION_SECONDS: f64 = 60.0;
/// A rescale costs at least as long as a poll can overlook, and at most what is no rescale any more.
const DISRUPTION_SECONDS_RANGE: (f64, f64) = (15.0, 120.0);
/// Weight of a rescale that was seen.
const DISRUPTION_WEIGHT: f64 = 0.5;
/// Seconds of one peak of the down window: eleven of them cover ten minutes.
const PEAK_SECONDS: f64 = 60.0;
/// Peaks that are kept: an hour, the longest window that a spec may ask for, and the one that is begun.
const PEAKS_MAX: usize = 61;
/// A message that is so many times larger or smaller than when the capacity was learned is another message.
const MESSAGE_DRIFT: f64 = 2.0;

/// A need for more gateways that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rising {
    /// Since when.
    pub since: Moment,
    /// The fewest that were recommended since.
    pub least: u32,
}

/// The most gateways that were recommended within a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peak {
    /// When the minute began.
    pub since: Moment,
    pub most: u32,
}

/// Gateways that were added and have yet to show that it helped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trial {
    /// Gateways before.
    pub from: u32,
    /// Gateways since.
    pub to: u32,
    /// Messages a second before.
    pub processed: f64,
    /// Additions that are judged together.
    pub additions: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self { from: 0, to: 0, processed: 0.0, additions: 1 }
    }
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The last decision.
    pub decided_at: Option<Moment>,
    /// The last moment at which samples were good for a decision.
    pub valid_at: Option<Moment>,
    /// Partitions that Kafka last named; 0 before it did.
    pub partitions: u32,
    /// The template of the pods that the rest was learned from.
    pub revision: String,
    /// What limited when samples were last good.
    pub cause: Cause,
    /// Messages a second of one gateway.
    pub capacity: Option<f64>,
    /// Bytes of the messages that the capacity was learned from.
    pub message_bytes: Option<f64>,
    /// What memory is made of.
    pub memory: MemoryModel,
    /// Seconds that a rescale costs.
    pub disruption_seconds: Option<f64>,
    /// Since when the group is not stable.
    pub unstable_since: Option<Moment>,
    /// Since when samples are good after the last rescale.
    pub settled_since: Option<Moment>,
    /// Since when fewer pods are ready than wanted.
    pub unready_since: Option<Moment>,
    /// Unschedulable gateways in the middle, which scaling does not count.
    pub given_up: u32,
    /// Gateways in the middle that have a node, are not ready for long, and do not answer: nothing is seen of their work.
    pub absent: u32,
    /// A need that lasts.
    pub rising: Option<Rising>,
    /// Since when the down window is filled.
    pub falling_since: Option<Moment>,
    /// Its minutes, at most [`PEAKS_MAX`].
    pub peaks: Vec<Peak>,
    /// A change that was decided and that the workload does not show yet: it may never be carried out.
    pub asked: Option<Asked>,
    /// Rescales of the last hour that the workload was seen to have had, oldest first, at most [`RESCALES_MAX`].
    pub rescales: Vec<Moment>,
    /// What was added last and is not judged.
    pub trial: Option<Trial>,
    /// How often in a row adding did not help.
    pub in_vain: u32,
    /// Until when nothing is added because it did not help.
    pub in_vain_until: Option<Moment>,
    /// Until when nothing is added because the last additions were unschedulable.
    pub no_room_until: Option<Moment>,
    /// The last kill for memory.
    pub killed_at: Option<Moment>,
    /// Since when memory is under pressure.
    pub pressure_since: Option<Moment>,
    /// The last kill or pressure.
    pub pressure_at: Option<Moment>,
    /// Gateways that were added against it in a row.
    pub memory_steps: u32,
    /// The last moment at which messages were found lost, or a topic made anew.
    pub lost_at: Option<Moment>,
    /// Messages that were found lost by then.
    pub lost: u64,
    /// Whether what the group has read was of another topic of the same name then.
    pub anew: bool,
    /// Since when no message has arrived; `None` unless idle topics rest.
    pub quiet: Option<Quiet>,
    /// While no gateway is wanted, because the topics are idle.
    pub rest: Option<Rest>,
}

impl State {
    /// The state that a decision starts from: windows begin anew after a gap, and what was learned of other pods is dropped.
    pub(super) fn at(&self, now: Moment, revision: &str) -> Self {
        let mut next = self.clone();
        if let Some(ahead) = self.decided_at.filter(|last| *last > now) {
            next.move_back(ahead.0 - now.0);
        }
        let is_next =
            self.decided_at.is_some_and(|last| now.seconds_since(last) <= GAP_SECONDS && now >= last);
        if !is_next {
            next.forget_windows();
        }
        if next.revision != revision {
            revision.clone_into(&mut next.revision);
            (next.capacity, next.message_bytes) = (None, None);
            next.memory = MemoryModel::default();
        }
        next.decided_at = Some(now);
        next.rescales.retain(|at| now.seconds_since(*at) < 3_600.0);
        next
    }

    /// The clock went back by so much: what was so long ago then is so long ago now, and what was to last so long does.
    fn move_back(&mut self, milliseconds: u64) {
        let one = [
            &mut self.decided_at,
            &mut self.valid_at,
            &mut self.unstable_since,
            &mut self.settled_since,
            &mut self.unready_since,
            &mut self.in_vain_until,
            &mut self.no_room_until,
            &mut self.killed_at,
            &mut self.pressure_since,
            &mut self.pressure_at,
            &mut self.lost_at,
        ];
        let idle = [
            self.quiet.as_mut().map(|quiet| &mut quiet.since),
            self.rest.as_mut().map(|rest| &mut rest.since),
        ];
        for at in one.into_iter().flatten().chain(idle.into_iter().flatten()).chain(&mut self.rescales) {
            at.0 = at.0.saturating_sub(milliseconds);
        }
    }

    /// Begins the windows anew.
    pub(super) fn forget_windows(&mut self) {
        self.rising = None;
        self.falling_since = None;
        self.peaks.clear();
    }

    /// Remembers whether the group is stable, and how long it was not.
    pub(super) fn see_group(&mut self, now: Moment, stable: bool) {
        match (stable, self.unstable_since) {
            (false, None) => self.unstable_since = Some(now),
            (true, Some(since)) => {
                self.unstable_since = None;
                self.see_disruption(now.seconds_since(since));
            }
            _ => {}
        }
    }

    /// Remembers what a rescale cost: all that a poll saw of it.
    fn see_disruption(&mut self, seconds: f64) {
        let (least, most) = DISRUPTION_SECONDS_RANGE;
        let known = self.disruption_seconds.unwrap_or(DISRUPTION_SECONDS);
        let seconds = numbers::blend(known, seconds, DISRUPTION_WEIGHT);
        self.disruption_seconds = Some(seconds.clamp(least, most).round());
    }

    /// Learns what gateways show that they can do, with messages of so many bytes. The bytes follow with the capacity, so that they are
    /// those it was learned from: left behind, a slow drift would end in a jump that the capacity has made already.
    pub(super) fn see_work(&mut self, shown: Option<f64>, bytes: Option<f64>) {
        self.see_message_bytes(bytes);
        let Some(shown) = shown else { return };
        self.capacity = Some(capacity::learned(self.capacity, shown));
        if let (Some(known), Some(bytes)) = (self.message_bytes, bytes.filter(|bytes| *bytes > 0.0)) {
            self.message_bytes = Some(numbers::written(numbers::blend(known, bytes, capacity::WEIGHT)));
        }
    }

    /// Adapts the capacity when messages have become quite other ones: a gateway's work goes by bytes.
    fn see_message_bytes(&mut self, bytes: Option<f64>) {
        let Some(bytes) = bytes.map(f64::round).filter(|bytes| *bytes > 0.0) else { return };
        let known = *self.message_bytes.get_or_insert(bytes);
        if bytes > known * MESSAGE_DRIFT || bytes < known / MESSAGE_DRIFT {
            self.capacity = self
                .capacity
                .map(|capacity| numbers::written(capacity * known / bytes).max(capacity::CAPACITY_MIN));
            self.message_bytes = Some(bytes);
        }
    }

    /// Adds a recommendation to the down window.
    pub(super) fn see_recommendation(&mut self, now: Moment, replicas: u32, window_seconds: u32) {
        self.falling_since.get_or_insert(now);
        match self.peaks.last_mut() {
            Some(peak) if now.seconds_since(peak.since) < PEAK_SECONDS => peak.most = peak.most.max(replicas),
            _ => self.peaks.push(Peak { since: now, most: replicas }),
        }
        let kept = f64::from(window_seconds) + PEAK_SECONDS;
        self.peaks.retain(|peak| now.seconds_since(peak.since) < kept);
        let surplus = self.peaks.len().saturating_sub(PEAKS_MAX);
        self.peaks.drain(..surplus);
    }

    /// The most that was recommended within the down window, once it is full.
    pub(super) fn falling(&self, now: Moment, window_seconds: u32) -> Option<u32> {
        let since = self.falling_since?;
        let full = now.seconds_since(since) >= f64::from(window_seconds);
        self.peaks.iter().map(|peak| peak.most).max().filter(|_| full)
    }

    /// Remembers a rescale.
    pub(super) fn see_rescale(&mut self, now: Moment) {
        self.forget_windows();
        self.settled_since = None;
        self.rescales.push(now);
        let surplus = self.rescales.len().saturating_sub(RESCALES_MAX);
        self.rescales.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000)
    }

    #[test]
    fn the_state_is_bounded_and_survives_being_written_down() {
        let mut state = State::default();
        for step in 0..10_000_u64 {
            state = state.at(at(step * 15), "r");
            state.see_recommendation(at(step * 15), 3, 3_600);
            state.rescales.push(at(step * 15));
            state.see_rescale(at(step * 15));
            state.see_recommendation(at(step * 15), 3, 3_600);
        }
        for step in 10_000..20_000_u64 {
            state = state.at(at(step * 15), "r");
            state.see_recommendation(at(step * 15), 3, 3_600);
        }
        assert!(state.peaks.len() <= PEAKS_MAX && state.rescales.len() <= RESCALES_MAX);
        let text = serde_json::to_string(&state).unwrap();
        assert!(text.len() < 8_192, "{} bytes of status", text.len());
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        assert_eq!(serde_json::from_str::<State>("{}").unwrap(), State::default());
    }

    #[test]
    fn the_down_window_is_full_length_after_a_gap() {
        let mut state = State::default();
        for second in (0..600).step_by(15) {
            state = state.at(at(second), "r");
            assert_eq!(state.falling(at(second), 600), None, "{second}");
            state.see_recommendation(at(second), 2, 600);
        }
        assert_eq!(state.falling(at(600), 600), Some(2));
        assert_eq!(state.at(at(720), "r").falling(at(720), 600), None, "decisions stopped for two minutes");
    }

    #[test]
    fn a_clock_that_goes_back_takes_the_moments_with_it() {
        let state = State {
            decided_at: Some(at(9_000)),
            in_vain_until: Some(at(9_060)),
            rescales: vec![at(8_000)],
            killed_at: Some(at(8_990)),
            ..State::default()
        };
        let moved = state.at(at(2_000), "");
        let expected = (Some(at(2_060)), vec![at(1_000)], Some(at(1_990)));
        assert_eq!((moved.in_vain_until, moved.rescales, moved.killed_at), expected);
    }

    #[test]
    fn the_down_window_forgets_a_peak_only_when_it_is_old() {
        let mut state = State::default();
        for second in (0..=1_200).step_by(15) {
            state.see_recommendation(at(second), if second == 300 { 9 } else { 2 }, 600);
            if second >= 600 {
                let expected = if second < 960 { 9 } else { 2 };
                assert_eq!(state.falling(at(second), 600), Some(expected), "{second}");
            }
        }
    }

    #[test]
    fn capacity_is_dropped_with_the_template_and_goes_by_bytes_with_other_messages() {
        let learned = State {
            revision: "one".into(),
            capacity: Some(5.0),
            message_bytes: Some(100.0),
            ..State::default()
        };
        assert_eq!(learned.at(at(0), "one").capacity, Some(5.0));
        assert_eq!(learned.at(at(0), "two").capacity, None);
        for (bytes, expected) in
            [(60.0, Some(5.0)), (190.0, Some(5.0)), (250.0, Some(2.0)), (25.0, Some(20.0))]
        {
            let mut state = learned.clone();
            state.see_message_bytes(Some(bytes));
            assert_eq!(state.capacity, expected, "{bytes}");
        }
    }

    #[test]
    fn a_slow_drift_of_the_messages_is_learned_and_not_taken_off_twice() {
        // From 100 to 201 bytes in four hours; a gateway does 100,000 bytes a second, and shows it at every poll.
        let mut state = State::default();
        for poll in 0..=960_u32 {
            let bytes = 100.0 + 101.0 * f64::from(poll) / 960.0;
            state.see_work(Some(100_000.0 / bytes), Some(bytes));
            let capacity = state.capacity.unwrap();
            assert!((capacity * bytes / 100_000.0 - 1.0).abs() < 0.01, "{capacity} at {bytes} bytes");
        }
        // What was not learned, as gateways were idle meanwhile, is of the messages before.
        state.see_work(None, Some(500.0));
        assert!((state.capacity.unwrap() - 200.0).abs() < 2.0, "{state:?}");
    }
}
