//! The schema Job: how far it is, and why it failed.

use crate::{names::SCHEMA_CONTAINER, observed::Termination};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use sluice_crds::{SchemaStatus, status::reason};
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
    /// It failed.
    Failed(SchemaFailed),
    /// It failed for this reason, and is about to be run again, or at work again.
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
const NAMED: [&str; 8] = [
    reason::AUTH_FAILED,
    reason::TLS_FAILED,
    reason::UNREACHABLE,
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
        let Some(failed) = ended(job, "Failed") else { return Self::Running };
        // A server that does not say since when: since the Job is there, which is the same at each look.
        let made = job.metadata.creation_timestamp.as_ref();
        let at = failed.last_transition_time.as_ref().or(made).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        // A clock that is behind the server's makes this negative; the Job has then just failed.
        let ago = Duration::try_from(now.duration_since(at)).unwrap_or_default();
        Self::Failed(SchemaFailed { failure: SchemaFailure::of(failed, pods), times: 1, at, ago })
    }

    /// The same in the light of what the status remembers of this Job: how often it failed before, and, until it has ended again, why.
    #[must_use]
    pub fn remembering(self, job: &str, before: Option<&SchemaStatus>) -> Self {
        let Some(before) = before.filter(|before| before.job == job) else { return self };
        match self {
            Self::Failed(failed) => {
                let is_known = before.last_failure_time.0 == failed.at;
                let times = before.failures.saturating_add(u32::from(!is_known));
                Self::Failed(SchemaFailed { times, ..failed })
            }
            Self::NotStarted | Self::Running => Self::Again(SchemaFailure::remembered(before)),
            Self::NotNeeded | Self::Succeeded | Self::Again(_) => self,
        }
    }

    /// Why it failed last, until it has ended well.
    pub fn failure(&self) -> Option<&SchemaFailure> {
        match self {
            Self::Failed(failed) => Some(&failed.failure),
            Self::Again(failure) => Some(failure),
            Self::NotNeeded | Self::NotStarted | Self::Running | Self::Succeeded => None,
        }
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
            Self::NotNeeded | Self::Running | Self::Succeeded => None,
        }
    }
}

impl SchemaFailure {
    fn of(failed: &JobCondition, pods: &[Pod]) -> Self {
        let Some(said) = last_words(pods) else {
            let message = failed.message.clone().unwrap_or_else(|| "the schema Job failed".into());
            return Self { reason: reason::JOB_FAILED, message };
        };
        Self { reason: named(said.reason.as_deref()), message: said.message }
    }

    fn remembered(before: &SchemaStatus) -> Self {
        Self { reason: named(Some(&before.reason)), message: before.message.clone() }
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

fn ended<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// What the newest pod said that ended.
fn last_words(pods: &[Pod]) -> Option<Termination> {
    let mut newest: Vec<_> = pods.iter().collect();
    newest.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    newest.into_iter().rev().find_map(|pod| {
        let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
        let container = containers.iter().find(|container| container.name == SCHEMA_CONTAINER)?;
        container.state.as_ref()?.terminated.as_ref().map(Termination::of)
    })
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
        let pod: Pod = serde_json::from_value(json!({"status": {"containerStatuses": [status]}})).unwrap();
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
            (
                r#"{"reason": "ServersNotReached", "message": "not reached: b"}"#,
                "ServersNotReached",
                "not reached: b",
            ),
            (r#"{"reason": "Novel", "message": "m"}"#, "JobFailed", "m"),
            ("plain words", "JobFailed", "plain words"),
        ] {
            let failure = SchemaFailure { reason, message: message.into() };
            let at = "2026-01-01T00:00:00Z";
            let ago = Duration::from_mins(1);
            let expected =
                SchemaSeen::Failed(SchemaFailed { failure, times: 1, at: at.parse().unwrap(), ago });
            assert_eq!(seen(&failed_at(at), said), expected, "{said}");
        }
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
        assert_eq!((failure.reason, failure.message.as_str()), ("JobFailed", "backoff limit"));
    }
}
