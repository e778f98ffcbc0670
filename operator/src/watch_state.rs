//! Whether the watches work: one log line when that changes, instead of one per attempt and kind of object; and a metric that says which
//! fail, since nothing is looked after until each has listed what there is.
//!
//! An API server that is away breaks all watches at once and is one line; a refusal (no such kind, no permission), or a panic, which is
//! a defect of the operator, concerns one kind of object and is a line for each.

use crate::metrics::Metrics;
use kube::{core::Status, runtime::watcher};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tracing::{error, info, warn};

/// HTTP status of "that is too old, list again": how a watch is told to begin anew, which is no failure.
const GONE: u16 = 410;

/// What fails, by kind of object.
#[derive(Debug)]
pub struct WatchState {
    metrics: Arc<Metrics>,
    failing: Mutex<BTreeMap<String, Failure>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The server cannot be reached.
    Away,
    /// The server answers with this status.
    Refused(u16),
    /// Nobody else is to blame.
    Panicked,
}

/// What is worth a line.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    None,
    Fails,
    Works,
}

impl WatchState {
    /// One that says it to these metrics.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, failing: Mutex::default() }
    }

    /// A watch begins.
    pub fn begins(&self, kind: &str) {
        self.metrics.add_failing_watches(kind, 0);
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
            (Change::Fails, _) => warn!(%error, "cannot watch: the API server is away"),
            (Change::None | Change::Works, _) => {}
        }
    }

    /// A watch panicked, and begins again.
    pub fn panicked(&self, kind: &str, words: &str) {
        if self.note_failure(kind, Failure::Panicked) == Change::Fails {
            error!(
                kind,
                panic = words,
                "a watch panicked and lists anew: a defect of the operator, please report it"
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
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = match failure {
            Failure::Away => failing.values().any(|known| *known == Failure::Away),
            Failure::Refused(_) | Failure::Panicked => failing.get(kind) == Some(&failure),
        };
        if failing.insert(kind.to_owned(), failure).is_none() {
            self.metrics.add_failing_watches(kind, 1);
        }
        if is_known { Change::None } else { Change::Fails }
    }

    fn note_success(&self, kind: &str) -> Change {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = failing.remove(kind).is_some();
        if failed {
            self.metrics.add_failing_watches(kind, -1);
        }
        if failed && failing.is_empty() { Change::Works } else { Change::None }
    }
}

/// What the server answered, if it did.
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
