//! How many gateways, and how many partitions each of them reads at the same time.

mod division;
pub mod resize;

use crate::pipeline::policy::REPLICAS_MAX;
use sluice_gateway_config::{Budget, ByteSize, Shortfall, Sizing};

/// A gateway that holds this many partitions reads as many of them at the same time at least: the reference size.
pub(crate) const ACTIVE_MIN: u32 = 8;

/// A gateway reads at most this many partitions at the same time, the others take turns: at 64, every buffer is still visited often.
pub(crate) const ACTIVE_MAX: u32 = 64;

/// The share of memory, in thirds, that blocks keep with more partitions, compared with [`ACTIVE_MIN`]. Chosen: partitions can take turns,
/// and a gateway holds blocks while ClickHouse is slow.
const BLOCKS_KEPT_THIRDS: u64 = 2;

/// Gateways for this many partitions: what the spec says, else as many as it takes; never more than partitions.
pub(crate) fn replicas(wanted: Option<u32>, partitions: u32, partitions_per_replica: u32) -> u32 {
    wanted.unwrap_or(partitions.div_ceil(partitions_per_replica.max(1))).min(partitions).min(REPLICAS_MAX)
}

/// Partitions that one gateway reads at the same time, or the smallest limit that would do.
///
/// All partitions, up to [`ACTIVE_MAX`]. The number does not depend on the number of gateways: scaling must not change their config, which
/// would restart them all. (Nor do added partitions: `plan/kept_revision.rs`.) If the limit is too small for this number, or it would take too
/// much of the blocks' memory, it is the largest number that fits. Its lower bound is what one of `replicas` gateways holds, or [`ACTIVE_MIN`].
/// Below that, the spec is refused.
pub(crate) fn partitions_active(sizing: &Sizing, partitions: u32, replicas: u32) -> Result<u32, ByteSize> {
    let wanted = partitions.clamp(1, ACTIVE_MAX);
    let least = partitions.div_ceil(replicas.max(1)).clamp(1, ACTIVE_MIN);
    let blocks = |active: u32| {
        let budget = Budget::divide(&Sizing { partitions_active_max: active, ..*sizing })?;
        Ok::<_, Shortfall>(budget.blocks.get())
    };
    blocks(least).map_err(|shortfall| shortfall.smallest)?;
    let kept = blocks(wanted.min(ACTIVE_MIN)).map_or(0, |bytes| bytes / 3 * BLOCKS_KEPT_THIRDS);
    let fits = |active: u32| blocks(active).is_ok_and(|bytes| active <= ACTIVE_MIN || bytes >= kept);
    Ok((least..=wanted).rev().find(|active| fits(*active)).unwrap_or(least))
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
            requests: None,
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
    fn partitions_active_follow_the_partitions_whatever_the_number_of_gateways() {
        for (partitions, expected) in [(0, 1), (1, 1), (4, 4), (12, 12), (64, 64), (96, 64)] {
            for replicas in [0, 1, 4, 8, 96] {
                let found = partitions_active(&sizing(2_048, 1, 1), partitions, replicas);
                assert_eq!(found, Ok(expected), "{partitions} {replicas}");
            }
        }
    }

    #[test]
    fn a_tight_limit_reads_fewer_partitions_at_the_same_time() {
        // 64 partitions of 1 MiB batches want 117 MiB; 192 MiB leave room for fewer, and for 8 at least.
        let active = partitions_active(&sizing(192, 2, 1), 64, 1).unwrap();
        assert!((8..64).contains(&active), "{active}");
        assert_eq!(
            partitions_active(&sizing(192, 2, 1), 64, 8),
            Ok(active),
            "more gateways are no reason for another config"
        );
    }

    #[test]
    fn more_partitions_at_the_same_time_leave_blocks_most_of_their_memory() {
        let blocks = |active: u32| {
            let sizing = Sizing { partitions_active_max: active, ..sizing(192, 1, 1) };
            Budget::divide(&sizing).unwrap().blocks.get()
        };
        let active = partitions_active(&sizing(192, 1, 1), 64, 16).unwrap();
        assert!(active > ACTIVE_MIN && blocks(active) >= blocks(ACTIVE_MIN) / 3 * 2, "{active}");
        assert!(blocks(active + 1) < blocks(ACTIVE_MIN) / 3 * 2, "{active} is the most");
    }

    #[test]
    fn a_gateway_with_few_partitions_needs_no_room_for_more() {
        let small = partitions_active(&sizing(144, 1, 4), 64, 1).unwrap_err();
        assert!(small > ByteSize::mib(144));
        assert!(partitions_active(&sizing(144, 1, 4), 64, 32).unwrap() < ACTIVE_MIN);
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
