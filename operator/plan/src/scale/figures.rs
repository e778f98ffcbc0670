//! What a decision saw.

use super::merges::MergesBehind;

/// For status and metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Messages a second that arrive.
    pub arrival_rate: f64,
    /// Messages that wait.
    pub lag_messages: f64,
    /// The same in seconds of arrivals.
    pub lag_seconds: f64,
    /// Messages a second of one gateway.
    pub capacity: Option<f64>,
    /// Share of the workers' time that is waiting for `ClickHouse`, in the last interval.
    pub sink_wait: f64,
    /// Share of the gateways whose sealed blocks wait for `ClickHouse`.
    pub sink_behind: f64,
    /// The parts of the table, while merges of `ClickHouse` are behind.
    pub merges: Option<MergesBehind>,
    /// Rows that gateways have read and that are not settled.
    pub rows_in_flight: u64,
    /// Whether gateways that were added lately read no more than fewer did.
    pub in_vain: bool,
    /// Whether inserts fail time and again.
    pub inserts_fail: bool,
    /// Partitions that stand still, and where, or gateways whose logs do.
    pub stuck: Vec<String>,
    /// Messages that retention took before they were read.
    pub lost_messages: u64,
    /// The memory limit of a gateway, MiB, that would leave room for what is used now; `None` before a limit is known.
    pub memory_limit_mib: Option<u64>,
    /// Steps from the current number on, at most three.
    pub next_steps: Vec<u32>,
}
