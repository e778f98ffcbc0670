//! References of a pipeline to `TraceConnection`s, put into the place where a pipeline names brokers, servers and logins itself. All that
//! follows works with the result, so that both forms of one pipeline have the same objects.
//!
//! The reference stays in the result: messages name the connection, and the order of its shards is guarded here, where CEL cannot compare two
//! objects.

use sluice_crds::{
    ClickHouseSink, ConnectionRef, ConnectionsStatus, KafkaSource, Side, TraceConnectionSpec, TracePipeline,
    TracePipelineSpec,
};
use sluice_gateway_config::Violations;
use std::borrow::Cow;

/// What is observed of a connection that a pipeline names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionSeen {
    /// It is there.
    Known(Box<TraceConnectionSpec>),
    /// There is none of that name in the namespace.
    Missing,
    /// It cannot be read, for this reason.
    Unreadable(String),
    /// The API server does not list connections: there is no such kind, or no right to it.
    NotListed,
}

/// Why a connection cannot be used, for people; empty when all that a pipeline references can be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unresolved {
    /// That of `source.kafka`.
    pub source: Option<String>,
    /// That of `sink.clickhouse`.
    pub sink: Option<String>,
    /// That of both, where both reference one connection and neither gets it.
    pub both: Option<String>,
}

impl Unresolved {
    /// All of it; `None` when nothing is wrong.
    pub fn words(&self) -> Option<String> {
        if self.both.is_some() {
            return self.both.clone();
        }
        let all: Vec<&str> = [&self.source, &self.sink].into_iter().flatten().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The connections that a pipeline references, by name.
pub fn references(spec: &TracePipelineSpec) -> impl Iterator<Item = &str> {
    let kafka = spec.source.kafka.as_ref().and_then(|kafka| kafka.connection_ref.as_ref());
    let named = [kafka, spec.sink.clickhouse.connection_ref.as_ref()];
    named.into_iter().flatten().map(|named| named.name.as_str())
}

/// The pipeline with what its connections say, and why one cannot be used. Then the pipeline has no brokers, or no servers.
pub fn resolved(
    pipeline: &TracePipeline,
    look_up: impl Fn(&str) -> ConnectionSeen,
) -> (Cow<'_, TracePipeline>, Unresolved) {
    if references(&pipeline.spec).next().is_none() {
        return (Cow::Borrowed(pipeline), Unresolved::default());
    }
    let mut resolved = pipeline.clone();
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let (kafka, clickhouse) = (&mut resolved.spec.source.kafka, &mut resolved.spec.sink.clickhouse);
    let of_kafka = kafka.as_ref().and_then(|kafka| kafka.connection_ref.clone());
    let named = of_kafka.clone().filter(|named| clickhouse.connection_ref.as_ref() == Some(named));
    let both = named.and_then(|named| {
        let field = "source.kafka.connectionRef, sink.clickhouse.connectionRef";
        let wants = Wanted { field, part: "spec", namespace };
        wants.part_of(&named, look_up(&named.name), Some).err()
    });
    let source = of_kafka.zip(kafka.as_mut()).and_then(|(named, kafka)| {
        let wants = Wanted { field: "source.kafka.connectionRef", part: "spec.kafka", namespace };
        let found = wants.part_of(&named, look_up(&named.name), |spec| spec.kafka);
        found.map(|found| fill_source(kafka, found)).err()
    });
    let sink = clickhouse.connection_ref.clone().and_then(|named| {
        let wants = Wanted { field: "sink.clickhouse.connectionRef", part: "spec.clickhouse", namespace };
        let found = wants.part_of(&named, look_up(&named.name), |spec| spec.clickhouse);
        found.map(|found| fill_sink(clickhouse, found)).err()
    });
    (Cow::Owned(resolved), Unresolved { source, sink, both })
}

fn fill_source(kafka: &mut KafkaSource, found: sluice_crds::KafkaConnection) {
    kafka.bootstrap_servers = found.bootstrap_servers;
    kafka.tls = found.tls;
    kafka.sasl = found.sasl;
}

fn fill_sink(clickhouse: &mut ClickHouseSink, found: sluice_crds::ClickHouseConnection) {
    clickhouse.endpoints = found.endpoints;
    clickhouse.shards = found.shards;
    clickhouse.tls = found.tls;
    clickhouse.credentials = found.credentials;
}

/// A part of a connection, and the field that wants it.
struct Wanted<'a> {
    field: &'static str,
    part: &'static str,
    namespace: &'a str,
}

impl Wanted<'_> {
    fn part_of<T>(
        &self,
        ConnectionRef { name }: &ConnectionRef,
        seen: ConnectionSeen,
        part: impl Fn(TraceConnectionSpec) -> Option<T>,
    ) -> Result<T, String> {
        let Self { field, part: wanted, namespace } = self;
        match seen {
            ConnectionSeen::Known(spec) => part(*spec).ok_or_else(|| {
                format!("the TraceConnection {name:?} has no {wanted} ({field}): add it, or name another connection")
            }),
            ConnectionSeen::Missing => Err(format!(
                "there is no TraceConnection {name:?} in the namespace {namespace:?} ({field}): apply it, or name another one"
            )),
            ConnectionSeen::Unreadable(why) => Err(format!(
                "the operator cannot read the TraceConnection {name:?} ({field}): {why}; apply the CRD of the operator's version \
                 (traceconnections.sluice.dev)"
            )),
            ConnectionSeen::NotListed => Err(format!(
                "the operator cannot list TraceConnections, and so not read {name:?} ({field}): apply the CRD traceconnections.sluice.dev, and \
                 grant the rights of operator/SECURITY.md"
            )),
        }
    }
}

/// What a message about a login or a server adds: the connection in which it stands. Empty if it stands in the pipeline itself.
pub(crate) fn where_it_stands(reference: Option<&ConnectionRef>) -> String {
    reference.map_or_else(String::new, |named| format!(" (from the TraceConnection {:?})", named.name))
}

/// The reference of one side; the edge's clients have none.
fn reference(spec: &TracePipelineSpec, side: Side) -> Option<&ConnectionRef> {
    match side {
        Side::Source => spec.source.kafka.as_ref()?.connection_ref.as_ref(),
        Side::Sink => spec.sink.clickhouse.connection_ref.as_ref(),
        Side::Edge => None,
    }
}

/// The field of a spec as a person has to edit it: in the connection, where it stands there. `field` begins with `spec.`.
pub fn located(spec: &TracePipelineSpec, field: &str) -> String {
    const OF_CONNECTION: [(&str, &str, Side, &[&str]); 2] = [
        ("spec.source.kafka.", "spec.kafka", Side::Source, &["bootstrapServers", "tls", "sasl"]),
        (
            "spec.sink.clickhouse.",
            "spec.clickhouse",
            Side::Sink,
            &["endpoints", "shards", "tls", "credentials"],
        ),
    ];
    let found = OF_CONNECTION.iter().find_map(|(before, part, side, fields)| {
        let rest = field.strip_prefix(before)?;
        let first = rest.split(['.', '[']).next()?;
        let named = reference(spec, *side).filter(|_| fields.contains(&first))?;
        Some(format!("{part}.{rest} of the TraceConnection {:?}", named.name))
    });
    found.unwrap_or_else(|| field.to_owned())
}

/// The same violations with fields as a person has to edit them.
pub(crate) fn located_all(spec: &TracePipelineSpec, found: Violations) -> Violations {
    if references(spec).next().is_none() {
        return found;
    }
    let mut after = Violations::default();
    for one in &found {
        after.add(located(spec, &one.path), one.message.clone());
    }
    after
}

/// What the status keeps of where the brokers and servers stand that gateways are given; `None` where the spec has them itself, and no shard
/// has a name.
pub(crate) fn remembered(spec: &TracePipelineSpec) -> Option<ConnectionsStatus> {
    let name = |side| reference(spec, side).map(|named| named.name.clone());
    let (kafka, clickhouse) = (name(Side::Source), name(Side::Sink));
    let shards = spec.sink.clickhouse.shards.iter().filter_map(|shard| shard.name.clone()).collect();
    let found = ConnectionsStatus { kafka, clickhouse, shards };
    (found != ConnectionsStatus::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pipeline(kafka: &Value, clickhouse: &Value) -> TracePipeline {
        serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"source": {"kafka": kafka}, "sink": {"clickhouse": clickhouse}},
        }))
        .unwrap()
    }

    fn known(spec: &Value) -> ConnectionSeen {
        ConnectionSeen::Known(serde_json::from_value(spec.clone()).unwrap())
    }

    #[test]
    fn what_a_connection_says_stands_where_a_pipeline_would_say_it() {
        let sasl = json!({"mechanism": "Plain", "secretRef": {"name": "u"}});
        let spec = json!({
            "kafka": {"bootstrapServers": ["k:1"], "tls": {}, "sasl": sasl},
            "clickhouse": {"endpoints": ["https://c:1"], "tls": {}, "credentials": {"secretRef": {"name": "w"}}},
        });
        let referring = pipeline(
            &json!({"topics": ["t"], "connectionRef": {"name": "one"}}),
            &json!({"table": "t", "connectionRef": {"name": "two"}}),
        );
        let (found, unresolved) = resolved(&referring, |name| {
            assert!(["one", "two"].contains(&name));
            known(&spec)
        });
        assert_eq!(unresolved, Unresolved::default());
        let mut found = found.into_owned();
        found.spec.source.kafka.as_mut().unwrap().connection_ref = None;
        found.spec.sink.clickhouse.connection_ref = None;
        let inline = pipeline(
            &json!({"topics": ["t"], "bootstrapServers": ["k:1"], "tls": {}, "sasl": sasl}),
            &json!({"table": "t", "endpoints": ["https://c:1"], "tls": {}, "credentials": {"secretRef": {"name": "w"}}}),
        );
        assert_eq!(found, inline);
        let (same, _) = resolved(&inline, |name| panic!("{name}"));
        assert!(matches!(same, Cow::Borrowed(_)), "without a reference nothing is copied");
    }

    #[test]
    fn what_is_not_there_is_said_with_the_field_and_what_helps() {
        let referring = pipeline(
            &json!({"topics": ["t"], "connectionRef": {"name": "main"}}),
            &json!({"connectionRef": {"name": "main"}}),
        );
        let words = |seen: ConnectionSeen| {
            let (found, unresolved) = resolved(&referring, |_| seen.clone());
            assert!(found.spec.source.kafka.as_ref().unwrap().bootstrap_servers.is_empty());
            unresolved
        };
        let missing = words(ConnectionSeen::Missing);
        assert_eq!(
            missing.source.unwrap(),
            "there is no TraceConnection \"main\" in the namespace \"n\" (source.kafka.connectionRef): apply it, or name another one"
        );
        assert!(missing.sink.unwrap().contains("sink.clickhouse.connectionRef"));
        let both = words(ConnectionSeen::Unreadable("no".into())).words().unwrap();
        assert_eq!(both.matches("cannot read").count(), 1, "{both}");
        assert!(both.contains("(source.kafka.connectionRef, sink.clickhouse.connectionRef)"), "{both}");
        let mut two = referring.clone();
        two.spec.sink.clickhouse.connection_ref = Some(ConnectionRef { name: "other".into() });
        let (_, each) = resolved(&two, |_| ConnectionSeen::Missing);
        let each = each.words().unwrap();
        assert!(
            each.contains("\"main\"") && each.contains("; there is no TraceConnection \"other\""),
            "{each}"
        );
        assert!(words(ConnectionSeen::NotListed).words().unwrap().contains("apply the CRD"));
        let (found, half) = resolved(&referring, |_| known(&json!({"kafka": {"bootstrapServers": ["k:1"]}})));
        assert_eq!(found.spec.source.kafka.as_ref().unwrap().bootstrap_servers, ["k:1"]);
        assert_eq!((&half.source, &half.both), (&None, &None));
        assert!(half.sink.unwrap().starts_with("the TraceConnection \"main\" has no spec.clickhouse"));
    }

    #[test]
    fn a_field_is_named_where_it_stands() {
        let referring = pipeline(
            &json!({"topics": ["t"], "connectionRef": {"name": "main"}}),
            &json!({"endpoints": ["http://c:1"]}),
        );
        for (field, expected) in [
            (
                "spec.source.kafka.tls.caSecretRef",
                "spec.kafka.tls.caSecretRef of the TraceConnection \"main\"",
            ),
            (
                "spec.source.kafka.bootstrapServers[0]",
                "spec.kafka.bootstrapServers[0] of the TraceConnection \"main\"",
            ),
            ("spec.source.kafka.topics", "spec.source.kafka.topics"),
            ("spec.source.kafka.tlsx", "spec.source.kafka.tlsx"),
            ("spec.sink.clickhouse.endpoints", "spec.sink.clickhouse.endpoints"),
        ] {
            assert_eq!(located(&referring.spec, field), expected);
        }
    }
}
