//! What becomes of attributes on their way into a row: `attributes` of the config leaves some out, hashes some, and truncates long ones.
//!
//! Place in the flow: between the walk and the writers of [`crate::rows::attributes`]. [`source::Carried`] stands in the place of the
//! walk's iterator; a set that no rule is for is read by the walk's iterator as without a config. Owner: a worker has its own [`Carry`];
//! all share one [`Carrying`].
//!
//! | an attribute | is written |
//! | --- | --- |
//! | whose first rule says `Drop` | not at all; it is still checked, so that whether a message is malformed does not depend on the config |
//! | whose first rule says `Hash` | as text: [`hash`] |
//! | whose first rule says `Keep`, or without a rule | unchanged; a string or bytes beyond `valueBytesMax` are truncated |
//! | that is a key-value list without a rule | with its members, to which the rules for their dotted path apply |
//!
//! The decision depends only on the key. So equal keys are decided alike, and the first of two equal keys is still the one that is stored.
//! A message always gives the same rows under the same config.
//!
//! Cost: without a config, one comparison per set. With rules, the first byte and the length of each attribute's key are checked. If a rule
//! may apply, the key is looked up in a table of keys, and by binary search among beginnings. A hash takes one pass of SHA-256 over the value.
//!
//! Limits: [`LIST_BYTES_MAX`] of a list whose members have rules, and of the text of a list or an array that is hashed; the row of a span
//! with more is rejected as too large. Such a copy lives while its attribute is written. The copy and its text need less memory than the
//! budget has for a row while it grows.

pub mod hash;
pub mod keys;
pub mod letters;
mod list;
mod source;

pub use source::{Carried, Source};

use keys::{Decider, KeyRules};
use sluice_gateway_config::{AttributeAction, Attributes, AttributesOf, UnreadableLetters};
use std::{cell::Cell, sync::Arc};

/// Bytes of a list that is written again with other members. Chosen: a list of this size is a document, which belongs into a string; the
/// copy is small beside the largest row.
pub const LIST_BYTES_MAX: usize = 256 << 10;

/// The path prefix of the length of a truncated value: `sluice.original_bytes.db.query.text`. It cannot be declared
/// (`sluice_clickhouse::json_type`).
pub const ORIGINAL_BYTES: &[u8] = b"sluice.original_bytes";

/// The compiled `attributes` of a config.
#[derive(Debug)]
pub struct Carrying {
    /// In the order of [`AttributesOf::ALL`].
    sets: [KeyRules; AttributesOf::ALL.len()],
    /// Of the rules, in their order.
    actions: Vec<AttributeAction>,
    value_bytes_max: usize,
    unreadable_letters: UnreadableLetters,
}

impl Carrying {
    /// `None` if attributes are written as they are, and letters too.
    pub fn of(config: &Attributes) -> Option<Arc<Self>> {
        let bytes = config.value_bytes_max.map(|bytes| usize::try_from(bytes.get()).unwrap_or(usize::MAX));
        (!config.is_default()).then(|| {
            Arc::new(Self {
                sets: AttributesOf::ALL.map(|set| KeyRules::of(&config.rules, set)),
                actions: config.rules.iter().map(|rule| rule.action).collect(),
                value_bytes_max: bytes.unwrap_or(usize::MAX),
                unreadable_letters: config.unreadable_letters,
            })
        })
    }

    /// What each rule does.
    pub fn actions(&self) -> impl Iterator<Item = AttributeAction> {
        self.actions.iter().copied()
    }

    /// Whether a letter may not contain all attributes of its message.
    pub fn changes_letters(&self) -> bool {
        self.actions().any(|action| action != AttributeAction::Keep)
    }

    /// Whether a letter about a message that cannot be read has no value.
    pub fn leaves_out_unreadable(&self) -> bool {
        self.unreadable_letters == UnreadableLetters::WithoutValue
    }

    fn keys(&self, set: AttributesOf) -> &KeyRules {
        &self.sets[index(set)]
    }
}

/// Where a set is in [`AttributesOf::ALL`].
fn index(set: AttributesOf) -> usize {
    match set {
        AttributesOf::Resource => 0,
        AttributesOf::Scope => 1,
        AttributesOf::Span => 2,
        AttributesOf::Event => 3,
        AttributesOf::Link => 4,
    }
}

/// A worker's part: counts.
#[derive(Debug)]
pub struct Carry {
    carrying: Arc<Carrying>,
    /// Attributes for which a rule has decided, by its number.
    matched: Vec<Cell<u64>>,
    truncated: Cell<u64>,
}

impl Carry {
    /// For one worker.
    pub fn new(carrying: Arc<Carrying>) -> Self {
        let matched = vec![Cell::new(0); carrying.actions.len()];
        Self { carrying, matched, truncated: Cell::new(0) }
    }

    /// What is done with the attributes of a set; `None` if they are written as they are.
    #[inline]
    pub fn set(&self, set: AttributesOf) -> Option<SetCarry<'_>> {
        let keys = self.carrying.keys(set);
        let value_bytes_max = self.carrying.value_bytes_max;
        (!keys.is_empty() || value_bytes_max != usize::MAX).then(|| SetCarry {
            decider: Decider { keys, matched: Some(&self.matched) },
            value_bytes_max,
            truncated: Some(&self.truncated),
        })
    }

    /// Starts to count anew, for a message.
    pub fn begin(&mut self) {
        self.matched.iter_mut().for_each(|count| *count.get_mut() = 0);
        *self.truncated.get_mut() = 0;
    }

    /// Attributes for which each rule has decided, in the order of the rules. Those of a resource that comes from the cache are not counted.
    pub fn matched(&self) -> impl Iterator<Item = u64> {
        self.matched.iter().map(Cell::get)
    }

    /// Values that were truncated.
    pub fn truncated(&self) -> u64 {
        self.truncated.get()
    }
}

/// What is done with the attributes of one set.
#[derive(Debug, Clone, Copy)]
pub struct SetCarry<'a> {
    decider: Decider<'a>,
    value_bytes_max: usize,
    truncated: Option<&'a Cell<u64>>,
}

impl SetCarry<'_> {
    /// The same for a second look at the same attributes: it counts nothing.
    #[must_use]
    pub fn uncounted(self) -> Self {
        Self { decider: Decider { matched: None, ..self.decider }, truncated: None, ..self }
    }
}
