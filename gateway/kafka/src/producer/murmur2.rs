//! The hash of Kafka's Java client, and the partition that it gives a key.
//!
//! Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` of Apache Kafka's clients; librdkafka calls the same `murmur2`. It is a
//! contract between programs: a key has the same partition, no matter which program produces it. Pure.

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition of a key in a topic with this many partitions; 0 without partitions.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    // Java's hash is signed, and its sign is dropped.
    (murmur2(key) & 0x7fff_ffff).checked_rem(partitions).unwrap_or(0)
}

fn murmur2(key: &[u8]) -> u32 {
    // Keys are short: a length above 32 bits would count with its low ones, as in Java.
    let [a, b, c, d, ..] = key.len().to_le_bytes();
    let mut hash = SEED ^ u32::from_le_bytes([a, b, c, d]);
    let (words, rest) = key.as_chunks();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let low_first = rest.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte));
        hash = (hash ^ low_first).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_java_client() {
        // From librdkafka's own test, which compares with Java.
        for (key, expected) in [
            ("kafka", 0xd067_cf64),
            ("giberish123456789", 0x8f55_2b0c),
            ("1234", 0x9fc9_7b14),
            ("234", 0xe7c0_09ca),
            ("34", 0x8739_30da),
            ("4", 0x5a4b_5ca1),
            ("PreAmbleWillBeRemoved,ThePrePartThatIs", 0x7842_4f1c),
            ("", 0x106e_08d9),
        ] {
            assert_eq!(murmur2(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_key_has_one_partition_among_those_that_there_are() {
        let key = b"4bf92f3577b34da6a3ce929d0e0e4736";
        for partitions in [1, 2, 3, 12, 1_000] {
            assert!(partition_of(key, partitions) < partitions);
        }
        assert_eq!(partition_of(b"kafka", 12), 0x5067_cf64 % 12, "the sign of the hash is dropped");
        assert_eq!(partition_of(key, 0), 0);
    }
}
