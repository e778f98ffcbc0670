//! The end of a process that has clients, in order.
//!
//! | step | takes at most |
//! | --- | --- |
//! | `/readyz` is 503; connections and requests are still taken | [`ENDPOINTS_WAIT`] |
//! | the sockets close, answers say that the connections take no more requests, the requests under way are answered | `shutdown.deadline` |
//! | the edge's producer has nothing left | [`FLUSH_WAIT`], and what is left of `shutdown.deadline` |
//!
//! Until the cluster has learnt that a pod ends, it sends new connections to the pod: without the first step, they would be refused.

use anyhow::Context as _;
use sluice_gateway_config::edge::ENDPOINTS_WAIT;
use sluice_otlp_server::Unanswered;
use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

/// How long a request may take from its whole body to its answer. Chosen: less than the 10 s after which clients of OpenTelemetry give up a
/// request, so that they get the answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// How long a message waits for its acknowledgement. Chosen: librdkafka looks for late messages every second, and its reason must be there when
/// the request is answered.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(6);

/// How long messages of clients that have gone may take after the last answer: as long as a request. The operator leaves 10 s between the
/// deadline and the end of the grace period.
pub const FLUSH_WAIT: Duration = ANSWER_TIMEOUT;

/// A server that serves.
pub struct Serving {
    /// Dropped, it makes the server end.
    pub stop: oneshot::Sender<()>,
    /// Ready once every request has its answer.
    pub under_way: JoinHandle<Result<(), Unanswered>>,
}

/// How a process says that it ends.
#[derive(Debug)]
pub struct Ending {
    /// Which process.
    pub who: &'static str,
    /// What becomes of requests without an answer.
    pub unanswered: &'static str,
}

/// Ends the server. `deadline` is that of the config, and `flushed` is ready once what is behind the server has nothing left.
///
/// # Errors
/// If requests have no answer at the deadline.
pub async fn end(
    ending: &Ending,
    is_ending: &AtomicBool,
    (server, deadline): (Serving, Duration),
    flushed: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Serving { stop, under_way } = server;
    is_ending.store(true, Ordering::Relaxed);
    tracing::info!("stopping: {} is not ready, and takes requests for {ENDPOINTS_WAIT} more", ending.who);
    sleep(ENDPOINTS_WAIT.to_std()).await;
    tracing::info!("answering the requests under way");
    drop(stop);
    let deadline = Instant::now() + deadline + FLUSH_WAIT;
    under_way.await.context("the OTLP server")?.context(ending.unanswered)?;
    // Messages of clients that have gone.
    if timeout_at(deadline, flushed).await.is_err() {
        tracing::warn!("messages of clients that have gone are not acknowledged at the end");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, sync::Arc};
    use tokio::sync::mpsc;

    const SOME: Ending = Ending { who: "it", unanswered: "shutdown.deadline is over" };
    const DEADLINE: Duration = Duration::from_secs(50);

    /// What happens, and when, counted from the signal.
    struct Scene {
        begun: Instant,
        is_ending: Arc<AtomicBool>,
        said: mpsc::Sender<(&'static str, Duration)>,
    }

    impl Scene {
        fn new() -> (Self, mpsc::Receiver<(&'static str, Duration)>) {
            let (said, heard) = mpsc::channel(8);
            (Self { begun: Instant::now(), is_ending: Arc::default(), said }, heard)
        }

        /// A server that answers its last request this long after its end begins.
        fn server(&self, answers_after: Duration, ended: Result<(), Unanswered>) -> Serving {
            let (stop, stopped) = oneshot::channel::<()>();
            let (begun, said, is_ending) = (self.begun, self.said.clone(), self.is_ending.clone());
            let under_way = tokio::spawn(async move {
                drop(stopped.await);
                assert!(is_ending.load(Ordering::Relaxed), "it is not ready by then");
                said.try_send(("stopped", begun.elapsed())).unwrap();
                sleep(answers_after).await;
                said.try_send(("answered", begun.elapsed())).unwrap();
                ended
            });
            Serving { stop, under_way }
        }

        /// A producer whose last acknowledgement takes this long.
        async fn flushed(&self, after: Duration) {
            self.said.try_send(("flushing", self.begun.elapsed())).unwrap();
            sleep(after).await;
            self.said.try_send(("flushed", self.begun.elapsed())).unwrap();
        }
    }

    fn all<T>(mut heard: mpsc::Receiver<T>) -> Vec<T> {
        std::iter::from_fn(|| heard.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_ready_then_takes_no_more_then_answers_then_flushes() {
        let (scene, heard) = Scene::new();
        let server = scene.server(Duration::from_secs(20), Ok(()));
        let flushed = scene.flushed(Duration::from_secs(3));
        end(&SOME, &scene.is_ending, (server, DEADLINE), flushed).await.unwrap();
        let seconds = |number| ENDPOINTS_WAIT.to_std() + Duration::from_secs(number);
        let whole: Vec<_> = all(heard).into_iter().map(|(what, at)| (what, at.as_secs())).collect();
        let expected = [
            ("stopped", seconds(0)),
            ("answered", seconds(20)),
            ("flushing", seconds(20)),
            ("flushed", seconds(23)),
        ];
        assert_eq!(whole, expected.map(|(what, at)| (what, at.as_secs())));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_within_the_grace_period_if_the_producer_is_never_done() {
        let (scene, _heard) = Scene::new();
        end(&SOME, &scene.is_ending, (scene.server(DEADLINE, Ok(())), DEADLINE), pending()).await.unwrap();
        let longest = ENDPOINTS_WAIT.to_std() + DEADLINE + FLUSH_WAIT;
        assert_eq!(scene.begun.elapsed().as_secs(), longest.as_secs());
        // The operator leaves 10 s for it.
        assert!(longest < ENDPOINTS_WAIT.to_std() + DEADLINE + Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_an_answer_are_an_error() {
        let (scene, heard) = Scene::new();
        let server = scene.server(DEADLINE, Err(Unanswered { requests: 3, connections: 2 }));
        let error = end(&SOME, &scene.is_ending, (server, DEADLINE), scene.flushed(Duration::ZERO))
            .await
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("shutdown.deadline is over") && text.contains("3 requests"), "{text}");
        assert_eq!(all(heard).len(), 2, "nothing waits for the producer");
    }
}
