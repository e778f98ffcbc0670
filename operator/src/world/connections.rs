//! Connections that pipelines share, from their copies: what a pipeline's references lead to, and which pipelines reference one.

use super::cache::{Pipeline, find};
use futures::FutureExt as _;
use kube::{
    ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use sluice_crds::{NamedSecret, TraceConnection, TraceConnectionSpec, TracePipeline, TracePipelineSpec};
use sluice_plan::{ConnectionSeen, Unresolved, references, resolved};
use std::borrow::Cow;

/// A `TraceConnection` that may be unreadable. An unreadable one must not stop those that reference another one.
pub type Connection = DeserializeGuard<TraceConnection>;

/// The pipeline with what its connections say, and which cannot be used.
pub fn resolve<'a>(
    pipeline: &'a TracePipeline,
    connections: &Store<Connection>,
) -> (Cow<'a, TracePipeline>, Unresolved) {
    let namespace = pipeline.namespace().unwrap_or_default();
    resolved(pipeline, |name| look_up(connections, &namespace, name))
}

fn look_up(connections: &Store<Connection>, namespace: &str, name: &str) -> ConnectionSeen {
    if !is_listed(connections) {
        return ConnectionSeen::NotListed;
    }
    match find(connections, namespace, name).as_deref() {
        Some(DeserializeGuard(Ok(found))) => ConnectionSeen::Known(Box::new(found.spec.clone())),
        Some(DeserializeGuard(Err(invalid))) => ConnectionSeen::Unreadable(invalid.error.clone()),
        None => ConnectionSeen::Missing,
    }
}

/// Whether the API server has listed connections. It does not where their CRD is not installed.
pub fn is_listed(connections: &Store<Connection>) -> bool {
    connections.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
}

/// Whether a pipeline references any connection.
pub fn references_any(pipeline: &Pipeline) -> bool {
    pipeline.0.as_ref().is_ok_and(|pipeline| references(&pipeline.spec).next().is_some())
}

/// The pipelines of a namespace that reference this connection.
pub fn referring(pipelines: &Store<Pipeline>, namespace: &str, name: &str) -> Vec<ObjectRef<Pipeline>> {
    let names_it = |pipeline: &Pipeline| {
        let Ok(pipeline) = &pipeline.0 else { return false };
        pipeline.metadata.namespace.as_deref() == Some(namespace)
            && references(&pipeline.spec).any(|named| named == name)
    };
    pipelines.state_filter(names_it).iter().map(|pipeline| ObjectRef::from_obj(&**pipeline)).collect()
}

/// Whether a pipeline uses a Secret: it names it itself, or references a connection that does.
pub fn uses_secret(pipeline: &TracePipeline, secret: &str, connections: &Store<Connection>) -> bool {
    let is_it = |named: &NamedSecret<'_>| named.name == secret;
    if pipeline.spec.secrets().iter().any(is_it) {
        return true;
    }
    let TracePipelineSpec { source, sink, .. } = &pipeline.spec;
    let of = |name: &str, part: fn(&TraceConnectionSpec) -> Vec<NamedSecret<'_>>| {
        let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let found = find(connections, namespace, name);
        let found = found.as_deref().and_then(|found| found.0.as_ref().ok());
        found.is_some_and(|found| part(&found.spec).iter().any(is_it))
    };
    let kafka = source.kafka.as_ref().and_then(|kafka| kafka.connection_ref.as_ref());
    let clickhouse = &sink.clickhouse.connection_ref;
    kafka.is_some_and(|named| of(&named.name, of_kafka))
        || clickhouse.as_ref().is_some_and(|named| of(&named.name, of_clickhouse))
}

fn of_kafka(spec: &TraceConnectionSpec) -> Vec<NamedSecret<'_>> {
    spec.kafka.iter().flat_map(sluice_crds::KafkaConnection::secrets).collect()
}

fn of_clickhouse(spec: &TraceConnectionSpec) -> Vec<NamedSecret<'_>> {
    spec.clickhouse.iter().flat_map(sluice_crds::ClickHouseConnection::secrets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::{Value, json};

    fn pipeline(name: &str, spec: &Value) -> TracePipeline {
        let (source, sink) = (&spec[0], &spec[1]);
        serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline",
            "metadata": {"name": name, "namespace": "tracing"},
            "spec": {"source": {"kafka": source}, "sink": {"clickhouse": sink}},
        }))
        .unwrap()
    }

    fn by_reference() -> TracePipeline {
        let named = json!({"topics": ["t"], "connectionRef": {"name": "main"}});
        pipeline("a", &json!([named, {"connectionRef": {"name": "main"}}]))
    }

    fn connection(namespace: &str, spec: &Value) -> Connection {
        serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TraceConnection",
            "metadata": {"name": "main", "namespace": namespace}, "spec": spec,
        }))
        .unwrap()
    }

    fn listed(all: Vec<Connection>) -> Store<Connection> {
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Init);
        for one in all {
            writer.apply_watcher_event(&Event::InitApply(one));
        }
        writer.apply_watcher_event(&Event::InitDone);
        store
    }

    fn spec() -> Value {
        let secret = json!({"secretRef": {"name": "writer"}});
        json!({
            "kafka": {"bootstrapServers": ["k:1"], "tls": {"caSecretRef": {"name": "ca"}}},
            "clickhouse": {"endpoints": ["http://c:1"], "credentials": secret},
        })
    }

    #[test]
    fn a_reference_leads_to_a_connection_of_its_own_namespace() {
        let named = by_reference();
        let why = |store: &Store<Connection>| resolve(&named, store).1.source;
        let elsewhere = why(&listed(vec![connection("other", &spec())])).unwrap();
        assert!(
            elsewhere.contains("there is no TraceConnection \"main\" in the namespace \"tracing\""),
            "{elsewhere}"
        );
        let (never, _writer) = reflector::store();
        assert!(why(&never).unwrap().contains("cannot list TraceConnections"));
        let unreadable = why(&listed(vec![connection("tracing", &json!({"kafka": 1}))])).unwrap();
        assert!(unreadable.contains("cannot read the TraceConnection"), "{unreadable}");
        let store = listed(vec![connection("tracing", &spec())]);
        let (found, unresolved) = resolve(&named, &store);
        assert_eq!(unresolved, Unresolved::default());
        assert_eq!(found.spec.source.kafka.as_ref().unwrap().bootstrap_servers, ["k:1"]);
    }

    #[test]
    fn a_secret_of_a_connection_is_used_by_the_pipelines_that_reference_that_part() {
        let store = listed(vec![connection("tracing", &spec())]);
        let uses = |pipeline: &TracePipeline, secret| uses_secret(pipeline, secret, &store);
        let both = by_reference();
        assert_eq!(["ca", "writer", "other"].map(|secret| uses(&both, secret)), [true, true, false]);
        let own = json!({"endpoints": ["http://c:1"], "credentials": {"secretRef": {"name": "own"}}});
        let half = pipeline("b", &json!([{"topics": ["t"], "connectionRef": {"name": "main"}}, own]));
        assert_eq!(["ca", "writer", "own"].map(|secret| uses(&half, secret)), [true, false, true]);
    }
}
