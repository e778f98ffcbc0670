//! The schema Job: how far it is, and why it failed.

use crate::{
    names::SCHEMA_CONTAINER,
    observed::job::{ContainerEnd, ended, not_started},
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use sluice_crds::{
    SchemaStatus, TracePipelineStatus,
    status::{condition, reason},
};
use std::time::Duration;

/// How far the schema Job of the current plan is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SchemaSeen {
    /// The spec wants none.
    NotNeeded,
    /// There is no such Job.
    #[default]
    NotStarted,
    /// It is at work.
    Running,
    /// It ended well.
    Succeeded,
    /// It succeeded at some time, and the Job does not show it: the Job is gone, or Kubernetes reports a failure because of another
    /// container in its pod.
    Remembered,
    Failed(SchemaFailed),
    /// It failed for this reason, and is about to be run again, or at work again; or its pod does not start
    /// ([`reason::JOB_NOT_STARTED`]).
    Again(SchemaFailure),
}

/// A schema Job that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaFailed {
    /// Why.
    pub failure: SchemaFailure,
    /// How often in a row, with this one.
    pub times: u32,
    /// When.
    pub at: Timestamp,
    /// How long ago.
    pub ago: Duration,
    /// Who says so.
    pub said_by: SaidBy,
}

/// Who says that a schema Job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaidBy {
    /// Its container, when it ended at this time, as far as Kubernetes has that.
    Container(Option<Timestamp>),
    /// Only Kubernetes, of a Job made at this time: no pod is left in which the container ended.
    Kubernetes(Option<Timestamp>),
}

impl Default for SaidBy {
    fn default() -> Self {
        Self::Container(None)
    }
}

/// Why a schema Job failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaFailure {
    /// The reason in a condition: one of those in [`sluice_crds::status::reason`].
    pub reason: &'static str,
    /// What the Job said, for people.
    pub message: String,
}

/// Reasons that the Job may name; any other becomes `JobFailed`.
const NAMED: [&str; 9] = [
    reason::AUTH_FAILED,
    reason::TLS_FAILED,
    reason::UNREACHABLE,
    reason::TIMEOUT,
    reason::DATABASE_MISSING,
    reason::TABLE_MISSING,
    reason::COLUMN_MISMATCH,
    reason::SCHEMA_DIFFERS,
    reason::SERVERS_NOT_REACHED,
];

impl SchemaSeen {
    /// Reads the Job and its pods, `None` when the server has no such Job.
    pub fn of(job: Option<&Job>, pods: &[Pod], now: Timestamp) -> Self {
        let Some(job) = job else { return Self::NotStarted };
        if ended(job, "Complete").is_some() {
            return Self::Succeeded;
        }
        let end = ContainerEnd::of(pods, SCHEMA_CONTAINER);
        let failed = ended(job, "Failed");
        if end.as_ref().is_some_and(ContainerEnd::is_success) {
            return if failed.is_some() { Self::Remembered } else { Self::Succeeded };
        }
        let stuck = not_started(pods, SCHEMA_CONTAINER, now).filter(|_| end.is_none());
        // What else runs in the pod keeps the Job from failing until its deadline.
        if failed.is_none() && !end.as_ref().is_some_and(|end| end.pod_runs) {
            return stuck.map_or(Self::Running, |why| Self::Again(SchemaFailure::not_started(&why)));
        }
        // A server that does not say since when: since the Job is there, which is the same at each look.
        let made = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let failed_at = failed.and_then(|failed| failed.last_transition_time.as_ref()).map(|time| time.0);
        let ended_at = end.as_ref().and_then(|end| end.at);
        let at = failed_at.or(ended_at).or(made).unwrap_or(Timestamp::UNIX_EPOCH);
        // A clock that is behind the server's makes this negative; the Job has then just failed.
        let ago = Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let said_by = end.as_ref().map_or(SaidBy::Kubernetes(made), |end| SaidBy::Container(end.at));
        let of_kubernetes = failed.and_then(|failed| failed.message.as_deref());
        let failure = match stuck {
            Some(why) => SchemaFailure::not_started(&why),
            None => SchemaFailure::of(end, of_kubernetes),
        };
        Self::Failed(SchemaFailed { failure, times: 1, at, ago, said_by })
    }

    /// The same in the light of what the status remembers of this Job: how often it failed before, and, until it has ended again, why.
    #[must_use]
    pub fn remembering(self, job: &str, before: Option<&SchemaStatus>) -> Self {
        let Some(before) = before.filter(|before| before.job == job) else { return self };
        match self {
            Self::Failed(failed) => Self::Failed(failed.remembering(before)),
            Self::NotStarted | Self::Running => Self::Again(SchemaFailure::remembered(before)),
            Self::NotNeeded | Self::Succeeded | Self::Remembered | Self::Again(_) => self,
        }
    }

    /// The same where the status records that this Job succeeded. The record holds if the Job is deleted, or if Kubernetes never reports
    /// its completion.
    #[must_use]
    pub fn succeeded_before(self, job: &str, before: Option<&TracePipelineStatus>) -> Self {
        let is_so = before.is_some_and(|before| {
            // One that only a person may mend is remembered as failed, and as usable.
            let has_failed = before.schema.as_ref().is_some_and(|failed| failed.job == job);
            before.schema_job.as_deref() == Some(job) && !has_failed
        });
        match self {
            Self::Running | Self::Again(_) if is_so => Self::Succeeded,
            Self::NotStarted | Self::Failed(_) if is_so => Self::Remembered,
            other => other,
        }
    }

    /// The same where Kubernetes does not make the Job's pod, and says this of it.
    #[must_use]
    pub fn without_pod(self, why: Option<&str>) -> Self {
        match (self, why) {
            (Self::Running, Some(why)) => {
                let words = format!("Kubernetes does not create its pod: {why}");
                Self::Again(SchemaFailure::not_started(&words))
            }
            (other, _) => other,
        }
    }

    /// The same where the status says that the Job's pod did not start. At its deadline, Kubernetes takes that pod away and says of the Job
    /// only that it is late.
    #[must_use]
    pub fn not_started_before(self, before: Option<&TracePipelineStatus>) -> Self {
        let mut conditions = before.into_iter().flat_map(|before| &before.conditions);
        let said = conditions
            .find(|one| one.type_ == condition::SCHEMA_READY && one.reason == reason::JOB_NOT_STARTED);
        match (self, said) {
            (Self::Failed(failed), Some(said)) if failed.is_of_kubernetes() => {
                let failure =
                    SchemaFailure { reason: reason::JOB_NOT_STARTED, message: said.message.clone() };
                Self::Failed(SchemaFailed { failure, ..failed })
            }
            (other, _) => other,
        }
    }

    /// Why it failed last, until it has ended well; or why it does not start.
    pub fn failure(&self) -> Option<&SchemaFailure> {
        match self {
            Self::Failed(failed) => Some(&failed.failure),
            Self::Again(failure) => Some(failure),
            Self::NotNeeded | Self::NotStarted | Self::Running | Self::Succeeded | Self::Remembered => None,
        }
    }

    /// The Job to be remembered, by its name, as the one after which rows can be written, where this one was before. `is_made` says whether
    /// one that is not there is made now.
    pub(crate) fn usable(&self, job: Option<&str>, before: Option<&str>, is_made: bool) -> Option<String> {
        let remembered = match self {
            Self::NotNeeded => None,
            Self::Succeeded | Self::Remembered => job.or(before),
            Self::Failed(failed) if failed.failure.lets_rows_in() => job.or(before),
            // Rows cannot be written any more.
            Self::Failed(SchemaFailed { failure, .. }) | Self::Again(failure)
                if failure.is_about_the_table() && !failure.lets_rows_in() =>
            {
                None
            }
            // Another Job may have changed a part of the table.
            Self::Running | Self::Failed(_) | Self::Again(_) => before.filter(|before| Some(*before) == job),
            Self::NotStarted => before.filter(|before| !is_made || Some(*before) == job),
        };
        remembered.map(str::to_owned)
    }

    /// What is to be remembered of the Job of this name, where this was remembered before.
    pub(crate) fn status(&self, job: Option<&str>, before: Option<SchemaStatus>) -> Option<SchemaStatus> {
        match self {
            Self::Failed(failed) => Some(SchemaStatus {
                job: job?.to_owned(),
                failures: failed.times,
                last_failure_time: Time(failed.at),
                reason: failed.failure.reason.to_owned(),
                message: failed.failure.message.clone(),
            }),
            // Of another Job it means nothing, and is not read.
            Self::Again(_) | Self::NotStarted => before,
            Self::NotNeeded | Self::Running | Self::Succeeded | Self::Remembered => None,
        }
    }
}

impl SchemaFailed {
    /// Whether nothing is known of it but what Kubernetes says of the Job.
    fn is_of_kubernetes(&self) -> bool {
        matches!(self.said_by, SaidBy::Kubernetes(_)) && self.failure.reason == reason::JOB_FAILED
    }

    /// The same where the status remembers a failure of this Job, which may be this one.
    fn remembering(self, before: &SchemaStatus) -> Self {
        let last = before.last_failure_time.0;
        let (is_known, is_all_that_is_left) = match self.said_by {
            SaidBy::Container(ended) => (ended == Some(last), false),
            // Its pod went: what it said, it said since the Job was made.
            SaidBy::Kubernetes(made) => {
                let is_left = made.is_some_and(|made| made <= last);
                (is_left, is_left)
            }
        };
        if !is_known && self.at != last {
            return Self { times: before.failures.saturating_add(1), ..self };
        }
        let longer = Duration::try_from(self.at.duration_since(last)).unwrap_or_default();
        let failure = if is_all_that_is_left { SchemaFailure::remembered(before) } else { self.failure };
        Self { failure, times: before.failures, at: last, ago: self.ago.saturating_add(longer), ..self }
    }
}

impl SchemaFailure {
    fn of(end: Option<ContainerEnd>, of_kubernetes: Option<&str>) -> Self {
        let Some(end) = end else {
            let message = of_kubernetes.unwrap_or("the schema Job failed");
            let message = format!("{message}; its pod is gone, and the log with it");
            return Self { reason: reason::JOB_FAILED, message };
        };
        Self { reason: named(end.said.reason.as_deref()), message: end.words() }
    }

    fn remembered(before: &SchemaStatus) -> Self {
        let reason = match before.reason.as_str() {
            reason::JOB_NOT_STARTED => reason::JOB_NOT_STARTED,
            other => named(Some(other)),
        };
        Self { reason, message: before.message.clone() }
    }

    /// Nothing was asked of ClickHouse.
    fn not_started(why: &str) -> Self {
        Self { reason: reason::JOB_NOT_STARTED, message: format!("the schema Job does not start: {why}") }
    }

    /// Whether ClickHouse was reached with these credentials: it then said what is wrong with the table.
    pub fn is_about_the_table(&self) -> bool {
        matches!(
            self.reason,
            reason::DATABASE_MISSING
                | reason::TABLE_MISSING
                | reason::COLUMN_MISMATCH
                | reason::SCHEMA_DIFFERS
        )
    }

    /// Whether rows can be written to the table all the same.
    pub fn lets_rows_in(&self) -> bool {
        matches!(self.reason, reason::SCHEMA_DIFFERS | reason::SERVERS_NOT_REACHED)
    }
}

/// Whether a condition with this reason was said of a schema Job that ended.
pub(crate) fn is_said_by_the_job(said: &str) -> bool {
    [reason::OK, reason::JOB_FAILED].contains(&said) || NAMED.contains(&said)
}

fn named(reason: Option<&str>) -> &'static str {
    NAMED.into_iter().find(|name| reason == Some(name)).unwrap_or(reason::JOB_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn seen(conditions: &serde_json::Value, said: &str) -> SchemaSeen {
        let job: Job = serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap();
        let terminated = json!({"exitCode": 69, "message": said});
        let status = json!({"name": SCHEMA_CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}});
        let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        SchemaSeen::of(Some(&job), &[pod], NOW.parse().unwrap())
    }

    fn failed_at(time: &str) -> serde_json::Value {
        json!([{"type": "Failed", "status": "True", "lastTransitionTime": time, "message": "backoff limit"}])
    }

    #[test]
    fn a_job_is_absent_running_or_ended() {
        assert_eq!(SchemaSeen::of(None, &[], NOW.parse().unwrap()), SchemaSeen::NotStarted);
        assert_eq!(seen(&json!([]), ""), SchemaSeen::Running);
        assert_eq!(seen(&json!([{"type": "Complete", "status": "True"}]), ""), SchemaSeen::Succeeded);
        assert_eq!(seen(&json!([{"type": "Failed", "status": "False"}]), ""), SchemaSeen::Running);
    }

    #[test]
    fn a_failure_has_its_reason_its_message_and_its_age() {
        for (said, reason, message) in [
            (r#"{"reason": "AuthFailed", "message": "wrong password"}"#, "AuthFailed", "wrong password"),
            (r#"{"reason": "SchemaDiffers", "message": "TTL is none"}"#, "SchemaDiffers", "TTL is none"),
            (r#"{"reason": "Timeout", "message": "no answer"}"#, "Timeout", "no answer"),
            (
                r#"{"reason": "ServersNotReached", "message": "not reached: b"}"#,
                "ServersNotReached",
                "not reached: b",
            ),
            (r#"{"reason": "Novel", "message": "m"}"#, "JobFailed", "m"),
            ("plain words", "JobFailed", "plain words (exit code 69; kubectl logs p)"),
            ("", "JobFailed", "it ended without a message (exit code 69; kubectl logs p)"),
        ] {
            let failure = SchemaFailure { reason, message: message.into() };
            let time = "2026-01-01T00:00:00Z";
            let ago = Duration::from_mins(1);
            let at = time.parse().unwrap();
            let said_by = SaidBy::Container(None);
            let expected = SchemaSeen::Failed(SchemaFailed { failure, times: 1, at, ago, said_by });
            assert_eq!(seen(&failed_at(time), said), expected, "{said}");
        }
    }

    /// A Job made at 00:00 whose container ended with this code at 00:00:10, beside one that was injected.
    fn beside_another(phase: &str, exit_code: i32, conditions: &serde_json::Value) -> SchemaSeen {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": conditions},
        }))
        .unwrap();
        let container = |name: &str, state: serde_json::Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let said = r#"{"reason": "SchemaDiffers", "message": "TTL is none"}"#;
        let ended = json!({"terminated": {
            "exitCode": exit_code, "message": said, "finishedAt": "2026-01-01T00:00:10Z",
        }});
        let statuses = [container("mesh", json!({"running": {}})), container(SCHEMA_CONTAINER, ended)];
        let pods = json!([{"status": {"phase": phase, "containerStatuses": statuses}}]);
        let pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
        SchemaSeen::of(Some(&job), &pods, NOW.parse().unwrap())
    }

    #[test]
    fn a_job_has_ended_when_its_own_container_has_whatever_else_runs_in_its_pod() {
        let late = failed_at("2026-01-01T00:05:00Z");
        assert_eq!(beside_another("Running", 0, &json!([])), SchemaSeen::Succeeded);
        assert_eq!(beside_another("Failed", 0, &late), SchemaSeen::Remembered, "the other one failed");
        let SchemaSeen::Failed(failed) = beside_another("Running", 69, &json!([])) else { panic!() };
        assert_eq!((failed.failure.reason, failed.ago.as_secs()), ("SchemaDiffers", 50));
        assert_eq!(beside_another("Failed", 69, &json!([])), SchemaSeen::Running, "Kubernetes will say so");
        // The deadline has the Job fail for Kubernetes, too, and takes the pod away: it is the same failure.
        let before = SchemaSeen::Failed(failed.clone()).status(Some("j"), None).unwrap();
        let deadline: Job = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": late},
        }))
        .unwrap();
        let without_pods = SchemaSeen::of(Some(&deadline), &[], "2026-01-01T00:06:00Z".parse().unwrap());
        for seen in [beside_another("Failed", 69, &late), without_pods.clone()] {
            let seen = seen.remembering("j", Some(&before));
            assert_eq!(seen.status(Some("j"), None).as_ref(), Some(&before), "{seen:?}");
        }
        let SchemaSeen::Failed(remembered) = without_pods.remembering("j", Some(&before)) else { panic!() };
        assert_eq!(remembered.ago.as_secs(), 350);
    }

    #[test]
    fn a_job_that_succeeded_has_done_so_whatever_becomes_of_it() {
        let failed = seen(&failed_at("2026-01-01T00:00:00Z"), "");
        let of = |job: &str, schema: Option<SchemaStatus>| TracePipelineStatus {
            schema_job: Some(job.into()),
            schema,
            ..TracePipelineStatus::default()
        };
        for (before, after) in [
            (SchemaSeen::NotStarted, SchemaSeen::Remembered),
            (failed.clone(), SchemaSeen::Remembered),
            (SchemaSeen::Running, SchemaSeen::Succeeded),
            (SchemaSeen::Succeeded, SchemaSeen::Succeeded),
        ] {
            let seen = |status: &TracePipelineStatus| before.clone().succeeded_before("j", Some(status));
            assert_eq!(seen(&of("j", None)), after, "{before:?}");
            assert_eq!(seen(&of("other", None)), before);
            assert_eq!(seen(&of("j", failed.status(Some("j"), None))), before, "it has failed since");
            assert_eq!(seen(&of("j", failed.status(Some("i"), None))), after, "another one has failed");
            assert_eq!(before.clone().succeeded_before("j", None), before);
        }
    }

    #[test]
    fn the_job_that_is_remembered_is_the_last_one_after_which_rows_can_be_written() {
        let failed = |said: &str| seen(&failed_at("2026-01-01T00:00:00Z"), said);
        let differs = failed(r#"{"reason": "SchemaDiffers", "message": "m"}"#);
        let away = failed(r#"{"reason": "Unreachable", "message": "m"}"#);
        for (seen, is_made, after_itself, after_another) in [
            (SchemaSeen::Succeeded, true, Some("j"), Some("j")),
            (SchemaSeen::Remembered, false, Some("j"), Some("j")),
            (differs, true, Some("j"), Some("j")),
            (away, true, Some("j"), None),
            (SchemaSeen::Running, true, Some("j"), None),
            (SchemaSeen::NotStarted, true, Some("j"), None),
            // What the spec asks for cannot be planned, or waits for something.
            (SchemaSeen::NotStarted, false, Some("j"), Some("i")),
            (SchemaSeen::NotNeeded, false, None, None),
        ] {
            let after = |before: Option<&str>| seen.usable(Some("j"), before, is_made);
            assert_eq!(after(Some("j")).as_deref(), after_itself, "{seen:?}");
            assert_eq!(after(Some("i")).as_deref(), after_another, "{seen:?}");
        }
        assert_eq!(SchemaSeen::NotStarted.usable(None, Some("i"), false).as_deref(), Some("i"));
    }

    #[test]
    fn a_job_that_failed_in_the_future_has_just_failed() {
        let SchemaSeen::Failed(failed) = seen(&failed_at("2026-01-01T00:02:00Z"), "") else { panic!() };
        assert_eq!(failed.ago, Duration::ZERO);
    }

    #[test]
    fn each_failure_counts_once_and_is_remembered_until_the_job_has_ended_again() {
        let said = r#"{"reason": "Unreachable", "message": "no route"}"#;
        let failed = |time: &str| seen(&failed_at(time), said);
        let times = |seen: &SchemaSeen| {
            let SchemaSeen::Failed(failed) = seen else { panic!("{seen:?}") };
            failed.times
        };
        let first = failed("2026-01-01T00:00:00Z");
        assert_eq!(times(&first), 1);
        let status = first.status(Some("j"), None);
        let again = |seen: SchemaSeen, job: &str| seen.remembering(job, status.as_ref());
        assert_eq!(times(&again(failed("2026-01-01T00:00:00Z"), "j")), 1, "the same failure");
        assert_eq!(times(&again(failed("2026-01-01T00:00:40Z"), "j")), 2);
        assert_eq!(times(&again(failed("2026-01-01T00:00:40Z"), "other")), 1, "another Job");
        for waits in [SchemaSeen::NotStarted, SchemaSeen::Running] {
            let seen = again(waits.clone(), "j");
            assert_eq!(seen.failure(), first.failure(), "{waits:?}");
            assert_eq!(seen.status(Some("j"), status.clone()), status);
            assert_eq!(again(waits.clone(), "other"), waits);
        }
        assert_eq!(again(SchemaSeen::Succeeded, "j").status(Some("j"), status.clone()), None);
    }

    #[test]
    fn without_a_pod_the_jobs_own_message_is_taken() {
        let job: Job =
            serde_json::from_value(json!({"status": {"conditions": failed_at("2026-01-01T00:00:00Z")}}))
                .unwrap();
        let seen = SchemaSeen::of(Some(&job), &[], NOW.parse().unwrap());
        let failure = seen.failure().unwrap();
        assert_eq!(
            (failure.reason, failure.message.as_str()),
            ("JobFailed", "backoff limit; its pod is gone, and the log with it")
        );
    }
}
