//! How many gateways, and how many partitions each of them reads at the same time.

use sluice_gateway_config::{Budget, ByteSize, Sizing};

/// The largest number of gateways of one pipeline, whatever the number of partitions. It is the bound of
/// `spec.replicas`.
pub const REPLICAS_MAX: u32 = 1_000;

/// A gateway reads at least so many partitions at the same time when there are so many: the reference size, which
/// leaves room for the partitions of a neighbour that is restarted.
const ACTIVE_MIN: u32 = 8;

/// A gateway reads at most so many partitions at the same time, the others take turns: at 64, every buffer is still
/// visited often, and memory goes to blocks rather than to fetches.
const ACTIVE_MAX: u32 = 64;

/// Gateways for so many partitions: what the spec says, else as many as it takes; never more than partitions.
pub(crate) fn replicas(wanted: Option<u32>, partitions: u32, partitions_per_replica: u32) -> u32 {
    wanted.unwrap_or(partitions.div_ceil(partitions_per_replica.max(1))).min(partitions).min(REPLICAS_MAX)
}

/// Partitions that one gateway reads at the same time, or the smallest limit that would do.
///
/// What is wanted is a power of two, so that a change of the number of gateways seldom changes the config, which would
/// restart all of them. When that many do not fit the limit, the largest number that does is taken, down to what a
/// gateway holds anyway or [`ACTIVE_MIN`]; below, it is refused.
pub(crate) fn partitions_active(sizing: &Sizing, partitions: u32, replicas: u32) -> Result<u32, ByteSize> {
    let held = partitions.div_ceil(replicas.max(1)).max(1);
    let wanted =
        held.min(ACTIVE_MAX).next_power_of_two().clamp(ACTIVE_MIN, ACTIVE_MAX).min(partitions.max(1));
    let least = held.min(ACTIVE_MIN);
    let fits = |active: u32| Budget::divide(&Sizing { partitions_active_max: active, ..*sizing });
    fits(least).map_err(|shortfall| shortfall.smallest)?;
    Ok((least..=wanted).rev().find(|active| fits(*active).is_ok()).unwrap_or(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_gateway_config::{Format, InsertFormat};

    fn sizing(limit_mib: u64, workers: u32, batch_mib: u64) -> Sizing {
        Sizing {
            limit: ByteSize::mib(limit_mib),
            workers,
            partitions_active_max: 1,
            record_batch_bytes_max: ByteSize::mib(batch_mib),
            format: Format::OtlpProto,
            insert_concurrency: 2,
            insert_format: InsertFormat::RowBinary,
        }
    }

    #[test]
    fn replicas_follow_the_partitions_unless_they_are_given() {
        for (wanted, partitions, per_replica, expected) in [
            (None, 1, 4, 1),
            (None, 4, 4, 1),
            (None, 5, 4, 2),
            (None, 96, 4, 24),
            (None, 5_000, 1, REPLICAS_MAX),
            (Some(0), 8, 4, 0),
            (Some(3), 8, 4, 3),
            (Some(9), 8, 4, 8),
        ] {
            assert_eq!(
                replicas(wanted, partitions, per_replica),
                expected,
                "{wanted:?} {partitions} {per_replica}"
            );
        }
    }

    #[test]
    fn partitions_active_follow_what_a_gateway_holds() {
        for (partitions, replicas, expected) in
            [(1, 1, 1), (4, 1, 4), (16, 4, 8), (96, 8, 16), (96, 1, 64), (96, 0, 64), (12, 12, 8)]
        {
            assert_eq!(
                partitions_active(&sizing(2_048, 1, 1), partitions, replicas),
                Ok(expected),
                "{partitions}"
            );
        }
    }

    #[test]
    fn a_tight_limit_reads_fewer_partitions_at_the_same_time() {
        // 64 partitions of 1 MiB batches want 117 MiB; 192 MiB leave room for fewer, and for 8 at least.
        let active = partitions_active(&sizing(192, 2, 1), 64, 1).unwrap();
        assert!((8..64).contains(&active), "{active}");
    }

    #[test]
    fn a_limit_that_is_too_small_names_one_that_does() {
        let smallest = partitions_active(&sizing(128, 2, 16), 64, 1).unwrap_err();
        assert!(smallest > ByteSize::mib(128));
        assert_eq!(partitions_active(&Sizing { limit: smallest, ..sizing(128, 2, 16) }, 64, 1), Ok(8));
    }

    proptest! {
        #[test]
        fn replicas_stay_within_partitions_and_bounds(
            wanted in proptest::option::of(0u32..5_000), partitions in 0u32..100_000, per_replica in 0u32..2_000,
        ) {
            let replicas = replicas(wanted, partitions, per_replica);
            prop_assert!(replicas <= partitions && replicas <= REPLICAS_MAX);
            prop_assert!(wanted.is_none_or(|wanted| replicas <= wanted));
            if partitions > 0 && wanted != Some(0) {
                prop_assert!(replicas > 0, "a topic that nobody reads");
            }
        }

        #[test]
        fn partitions_active_fit_the_limit(
            limit in 64u64..4_096, workers in 1u32..8, batch in 1u64..64, partitions in 1u32..4_096, replicas in 0u32..1_000,
        ) {
            let sizing = sizing(limit, workers, batch);
            match partitions_active(&sizing, partitions, replicas) {
                Ok(active) => {
                    prop_assert!((1..=partitions.min(ACTIVE_MAX)).contains(&active));
                    let sizing = Sizing { partitions_active_max: active, ..sizing };
                    prop_assert!(Budget::divide(&sizing).is_ok());
                }
                Err(smallest) => {
                    let enough = Sizing { limit: smallest, ..sizing };
                    prop_assert!(partitions_active(&enough, partitions, replicas).is_ok());
                }
            }
        }
    }
}
