//! The rules of one set of attributes, found by key.
//!
//! ```text
//! key --> first byte and length of any key? --no--> the rule of `*`, or none
//!               | yes
//!               v
//!         table of exact keys --found--> its rule
//!               | no
//!               v
//!         first bytes of any beginning? --no--> as above
//!               | yes
//!               v
//!         longest beginning (binary search, then its parents) --found--> its rule, else as above
//! ```
//!
//! Of several rules with a key, the first counts. That is decided when the config is compiled, so that a look finds one rule. Limits: those
//! of `sluice_gateway_config::attributes`.

use sluice_gateway_config::{AttributeAction, AttributeRule, AttributesOf};
use std::cell::Cell;

/// A rule that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Its number in the config.
    pub rule: usize,
    pub action: AttributeAction,
}

/// The rules of one set.
#[derive(Debug, Default)]
pub struct KeyRules {
    /// Open addressing; the number of slots is a power of two and at least twice that of the keys.
    exact: Vec<Option<Exact>>,
    /// Sorted by their bytes.
    beginnings: Vec<Beginning>,
    heads: Heads,
    lengths: Lengths,
    /// That of `*`.
    rest: Option<Decision>,
    /// All keys and beginnings, sorted.
    all: Vec<Box<[u8]>>,
}

/// By first byte, the lengths of keys that may have a rule: bit 63 stands for 63 bytes and more.
#[derive(Debug)]
struct Lengths(Box<[u64; 256]>);

impl Default for Lengths {
    fn default() -> Self {
        Self(Box::new([0; 256]))
    }
}

impl Lengths {
    #[inline]
    fn may_have(&self, key: &[u8]) -> bool {
        key.first().is_some_and(|byte| self.0[usize::from(*byte)] >> length_bit(key) & 1 == 1)
    }
}

/// A key without `*`, and its rule.
#[derive(Debug, Clone)]
struct Exact {
    ends: Ends,
    bytes: Box<[u8]>,
    decision: Decision,
}

impl Exact {
    /// Whether it is this key. Compares integers: `memcmp` costs more for keys of this length.
    #[inline]
    fn is(&self, key: &[u8], ends: Ends) -> bool {
        self.ends == ends && self.bytes.len() == key.len() && {
            let middle =
                |key: &[u8], at: usize| key.get(at..).and_then(|rest| rest.first_chunk::<8>().copied());
            (8..key.len().saturating_sub(8)).step_by(8).all(|at| middle(&self.bytes, at) == middle(key, at))
        }
    }
}

/// The first and the last eight bytes of a key: all of it if it has at most 16. One shorter than eight bytes stands in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends(u64, u64);

impl Ends {
    #[inline]
    fn of(key: &[u8]) -> Self {
        match (key.first_chunk(), key.last_chunk()) {
            (Some(first), Some(last)) => Self(u64::from_be_bytes(*first), u64::from_be_bytes(*last)),
            _ => Self(head(key), 0),
        }
    }

    /// A hash of a key with these ends. Keys in the table come from the config, so that no sender can choose them.
    #[inline]
    fn hash(self, len: usize) -> usize {
        // 2^64 divided by the golden ratio: Knuth's multiplicative hash.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let Self(first, last) = self;
        let spread = (first ^ last.rotate_left(7) ^ len as u64).wrapping_mul(SPREAD);
        (spread >> 32) as usize
    }
}

/// The first bytes of all beginnings. Most keys begin with other bytes. One or two comparisons of integers find that out; the search among
/// the beginnings would call `memcmp` for each.
#[derive(Debug, Default)]
struct Heads {
    /// Selects as many bytes as the shortest beginning has, at most eight.
    mask: u64,
    sorted: Vec<u64>,
}

impl Heads {
    fn of(beginnings: &[Beginning]) -> Self {
        let shortest = beginnings.iter().map(|beginning| beginning.bytes.len()).min().unwrap_or(0).min(8);
        let mask = (0..shortest).fold(0, |mask: u64, _| mask >> 8 | 0xFF << 56);
        let mut sorted: Vec<u64> = beginnings.iter().map(|beginning| head(&beginning.bytes) & mask).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self { mask, sorted }
    }

    /// Whether a beginning of this key may be among them.
    #[inline]
    fn may_have(&self, key: &[u8]) -> bool {
        self.sorted.binary_search(&(head(key) & self.mask)).is_ok()
    }
}

/// The first eight bytes of a text, the first one in front, and zeros behind a shorter one.
#[inline]
fn head(text: &[u8]) -> u64 {
    text.first_chunk().map_or_else(
        || text.iter().zip(0..8).fold(0, |head, (byte, at)| head | u64::from(*byte) << (56 - 8 * at)),
        |first: &[u8; 8]| u64::from_be_bytes(*first),
    )
}

/// The part of a key in front of `*`.
#[derive(Debug)]
struct Beginning {
    bytes: Box<[u8]>,
    /// Where the longest other beginning of it is.
    parent: Option<usize>,
    decision: Decision,
}

/// A key of the config, without its `*`.
struct Pattern<'a> {
    bytes: &'a [u8],
    is_beginning: bool,
    decision: Decision,
}

impl Pattern<'_> {
    fn matches(&self, key: &[u8]) -> bool {
        if self.is_beginning { key.starts_with(self.bytes) } else { key == self.bytes }
    }

    /// Whether it has every key with this beginning.
    fn has_all_of(&self, beginning: &[u8]) -> bool {
        self.is_beginning && beginning.starts_with(self.bytes)
    }
}

impl KeyRules {
    /// Those of these rules that are for this set.
    pub fn of(rules: &[AttributeRule], set: AttributesOf) -> Self {
        let patterns: Vec<Pattern<'_>> = patterns(rules, set).collect();
        let first = |matches: &dyn Fn(&Pattern<'_>) -> bool| {
            patterns.iter().find(|pattern| matches(pattern)).map(|pattern| pattern.decision)
        };
        let rest = first(&|pattern| pattern.has_all_of(b""));
        let mut found = Self { rest, ..Self::default() };
        let (beginnings, exact): (Vec<_>, Vec<_>) = patterns.iter().partition(|pattern| pattern.is_beginning);
        found.exact.resize((2 * exact.len()).next_power_of_two(), None);
        for key in exact.iter().map(|pattern| pattern.bytes) {
            found.note(key, 1 << length_bit(key));
            if let Some(decision) = first(&|pattern| pattern.matches(key)) {
                found.insert(key, decision);
            }
        }
        for beginning in beginnings.iter().map(|pattern| pattern.bytes).filter(|bytes| !bytes.is_empty()) {
            found.note(beginning, u64::MAX << length_bit(beginning));
            if let Some(decision) = first(&|pattern| pattern.has_all_of(beginning)) {
                found.beginnings.push(Beginning { bytes: beginning.into(), parent: None, decision });
            }
        }
        found.sort();
        found
    }

    /// Whether no rule is for the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.rest.is_none()
    }

    /// The rule that decides for an attribute with this key.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<Decision> {
        if self.lengths.may_have(key) { self.look_up(key) } else { self.rest }
    }

    /// Whether a rule names a path below this key: `user.email` is below `user`.
    pub fn reach_below(&self, key: &[u8]) -> bool {
        let path = || key.iter().chain(b".");
        let at = self.all.partition_point(|other| other.iter().lt(path()));
        let behind_key = self.all.get(at).and_then(|other| other.strip_prefix(key));
        behind_key.is_some_and(|rest| rest.starts_with(b"."))
    }

    fn look_up(&self, key: &[u8]) -> Option<Decision> {
        let exact = self.exact(key);
        if exact.is_none() && self.heads.may_have(key) {
            return self.by_beginning(key).or(self.rest);
        }
        exact.or(self.rest)
    }

    #[inline]
    fn exact(&self, key: &[u8]) -> Option<Decision> {
        let (mask, ends) = (self.exact.len() - 1, Ends::of(key));
        let mut at = ends.hash(key.len()) & mask;
        while let Some(known) = &self.exact[at] {
            if known.is(key, ends) {
                return Some(known.decision);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// The decision of the longest beginning. A beginning of the key is in front of the key, and everything between the two begins with
    /// it too; so it is the last one in front of the key, or a parent of that.
    fn by_beginning(&self, key: &[u8]) -> Option<Decision> {
        let behind = self.beginnings.partition_point(|beginning| *beginning.bytes <= *key);
        let mut at = behind.checked_sub(1);
        while let Some(beginning) = at.map(|at| &self.beginnings[at]) {
            if key.starts_with(&beginning.bytes) {
                return Some(beginning.decision);
            }
            at = beginning.parent;
        }
        None
    }

    fn note(&mut self, key: &[u8], lengths: u64) {
        if let Some(byte) = key.first() {
            self.lengths.0[usize::from(*byte)] |= lengths;
        }
        self.all.push(key.into());
    }

    fn insert(&mut self, key: &[u8], decision: Decision) {
        let (mask, ends) = (self.exact.len() - 1, Ends::of(key));
        let mut at = ends.hash(key.len()) & mask;
        while self.exact[at].as_ref().is_some_and(|known| !known.is(key, ends)) {
            at = (at + 1) & mask;
        }
        self.exact[at] = Some(Exact { ends, bytes: key.into(), decision });
    }

    fn sort(&mut self) {
        self.all.sort_unstable();
        self.beginnings.sort_unstable_by(|one, two| one.bytes.cmp(&two.bytes));
        self.beginnings.dedup_by(|one, two| one.bytes == two.bytes);
        for at in 0..self.beginnings.len() {
            let bytes = &self.beginnings[at].bytes;
            let parent = self.beginnings[..at].iter().rposition(|other| bytes.starts_with(&other.bytes));
            self.beginnings[at].parent = parent;
        }
        self.heads = Heads::of(&self.beginnings);
    }
}

/// The bit of a key's length in [`Lengths`].
#[inline]
fn length_bit(key: &[u8]) -> usize {
    key.len().min(63)
}

/// Keys and beginnings of the rules for a set, in the order in which they count.
fn patterns(rules: &[AttributeRule], set: AttributesOf) -> impl Iterator<Item = Pattern<'_>> {
    let of_set = rules.iter().enumerate().filter(move |(_, rule)| rule.sets.contains(&set));
    of_set.flat_map(|(number, rule)| {
        let decision = Decision { rule: number, action: rule.action };
        rule.keys.iter().map(move |key| {
            let stem = key.strip_suffix('*');
            let bytes = stem.unwrap_or(key).as_bytes();
            Pattern { bytes, is_beginning: stem.is_some(), decision }
        })
    })
}

/// Finds rules, and counts those that were found.
#[derive(Debug, Clone, Copy)]
pub struct Decider<'a> {
    pub keys: &'a KeyRules,
    /// By number of the rule; `None` if it does not count.
    pub matched: Option<&'a [Cell<u64>]>,
}

impl Decider<'_> {
    /// What is done with an attribute that has this key; `None` without a rule.
    #[expect(
        clippy::inline_always,
        reason = "most keys have no rule, which a call costs more to find than two loads"
    )]
    #[inline(always)]
    pub fn decide(&self, key: &[u8]) -> Option<AttributeAction> {
        let Decision { rule, action } = self.keys.find(key)?;
        if let Some(matched) = self.matched.and_then(|matched| matched.get(rule)) {
            matched.update(|count| count + 1);
        }
        Some(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(action: AttributeAction, keys: &[&str]) -> AttributeRule {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        AttributeRule { action, keys, sets: AttributesOf::ALL.to_vec() }
    }

    /// The same, one rule after the other.
    fn naive(rules: &[AttributeRule], set: AttributesOf, key: &[u8]) -> Option<Decision> {
        patterns(rules, set).find(|pattern| pattern.matches(key)).map(|pattern| pattern.decision)
    }

    #[test]
    fn the_first_rule_with_the_key_decides() {
        let rules = [
            rule(AttributeAction::Keep, &["http.request.method", "user.*"]),
            rule(AttributeAction::Hash, &["http.request.*", "user.id", "enduser.id"]),
            rule(AttributeAction::Drop, &["http.*", "enduser.id"]),
        ];
        let keys = KeyRules::of(&rules, AttributesOf::Span);
        for (key, expected) in [
            ("http.request.method", Some(0)),
            ("http.request.header", Some(1)),
            ("http.request.", Some(1)),
            ("http.route", Some(2)),
            ("http", None),
            ("httq", None),
            ("user.id", Some(0)),
            ("enduser.id", Some(1)),
            ("", None),
            ("z", None),
        ] {
            assert_eq!(keys.find(key.as_bytes()).map(|found| found.rule), expected, "{key}");
        }
        let rest = KeyRules::of(&[rule(AttributeAction::Drop, &["*"])], AttributesOf::Span);
        assert!(rest.find(b"").is_some() && rest.find(b"any").is_some() && !rest.is_empty());
    }

    #[test]
    fn long_keys_have_rules_too() {
        let long = |bytes: usize| "k".repeat(bytes);
        let rules = [rule(AttributeAction::Drop, &[&long(80), &(long(100) + "*")])];
        let keys = KeyRules::of(&rules, AttributesOf::Span);
        for (bytes, expected) in
            [(62, false), (63, false), (79, false), (80, true), (99, false), (100, true), (101, true)]
        {
            assert_eq!(keys.find(long(bytes).as_bytes()).is_some(), expected, "{bytes}");
        }
    }

    #[test]
    fn a_rule_is_for_its_sets() {
        let rules =
            [AttributeRule { sets: vec![AttributesOf::Event], ..rule(AttributeAction::Drop, &["k"]) }];
        assert!(KeyRules::of(&rules, AttributesOf::Span).is_empty());
        assert!(KeyRules::of(&rules, AttributesOf::Event).find(b"k").is_some());
    }

    #[test]
    fn paths_below_a_key_are_found() {
        let keys =
            KeyRules::of(&[rule(AttributeAction::Drop, &["user.email", "a.b.*", "x*"])], AttributesOf::Span);
        for (key, expected) in
            [("user", true), ("use", false), ("a", true), ("a.b", true), ("a.b.c", false), ("x", false)]
        {
            assert_eq!(keys.reach_below(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn what_is_found_is_counted() {
        let keys = KeyRules::of(
            &[rule(AttributeAction::Keep, &["a"]), rule(AttributeAction::Drop, &["b*"])],
            AttributesOf::Link,
        );
        let matched = [Cell::new(0), Cell::new(0)];
        let decider = Decider { keys: &keys, matched: Some(&matched) };
        for key in ["a", "b", "bb", "c"] {
            decider.decide(key.as_bytes());
        }
        assert_eq!(matched.map(Cell::into_inner), [1, 2]);
    }

    /// Keys of few letters, so that many are equal or begin with each other, in the first eight bytes and behind them.
    fn key() -> impl Strategy<Value = String> {
        "(abababa)?[ab.]{1,6}\\*?"
    }

    proptest! {
        /// The compiled rules decide like the list of them.
        #[test]
        fn a_look_finds_what_the_list_of_rules_says(
            rules in prop::collection::vec((0..3usize, prop::collection::vec(prop_oneof![key(), Just("*".to_owned())], 1..6)), 0..6),
            keys in prop::collection::vec("(abababa)?[abc.]{0,8}", 1..40),
        ) {
            let actions = [AttributeAction::Keep, AttributeAction::Drop, AttributeAction::Hash];
            let rules: Vec<AttributeRule> = rules
                .into_iter()
                .map(|(action, keys)| AttributeRule { action: actions[action], keys, sets: vec![AttributesOf::Span] })
                .collect();
            let compiled = KeyRules::of(&rules, AttributesOf::Span);
            for key in keys {
                let key = key.as_bytes();
                prop_assert_eq!(compiled.find(key), naive(&rules, AttributesOf::Span, key));
            }
        }
    }
}
