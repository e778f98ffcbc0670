//! `kubectl sluice audit`: runs `sluice-gateway audit` in a pod of its own, with the config and the Secrets of the pipeline's gateways.
//!
//! A gateway's own pod has no memory to spare for it. [`pod`] says what the pod looks like, [`state`] what has become of it, and
//! [`output`] which lines of its log are the result. This file makes the pod, follows it and deletes it, whatever happens meanwhile. It
//! keeps the pod only if the audit has ended and its log cannot be read. If the plugin is killed, the pod ends by itself, and goes with
//! its pipeline.
//!
//! Limits: the pod may wait for [`START_SECONDS`], and run as long as `--timeout` says. After its end, the log may fail for
//! [`LOG_WAIT`]. If the connection breaks and the kubelet has rotated the log meanwhile (10 MiB by default), lines are missing. If the
//! whole result is missing, the audit fails.

mod output;
mod pod;
mod state;

use crate::{
    args::AuditArgs,
    cluster::{Cluster, Error, Right},
    exit_codes::EXIT_INTERRUPTED,
    terminal::Terminal,
};
use futures::AsyncBufReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use output::Output;
use pod::{AUDIT, MEMORY, Order, audit_pod};
use sluice_crds::{TracePipeline, status::condition};
use state::State;
use std::{
    io::ErrorKind,
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

/// Once the program has ended, the log may fail this long, and each line of it may take this long. Chosen: an API server or a kubelet that
/// restarts is back within it.
const LOG_WAIT: Duration = Duration::from_mins(1);

/// Without them the pod could not be made, followed or removed again.
const RIGHTS: [Right; 3] = [("create", "pods", None), ("get", "pods", Some("log")), ("delete", "pods", None)];

/// Runs an audit until it ends, or until `SIGINT`, `SIGTERM` or `SIGHUP`, which a terminal sends when it closes. Limit: `nohup` does not
/// keep an audit running, because a `SIGHUP` that is ignored is caught nevertheless.
pub(super) async fn run(
    cluster: &Cluster,
    asked: &AuditArgs,
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    // Caught from before the pod exists, so that it never stays.
    let caught = |kind| signal(kind).map_err(Error::Signals);
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    let mut hangup = caught(SignalKind::hangup())?;
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    run_until(cluster, asked, terminal, stopped).await
}

/// Runs an audit until it ends or `stopped` resolves, and deletes its pod, unless only the pod has the result.
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
            let output = Output::new(asked.json);
            let run = Run { cluster, pod: &name, asked, output, told: String::new() };
            tokio::select! {
                ended = run.follow(terminal) => ended,
                () = stopped => Ok(EXIT_INTERRUPTED),
            }
        }
        // Nothing was made.
        Err(error) if !error.may_be_done() => return Err(error),
        Err(error) => Err(error),
    };
    // It may have taken an hour, and with the pod its log would go.
    if matches!(ended, Err(Error::LogUnread { .. })) {
        return ended;
    }
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
    /// What was written last about the pod or a request.
    told: String,
}

impl Run<'_> {
    /// Follows the pod to its end and returns the exit code of the program.
    async fn follow(mut self, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
        let seconds = START_SECONDS + u64::from(self.asked.timeout) + KUBELET_SECONDS;
        let pod = self.pod.to_owned();
        let looked = timeout(Duration::from_secs(seconds), self.look(terminal)).await;
        let ended = match looked.unwrap_or(Err(Error::NotEnded { pod, seconds })) {
            Ok(code) => self.finish(code, terminal).await,
            Err(error) => Err(error),
        };
        // Lines that were held back are written in any case: without a result they may say what happened.
        self.output.end(ended.as_ref().ok().copied(), terminal)?;
        ended
    }

    /// Waits for the end of the program, reads its log meanwhile, and returns its exit code.
    async fn look(&mut self, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
        let begun = Instant::now();
        loop {
            match self.cluster.pod(self.pod).await.map(|pod| State::of(&pod)) {
                Ok(State::Waits { words, is_explained }) => {
                    let more = if is_explained { None } else { self.cluster.warning(self.pod).await };
                    let words = more.map_or_else(|| words.clone(), |more| format!("{words}; {more}"));
                    if begun.elapsed() >= Duration::from_secs(START_SECONDS.min(self.asked.timeout.into())) {
                        return Err(Error::NotStarted { pod: self.pod.to_owned(), words });
                    }
                    self.tell_once(format!("{} has not started: {words}", self.pod), terminal)?;
                }
                Ok(State::Runs) => match self.read_log(false, terminal).await {
                    // The log is read again if the program still runs. If the pod is gone, the next look says so.
                    Ok(()) | Err(Error::LogBroken { .. } | Error::Missing { .. }) => {}
                    Err(error) if error.is_lasting() => return Err(error),
                    Err(error) => self.tell_once(format!("{error}; trying again"), terminal)?,
                },
                Ok(State::Ended(code)) => return Ok(code),
                Ok(State::Killed(why)) => {
                    // It may have no log, and the reason is known.
                    self.read_log(true, terminal).await.ok();
                    return Err(Error::Killed { pod: self.pod.to_owned(), why: advice(why) });
                }
                // It was made: exit code 66 would be a result of the audit.
                Err(Error::Missing { .. }) => {
                    let why = "the pod was deleted".to_owned();
                    return Err(Error::Killed { pod: self.pod.to_owned(), why });
                }
                Err(error) if error.is_lasting() => return Err(error),
                // The audit goes on while the API server is unreachable.
                Err(error) => self.tell_once(format!("{error}; trying again"), terminal)?,
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Reads the rest of the log once the program has ended: it may have written since the last reading, or the connection may have
    /// broken. Returns the exit code.
    async fn finish(&mut self, code: u8, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
        let begun = Instant::now();
        loop {
            let error = match self.read_log(true, terminal).await {
                Ok(()) => return Ok(code),
                Err(error @ Error::Write(_)) => return Err(error),
                Err(error) => error,
            };
            if error.is_lasting() || begun.elapsed() >= LOG_WAIT {
                let (pod, namespace) = (self.pod, self.cluster.namespace());
                let commands = format!(
                    "kubectl logs {pod} -c {AUDIT} -n {namespace}; kubectl delete pod {pod} -n {namespace}"
                );
                return Err(Error::LogUnread { code, why: error.to_string(), commands });
            }
            self.tell_once(format!("{error}; trying again"), terminal)?;
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Divides the lines of the log that were not read before. It is read from its beginning each time: the number of a line is all that
    /// tells it from others. A line without an end counts only if the program has ended: else the connection has ended within the line.
    async fn read_log(&mut self, has_ended: bool, terminal: &mut Terminal<'_>) -> Result<(), Error> {
        let pod = self.pod;
        let broken = |source| Error::LogBroken { pod: pod.to_owned(), source };
        let late = |_| broken(ErrorKind::TimedOut.into());
        // A program that runs may be silent.
        let limit = if has_ended { LOG_WAIT } else { Duration::MAX };
        let mut log = timeout(limit, self.cluster.log(pod, AUDIT)).await.map_err(late)??;
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            let read = timeout(limit, log.read_until(b'\n', &mut line)).await.map_err(late)?;
            if read.map_err(broken)? == 0 {
                return Ok(());
            }
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            if !is_whole && !has_ended {
                return Ok(());
            }
            number += 1;
            if number > self.output.lines {
                self.output.line(&String::from_utf8_lossy(&line), terminal)?;
            }
        }
    }

    /// Writes a line of progress, unless it is the same as the last one.
    fn tell_once(&mut self, line: String, terminal: &mut Terminal<'_>) -> Result<(), Error> {
        if line != self.told {
            terminal.tell(&line)?;
            self.told = line;
        }
        Ok(())
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
