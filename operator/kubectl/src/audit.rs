//! `kubectl sluice audit`: runs `sluice-gateway audit` in a pod of its own, with the config and the Secrets of the pipeline's gateways.
//!
//! A gateway's own pod has no memory to spare for it. [`pod`] says what the pod looks like, [`state`] what has become of it, and
//! [`output`] which lines of its log are the result. This file makes the pod, follows it and deletes it, whatever happens meanwhile. If
//! the plugin is killed, the pod ends by itself, and goes with its pipeline.
//!
//! Limits: the pod may wait for [`START_SECONDS`], and run as long as `--timeout` says. If the connection breaks and the kubelet has rotated
//! the log meanwhile (10 MiB by default), lines are missing.

mod output;
mod pod;
mod state;

use crate::{
    args::AuditArgs,
    cluster::{Cluster, Error, Right},
    exit_codes::EXIT_INTERRUPTED,
    terminal::Terminal,
};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use output::Output;
use pod::{MEMORY, Order, audit_pod};
use sluice_crds::{TracePipeline, status::condition};
use state::State;
use std::{
    pin::pin,
    process,
    time::{Duration, SystemTime},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, timeout},
};

/// Longest wait for the start of the program. Chosen: a node that must be added first, and the pull of the image.
const START_SECONDS: u64 = 300;

/// Interval between two looks at the pod: a person watches.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The plugin waits this much longer than the pod may take: the kubelet ends the pod, and says so.
const KUBELET_SECONDS: u64 = 60;

/// Without them the pod could not be made, followed or removed again.
const RIGHTS: [Right; 3] = [("create", "pods", None), ("get", "pods", Some("log")), ("delete", "pods", None)];

/// Runs an audit until it ends, or until `SIGINT` or `SIGTERM`.
pub(super) async fn run(
    cluster: &Cluster,
    asked: &AuditArgs,
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    // Caught from before the pod exists, so that it never stays.
    let (mut interrupt, mut terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            (Err(error), _) | (_, Err(error)) => return Err(Error::Signals(error)),
        };
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    run_until(cluster, asked, terminal, stopped).await
}

/// Runs an audit until it ends or `stopped` resolves, and deletes its pod in any case.
pub async fn run_until(
    cluster: &Cluster,
    asked: &AuditArgs,
    terminal: &mut Terminal<'_>,
    stopped: impl Future<Output = ()>,
) -> Result<u8, Error> {
    let mut stopped = pin!(stopped);
    let pod = tokio::select! {
        pod = prepare(cluster, asked, terminal) => pod?,
        () = &mut stopped => return Ok(EXIT_INTERRUPTED),
    };
    let name = pod.metadata.name.clone().unwrap_or_default();
    // Not stopped before the API server has answered: whether there is a pod would be unknown.
    let ended = match cluster.create_pod(&pod).await {
        Ok(()) => {
            let run = Run { cluster, pod: &name, asked, output: Output::new(asked.json) };
            tokio::select! {
                ended = run.follow(terminal) => ended,
                () = stopped => Ok(EXIT_INTERRUPTED),
            }
        }
        // Nothing was made.
        Err(error) if !error.may_be_done() => return Err(error),
        Err(error) => Err(error),
    };
    if let Err(error) = cluster.delete_pod(&name).await {
        terminal
            .tell(&format!("{error}; delete it: kubectl delete pod {name} -n {}", cluster.namespace()))?;
    }
    ended
}

/// The pod to make, once the user may make, follow and delete it.
async fn prepare(cluster: &Cluster, asked: &AuditArgs, terminal: &mut Terminal<'_>) -> Result<Pod, Error> {
    let pipeline = cluster.pipeline(&asked.name).await?;
    let workload = cluster.workload(&pipeline).await?;
    let order = Order { suffix: suffix(), options: asked.options(), seconds_max: asked.timeout };
    let pod = workload.as_ref().and_then(|workload| audit_pod(&pipeline, workload, &order));
    let pod = pod.ok_or_else(|| no_workload(&pipeline))?;
    let lacking = cluster.lacking(&RIGHTS).await;
    if !lacking.is_empty() {
        return Err(Error::NoRights {
            rights: lacking.join(", "),
            namespace: cluster.namespace().to_owned(),
        });
    }
    if pipeline.spec.suspend {
        terminal.tell(&format!(
            "the pipeline {} is suspended: messages that no gateway has read count as waiting",
            asked.name
        ))?;
    }
    Ok(pod)
}

/// An audit that runs.
struct Run<'a> {
    cluster: &'a Cluster,
    pod: &'a str,
    asked: &'a AuditArgs,
    output: Output,
}

impl Run<'_> {
    /// Follows the pod to its end and returns the exit code of the program.
    async fn follow(mut self, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
        let seconds = START_SECONDS + u64::from(self.asked.timeout) + KUBELET_SECONDS;
        let pod = self.pod.to_owned();
        let ended = timeout(Duration::from_secs(seconds), self.look(terminal)).await;
        ended.unwrap_or(Err(Error::NotEnded { pod, seconds }))
    }

    async fn look(&mut self, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
        let begun = Instant::now();
        let mut told = String::new();
        loop {
            match self.cluster.pod(self.pod).await.map(|pod| State::of(&pod)) {
                Ok(State::Waits { words, is_explained }) => {
                    let more = if is_explained { None } else { self.cluster.warning(self.pod).await };
                    let words = more.map_or_else(|| words.clone(), |more| format!("{words}; {more}"));
                    if begun.elapsed() >= Duration::from_secs(START_SECONDS.min(self.asked.timeout.into())) {
                        return Err(Error::NotStarted { pod: self.pod.to_owned(), words });
                    }
                    if words != told {
                        terminal.tell(&format!("{} has not started: {words}", self.pod))?;
                        told = words;
                    }
                }
                Ok(State::Runs) => {
                    self.read_log(terminal).await?;
                }
                Ok(State::Ended(code)) => {
                    // Once more: the program may have written since, or the connection may have broken.
                    if self.read_log(terminal).await? {
                        self.output.end(Some(code), terminal)?;
                        return Ok(code);
                    }
                }
                Ok(State::Killed(why)) => {
                    // It may have none, and the reason is known.
                    self.read_log(terminal).await.ok();
                    self.output.end(None, terminal)?;
                    return Err(Error::Killed { pod: self.pod.to_owned(), why: advice(why) });
                }
                Err(error @ Error::Missing { .. }) => return Err(error),
                // The audit goes on while the API server is unreachable.
                Err(error) => terminal.tell(&format!("{error}; trying again"))?,
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Divides the lines of the log that were not read before, and returns whether the log was read to its end. It is read from its
    /// beginning each time: the number of a line is all that tells it from others.
    async fn read_log(&mut self, terminal: &mut Terminal<'_>) -> Result<bool, Error> {
        let log = match self.cluster.log(self.pod).await {
            Ok(log) => log,
            Err(error) if error.may_be_done() => {
                terminal.tell(&format!("{error}; trying again"))?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mut unread = log.skip(self.output.lines);
        while let Some(line) = unread.next().await {
            match line {
                Ok(line) => self.output.line(&line, terminal)?,
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// What to do about the reasons that a person can do something about.
fn advice(why: String) -> String {
    match why.split(':').next() {
        Some("DeadlineExceeded") => format!("{why}; set a longer --timeout, or a later --since"),
        Some("OOMKilled") => format!("{why}; set a later --since: the pod's memory limit is {MEMORY}"),
        _ => why,
    }
}

/// Why there is nothing that the pod could be made from, as far as the pipeline says it.
fn no_workload(pipeline: &TracePipeline) -> Error {
    let name = pipeline.metadata.name.clone().unwrap_or_default();
    let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let mut not_ready = conditions.filter(|one| one.type_ == condition::READY && one.status == "False");
    let why = not_ready.next().map_or("no operator has made one", |one| one.message.as_str()).to_owned();
    Error::NoWorkload { name, why }
}

/// The end of the pod's name. Two audits that start at the same time have different ones but by a rare accident, which the API server
/// refuses.
fn suffix() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:05x}", (u64::from(now.subsec_micros()) ^ (u64::from(process::id()) << 4)) & 0xf_ffff)
}
