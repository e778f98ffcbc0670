//! How the memory limit of an edge is divided, before anything is allocated.
//!
//! | part | bytes | why |
//! | --- | --- | --- |
//! | base | [`BASE_BYTES`] | program, thread stacks, runtime, Kafka metadata, metrics, tenants |
//! | server | [`SERVER_BYTES`] | connections: TLS, frames, streams and headers |
//! | workers | workers × ([`INDEX_PEAK_BYTES`] + record batch) | the index of the request that a thread splits, and one message to spare |
//! | messages | 2 × [`EdgeBudget::queue`] | messages under way to Kafka, and the batches that librdkafka compresses them to |
//! | requests | the rest | bodies of requests, as received and decompressed, and of JSON also rewritten: the permits |
//! | slack | limit ÷ [`SLACK_DIVISOR`] | the allocator's overhead |
//!
//! The queue has a sixth of what the fixed parts leave, and at least the largest message; the requests have at least the largest
//! request, received and decompressed. If there is no permit for a request, the edge asks its client to retry: an empty pool is back-pressure.
//!
//! Operator and edge both call [`EdgeBudget::divide`]; a limit that is too small is refused with the smallest sufficient one.

use crate::budget::{SLACK_DIVISOR, Shortfall};
use crate::edge::EdgeConfig;
use crate::units::ByteSize;

/// Program, thread stacks, runtime, Kafka metadata, metrics, tenants, and four contexts of zstd with their memory for batches, 1.6 MB each at
/// most. Chosen: a gateway with little load has 21 MiB, with more threads.
pub const BASE_BYTES: u64 = 32 << 20;

/// Connections and headers of requests: TLS records, HTTP/2 windows, frames and streams. Chosen: 178 connections of 196 KiB, 16 of them with
/// 304 KiB more for a wide window, its frames and what is read ahead, and 384 requests of 8 KiB. The edge asserts this maximum.
pub const SERVER_BYTES: u64 = 42 << 20;

/// A thread's index of a request: about 250,000 spans, which is more than 64 MiB of average ones. The edge asserts this maximum.
pub const INDEX_BYTES_MAX: u64 = 8 << 20;

/// The same while it grows: the old and the new memory.
pub const INDEX_PEAK_BYTES: u64 = INDEX_BYTES_MAX + INDEX_BYTES_MAX / 2;

/// Room of the queue beside the largest message: other messages go on while it is under way.
const QUEUE_SPARE_BYTES: u64 = 1 << 20;

/// The part of what is left that the queue of messages has.
const QUEUE_DIVISOR: u64 = 6;

/// The parameters of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeSizing {
    /// The memory limit.
    pub limit: ByteSize,
    /// Number of threads that split requests.
    pub workers: u32,
    /// The largest record batch, decompressed.
    pub record_batch_bytes_max: ByteSize,
    /// The largest request, as received.
    pub request_bytes_max: ByteSize,
    /// The largest request, decompressed.
    pub decompressed_bytes_max: ByteSize,
}

impl EdgeSizing {
    /// The parameters of a config.
    pub fn of(config: &EdgeConfig) -> Self {
        Self {
            limit: config.memory.limit,
            workers: config.workers,
            record_batch_bytes_max: config.kafka.record_batch_bytes_max,
            request_bytes_max: config.limits.request_bytes_max,
            decompressed_bytes_max: config.limits.decompressed_bytes_max,
        }
    }
}

/// A divided limit. The parts add up to the limit exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeBudget {
    /// The whole limit.
    pub limit: ByteSize,
    /// Program, stacks, runtime.
    pub base: ByteSize,
    /// Connections.
    pub server: ByteSize,
    /// The threads that split requests.
    pub workers: ByteSize,
    /// Messages under way, twice.
    pub messages: ByteSize,
    /// Bodies of requests.
    pub requests: ByteSize,
    /// The allocator's share.
    pub slack: ByteSize,
}

impl EdgeBudget {
    /// Divides the limit, or returns the smallest sufficient one.
    ///
    /// # Errors
    /// [`Shortfall`] if the limit is too small.
    pub fn divide(sizing: &EdgeSizing) -> Result<Self, Shortfall> {
        let limit = sizing.limit.get();
        let slack = limit.div_ceil(SLACK_DIVISOR);
        let rest =
            limit.checked_sub(fixed(sizing).saturating_add(slack)).filter(|rest| *rest >= least(sizing));
        let Some(rest) = rest else {
            return Err(Shortfall { limit: sizing.limit, smallest: smallest(sizing) });
        };
        let queue = (rest / QUEUE_DIVISOR).max(queue_min(sizing));
        Ok(Self {
            limit: sizing.limit,
            base: ByteSize::bytes(BASE_BYTES),
            server: ByteSize::bytes(SERVER_BYTES),
            workers: ByteSize::bytes(workers(sizing)),
            messages: ByteSize::bytes(2 * queue),
            requests: ByteSize::bytes(rest - 2 * queue),
            slack: ByteSize::bytes(slack),
        })
    }

    /// Bytes of the messages that may be under way: half of their part, for the other half is what they are compressed to.
    pub fn queue(&self) -> ByteSize {
        ByteSize::bytes(self.messages.get() / 2)
    }

    /// Name and size of every part, in the order of the table above: for output and metrics.
    pub fn parts(&self) -> [(&'static str, ByteSize); 6] {
        [
            ("base", self.base),
            ("server", self.server),
            ("workers", self.workers),
            ("messages", self.messages),
            ("requests", self.requests),
            ("slack", self.slack),
        ]
    }
}

fn workers(sizing: &EdgeSizing) -> u64 {
    let each = INDEX_PEAK_BYTES.saturating_add(sizing.record_batch_bytes_max.get());
    u64::from(sizing.workers).saturating_mul(each)
}

/// The parts that do not depend on the limit.
fn fixed(sizing: &EdgeSizing) -> u64 {
    BASE_BYTES.saturating_add(SERVER_BYTES).saturating_add(workers(sizing))
}

fn queue_min(sizing: &EdgeSizing) -> u64 {
    sizing.record_batch_bytes_max.get().saturating_add(QUEUE_SPARE_BYTES)
}

/// The least that messages and requests need together. The requests get the smaller of two thirds, and of what the smallest queue leaves.
fn least(sizing: &EdgeSizing) -> u64 {
    let requests = sizing.request_bytes_max.get().saturating_add(sizing.decompressed_bytes_max.get());
    let beside_queue = requests.saturating_add(queue_min(sizing).saturating_mul(2));
    let two_thirds = requests.saturating_mul(QUEUE_DIVISOR).div_ceil(QUEUE_DIVISOR - 2);
    two_thirds.max(beside_queue)
}

/// The smallest sufficient limit in whole MiB. A limit L without the slack has `⌊11·L/12⌋`.
fn smallest(sizing: &EdgeSizing) -> ByteSize {
    let needed = fixed(sizing).saturating_add(least(sizing));
    let limit = (u128::from(needed) * u128::from(SLACK_DIVISOR)).div_ceil(u128::from(SLACK_DIVISOR - 1));
    ByteSize::mib(ByteSize::bytes(u64::try_from(limit).unwrap_or(u64::MAX)).mib_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizing(limit_mib: u64) -> EdgeSizing {
        EdgeSizing {
            limit: ByteSize::mib(limit_mib),
            workers: 2,
            record_batch_bytes_max: ByteSize::mib(1),
            request_bytes_max: ByteSize::mib(16),
            decompressed_bytes_max: ByteSize::mib(32),
        }
    }

    #[test]
    fn the_reference_size_fits() {
        let budget = EdgeBudget::divide(&sizing(192)).unwrap();
        assert!(budget.queue() > ByteSize::mib(12), "{budget:?}");
        assert!(budget.requests >= ByteSize::mib(48), "{budget:?}");
        let refused = EdgeBudget::divide(&sizing(100)).unwrap_err();
        assert!(refused.to_string().contains("the smallest limit that would do is"), "{refused}");
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_limit_and_the_smallest_limit_is_the_smallest(
            limit in 1_u64..4_096, workers in 1_u32..64, batch_kib in 64_u64..262_144, request_kib in 64_u64..65_536
        ) {
            let sizing = EdgeSizing {
                workers,
                record_batch_bytes_max: ByteSize::kib(batch_kib),
                request_bytes_max: ByteSize::kib(request_kib),
                decompressed_bytes_max: ByteSize::kib(request_kib.max(64)),
                ..sizing(limit)
            };
            match EdgeBudget::divide(&sizing) {
                Ok(budget) => {
                    let sum: u64 = budget.parts().iter().map(|(_, bytes)| bytes.get()).sum();
                    prop_assert_eq!(sum, sizing.limit.get());
                    prop_assert!(budget.queue() >= sizing.record_batch_bytes_max);
                    prop_assert!(budget.requests.get() >= 2 * sizing.request_bytes_max.get());
                }
                Err(shortfall) => {
                    prop_assert!(shortfall.smallest > sizing.limit);
                    let fits = |limit| EdgeBudget::divide(&EdgeSizing { limit, ..sizing }).is_ok();
                    prop_assert!(fits(shortfall.smallest));
                    prop_assert!(!fits(ByteSize::mib(shortfall.smallest.mib_ceil() - 1)));
                }
            }
        }
    }
}
