//! Which watches fail. A change is one log line, which is repeated each [`SAY_AGAIN_SECONDS`], instead of one for each attempt. A metric counts
//! the failing watches, because the operator reconciles nothing until each watch has listed.
//!
//! An unreachable API server breaks all watches at once, and is one line. A refusal (no such kind, no right) or a panic, which is a bug of
//! the operator, is one line for each kind of object. The client library would log each attempt of a refused watch, about one a second: the
//! operator's log leaves its lines out (`main.rs`).

use crate::world::metrics::Metrics;
use kube::{core::Status, runtime::watcher};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::timeout};
use tracing::{error, info, warn};

/// HTTP status with which the API server tells a watch to list again because its resource version is too old. It is no failure.
const GONE: u16 = 410;

/// A watch that fails for the same reason as before is logged again after this many seconds. Chosen, as for the Lease: a reader of the last
/// minutes of the log sees it.
const SAY_AGAIN_SECONDS: u64 = 60;

/// Characters that are kept of the server's answer. A refusal names the operator's account, the resource and the namespace, which is 200 to 250.
const ANSWER_CHARS_MAX: usize = 300;

/// Kinds that [`Cache::ready`](crate::world::cache::Cache::ready) does not wait for: an older installation lacks their CRD or the right to list them.
const NOT_AWAITED: [&str; 3] = ["TraceConnection", "Deployment", "HorizontalPodAutoscaler"];

/// The state of the watches of one scope, by kind of object.
#[derive(Debug)]
pub struct WatchState {
    metrics: Arc<Metrics>,
    /// Every kind that is watched.
    kinds: Mutex<BTreeMap<String, KindState>>,
    /// Whether the API server refuses every watch.
    sees_nothing: watch::Sender<bool>,
}

/// The state of one watch.
#[derive(Debug, Default)]
struct KindState {
    has_listed: bool,
    /// `None` while it does not fail.
    failing: Option<Failing>,
}

/// Why a watch fails.
#[derive(Debug)]
struct Failing {
    failure: Failure,
    /// The same in words.
    words: String,
    /// When it was last logged.
    said: Instant,
    /// Since when it fails in this way.
    since: Instant,
}

impl Failing {
    /// Whether the operator has no right to watch the kind, or there is no such kind.
    fn is_refused(&self) -> bool {
        matches!(self.failure, Failure::Refused(401 | 403 | 404))
    }
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
        self.failed_at(kind, error, Instant::now());
    }

    /// A watch failed at this time.
    pub fn failed_at(&self, kind: &str, error: &watcher::Error, now: Instant) {
        let answer = answer(error);
        let failure = match answer.map(|answer| answer.code) {
            Some(GONE) => return,
            Some(code) => Failure::Refused(code),
            None => Failure::Away,
        };
        let words = match answer {
            Some(answer) => in_words(answer),
            None => "the API server is unreachable".to_owned(),
        };
        match (self.note_failure(kind, (failure, words), now), failure) {
            (Change::Fails, Failure::Refused(code)) => {
                let answer = answer.map(|answer| answer.message.as_str());
                warn!(kind, code, answer, remedy = remedy(code), "cannot watch");
            }
            (Change::Fails, _) => warn!(%error, "cannot watch: the API server is unreachable"),
            (Change::None | Change::Works, _) => {}
        }
    }

    /// A watch panicked, and begins again.
    pub fn panicked(&self, kind: &str, words: &str) {
        let why = (Failure::Panicked, "it panicked: the log has more".to_owned());
        if self.note_failure(kind, why, Instant::now()) == Change::Fails {
            error!(
                kind,
                panic = words,
                "a watch panicked and starts again; this is a bug of the operator, please report it"
            );
        }
    }

    /// A watch has listed all that there is.
    pub fn listed(&self, kind: &str) {
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(kind.to_owned())
            .or_default()
            .has_listed = true;
        self.works(kind);
    }

    /// The awaited kinds that were never listed, each with why its watch fails; `None` while it does not.
    pub fn unlisted(&self) -> Vec<(String, Option<String>)> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let unlisted = kinds.iter().filter(|(kind, state)| is_awaited(kind) && !state.has_listed);
        let why = |state: &KindState| state.failing.as_ref().map(|failing| failing.words.clone());
        unlisted.map(|(kind, state)| (kind.clone(), why(state))).collect()
    }

    /// The awaited kinds whose watch the API server has refused for at least `wait`, each with its answer.
    pub fn refused(&self, wait: Duration, now: Instant) -> Vec<(String, String)> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = kinds.iter().filter_map(|(kind, state)| Some((kind, state.failing.as_ref()?)));
        let refused = failing.filter(|(kind, failing)| {
            let lasts = now.saturating_duration_since(failing.since) >= wait;
            is_awaited(kind) && failing.is_refused() && lasts
        });
        refused.map(|(kind, failing)| (kind.clone(), failing.words.clone())).collect()
    }

    /// A watch works.
    pub fn works(&self, kind: &str) {
        if self.note_success(kind) == Change::Works {
            info!("all watches work again");
        }
    }

    fn note_failure(&self, kind: &str, (failure, words): (Failure, String), now: Instant) -> Change {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = kinds.iter().filter_map(|(other, state)| Some((other, state.failing.as_ref()?)));
        let alike = alike.filter(|(other, failing)| {
            failing.failure == failure && (failure == Failure::Away || other.as_str() == kind)
        });
        let said = alike.map(|(_, failing)| failing.said).max();
        let again = Duration::from_secs(SAY_AGAIN_SECONDS);
        let said = said.filter(|said| now.saturating_duration_since(*said) < again);
        let state = kinds.entry(kind.to_owned()).or_default();
        let before = state.failing.as_ref().filter(|before| before.failure == failure);
        let since = before.map_or(now, |before| before.since);
        let failing = Failing { failure, words, said: said.unwrap_or(now), since };
        if state.failing.replace(failing).is_none() {
            self.metrics.add_failing_watches(kind, 1);
        }
        let is_refused = |state: &KindState| state.failing.as_ref().is_some_and(Failing::is_refused);
        self.sees_nothing.send_if_modified(|now| replaced(now, kinds.values().all(is_refused)));
        if said.is_some() { Change::None } else { Change::Fails }
    }

    fn note_success(&self, kind: &str) -> Change {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = kinds.entry(kind.to_owned()).or_default().failing.take().is_some();
        if failed {
            self.metrics.add_failing_watches(kind, -1);
        }
        self.sees_nothing.send_if_modified(|now| replaced(now, false));
        let is_well = |state: &KindState| state.failing.is_none();
        if failed && kinds.values().all(is_well) { Change::Works } else { Change::None }
    }
}

/// Whether the operator reconciles nothing before this kind is listed.
fn is_awaited(kind: &str) -> bool {
    !NOT_AWAITED.contains(&kind)
}

/// Sets a value. Returns whether it changed.
fn replaced(now: &mut bool, by: bool) -> bool {
    std::mem::replace(now, by) != by
}

/// The server's answer, cut to a line that a person reads.
fn in_words(answer: &Status) -> String {
    let message: String = answer.message.chars().take(ANSWER_CHARS_MAX).collect();
    format!("{message} (status {})", answer.code)
}

/// What lets the operator watch a kind again that the API server refuses with this status.
fn remedy(code: u16) -> Option<&'static str> {
    match code {
        403 => Some(
            "grant list and watch of this kind to the operator's service account: the chart's Role or ClusterRole does (rbac.create), so \
             that helm upgrade brings it back",
        ),
        404 => Some("apply the chart's CRD of this kind (crds.enabled)"),
        _ => None,
    }
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

    fn fails(state: &WatchState, kind: &str, failure: Failure) -> Change {
        state.note_failure(kind, (failure, String::new()), Instant::now())
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
        fails(&state, "Pod", Failure::Refused(403));
        fails(&state, "Pod", Failure::Away);
        fails(&state, "Pod", Failure::Panicked);
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
        fails(&state, "Pod", Failure::Refused(403));
        assert!(sees_something(), "one may work");
        fails(&state, "Job", Failure::Refused(404));
        sees_nothing().await.unwrap();
        let longer = state.sees_nothing(Duration::from_hours(1));
        assert!(longer.now_or_never().is_none(), "it may be seen in a moment");
        for other in [Failure::Away, Failure::Refused(500), Failure::Panicked] {
            fails(&state, "Job", other);
            assert!(sees_something(), "{other:?}");
            fails(&state, "Job", Failure::Refused(401));
            sees_nothing().await.unwrap();
        }
        state.note_success("Pod");
        assert!(sees_something(), "it works");
    }

    #[test]
    fn a_server_that_is_away_is_one_line_and_so_is_its_return() {
        let state = state();
        assert_eq!(fails(&state, "Pod", Failure::Away), Change::Fails);
        assert_eq!(fails(&state, "Job", Failure::Away), Change::None);
        assert_eq!(fails(&state, "Pod", Failure::Away), Change::None);
        assert_eq!(state.note_success("Pod"), Change::None);
        assert_eq!(state.note_success("Job"), Change::Works);
        assert_eq!(state.note_success("Job"), Change::None);
    }

    #[test]
    fn refusals_and_panics_are_a_line_for_each_kind_and_gone_is_none() {
        let state = state();
        for failure in [Failure::Refused(403), Failure::Panicked] {
            assert_eq!(fails(&state, "Pod", failure), Change::Fails);
            assert_eq!(fails(&state, "Job", failure), Change::Fails);
            assert_eq!(fails(&state, "Job", failure), Change::None);
        }
        let gone = Status { code: GONE, ..Status::failure("too old", "Expired") };
        state.failed("Service", &watcher::Error::WatchError(Box::new(gone)));
        assert_eq!(state.note_success("Service"), Change::None, "it did not fail");
    }

    #[test]
    fn what_still_fails_is_told_again_a_minute_after_it_was_told() {
        let (state, begun) = (state(), Instant::now());
        let after = |seconds, kind, failure| {
            let why = (failure, String::new());
            state.note_failure(kind, why, begun + Duration::from_secs(seconds)) == Change::Fails
        };
        for (failure, at) in [(Failure::Refused(403), 0), (Failure::Away, 200), (Failure::Panicked, 400)] {
            assert!(after(at, "Pod", failure), "{failure:?}");
            for (seconds, is_told) in
                [(1, false), (59, false), (60, true), (61, false), (119, false), (120, true)]
            {
                assert_eq!(after(at + seconds, "Pod", failure), is_told, "{failure:?} after {seconds} s");
            }
        }
        assert!(after(600, "Pod", Failure::Refused(403)));
        assert!(after(601, "Job", Failure::Refused(403)), "another kind");
        assert!(after(602, "Pod", Failure::Refused(500)), "another reason");
        assert!(after(700, "Pod", Failure::Away));
        assert!(!after(701, "Job", Failure::Away), "all of them");
        assert!(after(760, "Job", Failure::Away));
        assert!(!after(761, "Pod", Failure::Away));
    }

    #[test]
    fn a_refusal_counts_once_it_has_lasted_and_until_the_watch_works() {
        let (state, begun, wait) = (state(), Instant::now(), Duration::from_secs(15));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let fails = |seconds, failure| {
            state.note_failure("Secret", (failure, "secrets is forbidden".into()), at(seconds));
        };
        let refused = |seconds| state.refused(wait, at(seconds)).len();
        fails(0, Failure::Away);
        assert_eq!(refused(60), 0, "the server may come back");
        fails(60, Failure::Refused(403));
        fails(70, Failure::Refused(403));
        let refusal = (Failure::Refused(403), "deployments is forbidden".into());
        state.note_failure("Deployment", refusal, at(60));
        assert_eq!((refused(74), refused(75)), (0, 1));
        assert_eq!(state.refused(wait, at(75)), [("Secret".to_owned(), "secrets is forbidden".to_owned())]);
        state.works("Secret");
        assert_eq!(refused(80), 0);
    }

    #[test]
    fn what_was_never_listed_is_known_with_why() {
        let state = state();
        state.begins("Pod");
        state.begins("TraceConnection");
        assert_eq!(state.unlisted(), [("Pod".to_owned(), None)], "an older installation has no connections");
        let refusal = Status { code: 403, ..Status::failure("pods is forbidden", "Forbidden") };
        state.failed("Pod", &watcher::Error::InitialListFailed(kube::Error::Api(Box::new(refusal))));
        assert_eq!(state.unlisted(), [("Pod".to_owned(), Some("pods is forbidden (status 403)".to_owned()))]);
        state.works("Pod");
        assert_eq!(state.unlisted(), [("Pod".to_owned(), None)], "the first of many");
        state.listed("Pod");
        fails(&state, "Pod", Failure::Refused(403));
        assert_eq!(state.unlisted(), []);
    }
}
