//! A condition's status, reason and message; and the conditions of source, sink, schema and scaling.

use crate::{
    facts::Observed,
    ground::words::plural,
    identity::secrets::mounted,
    observed::{
        GATEWAYS_MISS, GATEWAYS_WAIT, OF_SINK, SchemaFailure, SchemaSeen, SourceFailure, TopicSeen,
        UnusableTable, is_said_by_the_job,
    },
    pipeline::{Intent, connections::where_it_stands, otlp_config::REPLICAS_OF_REQUESTS},
    scale::{Hold, Limit, Load},
    status::{
        inserts, messages, otlp, remedies, scaling::joined, transactions, unasked, unconnected, unfetched,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_crds::{
    KafkaSource, ScalingMode, ScalingStatus, SchemaManagement, SecretUse, Side, TracePipeline,
    TracePipelineSpec,
    status::{condition, reason},
};

/// Whether, why, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    /// Whether its message begins with these words.
    pub(super) fn begins(&self, words: &str) -> bool {
        self.message.starts_with(words)
    }

    pub(super) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    pub(super) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    pub(super) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }

    /// The reason of what is not so.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        (self.status == "False").then_some(self.reason)
    }

    /// In words alone.
    pub(super) fn words(self) -> String {
        self.message
    }

    /// As a condition; the time is that of the last change of its status.
    pub(super) fn condition(
        self,
        kind: &str,
        generation: Option<i64>,
        before: &[Condition],
        now: &Time,
    ) -> Condition {
        let same = before.iter().find(|condition| condition.type_ == kind && condition.status == self.status);
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message,
            observed_generation: generation,
            last_transition_time: same.map_or(now, |condition| &condition.last_transition_time).clone(),
        }
    }
}

/// Whether what the spec names as the source can be used: see [`topics_reachable`] and [`otlp::reachable`].
pub(super) fn source_reachable(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Verdict {
    if let Some(message) = &observed.unresolved.source {
        return Verdict::no(reason::CONNECTION_MISSING, message);
    }
    if let Err(unusable) = mounted(&pipeline.spec, &observed.secrets, Side::Source) {
        return Verdict::no(unusable.reason, unusable.message);
    }
    match (&pipeline.spec.source.kafka, &pipeline.spec.source.otlp) {
        (Some(kafka), _) => topics_reachable(pipeline, kafka, observed, now),
        (None, Some(otlp)) => otlp::reachable(pipeline, otlp, observed),
        (None, None) => Verdict::unknown(reason::NOT_PROBED, "the spec has no source: see Ready"),
    }
}

/// Whether Kafka answers and has every topic, and gateways reach it and can read what the topics hold.
fn topics_reachable(
    pipeline: &TracePipeline,
    kafka: &KafkaSource,
    observed: &Observed,
    now: &Time,
) -> Verdict {
    let (topics, seen) = (&kafka.topics, &observed.partitions);
    let mut partitions = 0_u32;
    let mut missing = Vec::new();
    for topic in topics {
        match seen.get(topic) {
            Some(TopicSeen::Unavailable { failure, message }) => {
                if let Some(before) = unasked::found_before(pipeline, *failure) {
                    return before;
                }
                return Verdict::no(failure.reason(), of_source(pipeline, observed, *failure, message));
            }
            Some(TopicSeen::Known(count @ 1..)) => partitions = partitions.saturating_add(*count),
            Some(TopicSeen::Missing | TopicSeen::Known(0)) => missing.push(format!("{topic:?}")),
            None => {
                return Verdict::unknown(
                    reason::NOT_PROBED,
                    format!("Kafka was not asked for the topic {topic:?} yet"),
                );
            }
        }
    }
    if missing.is_empty() {
        unconnected::unconnected(pipeline, observed)
            .or_else(|| unfetched::unfetched(pipeline, observed))
            .or_else(|| transactions::hanging(pipeline, observed))
            .or_else(|| messages::unreadable(pipeline, observed, now))
            .unwrap_or_else(|| {
                let (partitions, topics) = (plural(partitions, "partition"), plural(topics.len(), "topic"));
                Verdict::yes(reason::OK, format!("{partitions} in {topics}"))
            })
    } else {
        let missing = missing.join(", ");
        Verdict::no(
            reason::TOPIC_MISSING,
            format!("Kafka has no topic {missing}; create it, or correct source.kafka.topics"),
        )
    }
}

/// Whether ClickHouse answered with these credentials when the schema Job last asked, and takes what gateways insert since.
pub(super) fn sink_reachable(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    if let Some(message) = &observed.unresolved.sink {
        return Verdict::no(reason::CONNECTION_MISSING, message);
    }
    if let Err(unusable) = mounted(&pipeline.spec, &observed.secrets, Side::Sink) {
        return Verdict::no(unusable.reason, unusable.message);
    }
    let failing = inserts::failing(pipeline, observed)
        .or_else(|| messages::rows_refused(pipeline, observed))
        .or_else(|| refused_at_start(pipeline, observed));
    if let Some(failing) = failing {
        return failing;
    }
    match &observed.schema {
        _ if is_unmanaged(pipeline) => {
            Verdict::unknown(reason::NOT_MANAGED, "ClickHouse is not asked: schema.management is None")
        }
        SchemaSeen::Succeeded | SchemaSeen::Remembered => {
            Verdict::yes(reason::OK, "the schema Job reached ClickHouse")
        }
        seen => match seen.failure() {
            Some(failure) if failure.is_about_the_table() => {
                Verdict::yes(reason::OK, "the schema Job reached ClickHouse")
            }
            Some(failure) if [reason::JOB_FAILED, reason::JOB_NOT_STARTED].contains(&failure.reason) => {
                Verdict::unknown(failure.reason, &failure.message)
            }
            Some(failure) => Verdict::no(failure.reason, of_schema(pipeline, observed, failure)),
            None => not_yet(pipeline, seen),
        },
    }
}

/// What Kafka's client said, with the Secret of a user, an OAuth client or keys of AWS that are refused.
pub(super) fn of_source(
    pipeline: &TracePipeline,
    observed: &Observed,
    failure: SourceFailure,
    message: &str,
) -> String {
    let kafka = pipeline.spec.source.kafka.as_ref();
    let oauth = kafka.and_then(|kafka| kafka.sasl.as_ref()).and_then(|sasl| sasl.oauth.as_ref());
    let of = match oauth {
        None => SecretUse::KafkaUser,
        Some(oauth) if oauth.aws_msk_iam.is_some() => SecretUse::KafkaAws,
        Some(_) => SecretUse::KafkaClient,
    };
    let words = match failure {
        SourceFailure::AuthFailed => with_secret(pipeline, observed, of, message),
        SourceFailure::Unreachable
        | SourceFailure::NotAsked
        | SourceFailure::Timeout
        | SourceFailure::TlsFailed => message.to_owned(),
    };
    words + &where_it_stands(kafka.and_then(|kafka| kafka.connection_ref.as_ref()))
}

/// What the schema Job or a gateway said, with the Secret of a user that ClickHouse refuses, and with what helps.
pub(super) fn of_schema(pipeline: &TracePipeline, observed: &Observed, failure: &SchemaFailure) -> String {
    let named = pipeline.spec.sink.clickhouse.connection_ref.as_ref();
    let words = match failure.reason {
        reason::AUTH_FAILED => {
            let words = with_secret(pipeline, observed, SecretUse::ClickHouseUser, &failure.message);
            words + &where_it_stands(named)
        }
        reason::UNREACHABLE | reason::TIMEOUT | reason::TLS_FAILED => {
            failure.message.clone() + &where_it_stands(named)
        }
        _ => failure.message.clone(),
    };
    match remedies::of_sink(pipeline, failure.reason) {
        Some(remedy) => format!("{words}; {remedy}"),
        None => words,
    }
}

/// Where the credentials are that were refused, and who has them.
pub(super) fn with_secret(
    pipeline: &TracePipeline,
    observed: &Observed,
    of: SecretUse,
    message: &str,
) -> String {
    let mounted = mounted(&pipeline.spec, &observed.secrets, of.side()).unwrap_or_default();
    let Some(found) = mounted.iter().find(|one| one.of == of) else { return message.to_owned() };
    let runs = observed.workload.as_ref().is_some_and(|workload| workload.replicas > 0);
    // The secret of an OAuth client and keys of AWS are read again for each token.
    let is_read_again = matches!(of, SecretUse::KafkaClient | SecretUse::KafkaAws);
    let kept = if runs && !is_read_again {
        "; gateways that run go on with the credentials that they read at their start"
    } else {
        ""
    };
    format!("{message}; the credentials are those of the Secret {:?}{kept}", found.secret)
}

/// That a gateway does not begin to read, because ClickHouse does not answer it or refuses its user. An operator that has just started keeps the
/// former condition until it has heard the gateways.
fn refused_at_start(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let Some(unusable) = &observed.unusable_table else {
        let before = messages::said_before(pipeline, observed, condition::SINK_REACHABLE, &OF_SINK);
        return before.filter(|said| observed.has_unheard() && said.begins(GATEWAYS_WAIT));
    };
    unusable.is_of_sink().then(|| waits(pipeline, observed, unusable))
}

/// What a gateway said that does not begin to read.
fn waits(pipeline: &TracePipeline, observed: &Observed, unusable: &UnusableTable) -> Verdict {
    let failure = SchemaFailure { reason: unusable.reason, message: unusable.message() };
    Verdict::no(failure.reason, of_schema(pipeline, observed, &failure))
}

/// Whether the table is as it must be.
pub(super) fn schema_ready(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    match &observed.schema {
        _ if is_unmanaged(pipeline) => {
            Verdict::yes(reason::NOT_MANAGED, "the table is used without a check: schema.management is None")
        }
        SchemaSeen::Succeeded | SchemaSeen::Remembered => {
            let missed = missed_by_gateways(pipeline, observed);
            missed.unwrap_or_else(|| Verdict::yes(reason::OK, "the table matches the spec"))
        }
        seen => match seen.failure() {
            Some(failure) if failure.reason == reason::JOB_NOT_STARTED => {
                Verdict::unknown(failure.reason, &failure.message)
            }
            // Another cause than the Job's: a table that only differed was dropped since.
            Some(failure) if failure.lets_rows_in() => {
                missed_by_gateways(pipeline, observed).unwrap_or_else(|| {
                    let words = of_schema(pipeline, observed, failure);
                    Verdict::no(failure.reason, while_rows_are_written(failure.reason, words))
                })
            }
            Some(failure) => Verdict::no(failure.reason, of_schema(pipeline, observed, failure)),
            None => not_yet(pipeline, seen),
        },
    }
}

/// What the schema Job said of a table that takes rows.
fn while_rows_are_written(of: &str, words: String) -> String {
    if of == reason::SERVERS_NOT_REACHED {
        return words;
    }
    format!(
        "{words}; rows are written. The operator checks again every hour, or at once if its Job is deleted"
    )
}

/// That gateways miss the table which the schema Job has seen, or that it does not fit any more. An operator that has just started does not know
/// what gateways say, and keeps the former condition until it does.
fn missed_by_gateways(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    if let Some(missing) = &observed.missing_table {
        return Some(Verdict::no(missing.reason(), missing.message()));
    }
    if let Some(unusable) = observed.unusable_table.as_ref().filter(|unusable| !unusable.is_of_sink()) {
        return Some(waits(pipeline, observed, unusable));
    }
    let reasons = [reason::TABLE_MISSING, reason::DATABASE_MISSING, reason::COLUMN_MISMATCH];
    let before = messages::said_before(pipeline, observed, condition::SCHEMA_READY, &reasons);
    before.filter(|said| {
        let is_missing = said.begins(GATEWAYS_MISS) && observed.is_missing_table_unknown();
        is_missing || (said.begins(GATEWAYS_WAIT) && observed.has_unheard())
    })
}

/// Whether the number of gateways follows from what is seen. It is read off what the status says of scaling, which an operator
/// that has just begun takes over from the one before.
pub(super) fn scaling_active(spec: &TracePipelineSpec, scaling: Option<&ScalingStatus>) -> Verdict {
    let mode = spec.scaling.mode;
    match mode {
        ScalingMode::Fixed => {
            let why = match spec.replicas {
                Some(replicas) => format!("replicas asks for {}", plural(replicas, "gateway")),
                None if spec.source.otlp.is_some() => {
                    format!("replicas is not set, and there are {}", plural(REPLICAS_OF_REQUESTS, "gateway"))
                }
                None => format!(
                    "replicas is not set, and there is one gateway for {} (partitionsPerReplica)",
                    plural(spec.partitions_per_replica, "partition")
                ),
            };
            return Verdict::no(reason::DISABLED, format!("scaling.mode is Fixed: {why}"));
        }
        ScalingMode::External => {
            return Verdict::no(
                reason::EXTERNAL,
                "scaling.mode is External: a client of /scale (an HPA, KEDA, kubectl scale) sets the number of gateways",
            );
        }
        ScalingMode::Auto | ScalingMode::Recommend => {}
    }
    let Some(scaling) = scaling.filter(|scaling| scaling.recommended_replicas.is_some()) else {
        return Verdict::unknown(
            reason::NOT_PROBED,
            "there are too few samples of Kafka and the gateways yet",
        );
    };
    match scaling.held.as_deref().map(Hold::of_word) {
        None if mode == ScalingMode::Recommend => {
            Verdict::yes(reason::ACTIVE, "the operator only recommends a number: scaling.mode is Recommend")
        }
        None => Verdict::yes(reason::ACTIVE, "the operator sets the number of gateways from load and lag"),
        Some(Some(hold)) => Verdict::no(hold.word(), format!("the number stays: {}", hold.words(load(spec)))),
        Some(None) => Verdict::unknown(
            reason::NOT_PROBED,
            "another version of the operator kept the number, for a reason that this version does not know",
        ),
    }
}

/// Whether something other than the load keeps the number of gateways where it is; where that is memory, with what was done about it.
pub(super) fn scaling_limited(
    spec: &TracePipelineSpec,
    scaling: Option<&ScalingStatus>,
    resized: Option<&str>,
) -> Verdict {
    match scaling.and_then(|scaling| scaling.limited.as_deref()).and_then(Limit::of_word) {
        Some(limit) => {
            let resized = resized.filter(|_| limit == Limit::Memory);
            Verdict::yes(limit.word(), joined(limit.words(load(spec)), resized))
        }
        None => Verdict::no(reason::OK, "nothing but the load limits the number of gateways"),
    }
}

/// What gateways share out among them.
fn load(spec: &TracePipelineSpec) -> Load {
    if spec.source.otlp.is_some() { Load::Requests } else { Load::Partitions }
}

/// Whether the pipeline's objects are left as they are.
pub(super) fn reconciliation_paused(intent: Intent) -> Verdict {
    match intent {
        Intent::LeaveAlone => Verdict::yes(
            reason::UNMANAGED,
            "managementState is Unmanaged: the operator writes only this status until the field is Managed again",
        ),
        Intent::Run | Intent::Suspend | Intent::Remove => {
            Verdict::no(reason::MANAGED, "the operator keeps the pipeline's objects as the spec says")
        }
    }
}

/// What the schema Job last said of the sink or the table, while no Job is made that could say more: the spec is refused, or a Secret is
/// gone. The condition keeps the generation of the spec that it was said of.
pub(super) fn said_before<'a>(
    verdict: &Verdict,
    kind: &str,
    is_job_known: bool,
    before: &'a [Condition],
) -> Option<&'a Condition> {
    let is_of_job = matches!(kind, condition::SINK_REACHABLE | condition::SCHEMA_READY);
    let is_unseen = is_of_job && verdict.reason == reason::NOT_PROBED && !is_job_known;
    let mut before = before.iter().filter(|one| one.type_ == kind && is_said_by_the_job(&one.reason));
    before.next().filter(|_| is_unseen)
}

fn not_yet(pipeline: &TracePipeline, schema: &SchemaSeen) -> Verdict {
    match schema {
        SchemaSeen::Running => Verdict::unknown(reason::JOB_RUNNING, "the schema Job is running"),
        _ if Intent::of(pipeline) == Intent::Suspend => {
            Verdict::unknown(reason::NOT_PROBED, "the schema Job runs when the pipeline resumes")
        }
        _ => Verdict::unknown(reason::NOT_PROBED, "the schema Job has not run yet"),
    }
}

fn is_unmanaged(pipeline: &TracePipeline) -> bool {
    pipeline.spec.sink.clickhouse.schema.management == SchemaManagement::None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mode: ScalingMode) -> TracePipelineSpec {
        let mut spec: TracePipelineSpec = serde_json::from_value(serde_json::json!({
            "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["spans"]}},
            "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
        }))
        .unwrap();
        spec.scaling.mode = mode;
        spec
    }

    #[test]
    fn why_there_are_so_many_is_said_where_the_spec_says_how_many() {
        let mut spec = spec(ScalingMode::Fixed);
        let words = scaling_active(&spec, None).message;
        assert!(words.ends_with("one gateway for 4 partitions (partitionsPerReplica)"), "{words}");
        spec.replicas = Some(3);
        assert!(scaling_active(&spec, None).message.ends_with("replicas asks for 3 gateways"));
    }

    fn said(held: Option<&str>, limited: Option<&str>) -> ScalingStatus {
        ScalingStatus {
            recommended_replicas: Some(3),
            held: held.map(Into::into),
            limited: limited.map(Into::into),
            ..ScalingStatus::default()
        }
    }

    #[test]
    fn scaling_is_active_while_nothing_holds_it() {
        use ScalingMode::{Auto, External, Fixed, Recommend};
        let (calm, held) = (said(None, None), said(Some("Rebalancing"), None));
        for (mode, scaling, status, reason) in [
            (Fixed, Some(&calm), "False", "Disabled"),
            (External, Some(&calm), "False", "External"),
            (Auto, None, "Unknown", "NotProbed"),
            // Gateways that leave are reported before anything was decided.
            (Auto, Some(&ScalingStatus::default()), "Unknown", "NotProbed"),
            (Auto, Some(&calm), "True", "Active"),
            (Recommend, Some(&calm), "True", "Active"),
            (Auto, Some(&held), "False", "Rebalancing"),
            (Auto, Some(&said(Some("Tomorrow"), None)), "Unknown", "NotProbed"),
        ] {
            let verdict = scaling_active(&spec(mode), scaling);
            assert_eq!((verdict.status, verdict.reason), (status, reason), "{mode:?} {scaling:?}");
        }
    }

    #[test]
    fn what_limits_the_number_is_named() {
        let spec = spec(ScalingMode::Auto);
        for limit in Limit::ALL {
            let verdict = scaling_limited(&spec, Some(&said(None, Some(limit.word()))), None);
            assert_eq!((verdict.status, verdict.reason), ("True", limit.word()));
            assert!(!verdict.message.is_empty());
        }
        let given = scaling_limited(&spec, Some(&said(None, Some("Memory"))), Some("a-0 was resized to 1Mi"));
        assert!(given.message.ends_with("; a-0 was resized to 1Mi"), "{}", given.message);
        assert_eq!(scaling_limited(&spec, None, None).status, "False");
        assert_eq!(scaling_limited(&spec, Some(&said(None, Some("Tomorrow"))), None).status, "False");
        let stuck = Limit::PartitionStuck;
        assert!(stuck.words(Load::Partitions).starts_with("a partition does not advance"));
        assert!(stuck.words(Load::Requests).starts_with("a gateway inserts nothing"));
    }
}
