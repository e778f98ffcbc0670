//! What the requests of a connection say of it: whether it is idle, whether headers are waited for, whether it closes, and whether it is a
//! flood.

use crate::{counters::ConnectionEnd, limits::Limits};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Shared by a connection's task, what it reads from, and its requests.
#[derive(Debug)]
pub(crate) struct Activity {
    begun: Instant,
    in_flight: AtomicU32,
    /// When the last request ended, in milliseconds after the begin.
    ended_ms: AtomicU64,
    /// When the first byte of headers came that are not complete yet, in milliseconds after the begin, and one more; 0 if there is none.
    head_ms: AtomicU64,
    /// The same of a frame of HTTP/2, or of headers that several frames have: these also come while requests are in flight.
    frame_ms: AtomicU64,
    is_http2: AtomicBool,
    /// The connection takes no requests after the next answer.
    is_closing: AtomicBool,
    /// Cancelled requests, less those that were answered.
    resets: AtomicU32,
    resets_max: u32,
    flooded: Notify,
    leaving: Notify,
}

impl Activity {
    pub fn new(resets_max: u32) -> Self {
        Self {
            begun: Instant::now(),
            in_flight: AtomicU32::new(0),
            ended_ms: AtomicU64::new(0),
            head_ms: AtomicU64::new(0),
            frame_ms: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            resets: AtomicU32::new(0),
            resets_max,
            flooded: Notify::new(),
            leaving: Notify::new(),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that bytes of headers came. Bytes of a body do not count here: their request is in flight.
    pub fn begin_head(&self) {
        if self.in_flight.load(Ordering::Relaxed) > 0 || self.head_ms.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.head_ms.store(self.elapsed_ms().saturating_add(1), Ordering::Relaxed);
    }

    /// The headers are complete, or there are none: HTTP/2 may wait after its preface.
    pub fn end_head(&self) {
        self.head_ms.store(0, Ordering::Relaxed);
    }

    /// Records that a frame, or headers in frames, have begun, unless they had.
    pub fn begin_frame(&self) {
        if self.frame_ms.load(Ordering::Relaxed) == 0 {
            self.frame_ms.store(self.elapsed_ms().saturating_add(1), Ordering::Relaxed);
        }
    }

    pub fn end_frame(&self) {
        self.frame_ms.store(0, Ordering::Relaxed);
    }

    /// Records that the preface of HTTP/2 is complete.
    pub fn begin_http2(&self) {
        self.end_head();
        self.is_http2.store(true, Ordering::Relaxed);
    }

    pub fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// Records that the connection takes no requests after the next answer.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Has the connection end, because its client is sent elsewhere.
    pub fn leave(&self) {
        self.close();
        self.leaving.notify_one();
    }

    /// Waits until the client is sent elsewhere.
    pub async fn left(&self) {
        self.leaving.notified().await;
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Requests that have no answer.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether a request has begun to come that has no complete headers.
    pub fn has_head(&self) -> bool {
        [&self.head_ms, &self.frame_ms].iter().any(|begun| begun.load(Ordering::Relaxed) > 0)
    }

    pub fn begin_request(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.end_head();
    }

    pub fn end_request(&self, is_cancelled: bool) {
        self.ended_ms.store(self.elapsed_ms(), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !is_cancelled {
            // A failed update is one of 0, which stays.
            self.resets
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |resets| resets.checked_sub(1))
                .unwrap_or_default();
        } else if self.resets.fetch_add(1, Ordering::Relaxed) >= self.resets_max {
            self.flooded.notify_one();
        }
    }

    /// Waits until the client has cancelled more requests than it may.
    pub async fn flooded(&self) {
        self.flooded.notified().await;
    }

    /// When to look again, or why the connection ends now.
    pub fn look(&self, limits: &Limits, now: Instant) -> Result<Instant, ConnectionEnd> {
        let timeout = limits.header_read_timeout;
        let head_at = self.head_at(&self.head_ms, timeout, now).ok_or(ConnectionEnd::Broken)?;
        let frame_at = self.head_at(&self.frame_ms, timeout, now).ok_or(ConnectionEnd::Broken)?;
        let idle_at = self.idle_at(limits.idle_timeout, now).ok_or(ConnectionEnd::Idle)?;
        Ok(head_at.min(frame_at).min(idle_at))
    }

    /// When headers will have taken this long; `None` if they have. Without any, those that begin right after now are looked at in time.
    fn head_at(&self, begun_ms: &AtomicU64, timeout: Duration, now: Instant) -> Option<Instant> {
        let Some(ms) = begun_ms.load(Ordering::Relaxed).checked_sub(1) else {
            return Some(now + timeout);
        };
        let at = self.begun + Duration::from_millis(ms) + timeout;
        (at > now).then_some(at)
    }

    /// When the connection will have been idle for this long; `None` if it has been.
    fn idle_at(&self, timeout: Duration, now: Instant) -> Option<Instant> {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return Some(now + timeout);
        }
        let at = self.begun + Duration::from_millis(self.ended_ms.load(Ordering::Relaxed)) + timeout;
        (at > now).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_its_last_request_and_never_during_one() {
        let (activity, idle) = (Activity::new(1), Duration::from_secs(10));
        let begun = activity.begun;
        let idle_at = || activity.idle_at(idle, Instant::now());
        assert_eq!(idle_at(), Some(begun + idle));
        activity.begin_request();
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(idle_at(), Some(begun + Duration::from_secs(40)));
        activity.end_request(false);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(idle_at(), Some(begun + Duration::from_secs(40)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(idle_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn headers_have_a_time_from_their_first_byte_and_bodies_are_none() {
        let limits = Limits { header_read_timeout: Duration::from_secs(10), ..Limits::default() };
        let activity = Activity::new(1);
        let look = || activity.look(&limits, Instant::now());
        let seconds = |seconds| Ok(activity.begun + Duration::from_secs(seconds));
        assert_eq!(look(), seconds(10));
        tokio::time::advance(Duration::from_secs(25)).await;
        assert_eq!(look(), seconds(35));
        activity.begin_head();
        tokio::time::advance(Duration::from_secs(5)).await;
        activity.begin_head();
        assert_eq!(look(), seconds(35));
        activity.begin_request();
        tokio::time::advance(Duration::from_secs(6)).await;
        activity.begin_head();
        assert_eq!(look(), seconds(46));
        activity.end_request(false);
        activity.begin_head();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(look(), Err(ConnectionEnd::Broken));
        activity.end_head();
        assert_eq!(look(), seconds(56));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_has_a_time_also_while_requests_are_in_flight() {
        let limits = Limits { header_read_timeout: Duration::from_secs(10), ..Limits::default() };
        let activity = Activity::new(1);
        activity.begin_http2();
        activity.begin_request();
        activity.begin_frame();
        tokio::time::advance(Duration::from_secs(5)).await;
        activity.begin_frame();
        assert!(activity.has_head());
        assert_eq!(activity.look(&limits, Instant::now()), Ok(activity.begun + Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(activity.look(&limits, Instant::now()), Err(ConnectionEnd::Broken));
        activity.end_frame();
        assert!(activity.look(&limits, Instant::now()).is_ok() && !activity.has_head());
    }

    #[tokio::test]
    async fn resets_count_against_answers() {
        let activity = Activity::new(2);
        for is_cancelled in [false, true, true, false, true] {
            activity.begin_request();
            activity.end_request(is_cancelled);
        }
        assert_eq!(activity.resets.load(Ordering::Relaxed), 2);
        activity.begin_request();
        activity.end_request(true);
        activity.flooded().await;
    }
}
