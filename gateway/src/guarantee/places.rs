//! Places where tokens are kept, as seen behind each address of a shard over several questions.
//!
//! Pure. Owner: the task of [`Watch`](super::Watch). Limits: [`PLACES_MAX`] places of each address.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long a place counts that is not seen again. Chosen: 20 questions. An address that balances over two servers does not show only one
/// of them for so long. An address whose server was replaced does.
pub const REMEMBERED: Duration = Duration::from_mins(10);

/// Remembered places of an address. Chosen: two are enough for the verdict; a few more keep it stable.
const PLACES_MAX: usize = 16;

/// The places, by the address's position in the config, and when each was last seen.
#[derive(Debug, Default)]
pub struct TokenPlaces(BTreeMap<usize, BTreeMap<String, Duration>>);

impl TokenPlaces {
    /// Records the answers of the servers behind an address. Returns whether earlier tokens cannot be relied on: a server keeps its
    /// tokens in another place than all that answered there before, or such a place is forgotten from now on.
    pub fn see(&mut self, address: usize, places: &BTreeSet<String>, now: Duration) -> bool {
        let known = self.0.entry(address).or_default();
        let is_other = !known.is_empty() && places.iter().any(|place| !known.contains_key(place));
        known.extend(places.iter().map(|place| (place.clone(), now)));
        // The last one stays, even if it does not answer for long.
        let last = known.values().max().copied().unwrap_or_default();
        let places = known.len();
        known.retain(|_, seen| last.saturating_sub(*seen) < REMEMBERED);
        let is_forgotten = known.len() < places;
        while known.len() > PLACES_MAX {
            known.pop_first();
        }
        is_other || is_forgotten
    }

    /// Whether addresses have led to different places, including those that do not answer now.
    pub fn are_apart(&self) -> bool {
        // An address that leads to several places has its own reason.
        let mut places =
            self.0.values().filter(|places| places.len() == 1).filter_map(BTreeMap::first_key_value);
        let first = places.next().map(|(place, _)| place);
        places.any(|(place, _)| Some(place) != first)
    }

    /// Whether an address has led to several places.
    pub fn vary(&self) -> bool {
        self.0.values().any(|places| places.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn places(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_address_balances_while_it_has_led_to_several_places() {
        let mut seen = TokenPlaces::default();
        // Time, places that answered; whether earlier tokens are unreliable, and whether the address balances.
        for (minute, names, is_other, vary) in [
            (0, &["a"][..], false, false),
            (1, &["a"], false, false),
            // Nothing is known yet.
            (2, &[], false, false),
            (3, &["b"], true, true),
            (4, &["a", "b"], false, true),
            (5, &["b"], false, true),
            (13, &["b"], false, true),
            // Blocks sent to the other server may still be in doubt.
            (14, &["b"], true, false),
            // It was replaced by another one, which is away for a day.
            (20, &["c"], true, true),
            (1_500, &[], false, true),
            (1_501, &["c"], true, false),
        ] {
            assert_eq!(seen.see(0, &places(names), minute * MINUTE), is_other, "{minute}");
            assert_eq!(seen.vary(), vary, "{minute}");
        }
    }

    #[test]
    fn two_addresses_of_replicas_that_differ_do_not_balance_and_are_apart_also_while_one_is_away() {
        let mut seen = TokenPlaces::default();
        assert!(!seen.are_apart());
        for (address, names, are_apart) in
            [(0, &["a"][..], false), (1, &["b"], true), (0, &["a"], true), (0, &[], true)]
        {
            assert!(!seen.see(address, &places(names), MINUTE));
            assert_eq!(seen.are_apart(), are_apart);
        }
        assert!(!seen.vary());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = TokenPlaces::default();
        for number in 0..100 {
            seen.see(0, &places(&[&number.to_string()]), MINUTE);
        }
        assert_eq!(seen.0[&0].len(), PLACES_MAX);
    }
}
