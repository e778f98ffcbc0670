//! How many gateways a pipeline should have, and why: one pure function.
//!
//! ```text
//!  Samples --> gate --> window --> capacity --> cause --> target --> pace --> Decision { replicas, reason, next state }
//!               |        rates      learned      why       how        when
//!               `--> hold: missing metrics never remove a gateway
//! ```
//!
//! A slow `ClickHouse` never adds gateways. The pipeline's status keeps the state for the next decision; the operator's memory has the
//! samples. There is no clock: the moment is an argument. Limits: one pass over the partitions for each step that is tried, at most one
//! for every k of ceil(N/k) within twice the mean's step.

mod capacity;
mod cause;
mod figures;
mod gate;
mod idle;
mod limit;
mod logs;
mod memory;
mod merges;
mod metrics;
mod numbers;
mod pace;
mod reason;
mod remembered;
mod rescale;
mod sample;
mod standing;
mod state;
mod steps;
mod stuck_logs;
mod stuck_partitions;
mod target;
mod trial;
mod unschedulable;
mod window;
mod workload;

pub use crate::pipeline::{
    policy::{Alignment, Bounds, InitialOffset, Load, Mode, Policy, Rests},
    schedule::{Schedule, Zone},
};
pub use cause::Cause;
pub use figures::Figures;
pub use gate::Hold;
pub use idle::{Quiet, Rest};
pub use limit::Limit;
pub use logs::{GatewayLogs, LogTotals};
pub use memory::MemoryModel;
pub use merges::MergesBehind;
pub use metrics::Watched;
pub use rescale::Asked;
pub use sample::{History, PartitionSample, PodSample, SAMPLES_MAX, Sample, Samples, WorkloadSample};
pub use standing::Standing;
pub use state::{Peak, RESCALES_MAX, Rising, State, Trial};
pub use steps::steps;

use crate::{ground::moment::Moment, pipeline::otlp_config::REPLICAS_OF_REQUESTS};
use pace::Wish;
use reason::Change;
use target::Demand;
use window::Rates;

/// Steps against memory in a row; a leak fills any number of gateways.
const MEMORY_STEPS_MAX: u32 = 2;
/// After so many seconds without pressure, memory may force steps again: a slow leak takes hours to fill a pod.
const MEMORY_CALM_SECONDS: f64 = 21_600.0;
/// Pressure lasts so many seconds before it counts: two windows of a minute.
const PRESSURE_SECONDS: f64 = 120.0;
/// A kill counts for so many seconds.
pub(crate) const KILL_SECONDS: f64 = 600.0;
/// After messages were lost, or a topic was recreated, lag does not count for so many seconds.
const LOST_SECONDS: f64 = 600.0;

/// What to do, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Gateways to have.
    pub replicas: u32,
    /// Gateways that it takes; what `Recommend` says.
    pub recommended: u32,
    /// Why there is lag, or would be.
    pub cause: Cause,
    /// Why nothing was decided.
    pub hold: Option<Hold>,
    /// What limits the number.
    pub limited: Option<Limit>,
    /// What was seen; `None` while nothing is known.
    pub figures: Option<Figures>,
    /// All of it in words.
    pub reason: String,
    /// What the next decision starts from.
    pub next: State,
}

/// The memory limit, in MiB, that would do for a gateway that was killed with this one.
pub(crate) fn memory_after_kill_mib(limit_bytes: u64) -> Option<u64> {
    target::memory_limit_mib(&Policy::default(), limit_bytes, 1.0, true)
}

/// Decides. The same arguments give the same decision.
pub fn decide(now: Moment, policy: &Policy, state: &State, samples: &Samples) -> Decision {
    let mut next = state.at(now, &samples.workload.revision);
    rescale::see(now, samples.workload.desired, &mut next);
    if let Some(last) = samples.history.last()
        && let Ok(partitions @ 1..) = u32::try_from(last.partitions.len())
    {
        next.partitions = partitions;
    }
    let situation = Situation {
        now,
        policy,
        samples,
        bounds: Bounds::of(policy, now, next.partitions),
        current: samples.workload.desired,
        is_news: is_news(state, samples),
    };
    match policy.mode {
        Mode::Fixed => situation.fixed(next),
        Mode::External => situation.external(next),
        Mode::Auto | Mode::Recommend => {
            situation.see_kills(&mut next);
            if let Some(decision) = idle::decide(&situation, &mut next) {
                return decision;
            }
            match gate::check(now, samples, &mut next) {
                Ok(()) => situation.judged(next),
                Err(hold) => situation.held(hold, next),
            }
        }
    }
}

/// Whether no decision has seen the newest sample: gateways are removed only on a new sample.
fn is_news(state: &State, samples: &Samples) -> bool {
    let last = samples.history.last();
    last.is_some_and(|last| state.decided_at.is_none_or(|decided_at| last.at > decided_at))
}

/// The arguments, and what follows from them at once.
#[derive(Clone, Copy)]
struct Situation<'a> {
    now: Moment,
    policy: &'a Policy,
    samples: &'a Samples,
    bounds: Bounds,
    current: u32,
    is_news: bool,
}

/// What was found out.
#[derive(Clone, Copy)]
struct Seen<'a> {
    rates: &'a Rates,
    capacity: Option<f64>,
    cause: Cause,
    steps: &'a [u32],
}

/// How many gateways it takes.
#[derive(Clone, Copy)]
struct Need {
    recommended: u32,
    by_load: u32,
    by_memory: u32,
}

impl Situation<'_> {
    /// The number is one within the bounds, and the reason is one for it.
    fn plain(replicas: u32, reason: String, next: State) -> Decision {
        let (cause, hold, limited, figures) = (Cause::default(), None, None, None);
        Decision { replicas, recommended: replicas, cause, hold, limited, figures, reason, next }
    }

    fn fixed(&self, next: State) -> Decision {
        let policy = self.policy;
        let wanted = match (policy.replicas, next.partitions) {
            (Some(replicas), _) => replicas,
            (None, _) if policy.load == Load::Requests => REPLICAS_OF_REQUESTS,
            // Partitions are not known yet: what is there stays.
            (None, 0) => self.current,
            (None, partitions) => partitions.div_ceil(policy.partitions_per_replica.max(1)),
        };
        let change = self.change(wanted);
        Self::plain(change.to, change.plainly("the number is fixed by the spec"), next)
    }

    fn external(&self, next: State) -> Decision {
        let change = self.change(self.current);
        Self::plain(change.to, change.plainly("a client of /scale sets the number"), next)
    }

    /// What is wanted, within the bounds.
    fn change(&self, wanted: u32) -> Change {
        let to = self.bounds.clamp(wanted);
        let bound = (to != wanted).then(|| self.bounds.words(self.policy, self.now, to > wanted));
        Change { from: self.current, to, bound }
    }

    /// The samples do not allow a decision. The number never falls, except for the user's bounds and for unschedulable pods.
    fn held(&self, hold: Hold, mut next: State) -> Decision {
        next.forget_windows();
        let unknown = next.valid_at.is_none_or(|at| self.now.seconds_since(at) > gate::STALE_SECONDS);
        let wanted = match hold {
            // The highest ordinals are removed first: removing an unschedulable gateway in the middle would remove all behind it.
            Hold::Unschedulable => {
                self.current.saturating_sub(self.samples.workload.unschedulable_last).max(1)
            }
            Hold::MetricsUnavailable if unknown => {
                self.current.max(self.policy.fallback_replicas.unwrap_or(self.current))
            }
            _ => self.current,
        };
        unschedulable::see_hold(self.now, hold, &mut next);
        let change = self.change(wanted);
        let reason = unschedulable::with_waiting(
            reason::held(hold, &change, self.policy.load),
            hold,
            &self.samples.workload,
        );
        let limited = (hold == Hold::Unschedulable).then_some(Limit::Unschedulable);
        let cause = next.cause;
        let decision = Decision { hold: Some(hold), limited, cause, ..Self::plain(change.to, reason, next) };
        self.unless_only_recommended(decision)
    }

    fn judged(&self, mut next: State) -> Decision {
        let Some(rates) = window::rates(self.policy, &self.samples.history) else {
            return self.held(Hold::MetricsUnavailable, next);
        };
        self.learn(&rates, &mut next);
        let memory_pressure = self.sees_pressure(&rates, &mut next);
        let capacity = next.capacity.or(self.policy.capacity_hint);
        let known = cause::Known { capacity, in_vain: false, memory_pressure };
        let mut cause = cause::classify(self.policy, &rates, known);
        let mut in_vain = false;
        if self.policy.load == Load::Requests {
            // Clients keep their connections for minutes: what new gateways process before says nothing of whether they help.
            next.trial = None;
        } else if cause == Cause::ComputeLimited {
            in_vain = trial::judge(self.now, &rates, self.current, &mut next);
            cause = cause::classify(self.policy, &rates, cause::Known { in_vain, ..known });
        }
        next.cause = cause;
        let workers =
            self.samples.history.last().and_then(|last| last.pods.first()).map_or(1, |pod| pod.workers);
        let steps = match self.policy.load {
            Load::Partitions => steps(next.partitions, workers, self.policy.alignment, self.bounds),
            Load::Requests => steps::each(self.bounds),
        };
        let Need { recommended, by_load, by_memory } =
            self.need(&Seen { rates: &rates, capacity, cause, steps: &steps }, &next);
        let wish = Wish {
            now: self.now,
            policy: self.policy,
            steps: &steps,
            current: self.current,
            recommended,
            against_more: Self::against_more(&rates, cause, in_vain)
                .or_else(|| unschedulable::against_more(self.now, &self.samples.workload, &next)),
            against_fewer: self.against_fewer(&rates, cause, in_vain),
            by_load,
            by_memory,
            processed: rates.processed,
            lag_seconds: rates.lag_seconds(),
            busy: rates.busy_now,
            refuses: rates.refuses,
        };
        let before = next.clone();
        let moved = pace::follow(&wish, &mut next);
        if self.policy.mode == Mode::Recommend && moved.replicas != self.current {
            // Nothing changes, so there is no rescale to record, and the next decision recommends the same.
            next = before;
        }
        let change = self.change(moved.replicas);
        let by_budget = moved.by_budget && change.to != recommended;
        let limited = self.limited(&wish, cause, by_budget, &next);
        let figures = Figures { in_vain, ..self.figures(&rates, &next, &steps) };
        let reason = reason::judged(&wish, cause, &change, moved.held_by, &figures);
        let decision = Decision {
            recommended,
            cause,
            limited,
            figures: Some(figures),
            ..Self::plain(change.to, reason, next)
        };
        self.unless_only_recommended(decision)
    }

    /// Capacity, memory and loss, into the state.
    fn learn(&self, rates: &Rates, next: &mut State) {
        next.see_work(capacity::shown(next.capacity, &rates.pods), rates.message_bytes);
        if let Some(last) = self.samples.history.last() {
            next.memory = next.memory.learn(&last.pods);
        }
        if rates.lost > next.lost || (rates.anew && !next.anew) {
            next.lost_at = Some(self.now);
        }
        (next.lost, next.anew) = (rates.lost, rates.anew);
    }

    /// Records OOM kills even without good samples, because a pod that is killed again and again is never ready.
    fn see_kills(&self, next: &mut State) {
        let killed_at = self.samples.workload.killed_at;
        if killed_at > next.killed_at {
            (next.pressure_at, next.killed_at) = (next.pressure_at.max(killed_at), killed_at);
        }
    }

    /// Whether memory limits: the budget is used up for a while, or a pod was killed for it lately.
    fn sees_pressure(&self, rates: &Rates, next: &mut State) -> bool {
        let high = rates.memory_share > self.policy.memory_pressure;
        let since = if high { Some(next.pressure_since.unwrap_or(self.now)) } else { None };
        next.pressure_since = since;
        let lasts = since.is_some_and(|since| self.now.seconds_since(since) >= PRESSURE_SECONDS);
        if lasts {
            next.pressure_at = Some(self.now);
        }
        let calm = next.pressure_at.is_none_or(|at| self.now.seconds_since(at) > MEMORY_CALM_SECONDS);
        if calm {
            next.memory_steps = 0;
        }
        lasts || self.is_killed_lately(next)
    }

    /// The number it takes.
    fn need(&self, seen: &Seen<'_>, next: &State) -> Need {
        let Seen { rates, capacity, cause, steps } = *seen;
        let floor =
            target::memory_floor(self.policy, &next.memory, self.limit_bytes(), next.partitions, steps);
        // The memory model keeps gateways, but adds them only under pressure, because its estimate may be wrong.
        let kept = floor.min(self.current);
        let demand = capacity.map(|capacity| Demand {
            policy: self.policy,
            rates,
            capacity,
            disruption_seconds: next.disruption_seconds.unwrap_or(state::DISRUPTION_SECONDS),
            hurry: cause != Cause::PartitionSkewed,
            ignore_lag: next.lost_at.is_some_and(|at| self.now.seconds_since(at) < LOST_SECONDS),
        });
        // One that inserts nothing and takes no request is none of those that the load takes.
        let full = rates.stuck_logs.iter().filter(|log| log.refuses).count();
        let full = u32::try_from(full).unwrap_or(u32::MAX);
        let by_load = demand
            .map_or(self.current, |demand| demand.replicas(steps, self.current).saturating_add(full))
            .max(kept);
        // While merges are behind, load adds none, but memory may.
        let is_by_memory_alone = cause == Cause::MemoryLimited && rates.merges.is_some();
        let by_load = if is_by_memory_alone { by_load.min(self.current) } else { by_load };
        let by_load = self.bounds.clamp(by_load);
        let forced = cause == Cause::MemoryLimited && next.memory_steps < MEMORY_STEPS_MAX;
        let step = || steps::at_least(steps, self.current.saturating_add(1)).max(floor);
        let by_memory = if forced { self.bounds.clamp(step()) } else { 0 };
        Need { recommended: by_load.max(by_memory), by_load, by_memory }
    }

    fn against_more(rates: &Rates, cause: Cause, in_vain: bool) -> Option<&'static str> {
        if in_vain {
            Some("more gateways would read no more than these do")
        } else if rates.merges.is_some() && cause != Cause::MemoryLimited {
            Some("merges of ClickHouse are behind, and more gateways would make more parts")
        } else if cause == Cause::SinkLimited {
            Some("ClickHouse is the limit, and more gateways would only wait for it too")
        } else if rates.sink_now.max(rates.sink_of_full).max(rates.behind_now) > cause::SINK_DOUBTFUL
            || rates.insert_failures
        {
            Some("gateways wait for ClickHouse, which may be the limit")
        } else {
            None
        }
    }

    fn against_fewer(&self, rates: &Rates, cause: Cause, in_vain: bool) -> Option<&'static str> {
        let seen = self.samples.history.span_seconds() >= f64::from(window::LONG_SECONDS);
        let waits = rates.sink_now.max(rates.behind_now) > cause::SINK_DOUBTFUL;
        let workload = &self.samples.workload;
        if in_vain {
            Some("something other than the number of gateways limits throughput")
        } else if cause == Cause::SinkLimited && rates.merges.is_some() && !waits && !rates.insert_failures {
            Some("merges of ClickHouse are behind")
        } else if cause == Cause::SinkLimited || waits || rates.insert_failures {
            Some("gateways wait for ClickHouse")
        } else if cause == Cause::MemoryLimited {
            Some("memory is under pressure")
        } else if workload.rolling {
            Some("gateways are being replaced")
        } else if workload.ready < workload.desired {
            // The gateways with the highest ordinals would be removed, and they may be the ones that work.
            Some("not all gateways are ready")
        } else if rates.refuses {
            Some("gateways refuse requests, and what they refuse is in no rate")
        } else if rates.lag_seconds() > pace::CAUGHT_UP_SECONDS {
            Some("the backlog is not read yet")
        } else if rates.spool_blocks > 0 {
            Some("queue volumes are not drained")
        } else if !seen {
            Some("there are too few samples yet")
        } else if !self.is_news {
            Some("there is no new sample since the last decision")
        } else {
            None
        }
    }

    fn limited(&self, wish: &Wish<'_>, cause: Cause, by_budget: bool, next: &State) -> Option<Limit> {
        match cause {
            Cause::SinkLimited => Some(Limit::SinkLimited),
            Cause::PartitionStuck => Some(Limit::PartitionStuck),
            Cause::PartitionSkewed => Some(Limit::PartitionSkewed),
            Cause::MemoryLimited
                if next.memory_steps >= MEMORY_STEPS_MAX || wish.current >= self.bounds.max =>
            {
                Some(Limit::Memory)
            }
            _ if wish.recommended > wish.current && unschedulable::is_against(wish.against_more) => {
                Some(Limit::Unschedulable)
            }
            _ if by_budget => Some(Limit::Budget),
            _ if wish.recommended < self.bounds.max || self.bounds.max == self.bounds.min => None,
            _ if self.policy.load == Load::Partitions && self.bounds.max == next.partitions => {
                Some(Limit::TooFewPartitions)
            }
            _ => Some(Limit::MaxReplicas),
        }
    }

    /// The largest memory limit that a gateway has; 0 while none is known.
    fn limit_bytes(&self) -> u64 {
        let last = self.samples.history.last();
        last.and_then(|last| last.pods.iter().map(|pod| pod.memory_limit_bytes).max()).unwrap_or(0)
    }

    /// Partitions that stand, as `spans/3 at 4711`, or gateways whose logs do.
    fn stuck(&self, rates: &Rates) -> Vec<String> {
        let last = self.samples.history.last();
        let position = |place: usize| last.and_then(|last| (*last.partitions.get(place)?)?.read());
        let words = |place| {
            let name = self.samples.partition_name(place);
            position(place).map_or_else(|| name.clone(), |offset| format!("{name} at {offset}"))
        };
        let logs = rates.stuck_logs.iter().map(|log| {
            let full = if log.refuses { ", which refuses requests" } else { "" };
            format!("the logs of gateway {}{full}", log.ordinal)
        });
        rates.stuck().into_iter().map(words).chain(logs).take(reason::STUCK_NAMED_MAX + 1).collect()
    }

    fn is_killed_lately(&self, state: &State) -> bool {
        state.killed_at.is_some_and(|at| self.now.seconds_since(at) < KILL_SECONDS)
    }

    fn figures(&self, rates: &Rates, next: &State, steps: &[u32]) -> Figures {
        let is_killed = self.is_killed_lately(next);
        Figures {
            arrival_rate: rates.arrival,
            lag_messages: rates.lag,
            lag_seconds: rates.lag_seconds(),
            capacity: next.capacity.or(self.policy.capacity_hint),
            sink_wait: rates.sink_now,
            sink_behind: rates.behind_now,
            merges: rates.merges,
            rows_in_flight: rates.rows_in_flight,
            in_vain: false,
            inserts_fail: rates.inserts_keep_failing,
            stuck: self.stuck(rates),
            lost_messages: rates.lost,
            memory_limit_mib: target::memory_limit_mib(
                self.policy,
                self.limit_bytes(),
                rates.memory_share,
                is_killed,
            ),
            next_steps: steps.iter().copied().filter(|step| *step >= self.current).take(3).collect(),
        }
    }

    /// `Recommend` reports the number and changes nothing.
    fn unless_only_recommended(&self, mut decision: Decision) -> Decision {
        if self.policy.mode == Mode::Recommend {
            // Bounds hold only where the operator decides; in no mode are there more gateways than partitions.
            let is_unbounded = decision.next.partitions == 0 || self.policy.load == Load::Requests;
            let partitions = if is_unbounded { u32::MAX } else { decision.next.partitions };
            decision.replicas = self.current.min(partitions);
            let result = if decision.replicas == self.current {
                format!("stays at {}", self.current)
            } else {
                format!("from {} to {partitions}, because there are no more partitions", self.current)
            };
            decision.reason = format!("recommended only, {result}: {}", decision.reason);
        }
        decision
    }
}
