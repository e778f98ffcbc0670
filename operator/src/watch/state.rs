//! Which watches fail. A change is one log line, instead of one for each attempt and kind of object. A metric counts the failing watches,
//! because the operator reconciles nothing until each watch has listed.
//!
//! An unreachable API server breaks all watches at once, and is one line. A refusal (no such kind, no right) or a panic, which is a bug of
//! the operator, is one line for each kind of object.

use crate::world::metrics::Metrics;
use kube::{core::Status, runtime::watcher};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};
use tracing::{error, info, warn};

/// HTTP status with which the API server tells a watch to list again because its resource version is too old. It is no failure.
const GONE: u16 = 410;

/// The state of the watches of one scope, by kind of object.
#[derive(Debug)]
pub struct WatchState {
    metrics: Arc<Metrics>,
    /// Every kind that is watched; `None` while its watch does not fail.
    kinds: Mutex<BTreeMap<String, Option<Failure>>>,
    /// Whether the API server refuses every watch.
    sees_nothing: watch::Sender<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The server cannot be reached.
    Away,
    /// The server answers with this status.
    Refused(u16),
    /// The watch itself panicked.
    Panicked,
}

/// Whether a change is logged.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    None,
    Fails,
    Works,
}

impl WatchState {
    /// State without watches, which reports to these metrics.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, kinds: Mutex::default(), sees_nothing: watch::Sender::new(false) }
    }

    /// A watch begins.
    pub fn begins(&self, kind: &str) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).entry(kind.to_owned()).or_default();
        self.metrics.add_failing_watches(kind, 0);
    }

    /// Resolves once the API server has refused every watch for `wait`, for example because the namespace was deleted together with the
    /// operator's Role.
    pub async fn sees_nothing(&self, wait: Duration) {
        let mut sees_nothing = self.sees_nothing.subscribe();
        // The sender is this object, so that the channel is open.
        while sees_nothing.wait_for(|nothing| *nothing).await.is_ok() {
            if timeout(wait, sees_nothing.wait_for(|nothing| !*nothing)).await.is_err() {
                return;
            }
        }
    }

    /// A watch failed.
    pub fn failed(&self, kind: &str, error: &watcher::Error) {
        let answer = answer(error);
        let failure = match answer.map(|answer| answer.code) {
            Some(GONE) => return,
            Some(code) => Failure::Refused(code),
            None => Failure::Away,
        };
        match (self.note_failure(kind, failure), failure) {
            (Change::Fails, Failure::Refused(code)) => {
                warn!(kind, code, answer = answer.map(|answer| answer.message.as_str()), "cannot watch");
            }
            (Change::Fails, _) => warn!(%error, "cannot watch: the API server is unreachable"),
            (Change::None | Change::Works, _) => {}
        }
    }

    /// A watch panicked, and begins again.
    pub fn panicked(&self, kind: &str, words: &str) {
        if self.note_failure(kind, Failure::Panicked) == Change::Fails {
            error!(
                kind,
                panic = words,
                "a watch panicked and starts again; this is a bug of the operator, please report it"
            );
        }
    }

    /// A watch works.
    pub fn works(&self, kind: &str) {
        if self.note_success(kind) == Change::Works {
            info!("all watches work again");
        }
    }

    fn note_failure(&self, kind: &str, failure: Failure) -> Change {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = match failure {
            Failure::Away => kinds.values().any(|known| *known == Some(Failure::Away)),
            Failure::Refused(_) | Failure::Panicked => kinds.get(kind) == Some(&Some(failure)),
        };
        if kinds.insert(kind.to_owned(), Some(failure)).flatten().is_none() {
            self.metrics.add_failing_watches(kind, 1);
        }
        let is_refused = |known: &Option<Failure>| matches!(known, Some(Failure::Refused(401 | 403 | 404)));
        self.sees_nothing.send_if_modified(|now| replaced(now, kinds.values().all(is_refused)));
        if is_known { Change::None } else { Change::Fails }
    }

    fn note_success(&self, kind: &str) -> Change {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = kinds.insert(kind.to_owned(), None).flatten().is_some();
        if failed {
            self.metrics.add_failing_watches(kind, -1);
        }
        self.sees_nothing.send_if_modified(|now| replaced(now, false));
        if failed && kinds.values().all(Option::is_none) { Change::Works } else { Change::None }
    }
}

/// Sets a value. Returns whether it changed.
fn replaced(now: &mut bool, by: bool) -> bool {
    std::mem::replace(now, by) != by
}

/// The server's answer, if there is one.
fn answer(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn state() -> WatchState {
        WatchState::new(Arc::new(Metrics::new("test", &[]).unwrap()))
    }

    #[test]
    fn what_fails_is_told_by_kind_and_once() {
        let state = state();
        let says = |count: i64| {
            let text = String::from_utf8(state.metrics.render().unwrap()).unwrap();
            text.contains(&format!("sluice_operator_watch_failing{{kind=\"Pod\"}} {count}\n"))
        };
        state.begins("Pod");
        assert!(says(0));
        state.note_failure("Pod", Failure::Refused(403));
        state.note_failure("Pod", Failure::Away);
        state.note_failure("Pod", Failure::Panicked);
        assert!(says(1), "it is one watch, whyever it fails");
        state.note_success("Pod");
        state.note_success("Pod");
        assert!(says(0));
    }

    #[tokio::test]
    async fn an_operator_sees_nothing_while_every_watch_is_refused() {
        let state = state();
        let sees_nothing = async || timeout(Duration::from_mins(1), state.sees_nothing(Duration::ZERO)).await;
        let sees_something = || !*state.sees_nothing.borrow();
        state.begins("Pod");
        state.begins("Job");
        assert!(sees_something(), "nothing has failed");
        state.note_failure("Pod", Failure::Refused(403));
        assert!(sees_something(), "one may work");
        state.note_failure("Job", Failure::Refused(404));
        sees_nothing().await.unwrap();
        let longer = state.sees_nothing(Duration::from_hours(1));
        assert!(longer.now_or_never().is_none(), "it may be seen in a moment");
        for other in [Failure::Away, Failure::Refused(500), Failure::Panicked] {
            state.note_failure("Job", other);
            assert!(sees_something(), "{other:?}");
            state.note_failure("Job", Failure::Refused(401));
            sees_nothing().await.unwrap();
        }
        state.note_success("Pod");
        assert!(sees_something(), "it works");
    }

    #[test]
    fn a_server_that_is_away_is_one_line_and_so_is_its_return() {
        let state = state();
        assert_eq!(state.note_failure("Pod", Failure::Away), Change::Fails);
        assert_eq!(state.note_failure("Job", Failure::Away), Change::None);
        assert_eq!(state.note_failure("Pod", Failure::Away), Change::None);
        assert_eq!(state.note_success("Pod"), Change::None);
        assert_eq!(state.note_success("Job"), Change::Works);
        assert_eq!(state.note_success("Job"), Change::None);
    }

    #[test]
    fn refusals_and_panics_are_a_line_for_each_kind_and_gone_is_none() {
        let state = state();
        for failure in [Failure::Refused(403), Failure::Panicked] {
            assert_eq!(state.note_failure("Pod", failure), Change::Fails);
            assert_eq!(state.note_failure("Job", failure), Change::Fails);
            assert_eq!(state.note_failure("Job", failure), Change::None);
        }
        let gone = Status { code: GONE, ..Status::failure("too old", "Expired") };
        state.failed("Service", &watcher::Error::WatchError(Box::new(gone)));
        assert_eq!(state.note_success("Service"), Change::None, "it did not fail");
    }
}
