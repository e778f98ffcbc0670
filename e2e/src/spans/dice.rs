//! Deterministic chance for the load shapes.
//!
//! Job: numbers that look random and follow from a seed. Place in the flow: under `rich` and `loadgen`. Not for secrets.
//! Source: `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).

/// A one-to-one scramble of 64 bits that maps 0 to 0 (the finalizer of `SplitMix64`).
pub(super) fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A sequence of dice rolls that follows from its seed.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice for the thing called `number` under `seed`.
    pub fn new(seed: u64, number: u64) -> Dice {
        Dice { state: scramble(seed ^ scramble(number)) }
    }

    /// 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }

    /// A number in `0..bound`; `bound` is at least 1. The bias of the multiplication is below 2^-32 here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.roll()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// True in `per_mille` of 1,000 rolls.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// A place in a list of so many, at least one.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut dice = Dice::new(1, 2);
        let mut seen = [false; 7];
        for _ in 0..1_000 {
            seen[usize::try_from(dice.below(7)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn the_scramble_of_a_number_is_never_zero() {
        assert!((1..10_000).all(|number| scramble(number) != 0));
    }
}
