//! Whether the gateways' inserts succeed, from two reads of their counters. Pure; its owner is the code that reads the gateways.
//!
//! ```text
//!            inserts came through, or nothing fails and nothing waits
//!        +-----------------------------------------------------------+
//!        v                                                           |
//!   not known -----------------------------------------------> failing
//!               inserts failed and none came through, twice
//! ```
//!
//! A read without an attempt says nothing, and the former state holds: a gateway waits longer between two attempts of a block than the
//! operator between two reads. One or two failed attempts beside successful ones do not change the state either.
//!
//! Another process counts from nothing: what it has counted by the first look is all of now, and the state of the process before it does not hold. One
//! that reads Kafka could use the table before it was ready, and so does not fail until its own inserts do. Of one with `source.otlp`, nothing is known.
//! The operator looks again after 15 s if no insert came through by then.
//!
//! If ClickHouse refuses all inserts from a moment on, the next read finds inserts of before and failures since: nothing is certain. While a gateway
//! is in doubt like that, the operator reads every 15 s, and two more reads make it certain. That takes at most 60 s: the first 30 s are the wait
//! for the first read.

use sluice_crds::status::reason;

/// Looks in a row at which inserts failed and none came through, until they count as failing. Chosen: one may be a server that restarts.
const LOOKS_FAILED: u8 = 2;

/// While inserts are in doubt, gateways are looked at again after this many seconds. Chosen: two looks without an insert that came through lie 30 s
/// after the last one that did, which most restarts of a server do not last.
pub const DOUBT_SECONDS: u64 = 15;

/// The class of an insert whose table is another than the gateway knows.
const REFRESH_SCHEMA: &str = "RefreshSchema";

/// ClickHouse's code for a table that does not exist.
pub(crate) const UNKNOWN_TABLE: u32 = 60;

/// ClickHouse's code for a database that does not exist.
pub(crate) const UNKNOWN_DATABASE: u32 = 81;

/// What a gateway has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inserts {
    /// Blocks that ClickHouse has acknowledged.
    pub done: u64,
    /// Tries that failed for a reason that does not lie in the rows.
    pub failed: u64,
    /// Whether blocks wait, in memory or on the volume.
    pub waiting: bool,
}

/// How an insert of a gateway failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InsertError {
    /// What the gateway does next, as a word.
    pub class: String,
    /// The exception code of ClickHouse; `None` without an answer of it.
    pub code: Option<u32>,
    /// The text of the answer or of the connection; empty if it is not told.
    pub message: String,
    /// The server, if the gateway names it.
    pub endpoint: Option<String>,
    /// The full name of the table, quoted, if the gateway names it.
    pub table: Option<String>,
    /// Why the table cannot be used, as a reason of conditions, if the gateway waits for it before it reads.
    pub table_error: Option<&'static str>,
}

/// Which gateway it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedInsert {
    /// Its number.
    pub ordinal: u32,
    pub error: InsertError,
}

impl InsertError {
    /// The same cause, whatever the text says of times and sizes: a condition keeps the first text of a cause.
    pub fn is_same_cause(&self, other: &Self) -> bool {
        (&self.class, self.code, self.table_error) == (&other.class, other.code, other.table_error)
    }

    /// Whether the table cannot be used, as a gateway with `source.otlp` finds it before it reads its logs.
    pub fn is_of_table(&self) -> bool {
        self.class == REFRESH_SCHEMA && self.code.is_none() && !self.message.is_empty()
    }

    /// Whether ClickHouse says that a table does not exist.
    pub fn is_table_missing(&self) -> bool {
        self.code == Some(UNKNOWN_TABLE) || self.table_error == Some(reason::TABLE_MISSING)
    }

    /// Whether ClickHouse says that the database does not exist.
    pub fn is_database_missing(&self) -> bool {
        self.code == Some(UNKNOWN_DATABASE) || self.table_error == Some(reason::DATABASE_MISSING)
    }

    /// For people.
    pub fn words(&self) -> String {
        if self.is_of_table() {
            return self.message.clone();
        }
        let at = self.endpoint.as_ref().map(|server| format!(" at {server}")).unwrap_or_default();
        let into = self.table.as_ref().map(|table| format!(" to the insert into {table}"));
        let into = into.unwrap_or_default();
        let who = match self.code {
            Some(code) => format!("ClickHouse{at} answered with code {code}{into}"),
            None => format!("no answer of ClickHouse{at}{into}"),
        };
        match (&*self.message, self.code) {
            ("", Some(_)) => format!("{who}; its text may quote rows, and is in the log of the gateways"),
            ("", None) => who,
            (text, _) => format!("{who}: {text}"),
        }
    }
}

/// What is known of the inserts of one gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watched {
    last: Option<Inserts>,
    looks_failed: u8,
    is_failing: Option<bool>,
    /// Whether the last look leaves open how inserts go: some failed beside others that came through, or a new process has inserted nothing yet.
    is_open: bool,
    /// Whether the process has not been looked at since it began.
    is_new: bool,
    /// Whether it could use the table before it was ready.
    is_table_read: bool,
}

/// What is known of the inserts of all gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SinkSeen {
    /// They were not asked, or not often enough; what was said before still holds.
    #[default]
    NotKnown,
    /// What gateways insert comes through, or they have nothing to insert.
    Well,
    /// Nothing comes through from some of them.
    Failing {
        /// Whether that is so of each.
        all: bool,
    },
}

impl Watched {
    /// Whether its inserts fail.
    pub fn is_failing(&self) -> bool {
        self.is_failing == Some(true)
    }

    /// Whether inserts have failed lately, or the process is new, and it is not known yet whether inserts come through.
    pub fn is_in_doubt(&self) -> bool {
        !self.is_failing() && (self.is_open || self.looks_failed > 0)
    }

    /// Of a process that has replaced one which was looked at: all that it has counted happened since. `is_table_read` says whether it could use
    /// the table before it was ready, as one that reads Kafka.
    #[must_use]
    pub fn of_new_process(is_table_read: bool) -> Self {
        let is_failing = is_table_read.then_some(false);
        Self { last: Some(Inserts::default()), is_failing, is_new: true, is_table_read, ..Self::default() }
    }

    /// After another look.
    #[must_use]
    pub fn look(self, now: Inserts) -> Self {
        let Some(last) = self.last else { return Self { last: Some(now), ..self } };
        if now.done < last.done || now.failed < last.failed {
            return Self::of_new_process(self.is_table_read).look(now);
        }
        let after = Self { last: Some(now), is_open: self.is_new, is_new: false, ..self };
        let has_failed = now.failed > last.failed;
        // A process that has just begun may have nothing to insert yet.
        let is_idle = !self.is_new && !has_failed && !now.waiting;
        let begins_well = self.is_new && self.is_table_read && !has_failed;
        let comes_through = now.done > last.done;
        if comes_through || is_idle || begins_well {
            let is_open = has_failed || (self.is_new && !comes_through);
            return Self { looks_failed: 0, is_failing: Some(false), is_open, ..after };
        }
        let looks_failed = self.looks_failed.saturating_add(u8::from(has_failed));
        let is_failing =
            if looks_failed >= LOOKS_FAILED { Some(true) } else { self.is_failing.filter(|_| !self.is_new) };
        Self { looks_failed, is_failing, ..after }
    }
}

/// Of all gateways that are ready together.
pub fn together<'a>(gateways: impl IntoIterator<Item = &'a Watched>) -> SinkSeen {
    let known: Vec<Option<bool>> = gateways.into_iter().map(|gateway| gateway.is_failing).collect();
    if known.contains(&Some(true)) {
        return SinkSeen::Failing { all: known.iter().all(|is_failing| *is_failing == Some(true)) };
    }
    if known.is_empty() || known.contains(&None) { SinkSeen::NotKnown } else { SinkSeen::Well }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After looks at these numbers of blocks done and tries failed, with blocks waiting.
    fn after(looks: &[(u64, u64)]) -> Option<bool> {
        let looked = looks.iter().fold(Watched::default(), |watched, (done, failed)| {
            watched.look(Inserts { done: *done, failed: *failed, waiting: true })
        });
        looked.is_failing
    }

    #[test]
    fn inserts_fail_once_two_looks_say_so_and_until_one_comes_through() {
        for (looks, expected) in [
            (&[(5, 1)][..], None),
            (&[(5, 1), (5, 2)], None),
            (&[(5, 1), (5, 2), (5, 3)], Some(true)),
            (&[(5, 1), (5, 2), (5, 2), (5, 3)], Some(true)),
            (&[(5, 1), (6, 2), (6, 3)], Some(false)),
            (&[(5, 1), (5, 2), (6, 3), (6, 4)], Some(false)),
            (&[(5, 1), (5, 2), (5, 3), (5, 3), (5, 3)], Some(true)),
            (&[(5, 1), (5, 2), (5, 3), (6, 4)], Some(false)),
            (&[(5, 1), (5, 1), (5, 1)], None),
        ] {
            assert_eq!(after(looks), expected, "{looks:?}");
        }
    }

    #[test]
    fn a_new_process_begins_without_the_judgement_of_the_former_one() {
        for (looks, expected) in [
            (&[(5, 1), (5, 2), (5, 3), (0, 0)][..], None),
            (&[(5, 1), (5, 2), (5, 3), (1, 0)], Some(false)),
            (&[(5, 1), (5, 2), (5, 3), (0, 1)], None),
            (&[(5, 1), (5, 2), (0, 0), (0, 1)], None),
            (&[(5, 1), (5, 2), (5, 3), (0, 1), (0, 2)], Some(true)),
            (&[(5, 1), (6, 1), (0, 0)], None),
        ] {
            assert_eq!(after(looks), expected, "{looks:?}");
        }
        // Without a lower counter, only the pod tells that it is another process.
        let new = |is_table_read, done, failed, waiting| {
            Watched::of_new_process(is_table_read).look(Inserts { done, failed, waiting })
        };
        let look = |done, failed, waiting| new(false, done, failed, waiting);
        assert_eq!(look(7, 9, true).is_failing, Some(false));
        let idle = look(0, 0, false);
        assert_eq!((idle.is_failing, idle.is_in_doubt()), (None, true), "it may be about to insert");
        let idle = idle.look(Inserts::default());
        assert_eq!((idle.is_failing, idle.is_in_doubt()), (Some(false), false));
        // One that could use the table is well until its own inserts fail.
        assert_eq!(Watched::of_new_process(true).is_failing, Some(false));
        for (failed, expected) in [(0, Some(false)), (1, None)] {
            let begun = new(true, 0, failed, true);
            assert_eq!((begun.is_failing, begun.is_in_doubt()), (expected, true), "{failed}");
        }
        let inserts = |failed| Inserts { done: 0, failed, waiting: true };
        let failing = new(true, 0, 0, true).look(inserts(1)).look(inserts(2));
        assert_eq!(failing.is_failing, Some(true));
    }

    #[test]
    fn inserts_are_in_doubt_from_the_first_failure_until_they_come_through_or_count_as_failing() {
        let in_doubt = |looks: &[(u64, u64)]| {
            let looked = looks.iter().fold(Watched::default(), |watched, (done, failed)| {
                watched.look(Inserts { done: *done, failed: *failed, waiting: true })
            });
            looked.is_in_doubt()
        };
        for (looks, expected) in [
            (&[(5, 1)][..], false),
            (&[(5, 1), (6, 1)], false),
            // ClickHouse began to refuse between the two looks.
            (&[(5, 1), (6, 2)], true),
            (&[(5, 1), (6, 2), (6, 3)], true),
            (&[(5, 1), (6, 2), (6, 3), (6, 3)], true),
            (&[(5, 1), (6, 2), (6, 3), (6, 4)], false),
            (&[(5, 1), (6, 2), (6, 3), (7, 3)], false),
            (&[(5, 1), (6, 2), (7, 2)], false),
        ] {
            assert_eq!(in_doubt(looks), expected, "{looks:?}");
        }
    }

    #[test]
    fn how_an_insert_failed_is_said_with_what_is_known_of_it() {
        let of = |code, message: &str| InsertError {
            class: "Halt".into(),
            code,
            message: message.into(),
            ..InsertError::default()
        };
        for (error, expected) in [
            (of(Some(516), "wrong password"), "ClickHouse answered with code 516: wrong password"),
            (
                of(Some(53), ""),
                "ClickHouse answered with code 53; its text may quote rows, and is in the log of the gateways",
            ),
            (of(None, "connection refused"), "no answer of ClickHouse: connection refused"),
        ] {
            assert_eq!(error.words(), expected);
        }
        let with_place = |error: InsertError| InsertError {
            endpoint: Some("http://a:8123".into()),
            table: Some("`d`.`t`".into()),
            ..error
        };
        for (error, expected) in [
            (
                of(Some(497), "no right"),
                "ClickHouse at http://a:8123 answered with code 497 to the insert into `d`.`t`: no right",
            ),
            (
                of(None, "refused"),
                "no answer of ClickHouse at http://a:8123 to the insert into `d`.`t`: refused",
            ),
        ] {
            assert_eq!(with_place(error).words(), expected);
        }
        let of_table = InsertError {
            class: "RefreshSchema".into(),
            ..of(None, "waits for the table: it does not exist")
        };
        assert_eq!(of_table.words(), "waits for the table: it does not exist");
        assert!(of(Some(252), "301 parts").is_same_cause(&of(Some(252), "302 parts")));
        assert!(!of(Some(252), "").is_same_cause(&of(None, "")));
        let of_database = InsertError { table_error: Some(reason::DATABASE_MISSING), ..of_table.clone() };
        assert!(of_database.is_database_missing() && !of_database.is_same_cause(&of_table));
    }

    #[test]
    fn one_that_has_nothing_to_insert_is_well() {
        let idle = Inserts { done: 5, failed: 3, waiting: false };
        let looked = Watched { is_failing: Some(true), ..Watched::default() }.look(idle).look(idle);
        assert_eq!(looked.is_failing, Some(false));
    }

    #[test]
    fn all_are_well_once_each_is_known_to_be() {
        let of = |is_failing| Watched { is_failing, ..Watched::default() };
        let (failing, well, unknown) = (of(Some(true)), of(Some(false)), of(None));
        for (gateways, expected) in [
            (vec![], SinkSeen::NotKnown),
            (vec![well, unknown], SinkSeen::NotKnown),
            (vec![well, well], SinkSeen::Well),
            (vec![well, failing], SinkSeen::Failing { all: false }),
            (vec![unknown, failing], SinkSeen::Failing { all: false }),
            (vec![failing, failing], SinkSeen::Failing { all: true }),
        ] {
            assert_eq!(together(&gateways), expected, "{gateways:?}");
        }
    }
}
