//! The time of one sync of the disk. A source answers no request before a sync, so this helps to read its answer times.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Syncs that are timed. Chosen: seconds on a slow disk.
const SYNCS: usize = 200;

/// Bytes that are appended before each: a page.
const APPENDED_BYTES: usize = 4_096;

/// The median of [`SYNCS`] syncs of a file in this folder, to which a page was appended before each.
pub fn median(folder: &Path) -> Result<Duration> {
    let path = folder.join("synced");
    let mut file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[1; APPENDED_BYTES]).with_context(|| format!("append to {}", path.display()))?;
        let began = Instant::now();
        file.sync_data().with_context(|| format!("sync {}", path.display()))?;
        times.push(began.elapsed());
    }
    fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    times.sort_unstable();
    Ok(times.get(SYNCS / 2).copied().unwrap_or_default())
}
