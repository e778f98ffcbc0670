//! Random numbers from a seed: the Mersenne Twister, seeded and read as Python's `random` does. So a plant has the same partitions and the
//! same noise as the script with whose figures ours are compared.
//!
//! Source: Matsumoto, Nishimura: "Mersenne Twister", 1998 (`init_by_array`), and `CPython`'s `_randommodule.c`.

const SIZE: usize = 624;
const MIDDLE: usize = 397;

#[derive(Debug, Clone)]
pub struct Chance {
    words: [u32; SIZE],
    next: usize,
}

impl Chance {
    pub fn new(seed: u32) -> Self {
        let mut words = [0_u32; SIZE];
        words[0] = 19_650_218;
        for place in 1..SIZE {
            words[place] = mixed(words[place - 1], 1_812_433_253).wrapping_add(number(place));
        }
        let mut place = 1;
        for _ in 0..SIZE {
            words[place] = (words[place] ^ mixed(words[place - 1], 1_664_525)).wrapping_add(seed);
            place = onward(&mut words, place);
        }
        for _ in 1..SIZE {
            words[place] =
                (words[place] ^ mixed(words[place - 1], 1_566_083_941)).wrapping_sub(number(place));
            place = onward(&mut words, place);
        }
        words[0] = 0x8000_0000;
        Self { words, next: SIZE }
    }

    /// A number from 0 to below 1, of 53 bits.
    pub fn share(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// A number from -1 to below 1.
    pub fn around(&mut self) -> f64 {
        2.0 * self.share() - 1.0
    }

    fn word(&mut self) -> u32 {
        if self.next == SIZE {
            self.twist();
        }
        let mut word = self.words[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for place in 0..SIZE {
            let joined = (self.words[place] & 0x8000_0000) | (self.words[(place + 1) % SIZE] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[place] = self.words[(place + MIDDLE) % SIZE] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

fn mixed(word: u32, factor: u32) -> u32 {
    (word ^ (word >> 30)).wrapping_mul(factor)
}

fn onward(words: &mut [u32; SIZE], place: usize) -> usize {
    if place + 1 < SIZE {
        return place + 1;
    }
    words[0] = words[SIZE - 1];
    1
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("there are 624 places")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_python() {
        // python3 -c "import random; r = random.Random(7); print([r.random() for _ in range(3)])"
        let mut chance = Chance::new(7);
        for expected in [0.323_832_764_833_162_37, 0.150_849_173_924_501_92, 0.650_934_473_039_853_7] {
            assert!((chance.share() - expected).abs() < 1e-16);
        }
        let mut chance = Chance::new(11);
        assert!((chance.share() - 0.452_379_553_509_818_6).abs() < 1e-16);
        for _ in 0..2_000 {
            assert!((0.0..1.0).contains(&chance.share()));
        }
    }
}
