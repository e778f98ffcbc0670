//! How long a connection lives, and in which steps it ends.
//!
//! | stage | requests | ends |
//! | --- | --- | --- |
//! | open | are taken | when it is old or idle, its client is sent elsewhere, or the server ends |
//! | lingering | one that comes now is answered, and ends the connection | after [`LINGER`], once no headers have begun to come |
//! | leaving | those under way are answered | when they are, or its time is over |
//!
//! Why it lingers: hyper closes an idle HTTP/1.1 connection at once, also if a request is on its way, and the kernel then resets it. HTTP/2
//! needs no such stage: GOAWAY says which requests were taken. Owner: the connection's task. Decides only; time is an argument.

use crate::{activity::Activity, counters::ConnectionEnd, limits::Limits};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a connection without a request waits for one before it is closed, and a new one for its first byte. Chosen: a round trip to
/// clients far away, and a moment of a busy machine.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// How often a connection looks whether headers that had begun to come are complete.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Lingering { end: ConnectionEnd, look_at: Instant, until: Instant },
    Leaving { end: ConnectionEnd, until: Instant },
}

/// What the connection's task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    /// It tells the client that no more requests are taken, and stays open until those under way are answered.
    Close,
    /// It is over.
    End(ConnectionEnd),
}

/// A connection's time.
#[derive(Debug)]
pub(crate) struct Lifetime {
    activity: Arc<Activity>,
    stage: Stage,
    aged_at: Instant,
    /// When to look whether it is idle, or its headers take too long.
    look_at: Instant,
    is_server_ending: bool,
}

impl Lifetime {
    pub fn begin(activity: Arc<Activity>, limits: &Limits, age: Duration, now: Instant) -> Self {
        let look_at = now + limits.header_read_timeout.min(limits.idle_timeout);
        Self { activity, stage: Stage::Open, aged_at: now + age, look_at, is_server_ending: false }
    }

    /// When to call [`Lifetime::wake`].
    pub fn wake_at(&self) -> Instant {
        match self.stage {
            Stage::Open => self.aged_at.min(self.look_at),
            Stage::Lingering { look_at, until, .. } => look_at.min(until),
            Stage::Leaving { until, .. } => until,
        }
    }

    /// Whether the server ends.
    pub fn is_server_ending(&self) -> bool {
        self.is_server_ending
    }

    /// Why it ends, if it does.
    pub fn end(&self) -> Option<ConnectionEnd> {
        match self.stage {
            Stage::Open => None,
            Stage::Lingering { end, .. } | Stage::Leaving { end, .. } => Some(end),
        }
    }

    /// Records that the server ends, and says what the connection does.
    pub fn server_ends(&mut self, limits: &Limits, now: Instant) -> Step {
        self.is_server_ending = true;
        // The server counts what has no answer when its time is over, so it must come first.
        let latest = now + limits.shutdown_timeout + LINGER;
        match &mut self.stage {
            Stage::Open => self.leave(ConnectionEnd::Shutdown, latest, now),
            // It has as much time as all others.
            Stage::Lingering { until, .. } | Stage::Leaving { until, .. } => {
                *until = latest.max(*until);
                Step::Wait
            }
        }
    }

    /// Its client is sent elsewhere.
    pub fn sends_away(&mut self, limits: &Limits, now: Instant) -> Step {
        match self.stage {
            Stage::Open => self.leave(ConnectionEnd::Elsewhere, now + limits.connection_grace, now),
            Stage::Lingering { .. } | Stage::Leaving { .. } => Step::Wait,
        }
    }

    /// Its time has come.
    pub fn wake(&mut self, limits: &Limits, now: Instant) -> Step {
        match self.stage {
            Stage::Open if now >= self.aged_at => {
                self.leave(ConnectionEnd::Aged, now + limits.connection_grace, now)
            }
            Stage::Open => match self.activity.look(limits, now) {
                Ok(look_at) => {
                    self.look_at = look_at;
                    Step::Wait
                }
                Err(ConnectionEnd::Idle) => {
                    self.leave(ConnectionEnd::Idle, now + limits.connection_grace, now)
                }
                Err(end) => Step::End(end),
            },
            Stage::Lingering { end, until, .. } | Stage::Leaving { end, until } if now >= until => {
                Step::End(end)
            }
            Stage::Lingering { end, until, .. } => self.linger(limits, (end, until), now),
            Stage::Leaving { .. } => Step::Wait,
        }
    }

    fn leave(&mut self, end: ConnectionEnd, until: Instant, now: Instant) -> Step {
        self.activity.close();
        if self.activity.is_http2() || self.activity.in_flight() > 0 {
            self.stage = Stage::Leaving { end, until };
            return Step::Close;
        }
        self.stage = Stage::Lingering { end, look_at: now + LINGER, until };
        Step::Wait
    }

    fn linger(&mut self, limits: &Limits, (end, until): (ConnectionEnd, Instant), now: Instant) -> Step {
        let is_coming = self.activity.in_flight() == 0 && self.activity.has_head();
        if !is_coming || self.activity.is_http2() {
            self.stage = Stage::Leaving { end, until };
            return Step::Close;
        }
        if let Err(ConnectionEnd::Broken) = self.activity.look(limits, now) {
            return Step::End(ConnectionEnd::Broken);
        }
        self.stage = Stage::Lingering { end, look_at: now + LOOK_AGAIN, until };
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_mins(10);

    fn open() -> (Arc<Activity>, Limits, Lifetime, Instant) {
        let (activity, limits, now) = (Arc::new(Activity::new(1)), Limits::default(), Instant::now());
        let lifetime = Lifetime::begin(activity.clone(), &limits, AGE, now);
        (activity, limits, lifetime, now)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http_1_lingers_for_a_request_that_is_on_its_way() {
        let (activity, limits, mut lifetime, now) = open();
        assert_eq!(lifetime.server_ends(&limits, now), Step::Wait);
        assert!(activity.is_closing());
        assert_eq!(lifetime.wake_at(), now + LINGER);
        activity.begin_head();
        assert_eq!(lifetime.wake(&limits, now + LINGER), Step::Wait);
        activity.begin_request();
        let again = lifetime.wake_at();
        assert_eq!(lifetime.wake(&limits, again), Step::Close);
        assert_eq!(lifetime.wake_at(), now + limits.shutdown_timeout + LINGER);
        let over = lifetime.wake_at();
        assert_eq!(lifetime.wake(&limits, over), Step::End(ConnectionEnd::Shutdown));
    }

    #[tokio::test(start_paused = true)]
    async fn headers_that_never_end_hold_no_connection_that_leaves() {
        let (activity, limits, mut lifetime, now) = open();
        activity.begin_head();
        lifetime.server_ends(&limits, now);
        let mut at = now;
        while lifetime.wake(&limits, at) != Step::End(ConnectionEnd::Broken) {
            at = lifetime.wake_at().max(at);
            assert!(at <= now + limits.header_read_timeout + LOOK_AGAIN, "{:?}", at - now);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn http_2_closes_at_once_and_an_old_connection_has_all_the_time_of_a_shutdown() {
        let (activity, limits, mut lifetime, now) = open();
        activity.begin_http2();
        assert_eq!(lifetime.wake(&limits, now + AGE), Step::Close);
        assert_eq!(lifetime.end(), Some(ConnectionEnd::Aged));
        let later = now + AGE + limits.connection_grace - Duration::from_secs(1);
        assert_eq!(lifetime.server_ends(&limits, later), Step::Wait);
        assert_eq!(lifetime.wake_at(), later + limits.shutdown_timeout + LINGER);
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_client_is_sent_elsewhere_closes_once_its_requests_are_answered() {
        let (activity, limits, mut lifetime, now) = open();
        activity.begin_http2();
        activity.begin_request();
        assert_eq!(lifetime.sends_away(&limits, now), Step::Close);
        assert_eq!(lifetime.end(), Some(ConnectionEnd::Elsewhere));
        assert_eq!(lifetime.sends_away(&limits, now), Step::Wait);
        assert_eq!(lifetime.wake_at(), now + limits.connection_grace);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_idle_leaves_and_one_with_a_request_does_not() {
        let (activity, limits, mut lifetime, now) = open();
        activity.begin_request();
        let mut at = now;
        for _ in 0..3 {
            tokio::time::advance(lifetime.wake_at() - at).await;
            at = lifetime.wake_at();
            assert_eq!((lifetime.wake(&limits, at), lifetime.end()), (Step::Wait, None));
        }
        activity.end_request(false);
        while lifetime.end().is_none() {
            at = lifetime.wake_at();
            lifetime.wake(&limits, at);
        }
        assert_eq!(lifetime.end(), Some(ConnectionEnd::Idle));
    }
}
