//! What the user wants of scaling: mode, bounds, schedules, targets. Plain values; reading a spec is not done here.

use crate::{
    ground::moment::Moment,
    pipeline::{otlp_config::REPLICAS_OF_REQUESTS, schedule::Schedule},
};

/// The largest number of gateways of one pipeline, whatever the number of partitions. It is the bound of
/// `spec.replicas`.
pub const REPLICAS_MAX: u32 = 1_000;

/// Who sets the number of gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The spec: a number, or as many as partitions take.
    #[default]
    Fixed,
    /// This package.
    Auto,
    /// The spec; what `Auto` would do is only reported.
    Recommend,
    /// A client of `/scale`: an HPA, KEDA, kubectl.
    External,
}

/// Which numbers of gateways are worth having.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Alignment {
    /// Each step lowers the most partitions that one gateway has: ceil(N/k).
    #[default]
    Balanced,
    /// All gateways have the same number of partitions: divisors of N.
    Even,
    /// Any number.
    None,
}

/// Where a partition without a committed offset is begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InitialOffset {
    /// At its oldest message: all of it is lag.
    #[default]
    Earliest,
    /// Behind its newest: nothing of it is lag.
    Latest,
}

/// What gateways share out among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Load {
    /// Partitions of Kafka: each is read by one gateway, so that there are never more gateways than partitions.
    #[default]
    Partitions,
    /// Requests of OTLP: any gateway takes any of them. A sample has one partition, which stands for the logs of all gateways.
    Requests,
}

/// When gateways leave an idle topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rests {
    /// After this many seconds without a message.
    pub after_seconds: u32,
    /// A gateway is there again after this many seconds without one.
    pub refresh_seconds: u32,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Who decides.
    pub mode: Mode,
    /// What gateways share out among them.
    pub load: Load,
    /// Gateways in `Fixed`; `None` is as many as `partitions_per_replica` makes.
    pub replicas: Option<u32>,
    /// Partitions per gateway before anything is learned, at least 1.
    pub partitions_per_replica: u32,
    /// At least so many. With 0, at least one while the topics are not idle.
    pub replicas_min: u32,
    /// At most so many, and never more than partitions.
    pub replicas_max: Option<u32>,
    /// Bounds that change with time; the first active one counts.
    pub schedules: Vec<Schedule>,
    /// Which steps are taken.
    pub alignment: Alignment,
    /// Where a partition without a commit begins.
    pub initial_offset: InitialOffset,
    /// Messages a second of one gateway before it is learned.
    pub capacity_hint: Option<f64>,
    /// A backlog is to be worked off in this many seconds.
    pub catch_up_seconds: f64,
    /// A backlog that is older than `catch_up_seconds` is to be worked off sooner, down to this share of it. Measured on a day with half an
    /// hour of a slow `ClickHouse`, 96 partitions, seeds 0 to 9 (`cargo simulate --load sink-outage --queue disabled --catch-up-share`):
    ///
    /// | share | p99 lag up to | replica-hours |
    /// | --- | --- | --- |
    /// | 1 | 917 s | 202 |
    /// | 0.4 | 867 s | 206 |
    /// | 0.25 | 845 s | 212 |
    /// | 0.2 or less | 828 s | 228 |
    pub catch_up_share_min: f64,
    /// The share of a gateway's capacity that arrivals may take. Measured on a diurnal day, seeds 0 to 9 (`cargo simulate --load diurnal
    /// --utilization`). A larger share also leaves less for a burst.
    ///
    /// | share | replica-hours at 96 partitions | p99 lag up to | replica-hours at 24 partitions, up to | p99 lag of a burst |
    /// | --- | --- | --- | --- | --- |
    /// | 0.70 | 217 | 0.6 s | 295 | |
    /// | 0.74 | 203 | 1.9 s | 283 | 21 s |
    /// | 0.76 | 198 | 3.1 s | 280 | 31 s |
    /// | 0.78 | 194 | 3.7 s | 277 | 32 s |
    pub utilization: f64,
    /// How far above the mean bound the last step may reach.
    pub tolerance: f64,
    /// The share of its capacity that the busiest gateway may take. It may be full, because its backlog counts as a need too. Measured on a
    /// diurnal day at 24 partitions, seeds 0 to 9 (`cargo simulate --load diurnal --hottest`): 0.95, 0.97 and 1 take up to 293, 288 and 280
    /// replica-hours, at p99 lags of up to 0.5, 0.8 and 0.9 s. At 96 partitions they make no difference.
    pub hottest: f64,
    /// Share of the memory limit that a step is planned for.
    pub memory_target: f64,
    /// Share of the memory limit above which memory is what limits.
    pub memory_pressure: f64,
    /// A need lasts this many seconds before gateways are added.
    pub up_after_seconds: u32,
    /// A surplus lasts this many seconds before gateways are removed.
    pub down_after_seconds: u32,
    /// Whether gateways are ever removed.
    pub down_enabled: bool,
    /// Rescales in any hour, but for those that memory forces; at most [`RESCALES_MAX`](super::state::RESCALES_MAX).
    pub rescales_per_hour: u32,
    /// At least this many while nothing is known.
    pub fallback_replicas: Option<u32>,
    /// When gateways leave an idle topic; `None` if they stay.
    pub rests: Option<Rests>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Fixed,
            load: Load::Partitions,
            replicas: None,
            partitions_per_replica: 4,
            replicas_min: 1,
            replicas_max: None,
            schedules: Vec::new(),
            alignment: Alignment::Balanced,
            initial_offset: InitialOffset::Earliest,
            capacity_hint: None,
            catch_up_seconds: 600.0,
            catch_up_share_min: 0.15,
            utilization: 0.76,
            tolerance: 0.1,
            hottest: 1.0,
            memory_target: 0.75,
            memory_pressure: 0.85,
            up_after_seconds: 30,
            down_after_seconds: 600,
            down_enabled: true,
            rescales_per_hour: 12,
            fallback_replicas: None,
            rests: None,
        }
    }
}

impl Policy {
    /// The schedule whose bounds count now.
    fn active(&self, now: Moment) -> Option<&Schedule> {
        self.schedules.iter().find(|schedule| schedule.is_active(now))
    }

    /// When gateways may leave an idle topic now: not where a schedule wants some.
    pub(crate) fn rests_at(&self, now: Moment) -> Option<Rests> {
        let least = self.active(now).and_then(|schedule| schedule.replicas_min).unwrap_or(self.replicas_min);
        self.rests.filter(|_| least == 0 && self.mode == Mode::Auto)
    }

    /// The fewest that any bounds let there be while gateways run, at any time.
    fn replicas_least(&self) -> u32 {
        let of_schedules = self
            .schedules
            .iter()
            .flat_map(|schedule| [schedule.replicas_min, schedule.replicas_max])
            .flatten();
        of_schedules.fold(self.replicas_min, u32::min).max(1)
    }

    /// Gateways of this many partitions before anything is decided, in `Auto`: as many as `partitions_per_replica` makes, within the bounds
    /// that no schedule changes; which schedule is active is known with the first decision. `None` in the other modes.
    pub fn replicas_at_first(&self, partitions: u32) -> Option<u32> {
        let at_first = match self.load {
            Load::Partitions => partitions.div_ceil(self.partitions_per_replica.max(1)),
            Load::Requests => REPLICAS_OF_REQUESTS,
        };
        (self.mode == Mode::Auto).then(|| Bounds::by(self, None, partitions).clamp(at_first))
    }

    /// Gateways among which all partitions must have room: the fewest that there may be, so that a number that is decided later is never
    /// refused. `planned` is their number now.
    pub(crate) fn replicas_sized_for(&self, planned: u32) -> u32 {
        match self.mode {
            Mode::Fixed | Mode::Recommend => planned,
            Mode::Auto => self.replicas_least().min(planned),
            Mode::External => 1.min(planned),
        }
    }
}

/// The least and the most gateways at a moment, but for an idle topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub min: u32,
    /// At most; never below `min`, unless there are fewer partitions.
    pub max: u32,
}

impl Bounds {
    /// The bounds of this many partitions, 0 when their number is not known.
    pub fn of(policy: &Policy, now: Moment, partitions: u32) -> Self {
        Self::by(policy, policy.active(now), partitions)
    }

    fn by(policy: &Policy, active: Option<&Schedule>, partitions: u32) -> Self {
        let of_partitions =
            if partitions == 0 || policy.load == Load::Requests { u32::MAX } else { partitions };
        let max = active.and_then(|schedule| schedule.replicas_max).or(policy.replicas_max);
        let max = max.unwrap_or(u32::MAX).min(of_partitions).min(REPLICAS_MAX);
        let min = active.and_then(|schedule| schedule.replicas_min).unwrap_or(policy.replicas_min);
        Self { min: min.max(1).min(max), max }
    }

    /// The bound that a number was below, or above, in words; of a schedule, with its name.
    pub(crate) fn words(self, policy: &Policy, now: Moment, is_min: bool) -> String {
        let active = policy.active(now);
        let of = |schedule: &Schedule| if is_min { schedule.replicas_min } else { schedule.replicas_max };
        let by = active.filter(|schedule| of(schedule).is_some());
        let by = by.map(|schedule| format!(" in the schedule {}", schedule.name)).unwrap_or_default();
        let max = active.and_then(|schedule| schedule.replicas_max).or(policy.replicas_max);
        if is_min {
            format!("the minimum is {}{by}", self.min)
        } else if max == Some(self.max) {
            format!("the maximum is {}{by}", self.max)
        } else {
            format!("at most {} are possible", self.max)
        }
    }

    /// The nearest number within.
    pub fn clamp(self, replicas: u32) -> u32 {
        replicas.clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::schedule::Zone;

    #[test]
    fn gateways_are_sized_for_the_fewest_of_any_hour() {
        let of = |replicas_min, replicas_max| Schedule {
            name: "night".into(),
            days: 127,
            from_minute: 22 * 60,
            to_minute: 6 * 60,
            zone: Zone::UTC,
            replicas_min,
            replicas_max,
        };
        for (schedules, expected) in [
            (vec![], 8),
            (vec![of(Some(2), None)], 2),
            (vec![of(Some(12), None), of(None, Some(4))], 4),
            (vec![of(Some(20), Some(30))], 8),
        ] {
            let policy = Policy { mode: Mode::Auto, replicas_min: 8, schedules, ..Policy::default() };
            assert_eq!([12, 9].map(|planned| policy.replicas_sized_for(planned)), [expected; 2]);
        }
    }

    #[test]
    fn bounds_are_those_of_the_active_schedule_and_never_above_the_partitions() {
        let all_day = Schedule {
            name: "all".into(),
            days: 127,
            from_minute: 0,
            to_minute: 1_440,
            zone: Zone::UTC,
            replicas_min: Some(4),
            replicas_max: None,
        };
        let policy = Policy { replicas_max: Some(8), ..Policy::default() };
        assert_eq!(Bounds::of(&policy, Moment(0), 24), Bounds { min: 1, max: 8 });
        assert_eq!(Bounds::of(&policy, Moment(0), 3), Bounds { min: 1, max: 3 });
        let policy = Policy { schedules: vec![all_day], ..policy };
        assert_eq!(Bounds::of(&policy, Moment(0), 24), Bounds { min: 4, max: 8 });
        assert_eq!(Bounds::of(&policy, Moment(0), 3), Bounds { min: 3, max: 3 });
    }
}
