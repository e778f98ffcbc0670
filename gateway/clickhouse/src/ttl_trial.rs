//! Asks a server whether rules of a TTL act on new rows at once.
//!
//! Job: a TTL may be any expression of 16, 32 or 64 bits, and only the server evaluates all of them. The question names no table: it
//! evaluates the expression for one row with only `Timestamp`, whose time is the present. Place in the flow: `check`, `ddl diff`, `audit`,
//! and a task of its own in a gateway; no insert and no start waits for it. Limits: [`TRIED_MAX`] rules of a table, [`TRIAL_TIMEOUT`]
//! for each.
//!
//! A rule that reads other columns too, or that the server does not evaluate in time, is left out: nothing is known of it.

use std::time::Duration;

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::{Probe, with_settings};
use crate::probe_error::ProbeError;
use crate::settings::TRIAL_PINNED;
use crate::sql::literal;
use crate::ttl::{self, Age, AtOnce, Rule};

/// How long the server may take for a rule. Chosen: it evaluates one expression for one row.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of rules that are tried. Chosen: a table has one or two; with this many, a trial ends within 16 s.
const TRIED_MAX: usize = 8;

/// The server's answer for a row of the present.
#[derive(Debug, Row, Deserialize)]
struct Tried {
    /// The type of the rule's time.
    type_name: String,
    /// When the rule acts, in seconds since 1970.
    acts_seconds: i64,
    /// The same, as UTC.
    acts: String,
    /// The present, in seconds since 1970.
    now_seconds: i64,
}

impl Probe {
    /// The rules of the table's TTL that act on rows of the present at once, as far as the server can tell.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the table does not exist. A rule that cannot be tried is no error.
    pub async fn acting_at_once(&self, table: &str) -> Result<Vec<AtOnce>, ProbeError> {
        let engine_full = self.engine_row(table).await?.engine_full;
        Ok(self.acting_at_once_in(table, &engine_full).await)
    }

    /// The same for a table with this engine.
    pub(crate) async fn acting_at_once_in(&self, table: &str, engine_full: &str) -> Vec<AtOnce> {
        let mut found = Vec::new();
        for rule in ttl::rules(engine_full).filter(needs_trial).take(TRIED_MAX) {
            let question = question(&self.database, table, rule.expression);
            let answer = with_settings(self.client().query_raw(&question), TRIAL_PINNED).fetch_one::<Tried>();
            match self.within(TRIAL_TIMEOUT, "evaluating the table's TTL", answer).await {
                Ok(tried) => found.extend(at_once(rule.text, &tried)),
                // The server that does not answer for one rule is not asked for the others.
                Err(error) if error.is_unanswered() => break,
                Err(_) => {}
            }
        }
        found
    }
}

/// Whether only the server knows what the rule does to new rows.
fn needs_trial(rule: &Rule<'_>) -> bool {
    rule.deletes() && !matches!(rule.age(), Some(Age::Plain(_)))
}

/// Evaluates the expression for one row. `Timestamp` has the table's type, because a time zone may be part of it.
fn question(database: &str, table: &str, expression: &str) -> String {
    format!(
        "SELECT toTypeName(sluice_acts) AS type_name, toInt64(toDateTime64(sluice_acts, 0)) AS acts_seconds, \
         toString(toDateTime64(sluice_acts, 0, 'UTC')) AS acts, toInt64(now()) AS now_seconds FROM (\
         SELECT ({expression}) AS sluice_acts FROM (SELECT CAST(now64(9), assumeNotNull((\
         SELECT type FROM system.columns WHERE database = {} AND table = {} AND name = 'Timestamp'))) AS Timestamp))",
        literal(database),
        literal(table)
    )
}

/// Whether the rule acts already. For the server, 0 stands for no TTL.
fn at_once(rule: &str, tried: &Tried) -> Option<AtOnce> {
    let Tried { type_name, acts_seconds, acts, now_seconds } = tried;
    if *acts_seconds == 0 || acts_seconds > now_seconds {
        return None;
    }
    // DateTime('UTC') is a DateTime.
    let limit = match type_name.split_once('(').map_or(&**type_name, |(name, _)| name) {
        "DateTime" => ", which has 32 bits and wraps after 2106-02-07",
        "Date" => ", which has 16 bits and wraps after 2149-06-06",
        _ => "",
    };
    let reason = format!(
        "for a row of now it gives {acts} UTC; its type is {type_name}{limit}; change it with ALTER TABLE … MODIFY TTL"
    );
    Some(AtOnce { rule: rule.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28 12:51:07 UTC.
    const NOW: i64 = 1_795_870_267;

    fn tried(type_name: &str, acts_seconds: i64) -> Option<AtOnce> {
        let tried = Tried {
            type_name: type_name.into(),
            acts_seconds,
            acts: "1970-03-17 06:22:51".into(),
            now_seconds: NOW,
        };
        at_once("a + b", &tried)
    }

    #[test]
    fn a_rule_whose_time_is_past_acts_at_once() {
        for (type_name, bits) in [
            ("DateTime", "32 bits"),
            ("DateTime('UTC')", "32 bits"),
            ("Date", "16 bits"),
            ("DateTime64(9)", ""),
            ("Date32", ""),
        ] {
            let found = tried(type_name, 6_502_971).unwrap().to_string();
            let begins =
                "the table's TTL a + b deletes every new row at once: for a row of now it gives 1970-03-17";
            assert!(found.starts_with(begins) && found.contains(type_name), "{found}");
            assert_eq!(found.contains("bits"), !bits.is_empty(), "{found}");
            assert!(found.contains(bits), "{found}");
            assert_eq!(tried(type_name, NOW + 1), None);
            assert!(tried(type_name, NOW).is_some());
            // Before 1970.
            assert!(tried(type_name, -1).is_some());
            assert_eq!(tried(type_name, 0), None, "0 is no TTL");
        }
    }

    #[test]
    fn only_rules_that_are_not_plain_ages_are_tried() {
        let engine = "MergeTree ORDER BY a TTL Timestamp + toIntervalDay(2), toDateTime(Timestamp) + toIntervalDay(29000), \
                      Timestamp + toIntervalDay(1) WHERE a = 'b', toDate(Timestamp) TO DISK 'x', toDate(Timestamp) SETTINGS x = 1";
        let tried: Vec<_> = ttl::rules(engine).filter(needs_trial).map(|rule| rule.expression).collect();
        let expected = [
            "toDateTime(Timestamp) + toIntervalDay(29000)",
            "Timestamp + toIntervalDay(1)",
            "toDate(Timestamp)",
        ];
        assert_eq!(tried, expected);
    }

    #[test]
    fn the_question_has_the_names_in_quotes() {
        let question = question("o'tel", "t", "toDate(Timestamp)");
        assert!(question.contains(r"database = 'o\'tel' AND table = 't'"), "{question}");
        assert!(question.contains("SELECT (toDate(Timestamp)) AS sluice_acts FROM ("), "{question}");
    }
}
