//! Connections that pipelines share: a switch between both forms writes no object, a change reaches every pipeline that references the
//! connection, and one that is missing changes nothing of what runs.

use crate::{
    bench::{Bench, NAMESPACE},
    scaling::Scene,
};
use serde_json::{Value, json};
use sluice_operator::write::connections::{Written, count_once};

/// Puts a connection there with what pipelines of the bench say themselves.
fn connect(bench: &Bench) {
    let spec = bench.pipeline("any")["spec"].clone();
    let object = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TraceConnection",
        "metadata": {"name": "main", "namespace": NAMESPACE},
        "spec": {
            "kafka": {"bootstrapServers": spec["source"]["kafka"]["bootstrapServers"]},
            "clickhouse": {"endpoints": spec["sink"]["clickhouse"]["endpoints"]},
        },
    });
    bench.server.put("traceconnections/main", object);
}

/// The spec with references instead.
fn refer(spec: &mut Value) {
    for (at, fields) in
        [("/source/kafka", ["bootstrapServers", "sasl"]), ("/sink/clickhouse", ["endpoints", "shards"])]
    {
        let part = spec.pointer_mut(at).unwrap().as_object_mut().unwrap();
        for field in fields {
            part.remove(field);
        }
        part.insert("connectionRef".into(), json!({"name": "main"}));
    }
}

fn edit(bench: &Bench, name: &str, change: impl FnOnce(&mut Value)) {
    bench.server.change(&format!("tracepipelines/{name}"), |pipeline| {
        change(&mut pipeline["spec"]);
        let generation = pipeline["metadata"]["generation"].as_i64().unwrap_or(1);
        pipeline["metadata"]["generation"] = (generation + 1).into();
    });
}

fn edit_connection(bench: &Bench, change: impl FnOnce(&mut Value)) {
    bench.server.change("traceconnections/main", |connection| {
        change(&mut connection["spec"]);
        let generation = connection["metadata"]["generation"].as_i64().unwrap_or(1);
        connection["metadata"]["generation"] = (generation + 1).into();
    });
}

/// A pipeline by reference, whose gateway runs.
async fn running(bench: &Bench, name: &str) {
    let mut pipeline = bench.pipeline(name);
    refer(&mut pipeline["spec"]);
    bench.server.put(&format!("tracepipelines/{name}"), pipeline);
    bench.settle(name).await;
    bench.gateways_become_ready(name);
    bench.settle(name).await;
    assert_eq!(bench.condition(name, "Ready"), "True Running");
}

/// What was written but status and events.
async fn objects_written(bench: &Bench, name: &str) -> Vec<String> {
    let written = bench.settle(name).await.into_iter().map(|write| write.what);
    written.filter(|what| !what.starts_with("events") && !what.ends_with("/status")).collect()
}

fn template(bench: &Bench, name: &str) -> Value {
    bench.server.get(&format!("statefulsets/{name}-gateway")).unwrap()["spec"]["template"].clone()
}

#[tokio::test]
async fn a_switch_to_a_connection_that_says_the_same_and_back_writes_no_object() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    connect(&bench);
    let inline = bench.server.get("tracepipelines/prod").unwrap()["spec"].clone();
    edit(&bench, "prod", refer);
    assert_eq!(objects_written(&bench, "prod").await, [""; 0]);
    let connections = || bench.server.get("tracepipelines/prod").unwrap()["status"]["connections"].clone();
    assert_eq!(connections(), json!({"kafka": "main", "clickhouse": "main"}));
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), [], "at rest nothing is written");
    edit(&bench, "prod", |spec| *spec = inline);
    assert_eq!(objects_written(&bench, "prod").await, [""; 0]);
    assert_eq!(connections(), Value::Null);
}

#[tokio::test]
async fn a_change_of_a_connection_reaches_every_pipeline_that_references_it() {
    let bench = Bench::start().await;
    connect(&bench);
    for name in ["one", "two"] {
        running(&bench, name).await;
    }
    let before = ["one", "two"].map(|name| template(&bench, name));
    edit_connection(&bench, |spec| spec["clickhouse"]["endpoints"] = json!(["http://elsewhere:8123"]));
    for (name, before) in ["one", "two"].into_iter().zip(before) {
        let written = objects_written(&bench, name).await;
        assert!(written.contains(&format!("statefulsets/{name}-gateway")), "{written:?}");
        assert_ne!(template(&bench, name), before);
        let configs = bench.server.list("configmaps");
        assert!(configs.iter().any(|config| config["data"].to_string().contains("http://elsewhere:8123")));
    }
}

#[tokio::test]
async fn a_connection_that_goes_changes_nothing_of_what_runs_and_is_said_until_it_comes_back() {
    let bench = Bench::start().await;
    connect(&bench);
    running(&bench, "prod").await;
    let (connection, before) = (bench.server.get("traceconnections/main").unwrap(), template(&bench, "prod"));
    bench.server.remove("traceconnections/main");
    assert_eq!(objects_written(&bench, "prod").await, [""; 0]);
    assert_eq!(bench.condition("prod", "Ready"), "False ConnectionMissing");
    assert_eq!(bench.condition("prod", "Reconciling"), "True Waiting");
    for kind in ["SourceReachable", "SinkReachable"] {
        assert_eq!(bench.condition("prod", kind), "False ConnectionMissing");
    }
    assert_eq!(template(&bench, "prod"), before);
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), [], "it is said once");
    // A part of it is not enough.
    bench.server.put("traceconnections/main", connection.clone());
    edit_connection(&bench, |spec| drop(spec.as_object_mut().unwrap().remove("clickhouse")));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "SourceReachable"), "True Ok");
    assert_eq!(bench.condition("prod", "SinkReachable"), "False ConnectionMissing");
    bench.server.put("traceconnections/main", connection);
    assert_eq!(objects_written(&bench, "prod").await, [""; 0], "as if it had never been gone");
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
}

#[tokio::test]
async fn shards_that_would_change_their_places_are_refused_and_the_last_ones_stay() {
    let bench = Bench::start().await;
    connect(&bench);
    let shards = |names: [&str; 2]| {
        let shards = names.map(|name| json!({"endpoints": [format!("http://{name}:8123")]}));
        json!({"shards": shards})
    };
    edit_connection(&bench, |spec| spec["clickhouse"] = shards(["a", "b"]));
    running(&bench, "prod").await;
    let before = template(&bench, "prod");
    // By another connection of the same name, which no rule of the definition compares.
    edit_connection(&bench, |spec| spec["clickhouse"] = shards(["b", "a"]));
    assert_eq!(objects_written(&bench, "prod").await, [""; 0]);
    assert_eq!(bench.condition("prod", "Ready"), "False SpecInvalid");
    assert_eq!(template(&bench, "prod"), before);
    edit_connection(&bench, |spec| spec["clickhouse"] = shards(["a", "b"]));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
}

#[tokio::test]
async fn shards_keep_their_places_also_where_a_missing_connection_stood_between_two_edits() {
    let bench = Bench::start().await;
    let shards =
        |names: [&str; 2]| json!(names.map(|name| json!({"endpoints": [format!("http://{name}:8123")]})));
    let mut pipeline = bench.pipeline("prod");
    let clickhouse = pipeline["spec"]["sink"]["clickhouse"].as_object_mut().unwrap();
    clickhouse.remove("endpoints");
    clickhouse.insert("shards".into(), shards(["a", "b"]));
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let inline = bench.server.get("tracepipelines/prod").unwrap()["spec"].clone();
    let before = template(&bench, "prod");
    edit(&bench, "prod", refer);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ConnectionMissing");
    let mut swapped = inline.clone();
    swapped["sink"]["clickhouse"]["shards"] = shards(["b", "a"]);
    edit(&bench, "prod", |spec| *spec = swapped);
    assert_eq!(objects_written(&bench, "prod").await, [""; 0]);
    assert_eq!(bench.condition("prod", "Ready"), "False SpecInvalid");
    assert_eq!(template(&bench, "prod"), before);
    edit(&bench, "prod", |spec| *spec = inline);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    assert_eq!(template(&bench, "prod"), before);
}

#[tokio::test]
async fn a_connection_that_comes_back_with_the_same_secret_made_anew_replaces_no_gateway() {
    let bench = Bench::start().await;
    connect(&bench);
    let secret = |uid: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "writer", "namespace": NAMESPACE, "uid": uid},
            "data": {"username": "dQ==", "password": "cA=="},
        })
    };
    bench.server.put("secrets/writer", secret("first"));
    edit_connection(&bench, |spec| {
        spec["clickhouse"]["credentials"] = json!({"secretRef": {"name": "writer"}});
    });
    running(&bench, "prod").await;
    let (before, connection) = (template(&bench, "prod"), bench.server.get("traceconnections/main").unwrap());
    bench.server.remove("traceconnections/main");
    bench.server.remove("secrets/writer");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ConnectionMissing");
    bench.server.put("secrets/writer", secret("second"));
    bench.settle("prod").await;
    bench.server.put("traceconnections/main", connection);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    assert_eq!(template(&bench, "prod"), before);
}

#[tokio::test]
async fn a_pipeline_whose_connection_was_deleted_first_drains_and_goes() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    // There is no connection of that name.
    scene.change_spec(refer);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.bench.condition("prod", "Ready"), "False ConnectionMissing");
    assert_eq!((scene.replicas(), scene.told(0)), (2, vec![]), "nobody is asked to leave");
    scene.delete();
    scene.by_many_operators(Scene::is_gone).await;
    assert!(scene.told(0).contains(&"/drain".to_owned()));
}

#[tokio::test]
async fn a_pipeline_without_its_connection_can_be_suspended() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| {
        refer(spec);
        spec["suspend"] = true.into();
    });
    scene.by_many_operators(|scene| scene.replicas() == 0).await;
}

#[tokio::test]
pub async fn a_connection_says_how_many_pipelines_reference_it() {
    let bench = Bench::start().await;
    connect(&bench);
    let mut written = Written::new();
    let status = || bench.server.get("traceconnections/main").unwrap()["status"].clone();
    for (number, name) in ["one", "two"].into_iter().enumerate() {
        let mut pipeline = bench.pipeline(name);
        refer(&mut pipeline["spec"]);
        bench.server.put(&format!("tracepipelines/{name}"), pipeline);
        bench.create("inline");
        count_once(&bench.world(), &mut written).await;
        assert_eq!(status(), json!({"pipelines": number + 1}));
        let written_now: Vec<String> =
            bench.server.take_writes().into_iter().map(|write| write.what).collect();
        assert_eq!(written_now, ["traceconnections/main/status"]);
    }
    // At rest nothing is written, also by the next operator.
    for mut written in [written, Written::new()] {
        count_once(&bench.world(), &mut written).await;
        assert_eq!(bench.server.take_writes(), []);
    }
    edit_connection(&bench, |spec| spec["clickhouse"]["endpoints"] = json!(["http://elsewhere:8123"]));
    count_once(&bench.world(), &mut Written::new()).await;
    assert_eq!(bench.server.take_writes(), [], "a change of the spec is no news for the count");
    // What cannot be written now is written later.
    bench.server.refuse("traceconnections/main/status", 429);
    bench.server.remove("tracepipelines/one");
    let mut written = Written::new();
    count_once(&bench.world(), &mut written).await;
    bench.server.relent();
    count_once(&bench.world(), &mut written).await;
    assert_eq!(status(), json!({"pipelines": 1}));
    // What is refused is not asked for again and again.
    bench.server.take_writes();
    bench.server.refuse("traceconnections/main/status", 403);
    bench.server.remove("tracepipelines/two");
    let mut written = Written::new();
    for _ in 0..2 {
        count_once(&bench.world(), &mut written).await;
    }
    assert!(bench.server.take_writes().len() <= 1);
    assert_eq!(status()["pipelines"], 1);
}
