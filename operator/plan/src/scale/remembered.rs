//! Which part of a state the status keeps, and how an operator that starts continues from it.
//!
//! The status of a steady pipeline must not change. So a learned number replaces the written one only when it differs noticeably, and
//! moments that every decision moves are not written. The loss is small: windows begin again after a restart, so an operator that has
//! just started removes gateways later, never sooner.

use super::{memory::MemoryModel, state::State};
use crate::ground::moment::Moment;
use serde_json::Value;
use sluice_crds::Remembered;

/// A number that differs by less than this share is the same number.
const SAME_SHARE: f64 = 0.05;
/// A moment of lasting pressure that differs by fewer seconds is the same moment; what it decides lasts hours.
const SAME_SECONDS: f64 = 600.0;

impl State {
    /// What is to be written where `written` stands now; the same when there is nothing new.
    pub fn remembered(&self, written: &Remembered) -> Remembered {
        let before = read(written);
        let kept = self.kept(&before);
        if kept == before && !written.is_empty() {
            return written.clone();
        }
        match serde_json::to_value(&kept) {
            Ok(fields) => match without_defaults(fields) {
                Some(Value::Object(fields)) => Remembered(fields),
                _ => written.clone(),
            },
            Err(_) => written.clone(),
        }
    }

    /// The state that an operator continues from after its start. A state of another version is ignored.
    pub fn resumed(written: &Remembered, now: Moment) -> Self {
        // Nothing is stale before this operator had its time to ask.
        Self { valid_at: Some(now), ..read(written) }
    }

    fn kept(&self, before: &Self) -> Self {
        let expired = before.rescales.ends_with(&self.rescales);
        Self {
            partitions: self.partitions,
            revision: self.revision.clone(),
            cause: self.cause,
            capacity: same_number(before.capacity, self.capacity),
            message_bytes: same_number(before.message_bytes, self.message_bytes),
            memory: same_memory(before.memory, self.memory, self.partitions),
            disruption_seconds: self.disruption_seconds,
            asked: self.asked,
            rescales: if expired { before.rescales.clone() } else { self.rescales.clone() },
            trial: self.trial,
            in_vain: self.in_vain,
            in_vain_until: self.in_vain_until,
            no_room_until: self.no_room_until,
            killed_at: self.killed_at,
            pressure_at: same_moment(before.pressure_at, self.pressure_at),
            memory_steps: self.memory_steps,
            lost_at: self.lost_at,
            lost: self.lost,
            anew: self.anew,
            rest: self.rest,
            ..Self::default()
        }
    }
}

/// What is set: a field that is missing is read as what it is in a state that knows nothing.
fn without_defaults(state: Value) -> Option<Value> {
    let nothing = serde_json::to_value(State::default()).ok()?;
    let mut state = state;
    state.as_object_mut()?.retain(|name, value| nothing.get(name) != Some(value));
    without_nulls(&mut state);
    Some(state)
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn read(written: &Remembered) -> State {
    serde_json::from_value(Value::Object(written.0.clone())).unwrap_or_default()
}

fn is_same(before: f64, now: f64) -> bool {
    (now - before).abs() <= SAME_SHARE * before.abs()
}

fn same_number(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    match (before, now) {
        (Some(before), Some(now)) if is_same(before, now) => Some(before),
        _ => now,
    }
}

fn same_moment(before: Option<Moment>, now: Option<Moment>) -> Option<Moment> {
    match (before, now) {
        (Some(before), Some(now)) if now >= before && now.seconds_since(before) < SAME_SECONDS => {
            Some(before)
        }
        _ => now,
    }
}

/// Sums are compared by what follows from them.
fn same_memory(before: MemoryModel, now: MemoryModel, partitions: u32) -> MemoryModel {
    let same =
        [1, partitions.max(1)].iter().all(|held| match (before.expected(*held), now.expected(*held)) {
            (Some(before), Some(now)) => is_same(before, now),
            (before, now) => before.is_some() == now.is_some(),
        });
    if same { before } else { now }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::PodSample, *};

    fn pods(noise: u64) -> Vec<PodSample> {
        let pod = |partitions: u32, mib: u64| PodSample {
            memory_bytes: (mib << 20) + noise,
            partitions: (0..partitions).collect(),
            ..PodSample::default()
        };
        vec![pod(4, 120), pod(8, 140)]
    }

    #[test]
    fn a_state_at_rest_is_written_once() {
        let mut state = State { capacity: Some(10_000.0), partitions: 12, ..State::default() };
        let mut written = Remembered::default();
        let mut writes = 0;
        for step in 0..2_000_u64 {
            let now = Moment(step * 15_000);
            state = state.at(now, "r");
            state.memory = state.memory.learn(&pods(step % 7 * 1_000));
            state.capacity = Some(10_000.0 + f64::from(u32::try_from(step % 9).unwrap()));
            state.pressure_at = Some(Moment(0));
            let next = state.remembered(&written);
            writes += usize::from(next != written);
            written = next;
        }
        assert_eq!(writes, 1);
    }

    #[test]
    fn what_the_api_server_gives_back_is_nothing_new() {
        let state = State { capacity: Some(10_000.0), lost: 7, ..State::default() };
        let written = state.remembered(&Remembered::default());
        // The server writes a float without a fraction as a whole number.
        let text = serde_json::to_string(&written).unwrap().replace("10000.0", "10000");
        let given_back: Remembered = serde_json::from_str(&text).unwrap();
        assert_eq!(state.remembered(&given_back), given_back);
    }

    #[test]
    fn what_is_not_known_is_not_written_and_read_back_as_such() {
        assert!(State::default().remembered(&Remembered::default()).is_empty());
        let mut state = State { capacity: Some(5.0), lost: 7, ..State::default() };
        state.memory = state.memory.learn(&pods(0));
        let written = state.remembered(&Remembered::default());
        let text = serde_json::to_string(&written).unwrap();
        assert!(!text.contains("null") && !text.contains("inVain") && text.contains("memory"), "{text}");
        let resumed = State::resumed(&written, Moment(0));
        assert_eq!((resumed.capacity, resumed.lost, resumed.memory), (state.capacity, 7, state.memory));
    }

    /// 0.1.0 wrote fields that say nothing.
    #[test]
    fn a_state_of_an_earlier_version_is_nothing_new() {
        let written: Remembered = serde_json::from_str(
            r#"{"capacity": 10000, "cause": "ComputeLimited", "disruptionSeconds": 40, "givenUp": 0, "inVain": 0, "lost": 0,
                "memory": {"mib": 0, "partMib": null, "partitions": 0, "partitionsMib": 0, "partitionsSquared": 0, "weight": 0},
                "memorySteps": 0, "partitions": 8, "revision": "0123456789"}"#,
        )
        .unwrap();
        let state = State::resumed(&written, Moment(0));
        assert_eq!((state.capacity, state.partitions), (Some(10_000.0), 8));
        assert_eq!(state.remembered(&written), written);
    }

    #[test]
    fn what_was_learned_outlives_the_operator_and_windows_do_not() {
        let mut state = State { killed_at: Some(Moment(3)), ..State::default() }.at(Moment(1_000), "r");
        state.capacity = Some(5.0);
        state.see_rescale(Moment(1_000));
        state.see_recommendation(Moment(1_000), 4, 600);
        let resumed = State::resumed(&state.remembered(&Remembered::default()), Moment(60_000));
        assert_eq!(
            (resumed.capacity, resumed.killed_at, resumed.revision.as_str()),
            (Some(5.0), Some(Moment(3)), "r")
        );
        assert_eq!(resumed.rescales, [Moment(1_000)]);
        assert_eq!((resumed.falling_since, resumed.peaks.len()), (None, 0));
        assert_eq!(resumed.valid_at, Some(Moment(60_000)));
    }

    #[test]
    fn an_hour_after_a_rescale_nothing_is_written() {
        let mut state = State::default().at(Moment(0), "r");
        state.see_rescale(Moment(0));
        let written = state.remembered(&Remembered::default());
        let later = state.at(Moment(4_000_000), "r");
        assert!(later.rescales.is_empty());
        assert_eq!(later.remembered(&written), written);
    }

    #[test]
    fn something_of_another_version_is_nothing() {
        let other: Remembered = serde_json::from_str(r#"{"capacity": "much"}"#).unwrap();
        assert_eq!(
            State::resumed(&other, Moment(5)),
            State { valid_at: Some(Moment(5)), ..State::default() }
        );
    }
}
