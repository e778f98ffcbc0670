//! The reason of a decision, for status and events: what was observed, how many gateways it needs, and why the number changes or stays.

use super::{Cause, Figures, Load, MergesBehind, gate::Hold, numbers, pace::Wish};
use std::fmt::Write as _;

/// From how many gateways to how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Now.
    pub from: u32,
    /// From now on.
    pub to: u32,
    /// The bound that makes it so, where one does.
    pub bound: Option<String>,
}

impl Change {
    /// The same in words.
    fn words(&self) -> String {
        let Self { from, to, bound } = self;
        let number = if from == to { format!("stays at {to}") } else { format!("from {from} to {to}") };
        match bound {
            Some(bound) => format!("{number}, because {bound}"),
            None => number,
        }
    }

    /// A reason that does not depend on the number; the number is added only if a bound changes it.
    pub fn plainly(&self, reason: &str) -> String {
        match self.bound {
            Some(_) => format!("{reason}; {}", self.words()),
            None => reason.into(),
        }
    }
}

/// Nothing was decided.
pub fn held(hold: Hold, change: &Change, load: Load) -> String {
    format!("{}: {}", change.words(), hold.words(load))
}

/// A decision was made. A bound that changes the number overrules what holds it.
pub fn judged(
    wish: &Wish<'_>,
    cause: Cause,
    change: &Change,
    held_by: Option<&str>,
    figures: &Figures,
) -> String {
    let needs = needs(wish, figures);
    let because = because(cause, figures);
    let result = change.words();
    match held_by.filter(|_| change.bound.is_none()) {
        Some(held_by) => format!("{needs}{because}; {result}: {held_by}"),
        None => format!("{needs}{because}; {result}"),
    }
}

fn needs(wish: &Wish<'_>, figures: &Figures) -> String {
    let arrival = thousands(figures.arrival_rate);
    let Some(capacity) = figures.capacity else {
        return format!("{arrival} messages/s; the capacity of a gateway is not known yet");
    };
    let mut words = format!(
        "{arrival} messages/s at {:.0} % of {} per gateway",
        wish.policy.utilization * 100.0,
        thousands(capacity)
    );
    let lag = format!("{} ({:.0} s)", thousands(figures.lag_messages), figures.lag_seconds);
    let need = format!("need {}", wish.recommended);
    let more = match wish.policy.load {
        _ if figures.lag_seconds < 1.0 => format!(" {need}"),
        Load::Partitions => format!(" and a lag of {lag} {need}"),
        // No gateway takes it from another.
        Load::Requests => format!(" {need}, whatever waits in the logs: {lag}"),
    };
    words.push_str(&more);
    words
}

fn because(cause: Cause, figures: &Figures) -> String {
    match cause {
        Cause::ComputeLimited => String::new(),
        Cause::SinkLimited if figures.in_vain => {
            format!("; SinkLimited: throughput did not rise when gateways were added{}", merges(figures))
        }
        Cause::SinkLimited => {
            let failing = if figures.inserts_fail { ", and inserts fail" } else { "" };
            let behind = if figures.sink_behind > 0.0 {
                format!(", and in {:.0} % of the gateways blocks wait for it", figures.sink_behind * 100.0)
            } else {
                String::new()
            };
            let in_flight = match figures.rows_in_flight {
                0 => String::new(),
                rows => format!(", {} rows are in flight", thousands(numbers::count(rows))),
            };
            format!(
                "; SinkLimited: {:.0} % of the workers' time goes to waiting for ClickHouse{in_flight}{behind}{failing}{}",
                figures.sink_wait * 100.0,
                merges(figures)
            )
        }
        Cause::PartitionSkewed => {
            "; PartitionSkewed: one partition has more than a gateway can read; split its key or add partitions"
                .into()
        }
        Cause::PartitionStuck => stuck(&figures.stuck),
        Cause::MemoryLimited => {
            let limit = figures
                .memory_limit_mib
                .map_or("a larger memory limit".into(), |mib| format!("gateway.resources.limits.memory: {mib}Mi"));
            format!("; MemoryLimited: each gateway needs fewer partitions, or {limit}")
        }
    }
}

fn merges(figures: &Figures) -> String {
    figures.merges.map(MergesBehind::words).unwrap_or_default()
}

/// Partitions are named up to this many.
pub(super) const STUCK_NAMED_MAX: usize = 8;

fn stuck(partitions: &[String]) -> String {
    let mut words = "; PartitionStuck: others advance, these do not: ".to_owned();
    for (place, partition) in partitions.iter().take(STUCK_NAMED_MAX).enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        write!(words, "{comma}{partition}").expect("a String takes all that is written to it");
    }
    if partitions.len() > STUCK_NAMED_MAX {
        words.push_str(", ...");
    }
    words
}

/// `0.42`, `3.1`, `950`, `12.3 k`, `4.5 M`.
fn thousands(number: f64) -> String {
    if number > 0.0 && number < 10.0 {
        // Two significant digits: of large messages there are few.
        let places = if number < 0.1 { 3 } else { 2 - usize::from(number >= 1.0) };
        let digits = format!("{number:.places$}");
        digits.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else if number < 1_000.0 {
        format!("{number:.0}")
    } else if number < 1_000_000.0 {
        format!("{:.1} k", number / 1_000.0)
    } else {
        format!("{:.1} M", number / 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, expected) in [
            (0.0, "0"),
            (0.0042, "0.004"),
            (0.42, "0.42"),
            (3.12, "3.1"),
            (5.0, "5"),
            (40.0, "40"),
            (950.4, "950"),
            (12_345.0, "12.3 k"),
            (4_500_000.0, "4.5 M"),
        ] {
            assert_eq!(thousands(number), expected);
        }
    }

    #[test]
    fn a_sink_that_is_the_limit_is_told_with_what_waits_for_it() {
        let figures = Figures { sink_wait: 0.8, ..Figures::default() };
        let nothing = because(Cause::SinkLimited, &figures);
        assert_eq!(nothing, "; SinkLimited: 80 % of the workers' time goes to waiting for ClickHouse");
        let waiting = Figures { rows_in_flight: 41_000, sink_behind: 0.5, inserts_fail: true, ..figures };
        let words = because(Cause::SinkLimited, &waiting);
        let more =
            ", 41.0 k rows are in flight, and in 50 % of the gateways blocks wait for it, and inserts fail";
        assert_eq!(words, format!("{nothing}{more}"));
        let merges = Some(MergesBehind { parts: 620, delay_from: 1_000 });
        let words = because(Cause::SinkLimited, &Figures { merges, sink_wait: 0.8, ..Figures::default() });
        let behind = ", and its merges are behind: a partition of the table has 620 parts, and INSERTs are delayed from 1000 on";
        assert_eq!(words, format!("{nothing}{behind}"));
    }

    #[test]
    fn stuck_partitions_are_named_but_not_all() {
        let named = |count: u32| (0..count).map(|number| format!("a/{number} at 5")).collect::<Vec<_>>();
        assert!(stuck(&named(2)).ends_with("these do not: a/0 at 5, a/1 at 5"));
        assert!(stuck(&named(100)).ends_with("a/7 at 5, ..."));
    }
}
