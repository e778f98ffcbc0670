//! Since when requests have been refused because the volume has no room.
//!
//! The log's thread writes it, an answer to `GET /state` reads it. A volume that is full gets some room with each segment that is removed, and is
//! full again soon after. So it counts as full until no request was refused for [`LASTS`].

use sluice_gateway_config::VolumeLimit;
use sluice_spool::Full;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a refusal counts. Chosen: clients come again after 5 s, and a large segment is inserted in less.
const LASTS: Duration = Duration::from_mins(1);

/// Refusals without [`LASTS`] between two of them; `None` before the first one.
#[derive(Debug, Default)]
pub struct Fullness(Mutex<Option<Refused>>);

#[derive(Debug, Clone, Copy)]
struct Refused {
    first: Instant,
    last: Instant,
    /// What the last one found no more of.
    limit: VolumeLimit,
}

impl Refused {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < LASTS
    }
}

/// What the logs have no more of.
pub fn limit(full: Full) -> VolumeLimit {
    match full {
        Full::Bytes | Full::Blocks => VolumeLimit::Bytes,
        Full::Segments => VolumeLimit::Segments,
        Full::Device => VolumeLimit::Device,
    }
}

impl Fullness {
    /// A request was refused.
    pub fn refuse(&self, limit: VolumeLimit, now: Instant) {
        let mut refused = self.lock();
        let before = refused.filter(|refused| refused.counts(now));
        let first = before.map_or(now, |refused| refused.first);
        *refused = Some(Refused { first, last: now, limit });
    }

    /// The time from the first refusal to the last one, and what that one found no more of; `None` if it is too long ago.
    pub fn full(&self, now: Instant) -> Option<(Duration, VolumeLimit)> {
        let Refused { first, last, limit } = self.lock().filter(|refused| refused.counts(now))?;
        Some((last.saturating_duration_since(first), limit))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Refused>> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_full_from_the_first_refusal_until_none_comes_for_a_minute() {
        let (fullness, begin) = (Fullness::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let time = |seconds: u64| fullness.full(at(seconds)).map(|(time, _)| time.as_secs());
        let refuse = |seconds: u64| fullness.refuse(VolumeLimit::Bytes, at(seconds));
        assert_eq!(time(0), None);
        refuse(10);
        assert_eq!((time(10), time(69), time(70)), (Some(0), Some(0), None));
        refuse(69);
        refuse(100);
        assert_eq!((time(100), time(159), time(160)), (Some(90), Some(90), None));
        refuse(200);
        assert_eq!(time(201), Some(0), "it had room in between");
    }

    #[test]
    fn the_limit_is_the_one_that_the_last_refused_request_met() {
        let (fullness, begin) = (Fullness::default(), Instant::now());
        for (full, expected) in [
            (Full::Bytes, VolumeLimit::Bytes),
            (Full::Segments, VolumeLimit::Segments),
            (Full::Device, VolumeLimit::Device),
        ] {
            fullness.refuse(limit(full), begin);
            assert_eq!(fullness.full(begin), Some((Duration::ZERO, expected)));
        }
    }
}
