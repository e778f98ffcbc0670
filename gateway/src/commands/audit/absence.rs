//! Decides why the audit sees no row of a span. Pure.
//!
//! | condition | the span is |
//! | --- | --- |
//! | the table's TTL had expired the row when the span was compared, because of its age | expired |
//! | the same, because the TTL's 32 bits wrap | expired at once |
//! | the table's TTL has a rule that the audit cannot evaluate, a row policy hides rows from the user, or the engine keeps no rows, or passes them on | unseen |
//! | none of these | missing |

use sluice_clickhouse::{
    expiry::{ExpiryAges, ExpiryRule},
    ttl::{AtOnce, RowTtl},
};

/// Why a span has no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Lost.
    Missing,
    /// Deleted by the table's TTL because of its age.
    Expired,
    /// Deleted by the table's TTL at once, since its 32 bits wrap.
    ExpiredAtOnce,
    /// Unknown: stored, deleted or lost.
    Unseen,
}

/// What is known about rows that the audit cannot see, from the tables of all shards.
#[derive(Debug, Clone, Default)]
pub struct Absence {
    /// The ages at which rows are deleted.
    ages: ExpiryAges,
    /// What the TTL deletes although it is not old.
    wrapped: Option<&'static str>,
    reasons: Vec<String>,
}

/// Why rows that a table accepted are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowsElsewhere {
    /// Its engine is `Null`: it keeps none.
    Dropped,
    /// Its engine is `Distributed`: rows wait in files of its server until they are passed on.
    Queued,
}

impl RowsElsewhere {
    /// By the engine's name.
    pub fn of(engine: &str) -> Option<Self> {
        match engine {
            "Null" => Some(Self::Dropped),
            "Distributed" => Some(Self::Queued),
            _ => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Dropped => {
                "the table's engine Null keeps no rows; audit the table that its materialized view writes to \
                 (sink.clickhouse.table)"
            }
            Self::Queued => {
                "the table's engine Distributed may not have passed all rows on (system.distribution_queue); run SYSTEM FLUSH DISTRIBUTED, or \
                 audit the table behind it"
            }
        }
    }
}

/// The rule for one moment.
#[derive(Debug, Clone, Copy)]
pub struct AbsenceRule {
    expiry: ExpiryRule,
    has_reasons: bool,
}

impl Absence {
    /// Made from the TTLs of the table on all shards, and from their rules that act on new rows at once. `hides_rows`: a row policy of a
    /// server hides rows from the user.
    pub fn new(ttls: &[RowTtl], acting_at_once: &[AtOnce], hides_rows: bool) -> Self {
        let mut reasons = Vec::new();
        for rule in ttls.iter().flat_map(RowTtl::others) {
            let at_once = acting_at_once.iter().find(|at_once| at_once.rule == *rule);
            let at_once = at_once.map(|at_once| format!("; {at_once}")).unwrap_or_default();
            let reason = format!("the table has the TTL {rule}, which the audit cannot evaluate{at_once}");
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if hides_rows {
            reasons.push(
                "a row policy hides rows from the user; audit with a user without row policies".to_owned(),
            );
        }
        Self { ages: ExpiryAges::of(ttls), wrapped: ttls.iter().find_map(RowTtl::wrapped), reasons }
    }

    /// The same of a table whose rows are elsewhere, or may be.
    #[must_use]
    pub fn with_rows_elsewhere(mut self, elsewhere: RowsElsewhere) -> Self {
        self.reasons.push(elsewhere.words().to_owned());
        self
    }

    /// What the TTL deletes although it is not old, if it does.
    pub fn wrapped(&self) -> Option<&'static str> {
        self.wrapped
    }

    /// Why spans are unseen, in sentences.
    pub fn reasons(self) -> Vec<String> {
        self.reasons
    }

    /// The rule at this time, in ns since 1970.
    pub fn at(&self, now_nanos: u64) -> AbsenceRule {
        AbsenceRule { expiry: self.ages.at(now_nanos), has_reasons: !self.reasons.is_empty() }
    }
}

impl AbsenceRule {
    /// Why a span without a row is absent; `timestamp_nanos` is the `Timestamp` that its row would have, in ns since 1970.
    pub fn of(self, timestamp_nanos: i64) -> Absent {
        if self.expiry.has_wrapped(timestamp_nanos) {
            Absent::ExpiredAtOnce
        } else if self.expiry.has_expired(timestamp_nanos) {
            Absent::Expired
        } else if self.has_reasons {
            Absent::Unseen
        } else {
            Absent::Missing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: u64 = 1_780_000_000_000_000_000;
    const NOW_NANOS: i64 = NOW.cast_signed();

    #[test]
    fn an_old_row_has_expired_and_a_young_one_is_missing() {
        let hours = |hours| RowTtl::of_age(Duration::from_hours(hours));
        let rule = Absence::new(&[hours(2), RowTtl::default(), hours(1)], &[], false).at(NOW);
        let hour = 3_600_000_000_000;
        assert_eq!(rule.of(NOW_NANOS - hour - 1), Absent::Expired);
        assert_eq!(rule.of(NOW_NANOS - hour), Absent::Missing);
        assert_eq!(Absence::default().at(NOW).of(0), Absent::Missing);
    }

    #[test]
    fn a_row_that_a_ttl_of_32_bits_deletes_at_once_is_told_from_an_old_one() {
        let absence = Absence::new(&[RowTtl::of_age_in_32_bits(Duration::from_hours(720))], &[], false);
        // 2109-01-01 00:00:00 UTC.
        assert_eq!(absence.at(NOW).of(4_386_441_600_000_000_000), Absent::ExpiredAtOnce);
        assert_eq!(absence.at(NOW).of(NOW_NANOS), Absent::Missing);
        assert_eq!(absence.at(NOW).of(NOW_NANOS - 40 * 86_400_000_000_000), Absent::Expired);
        assert!(absence.wrapped().is_some_and(|wrapped| wrapped.contains("32 bits")));
        assert_eq!(Absence::default().wrapped(), None);
    }

    #[test]
    fn what_cannot_be_told_is_unseen_with_the_reason() {
        let other = RowTtl::of_other("toDate(Timestamp) + toIntervalHour(12)");
        let absence = Absence::new(&[other.clone(), other], &[], true);
        assert_eq!(absence.at(NOW).of(NOW_NANOS), Absent::Unseen);
        let reasons = absence.reasons();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].contains("TTL toDate(Timestamp) + toIntervalHour(12), which"), "{reasons:?}");
        assert!(reasons[1].starts_with("a row policy hides rows"), "{reasons:?}");
    }

    #[test]
    fn a_table_that_keeps_no_rows_has_lost_none() {
        for (engine, words) in [
            ("Null", "the table's engine Null keeps no rows"),
            ("Distributed", "the table's engine Distributed may not have passed all rows on"),
        ] {
            let absence = Absence::default().with_rows_elsewhere(RowsElsewhere::of(engine).unwrap());
            assert_eq!(absence.at(NOW).of(NOW_NANOS), Absent::Unseen);
            assert!(absence.reasons()[0].starts_with(words));
        }
        assert_eq!(RowsElsewhere::of("MergeTree"), None);
    }

    #[test]
    fn every_rule_that_cannot_be_evaluated_is_named_beside_an_age() {
        let (first, second) = (
            "Timestamp + toIntervalDay(1) WHERE SpanName = 'old2'",
            "toDate(Timestamp) + toIntervalDay(50000)",
        );
        let hour = "Timestamp + toIntervalHour(1)";
        let at_once = AtOnce { rule: second.into(), reason: "its type is Date".into() };
        for rules in [format!("{hour}, {first}, {second}"), format!("{first}, {second}, {hour}")] {
            let ttl = RowTtl::in_engine(&format!("MergeTree ORDER BY a TTL {rules} SETTINGS x = 1"));
            let absence = Absence::new(&[ttl], std::slice::from_ref(&at_once), false);
            assert_eq!(absence.at(NOW).of(NOW_NANOS), Absent::Unseen);
            assert_eq!(absence.at(NOW).of(NOW_NANOS - 3_600_000_000_001), Absent::Expired);
            let expected = [
                format!("the table has the TTL {first}, which the audit cannot evaluate"),
                format!("the table has the TTL {second}, which the audit cannot evaluate; {at_once}"),
            ];
            assert_eq!(absence.reasons(), expected);
        }
    }
}
