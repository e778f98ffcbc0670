//! The schema Job: how far it is, and why it failed.

use crate::{names::SCHEMA_CONTAINER, observed::Termination};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition},
        core::v1::Pod,
    },
    jiff::Timestamp,
};
use sluice_crds::status::reason;
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
    Failed {
        /// Why.
        failure: SchemaFailure,
        /// How long ago.
        ago: Duration,
    },
}

/// Why a schema Job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    reason::TIMEOUT,
    reason::DATABASE_MISSING,
    reason::TABLE_MISSING,
    reason::COLUMN_MISMATCH,
    reason::SCHEMA_DIFFERS,
];

impl SchemaSeen {
    /// Reads the Job and its pods, `None` when the server has no such Job.
    pub fn of(job: Option<&Job>, pods: &[Pod], now: Timestamp) -> Self {
        let Some(job) = job else { return Self::NotStarted };
        if ended(job, "Complete").is_some() {
            return Self::Succeeded;
        }
        let Some(failed) = ended(job, "Failed") else { return Self::Running };
        let since = failed.last_transition_time.as_ref().map_or(now, |time| time.0);
        // A clock that is behind the server's makes this negative; the Job has then just failed.
        let ago = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        Self::Failed { failure: SchemaFailure::of(failed, pods), ago }
    }
}

impl SchemaFailure {
    fn of(failed: &JobCondition, pods: &[Pod]) -> Self {
        let Some(said) = last_words(pods) else {
            let message = failed.message.clone().unwrap_or_else(|| "the schema Job failed".into());
            return Self { reason: reason::JOB_FAILED, message };
        };
        let named = NAMED.into_iter().find(|name| said.reason.as_deref() == Some(name));
        Self { reason: named.unwrap_or(reason::JOB_FAILED), message: said.message }
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
        self.reason == reason::SCHEMA_DIFFERS
    }
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
            (r#"{"reason": "Novel", "message": "m"}"#, "JobFailed", "m"),
            ("plain words", "JobFailed", "plain words"),
        ] {
            let failure = SchemaFailure { reason, message: message.into() };
            let expected = SchemaSeen::Failed { failure, ago: Duration::from_mins(1) };
            assert_eq!(seen(&failed_at("2026-01-01T00:00:00Z"), said), expected, "{said}");
        }
    }

    #[test]
    fn a_job_that_failed_in_the_future_has_just_failed() {
        let SchemaSeen::Failed { ago, .. } = seen(&failed_at("2026-01-01T00:02:00Z"), "") else { panic!() };
        assert_eq!(ago, Duration::ZERO);
    }

    #[test]
    fn without_a_pod_the_jobs_own_message_is_taken() {
        let job: Job =
            serde_json::from_value(json!({"status": {"conditions": failed_at("2026-01-01T00:00:00Z")}}))
                .unwrap();
        let SchemaSeen::Failed { failure, .. } = SchemaSeen::of(Some(&job), &[], NOW.parse().unwrap()) else {
            panic!()
        };
        assert_eq!((failure.reason, failure.message.as_str()), ("JobFailed", "backoff limit"));
    }
}
