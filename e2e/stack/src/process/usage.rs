//! The resources that the finished child processes of this process have used in all.

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

/// What a process and its descendants used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_us: i64,
    pub system_us: i64,
    /// Largest resident set of one process, KiB.
    pub peak_rss_kib: i64,
    /// Voluntary and involuntary context switches.
    pub context_switches: i64,
    /// Exit code, or 128 and the signal, of the process itself.
    pub exit_code: i32,
}

/// The usage of all children that have ended and were waited for, and of their children.
pub fn of_children(exit_code: i32) -> anyhow::Result<Usage> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask for the usage of the children")?;
    Ok(Usage {
        user_us: used.user_time().num_microseconds(),
        system_us: used.system_time().num_microseconds(),
        peak_rss_kib: used.max_rss(),
        context_switches: used.voluntary_context_switches() + used.involuntary_context_switches(),
        exit_code,
    })
}
