//! When a table deletes rows: its TTL, as `engine_full` of `system.tables` prints it.
//!
//! Place in the flow: [`crate::ddl::difference`] compares it with the spec's. The gateway counts rows that are already expired when they
//! are inserted. `sluice-gateway audit` does not report expired rows as missing.
//!
//! A TTL is a list of rules. A row is deleted as soon as one of them says so:
//!
//! | rule | becomes |
//! | --- | --- |
//! | `Timestamp` or `toDateTime64(Timestamp, 0)`, plus at most [`AGE_MAX`] | [`RowTtl::age`] |
//! | `toDateTime(Timestamp)` plus less than [`SECONDS_OF_32_BITS`] | [`RowTtl::age_in_32_bits`] |
//! | moves rows or compresses them again | no part of a [`RowTtl`] |
//! | any other, and each with a condition or `GROUP BY` | one of [`RowTtl::others`]: not evaluated here |
//!
//! `toDateTime(Timestamp) + age` has 32 bits: it wraps in February 2106. A row whose `Timestamp` plus the age is later expires at once.
//! `toDateTime64(Timestamp, 0) + age` and `Timestamp + age` have 64 bits. The server is asked what other rules do to new rows:
//! [`AtOnce`].

use std::fmt;
use std::time::Duration;

/// The seconds after which a `DateTime` begins again at 1970.
pub const SECONDS_OF_32_BITS: u64 = 1 << 32;

/// The longest age that is read from a TTL: the longest that a config may ask for. Beyond 2262, `Timestamp` plus an age wraps, too.
pub const AGE_MAX: Duration = Duration::from_hours(36_500 * 24);

/// 2026-11-01 00:00:00 UTC, in seconds since 1970: the month of this rule. New rows are later, unless a clock is wrong.
const NEW_ROWS_SINCE: u64 = 1_793_491_200;

/// Words behind the expression of a rule.
const CLAUSES: [&str; 5] = [CONDITION, GROUPS, " TO DISK ", " TO VOLUME ", " RECOMPRESS "];

/// The rule holds for some rows only.
const CONDITION: &str = " WHERE ";

/// The rule replaces rows by aggregates.
const GROUPS: &str = " GROUP BY ";

/// When a table deletes its rows. The default is never.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowTtl {
    age: Option<Duration>,
    age_in_32_bits: Option<Duration>,
    others: Vec<String>,
}

impl RowTtl {
    /// All rows are deleted at this age, counted from `Timestamp`.
    pub fn of_age(age: Duration) -> Self {
        Self { age: Some(age), ..Self::default() }
    }

    /// All rows are deleted at this age, counted from `toDateTime(Timestamp)`.
    pub fn of_age_in_32_bits(age: Duration) -> Self {
        Self { age_in_32_bits: Some(age), ..Self::default() }
    }

    /// Rows are deleted by a rule that is not evaluated.
    pub fn of_other(rule: impl Into<String>) -> Self {
        Self { others: vec![rule.into()], ..Self::default() }
    }

    /// The TTL of a table, from its engine with all its clauses: `MergeTree PARTITION BY … TTL … SETTINGS …`.
    pub fn in_engine(engine_full: &str) -> Self {
        let mut ttl = Self::default();
        let shorter = |known: Option<Duration>, age| Some(known.map_or(age, |known| known.min(age)));
        for rule in rules(engine_full).filter(Rule::deletes) {
            match rule.age() {
                Some(Age::Plain(age)) => ttl.age = shorter(ttl.age, age),
                Some(Age::In32Bits(age)) => ttl.age_in_32_bits = shorter(ttl.age_in_32_bits, age),
                None => ttl.others.push(rule.text.to_owned()),
            }
        }
        ttl
    }

    /// The age at which rows of every time are deleted, if it is a fixed one. The shortest, if there are several.
    pub fn age(&self) -> Option<Duration> {
        self.age
    }

    /// The same, counted from `toDateTime(Timestamp)`: rows are deleted at once if `Timestamp` plus the age is beyond 32 bits. Less than
    /// [`SECONDS_OF_32_BITS`].
    pub fn age_in_32_bits(&self) -> Option<Duration> {
        self.age_in_32_bits
    }

    /// Rules that delete rows and are not evaluated here.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// Whether rows are deleted at this age, counted from `Timestamp`, and by no other rule.
    pub fn is_only(&self, age: Duration) -> bool {
        *self == Self::of_age(age)
    }

    /// What it deletes although the rows are not old: a clause for a message about the table. `None` if it deletes no such rows, as far as
    /// its rules are evaluated.
    pub fn wrapped(&self) -> Option<&'static str> {
        let age = self.age_in_32_bits()?.as_secs();
        Some(if age.saturating_add(NEW_ROWS_SINCE) >= SECONDS_OF_32_BITS {
            "the present TTL exceeds 32 bits (toDateTime) and deletes every new row at once"
        } else {
            "the present TTL has 32 bits (toDateTime) and deletes rows at once whose Timestamp plus its age is after 2106-02-07"
        })
    }
}

/// A rule of a TTL that acts on rows whose `Timestamp` is the present, as a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtOnce {
    /// The rule, as the server prints it.
    pub rule: String,
    /// The time that it gives for a row of the present, and the limit of its type: a clause.
    pub reason: String,
}

impl fmt::Display for AtOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, reason } = self;
        let outline = outline(rule);
        let deletes = match (outline.contains(GROUPS), outline.contains(CONDITION)) {
            (true, _) => "replaces new rows at once by aggregates",
            (false, true) => "deletes new rows at once that fulfil its condition",
            (false, false) => "deletes every new row at once",
        };
        write!(f, "the table's TTL {rule} {deletes}: {reason}")
    }
}

/// One rule of a TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule<'a> {
    /// All of it.
    pub(crate) text: &'a str,
    /// The time at which it acts.
    pub(crate) expression: &'a str,
    /// What it does then, and to which rows; empty for deleting all.
    clause: &'a str,
}

/// An age that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Plain(Duration),
    In32Bits(Duration),
}

impl<'a> Rule<'a> {
    fn of(text: &'a str) -> Self {
        let outline = outline(text);
        let end = CLAUSES.iter().filter_map(|clause| outline.find(clause)).min().unwrap_or(text.len());
        let (expression, clause) = text.split_at(end);
        Self { text, expression, clause }
    }

    /// Whether it deletes rows, or replaces them by aggregates.
    pub(crate) fn deletes(&self) -> bool {
        [CONDITION, GROUPS].iter().any(|clause| self.clause.starts_with(clause)) || self.clause.is_empty()
    }

    /// The age at which it deletes every row, if it counts from `Timestamp`.
    pub(crate) fn age(&self) -> Option<Age> {
        if !self.clause.is_empty() {
            return None;
        }
        let (from, interval) = self.expression.split_once(" + ")?;
        let age = Duration::from_secs(interval_seconds(interval)?);
        match from {
            "toDateTime64(Timestamp, 0)" | "Timestamp" if age <= AGE_MAX => Some(Age::Plain(age)),
            "toDateTime(Timestamp)" if age.as_secs() < SECONDS_OF_32_BITS => Some(Age::In32Bits(age)),
            // `toDate(Timestamp)` counts from midnight, so that rows are deleted up to a day too early.
            _ => None,
        }
    }
}

/// `toDateTime(Timestamp) + toIntervalDay(3)` of `MergeTree … TTL toDateTime(Timestamp) + toIntervalDay(3) SETTINGS …`.
pub(crate) fn expression(engine_full: &str) -> Option<&str> {
    const TTL: &str = " TTL ";
    let outline = outline(engine_full);
    let start = outline.find(TTL)? + TTL.len();
    let end = outline.rfind(" SETTINGS ").filter(|end| *end >= start).unwrap_or(engine_full.len());
    Some(engine_full.get(start..end)?.trim())
}

/// The rules of the table's TTL, in its order.
pub(crate) fn rules(engine_full: &str) -> impl Iterator<Item = Rule<'_>> {
    expression(engine_full).map(elements).unwrap_or_default().into_iter().map(Rule::of)
}

/// The rules of a TTL: between the commas of the list itself. The columns of `GROUP BY` and the assignments behind it have commas, too.
fn elements(ttl: &str) -> Vec<&str> {
    let outline = outline(ttl);
    let (mut start, mut elements) = (0, Vec::new());
    let commas = outline.match_indices(',').map(|(at, _)| at).chain([ttl.len()]);
    for comma in commas {
        let (element, rest) = (&outline[start..comma], outline.get(comma + 1..).unwrap_or_default());
        if comma < ttl.len() && is_grouping_in(element, rest) {
            continue;
        }
        elements.push(ttl[start..comma].trim());
        start = comma + 1;
    }
    elements
}

/// Whether the rule `element` with `GROUP BY` goes on behind its comma: with a column up to `SET`, then with `name = value`.
fn is_grouping_in(element: &str, rest: &str) -> bool {
    let Some((_, groups)) = element.split_once(GROUPS) else { return false };
    let is_name = |name: &str| !name.trim().is_empty() && !name.trim().contains([' ', ',']);
    !groups.contains(" SET ") || rest.split_once(" = ").is_some_and(|(name, _)| is_name(name))
}

/// The text with `_` for every byte inside of quotes and brackets, so that the commas and words that remain are its own. As long as it.
fn outline(text: &str) -> String {
    let (mut depth, mut quote, mut is_escaped) = (0_u32, None, false);
    let mut outline = String::with_capacity(text.len());
    for char in text.chars() {
        let is_inside = depth > 0 || quote.is_some();
        match (quote, char) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(end), _) if char == end => quote = None,
            (None, '\'' | '`' | '"') => quote = Some(char),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if is_inside || quote.is_some() || !char.is_ascii() {
            outline.extend(std::iter::repeat_n('_', char.len_utf8()));
        } else {
            outline.push(char);
        }
    }
    outline
}

fn interval_seconds(interval: &str) -> Option<u64> {
    let units = [("Second", 1), ("Minute", 60), ("Hour", 3_600), ("Day", 86_400), ("Week", 604_800)];
    units.iter().find_map(|(unit, seconds)| {
        let number = interval.strip_prefix(&format!("toInterval{unit}("))?.strip_suffix(')')?;
        number.parse::<u64>().ok()?.checked_mul(*seconds)
    })
}

#[cfg(test)]
#[path = "ttl_tests.rs"]
mod tests;
