//! Since when requests have been refused because the volume has no room.
//!
//! The log's thread writes it, an answer to `GET /state` reads it. A volume that is full gets some room with each segment that is removed, and is
//! full again soon after. So it counts as full until no request was refused for [`LASTS`].

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a refusal counts. Chosen: clients come again after 5 s, and a large segment is inserted in less.
const LASTS: Duration = Duration::from_mins(1);

/// The first and the last refusal without [`LASTS`] between two; `None` before the first one.
#[derive(Debug, Default)]
pub struct Fullness(Mutex<Option<(Instant, Instant)>>);

impl Fullness {
    /// A request was refused.
    pub fn refuse(&self, now: Instant) {
        let mut refused = self.lock();
        let before = refused.filter(|(_, last)| now.saturating_duration_since(*last) < LASTS);
        *refused = Some((before.map_or(now, |(first, _)| first), now));
    }

    /// The time from the first refusal to the last one; `None` if the last one is too long ago.
    pub fn time(&self, now: Instant) -> Option<Duration> {
        let (first, last) = self.lock().filter(|(_, last)| now.saturating_duration_since(*last) < LASTS)?;
        Some(last.saturating_duration_since(first))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Instant)>> {
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
        let time = |seconds: u64| fullness.time(at(seconds)).map(|time| time.as_secs());
        assert_eq!(time(0), None);
        fullness.refuse(at(10));
        assert_eq!((time(10), time(69), time(70)), (Some(0), Some(0), None));
        fullness.refuse(at(69));
        fullness.refuse(at(100));
        assert_eq!((time(100), time(159), time(160)), (Some(90), Some(90), None));
        fullness.refuse(at(200));
        assert_eq!(time(201), Some(0), "it had room in between");
    }
}
