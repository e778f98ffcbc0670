//! The schema Job: what it does, and when gateways may follow it.
//!
//! The Job has a config of its own, which depends on nothing but what the Job needs, so that more partitions or more
//! memory do not run it again. Its name is the hash of all that it is: a Job cannot be changed, and never has to be.

mod again;

pub use again::{RunsAgain, outdated};

use crate::{
    identity::Identity,
    names::TokenUse,
    observed::{SchemaFailed, SchemaFailure, SchemaSeen},
    pipeline::{
        gateway_config::{self, Share},
        resources,
    },
};
use sluice_crds::{SchemaManagement, Side, TracePipeline, status::reason};
use sluice_gateway_config::{
    Attributes, ByteSize, CheckedConfig, Delivery, Format, GroupProtocol, InitialOffset, Insert, Kafka, Log,
    Queue, Shutdown, Source, Violations, budget::RECORD_BATCH_BYTES_DEFAULT, each_once,
};
use std::{collections::BTreeMap, time::Duration};

/// A Job that failed is run again after this long: what it waits for (a table, a right, a server) is mended outside of the spec, which
/// the operator does not see. With each failure in a row it is twice as long. Chosen: soon enough for a person who waits.
pub const SCHEMA_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The longest time until a failed Job is run again. Chosen: if ClickHouse is down for a day, a pod every five minutes for each pipeline is
/// no load for the cluster. Once ClickHouse is back, a pipeline waits at most five minutes.
pub const SCHEMA_RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// A table that only a person may change is compared again after this long. Only the condition waits for it, and deleting the Job
/// compares at once. Chosen: each comparison is a pod.
pub const SCHEMA_LOOK_AFTER: Duration = Duration::from_hours(1);

/// Memory of the Job's pod: the smallest limit that the contract's arithmetic takes for one worker and one partition,
/// rounded up to the next power of two.
pub(crate) const SCHEMA_MEMORY: ByteSize = ByteSize::mib(128);

/// What must happen to the schema before gateways are started or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaStep {
    /// Nothing: `schema.management: None`.
    NotNeeded,
    /// The Job is to be there; gateways wait for it.
    Run,
    /// The Job failed a moment ago; gateways wait.
    Failed,
    /// The Job failed a while ago and is to be deleted, so that the next reconcile runs it again.
    RunAgain,
    /// The Job succeeded.
    Done,
    /// The same, as the status remembers: no Job is to be there.
    Remembered,
    /// The Job found, or made, a table that rows can be written to, and something is left: a difference that only a person may change,
    /// or servers that did not answer. Nothing waits for it, and a pipeline that runs must not look as if it were at work.
    Usable,
    /// The same a while ago: the Job is to be deleted, so that the next reconcile runs it again. Nothing waits for it.
    LookAgain,
    /// The same, and the Job is to be there again. Nothing waits for it.
    Looking,
}

impl SchemaStep {
    /// Whether the StatefulSet may be applied.
    pub fn lets_gateways_start(self) -> bool {
        match self {
            Self::NotNeeded
            | Self::Done
            | Self::Remembered
            | Self::Usable
            | Self::LookAgain
            | Self::Looking => true,
            Self::Run | Self::Failed | Self::RunAgain => false,
        }
    }

    /// Whether the Job is to be there.
    pub(crate) fn has_job(self) -> bool {
        !matches!(self, Self::RunAgain | Self::LookAgain | Self::Remembered)
    }

    /// `needed` is the name of the Job, `None` where the spec wants none; `usable` that of the last one after which rows could be written.
    pub(crate) fn of(seen: &SchemaSeen, needed: Option<&str>, usable: Option<&str>) -> Self {
        // A server that is away when the table is looked at once more does not make it another one.
        let lets_rows_in = |failure: &SchemaFailure| {
            failure.lets_rows_in() || (usable == needed && !failure.is_about_the_table())
        };
        match seen {
            _ if needed.is_none() => Self::NotNeeded,
            SchemaSeen::Succeeded => Self::Done,
            SchemaSeen::Remembered => Self::Remembered,
            SchemaSeen::Failed(failed) => {
                match (lets_rows_in(&failed.failure), failed.ago >= retry_after(failed)) {
                    (true, false) => Self::Usable,
                    (true, true) => Self::LookAgain,
                    (false, false) => Self::Failed,
                    (false, true) => Self::RunAgain,
                }
            }
            SchemaSeen::Again(failure) if lets_rows_in(failure) => Self::Looking,
            SchemaSeen::Again(_) | SchemaSeen::NotStarted | SchemaSeen::Running | SchemaSeen::NotNeeded => {
                Self::Run
            }
        }
    }
}

impl SchemaSeen {
    /// How long until a Job that failed is run again; `None` where none has just failed.
    pub fn again_in(&self) -> Option<Duration> {
        let Self::Failed(failed) = self else { return None };
        Some(retry_after(failed).saturating_sub(failed.ago))
    }
}

/// How long a Job that failed stays before the next one.
fn retry_after(failed: &SchemaFailed) -> Duration {
    if failed.failure.reason == reason::SCHEMA_DIFFERS {
        return SCHEMA_LOOK_AFTER;
    }
    let doubled = 2_u32.saturating_pow(failed.times.saturating_sub(1));
    SCHEMA_RETRY_AFTER.saturating_mul(doubled).min(SCHEMA_RETRY_AFTER_MAX)
}

/// The schema Job, as planned.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaPlan {
    pub(crate) identity: Identity,
    pub(crate) config: CheckedConfig,
    /// CPU that its pod may use at the most, if that is limited.
    pub(crate) cpu_limit: Option<String>,
}

impl SchemaPlan {
    /// `None` when the spec wants no Job. `partitions` decide for how long a table that is made remembers tokens, in steps so large that
    /// a topic that grows seldom runs the Job again.
    pub(crate) fn of(
        pipeline: &TracePipeline,
        identity: &Identity,
        partitions: u32,
    ) -> Result<Option<Self>, Violations> {
        let share = Share { workers: 1, partitions_active_max: 1, memory: SCHEMA_MEMORY };
        let mut config = gateway_config::build(&identity.names, &pipeline.spec, share)?;
        let mut found = Violations::default();
        config.sink.clickhouse.schema = gateway_config::schema(&pipeline.spec, partitions, &mut found);
        // The Job reads no message, inserts and queues no block and drains nothing: a change of those fields must not run it again, nor
        // make gateways wait for ClickHouse before they get other brokers. It does not get Kafka's Secrets.
        config.sink.clickhouse.insert = Insert::default();
        // Every server of every shard has the table: for the Job they are one list, and it sets no memory aside for each shard.
        let of_shards = std::mem::take(&mut config.sink.clickhouse.shards);
        config.sink.clickhouse.endpoints.extend(of_shards.into_iter().flatten());
        config.sink.clickhouse.endpoints = each_once(&config.sink.clickhouse.endpoints);
        config.source = Source::of_kafka(unread());
        config.attributes = Attributes::default();
        config.delivery = Delivery::default();
        config.queue = Queue::default();
        config.shutdown = Shutdown::default();
        config.log = Log::default();
        let config = match config.check() {
            Ok(config) => found.or(config)?,
            Err(others) => {
                found.extend(gateway_config::of_spec(&others));
                return Err(found);
            }
        };
        if pipeline.spec.sink.clickhouse.schema.management == SchemaManagement::None {
            return Ok(None);
        }
        let mut identity = identity.clone();
        identity.secrets.retain(|secret| secret.of.side() == Side::Sink);
        identity.tokens.retain(|token| !matches!(token.of, TokenUse::Kafka | TokenUse::KafkaAssertion));
        let limit = pipeline.spec.gateway.resources.cpu_limit();
        let cpu_limit = resources::of_job(limit.as_ref().map(|limit| limit.text.as_str()));
        Ok(Some(Self { identity, config, cpu_limit: cpu_limit.map(str::to_owned) }))
    }
}

/// A source, which every config has.
fn unread() -> Kafka {
    Kafka {
        bootstrap_servers: vec!["unread:9092".into()],
        tls: None,
        sasl: None,
        topics: vec!["unread".into()],
        consumer_group: "unread".into(),
        group_protocol: GroupProtocol::default(),
        initial_offset: InitialOffset::default(),
        format: Format::default(),
        partitions_active_max: 1,
        record_batch_bytes_max: RECORD_BATCH_BYTES_DEFAULT,
        properties: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &'static str, times: u32, ago: Duration) -> SchemaSeen {
        let failure = SchemaFailure { reason, message: String::new() };
        SchemaSeen::Failed(SchemaFailed { failure, times, ago, ..SchemaFailed::default() })
    }

    #[test]
    fn gateways_wait_for_the_job_and_a_failed_job_is_run_again_after_a_while() {
        let again = |reason| SchemaSeen::Again(SchemaFailure { reason, message: String::new() });
        let (none, soon, hour) = (Duration::ZERO, SCHEMA_RETRY_AFTER, SCHEMA_LOOK_AFTER);
        for (seen, needed, step, starts) in [
            (SchemaSeen::NotStarted, false, SchemaStep::NotNeeded, true),
            (SchemaSeen::NotStarted, true, SchemaStep::Run, false),
            (SchemaSeen::Running, true, SchemaStep::Run, false),
            (SchemaSeen::Succeeded, true, SchemaStep::Done, true),
            (SchemaSeen::Remembered, true, SchemaStep::Remembered, true),
            (failed("JobFailed", 1, none), true, SchemaStep::Failed, false),
            (failed("JobFailed", 1, soon), true, SchemaStep::RunAgain, false),
            (again("JobFailed"), true, SchemaStep::Run, false),
            (failed(reason::SCHEMA_DIFFERS, 1, soon), true, SchemaStep::Usable, true),
            (failed(reason::SCHEMA_DIFFERS, 1, hour), true, SchemaStep::LookAgain, true),
            (again(reason::SCHEMA_DIFFERS), true, SchemaStep::Looking, true),
            (failed(reason::SERVERS_NOT_REACHED, 1, none), true, SchemaStep::Usable, true),
            (failed(reason::SERVERS_NOT_REACHED, 1, soon), true, SchemaStep::LookAgain, true),
            (again(reason::SERVERS_NOT_REACHED), true, SchemaStep::Looking, true),
        ] {
            let needed = needed.then_some("job");
            assert_eq!(SchemaStep::of(&seen, needed, None), step, "{seen:?}");
            assert_eq!(step.lets_gateways_start(), starts, "{step:?}");
        }
    }

    /// `SchemaDiffers` has a table looked at every hour, and ClickHouse may be away then.
    #[test]
    fn a_server_that_is_away_at_another_look_blocks_no_gateway_of_a_table_that_was_usable() {
        let again = |reason| SchemaSeen::Again(SchemaFailure { reason, message: String::new() });
        let none = Duration::ZERO;
        for (seen, usable, step) in [
            (failed(reason::UNREACHABLE, 1, none), "job", SchemaStep::Usable),
            (failed(reason::UNREACHABLE, 1, SCHEMA_RETRY_AFTER), "job", SchemaStep::LookAgain),
            (failed(reason::JOB_FAILED, 1, none), "job", SchemaStep::Usable),
            (again(reason::UNREACHABLE), "job", SchemaStep::Looking),
            (failed(reason::TABLE_MISSING, 1, none), "job", SchemaStep::Failed),
            (again(reason::COLUMN_MISMATCH), "job", SchemaStep::Run),
            (failed(reason::UNREACHABLE, 1, none), "another", SchemaStep::Failed),
            (SchemaSeen::NotStarted, "another", SchemaStep::Run),
        ] {
            assert_eq!(SchemaStep::of(&seen, Some("job"), Some(usable)), step, "{seen:?} {usable}");
        }
    }

    #[test]
    fn a_job_that_fails_again_and_again_is_run_less_and_less_often() {
        for (times, seconds) in [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (6, 300), (u32::MAX, 300)] {
            let after = |ago| SchemaStep::of(&failed("Unreachable", times, ago), Some("job"), None);
            let waits = Duration::from_secs(seconds);
            assert_eq!(after(waits.saturating_sub(Duration::from_secs(1))), SchemaStep::Failed, "{times}");
            assert_eq!(after(waits), SchemaStep::RunAgain, "{times}");
        }
    }

    #[test]
    fn when_a_job_that_failed_is_run_again_is_known() {
        let again_in = |ago| failed("Unreachable", 2, Duration::from_secs(ago)).again_in();
        assert_eq!([0, 45, 60, 99].map(again_in), [60, 15, 0, 0].map(|left| Some(Duration::from_secs(left))));
        assert_eq!(SchemaSeen::Running.again_in(), None);
    }
}
