//! The parts of a limit, and the smallest limit that suffices.

use super::*;
use crate::otlp_source::LOGS_MAX;
use proptest::prelude::*;

fn sizing(limit_mib: u64, batch_mib: u64) -> Sizing {
    Sizing {
        limit: ByteSize::mib(limit_mib),
        workers: 2,
        partitions_active_max: 8,
        record_batch_bytes_max: ByteSize::mib(batch_mib),
        format: Format::OtlpProto,
        insert_concurrency: 2,
        insert_format: InsertFormat::RowBinary,
        requests: None,
    }
}

const REQUESTS: RequestSizing =
    RequestSizing { received_bytes_max: ByteSize::mib(4), decompressed_bytes_max: ByteSize::mib(8) };

#[test]
fn requests_have_the_largest_one_and_five_eighths_of_what_is_left() {
    let of_otlp = |limit| Sizing { partitions_active_max: 2, requests: Some(REQUESTS), ..sizing(limit, 8) };
    let least = Budget::divide(&Sizing { limit: smallest_limit(&of_otlp(256)), ..of_otlp(256) }).unwrap();
    assert!(least.limit <= ByteSize::mib(256), "{least:?}");
    assert!(least.requests >= ByteSize::mib(12) && least.requests < ByteSize::mib(13), "{least:?}");
    let large = Budget::divide(&of_otlp(1_000)).unwrap();
    assert!(large.requests > ByteSize::mib(400) && large.blocks > ByteSize::mib(200), "{large:?}");
    assert!(large.slack > ByteSize::mib(150), "{large:?}");
    assert_eq!(Budget::divide(&sizing(192, 1)).unwrap().requests, ByteSize::bytes(0));
}

#[test]
fn threads_that_pack_requests_have_their_memory() {
    let of_otlp = |workers| {
        let sizing = Sizing { workers, partitions_active_max: workers, ..sizing(2_048, 8) };
        Budget::divide(&Sizing { requests: Some(REQUESTS), ..sizing }).unwrap().spool.get()
    };
    assert_eq!(of_otlp(2), SPOOL_BYTES, "what the index of blocks would need");
    assert_eq!(of_otlp(16) - of_otlp(8), 16 * PACKING_BYTES + 8 * LOG_INDEX_BYTES);
}

#[test]
fn each_log_has_an_index_and_the_smallest_limit_of_two_workers_stays() {
    let of_otlp = |logs, limit| {
        let sizing = Sizing { partitions_active_max: logs, ..sizing(limit, 8) };
        Sizing { requests: Some(REQUESTS), ..sizing }
    };
    let spool = |logs| Budget::divide(&of_otlp(logs, 512)).unwrap().spool.get();
    assert_eq!(spool(2), SPOOL_BYTES);
    assert_eq!(spool(LOGS_MAX) - spool(8), u64::from(LOGS_MAX - 8) * LOG_INDEX_BYTES);
    assert_eq!(smallest_limit(&of_otlp(2, 256)), ByteSize::mib(256), "as gateway/SOURCE_OTLP.md says");
}

#[test]
fn the_reference_sizes_fit() {
    for (limit_mib, batch_mib) in [(192, 1), (384, 16), (1024, 64)] {
        let budget = Budget::divide(&sizing(limit_mib, batch_mib)).unwrap();
        assert!(budget.blocks.get() + PARTS_BYTES >= 2 * BLOCK_BYTES_MAX, "{budget:?}");
    }
}

#[test]
fn every_worker_has_a_row_buffer_that_is_in_the_budget() {
    for (workers, active, row_buffers_expected) in
        [(2, 8, 8), (3, 8, 8), (1, 1, 1), (2, 1, 2), (16, 3, 16), (64, 63, 64)]
    {
        let sizing = Sizing { workers, partitions_active_max: active, ..sizing(8_192, 1) };
        let buffers: usize = (0..workers as usize).map(|worker| row_buffers(active, workers, worker)).sum();
        assert_eq!(buffers as u64, row_buffers_expected, "{workers} workers");
        let rows = Budget::divide(&sizing).unwrap().rows.get();
        assert_eq!(rows, row_buffers_expected * ROW_BUFFER_BYTES, "{workers} workers");
    }
}

#[test]
fn json_takes_two_messages_a_worker_more() {
    let proto = Budget::divide(&sizing(512, 16)).unwrap();
    let json = Budget::divide(&Sizing { format: Format::OtlpJson, ..sizing(512, 16) }).unwrap();
    assert_eq!(json.workers.get() - proto.workers.get(), 2 * 2 * (16 << 20));
}

#[test]
fn the_next_larger_batch_does_not_fit_the_reference_limits() {
    for (limit_mib, batch_mib) in [(192, 16), (384, 64)] {
        let shortfall = Budget::divide(&sizing(limit_mib, batch_mib)).unwrap_err();
        assert!(shortfall.smallest > ByteSize::mib(limit_mib), "{shortfall}");
    }
}

#[test]
fn the_largest_block_fits_the_pool_of_a_single_worker() {
    let alone = Sizing { workers: 1, ..sizing(192, 1) };
    let least = Budget::divide(&Sizing { limit: smallest_limit(&alone), ..alone }).unwrap();
    assert!(least.blocks.get() >= BLOCK_BYTES_MAX, "{least:?}");
    assert_eq!(least.parts.get(), PARTS_BYTES);
}

proptest! {
    #[test]
    fn the_parts_add_up_to_the_limit(
        limit_mib in 1u64..16_384, workers in 1u32..64, active in 1u32..1_024, batch_kib in 64u64..262_144,
        json: bool, otlp: bool,
    ) {
        let sizing = Sizing {
            limit: ByteSize::mib(limit_mib),
            workers,
            partitions_active_max: active,
            record_batch_bytes_max: ByteSize::kib(batch_kib),
            format: if json { Format::OtlpJson } else { Format::OtlpProto },
            insert_concurrency: 2,
            insert_format: InsertFormat::RowBinary,
            requests: otlp.then_some(REQUESTS),
        };
        match Budget::divide(&sizing) {
            Ok(budget) => {
                let sum: u64 = budget.parts().iter().map(|(_, bytes)| bytes.get()).sum();
                prop_assert_eq!(sum, sizing.limit.get());
            }
            Err(shortfall) => {
                prop_assert!(shortfall.smallest > sizing.limit);
                let fits = Budget::divide(&Sizing { limit: shortfall.smallest, ..sizing });
                prop_assert!(fits.is_ok(), "the smallest limit that was named does not fit");
                let below = ByteSize::mib(shortfall.smallest.mib_ceil() - 1);
                prop_assert!(Budget::divide(&Sizing { limit: below, ..sizing }).is_err(), "a smaller one fits too");
            }
        }
    }
}
