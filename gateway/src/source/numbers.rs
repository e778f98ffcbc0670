//! Numbers of the logs, for metrics: the appender and the thread of letters write them, a scrape reads them.

use crate::source::{fullness::Fullness, unreadable::Unreadable};
use sluice_otlp_server::{ByteBudget, Counters};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The numbers.
#[derive(Debug)]
pub struct SourceNumbers {
    /// Bytes of the logs' files, and the most that they may have.
    pub log_bytes: AtomicU64,
    pub log_bytes_max: AtomicU64,
    /// Bytes of the files of dead letters.
    pub letter_bytes: AtomicU64,
    /// Whether damage was found on the volume.
    pub is_damaged: AtomicBool,
    pub unreadable: Unreadable,
    /// Since when requests have been refused for want of room.
    pub fullness: Fullness,
    /// Whether the ports of OTLP are open.
    pub is_accepting: AtomicBool,
    /// Whether the process ends.
    pub is_ending: AtomicBool,
    /// Memory of requests.
    pub permits: ByteBudget,
    /// What the server has counted.
    pub counters: Arc<Counters>,
}

impl SourceNumbers {
    /// For requests with this much memory.
    pub fn new(permits: ByteBudget) -> Self {
        Self {
            log_bytes: AtomicU64::new(0),
            log_bytes_max: AtomicU64::new(0),
            letter_bytes: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
            unreadable: Unreadable::default(),
            fullness: Fullness::default(),
            is_accepting: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            permits,
            counters: Arc::default(),
        }
    }

    /// Whether something on the volume cannot be read, for good or now.
    pub fn has_damage(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed) || self.unreadable.any()
    }
}
