//! What time it is at the API server: what is compared with times that it has written, such as since when a pipeline is deleted, is compared by its
//! own clock. A node whose clock is ahead would else skip the drain of a deletion, and one that is behind would make it last longer.
//!
//! ```text
//! answer of the API server --Date--> difference to this machine's clock --> removal: its limit
//! ```
//!
//! Owner: shared by the clients, which see every answer, and by those who ask. Limits: a `Date` has whole seconds, and is as old as the answer
//! was under way; a server, or a proxy in front of it, that sends none leaves this machine's clock.

use super::clock::now;
use hyper::{Response, header::DATE};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{
    Client, Config,
    client::{ClientBuilder, DynBody},
};
use sluice_plan::Moment;
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use tower::util::MapResponseLayer;

/// How far the API server's clock is ahead of this machine's, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct ServerTime(Arc<AtomicI64>);

impl ServerTime {
    /// A client whose answers tell the time.
    pub fn client(&self, config: Config) -> kube::Result<Client> {
        let told = self.clone();
        let learn = move |answer: Response<Box<DynBody>>| {
            told.learn(&answer, now());
            answer
        };
        Ok(ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(learn)).build())
    }

    /// The time there, when it is `now` here.
    pub fn at(&self, Moment(now): Moment) -> Moment {
        Moment(now.saturating_add_signed(self.0.load(Ordering::Relaxed)))
    }

    /// An answer has come at this moment.
    fn learn<B>(&self, answer: &Response<B>, Moment(now): Moment) {
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        let there = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let Some(there) = there.map(Timestamp::as_millisecond) else { return };
        let ahead = there.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX));
        self.set_ahead(ahead);
    }

    /// The API server's clock is this many milliseconds ahead of this machine's.
    pub fn set_ahead(&self, milliseconds: i64) {
        self.0.store(milliseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_servers_once_it_has_answered() {
        let time = ServerTime::default();
        // 2026-01-01T00:00:00Z.
        let midnight = 1_767_225_600_000;
        assert_eq!(time.at(Moment(midnight)), Moment(midnight));
        let answer = |date: Option<&str>| {
            let answer = Response::builder();
            date.into_iter().fold(answer, |answer, date| answer.header(DATE, date)).body(()).unwrap()
        };
        // This machine's clock is an hour ahead.
        let here = midnight + 3_600_000;
        time.learn(&answer(Some("Thu, 01 Jan 2026 00:00:00 GMT")), Moment(here));
        assert_eq!(time.at(Moment(here + 5_000)), Moment(midnight + 5_000));
        for unread in [None, Some("yesterday")] {
            time.learn(&answer(unread), Moment(here));
            assert_eq!(time.at(Moment(here)), Moment(midnight), "{unread:?}");
        }
        // It was set right.
        time.learn(&answer(Some("Thu, 01 Jan 2026 00:01:00 GMT")), Moment(midnight + 60_000));
        assert_eq!(time.at(Moment(midnight)), Moment(midnight));
    }
}
