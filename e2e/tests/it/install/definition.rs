//! The definition of `TracePipeline` and its rules on a real API server: the server drops no field, and every rule accepts and rejects what
//! it should. Nothing is stored: every request is a dry run.

use e2e_stack::TargetArgs;

/// The cases of the tests without a server.
#[path = "../../../../crds/tests/it/cases.rs"]
mod cases;

use cases::connections::{CONNECTION_CHANGES, CONNECTIONS};
use cases::{AFTER_ENQUEUE, CHANGES, REPLICAS, value_cases};

use crate::prelude::*;
use crate::turns::Turn;

/// A namespace that every cluster has; nothing is created in it.
const NAMESPACE: &str = "default";

/// A field manager that owns nothing, because nothing is stored.
const MANAGER: &str = "sluice-e2e-dry-run";

const DEFINITIONS: [&str; 2] = [
    include_str!("../../../../crds/tracepipelines.yaml"),
    include_str!("../../../../crds/traceconnections.yaml"),
];
const CONNECTION: &str = include_str!("../../../../config/samples/traceconnection.yaml");
const SMALLEST: &str = include_str!("../../../../config/samples/tracepipeline.yaml");

/// A number or a share, limited without a rule: accepted values, and rejected values.
const UNAVAILABLE: [&[&str]; 2] = [
    &["1", "1000", r#""1%""#, r#""10%""#, r#""100%""#],
    &["0", "1001", r#""0%""#, r#""101%""#, r#""10""#, "1.5", "true"],
];

/// The cluster, and the right to use it.
async fn begin() -> Result<(Cluster, Turn)> {
    let turn = Uses::Servers.turn().await?;
    let target = TargetArgs::from_environment().target()?.resolve()?;
    Ok((Cluster::connect(&target.kubeconfig).await?, turn))
}

fn read(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).context("understand a file of this repository")
}

/// Names and texts of the files in `config/samples` with a pipeline.
pub fn samples() -> Result<Vec<(String, String)>> {
    let folder = e2e_stack::paths::workspace().join("config/samples");
    let mut found = Vec::new();
    for file in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let file = file.context("read the folder of samples")?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("tracepipeline") {
            let text = fs::read_to_string(file.path()).with_context(|| format!("read {name}"))?;
            found.push((name, text));
        }
    }
    ensure!(found.len() >= 7, "{} samples", found.len());
    Ok(found)
}

/// Argo CD compares in this way, and would show a resource that differs as out of sync forever.
#[tokio::test]
async fn the_definitions_come_back_from_the_server_as_they_were_sent() -> Result<()> {
    let (cluster, _turn) = begin().await?;
    let definitions: Api<DynamicObject> =
        Api::all_with(cluster.client(), &kind_of::<CustomResourceDefinition>());
    let how = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
    for text in DEFINITIONS {
        let sent = read(text)?;
        let name = sent["metadata"]["name"].as_str().context("the definition has no name")?;
        let back = definitions.patch(name, &how, &Patch::Apply(&sent)).await;
        let back = back.with_context(|| format!("apply {name}"))?;
        let differences = differences(&sent["spec"], &back.data["spec"], "spec");
        ensure!(differences.is_empty(), "{name}: {}", differences.join("\n"));
    }
    Ok(())
}

#[tokio::test]
async fn a_pipeline_comes_back_from_the_server_as_it_was_sent() -> Result<()> {
    let (cluster, _turn) = begin().await?;
    // The server fills in the same defaults as our types.
    for (name, text) in samples()? {
        let typed: TracePipeline =
            serde_json::from_value(read(&text)?).with_context(|| format!("read {name}"))?;
        let typed = serde_json::to_value(typed).with_context(|| format!("write {name}"))?;
        let back = create(&cluster, &read(&text)?).await?.map_err(|error| anyhow!("{name}: {error}"))?;
        let differences = differences(&typed["spec"], &back["spec"], "spec");
        ensure!(differences.is_empty(), "{name}: {}", differences.join("\n"));
    }
    Ok(())
}

#[tokio::test]
async fn every_rule_takes_and_refuses_on_the_server_what_it_should() -> Result<()> {
    let (cluster, _turn) = begin().await?;
    let mut wrong = Vec::new();
    for case in value_cases() {
        let taken = case.taken.iter().map(|value| (value, ""));
        let refused = case.refused.iter().map(|value| (value, case.message));
        for (value, message) in taken.chain(refused) {
            let answer = create(&cluster, &with(case.pointer, value)?).await?;
            judge(&mut wrong, &format!("{} {value}", case.pointer), &answer, message);
        }
    }
    for (values, message) in UNAVAILABLE.iter().zip(["", "spec.rollout.maxUnavailable"]) {
        for value in *values {
            let answer = create(&cluster, &with("/spec/rollout/maxUnavailable", value)?).await?;
            judge(&mut wrong, &format!("maxUnavailable {value}"), &answer, message);
        }
    }
    for (replicas, mode, message) in REPLICAS {
        let mut object = with("/spec/scaling", &json!({"mode": mode}).to_string())?;
        if *replicas != "null" {
            object["spec"]["replicas"] = serde_json::from_str(replicas).context("read a case")?;
        }
        let answer = create(&cluster, &object).await?;
        judge(&mut wrong, &format!("{mode} with replicas {replicas}"), &answer, message);
    }
    for (mode, on_timeout, message) in AFTER_ENQUEUE {
        let mut object = with("/spec/delivery", r#"{"commit": "AfterEnqueue"}"#)?;
        object["spec"]["queue"]["mode"] = json!(mode);
        object["spec"]["scaling"] = json!({"drain": {"onTimeout": on_timeout}});
        let answer = create(&cluster, &object).await?;
        judge(&mut wrong, &format!("AfterEnqueue with {mode} and {on_timeout}"), &answer, message);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The connection of the sample, which the server returns unchanged; then with other values.
#[tokio::test]
async fn every_rule_of_a_connection_takes_and_refuses_on_the_server_what_it_should() -> Result<()> {
    let (cluster, _turn) = begin().await?;
    let connections = Namespace::named(&cluster, NAMESPACE).dynamic::<TraceConnection>();
    let sample = connection(NAMESPACE, "/spec/kafka", None)?;
    let back = tried(&connections, &sample).await?.map_err(anyhow::Error::msg)?;
    let differences = differences(&sample["spec"], &back["spec"], "spec");
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    let mut wrong = Vec::new();
    for case in CONNECTIONS {
        let taken = case.taken.iter().map(|value| (value, ""));
        let refused = case.refused.iter().map(|value| (value, case.message));
        for (value, message) in taken.chain(refused) {
            let mut object = connection(NAMESPACE, case.pointer, Some(value))?;
            if case.pointer.ends_with("/endpoints") {
                // This field requires https.
                object["spec"]["clickhouse"]["tls"].take();
            }
            judge(
                &mut wrong,
                &format!("{} {value}", case.pointer),
                &tried(&connections, &object).await?,
                message,
            );
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The sample's connection in this namespace, with one value in it.
fn connection(namespace: &str, pointer: &str, value: Option<&str>) -> Result<Value> {
    let text = CONNECTION.split("\n---\n").next().context("an empty sample")?;
    let mut object = read(text)?;
    object["metadata"]["namespace"] = json!(namespace);
    if let Some(value) = value {
        let value: Value = serde_json::from_str(value).with_context(|| format!("read {value}"))?;
        *object.pointer_mut(pointer).with_context(|| format!("no {pointer}"))? = value;
    }
    Ok(object)
}

/// Rules about a change need an existing object: one pipeline, in its own namespace.
#[tokio::test]
async fn every_rule_about_a_change_sees_it_on_the_server() -> Result<()> {
    let (cluster, _turn) = begin().await?;
    in_namespace(&cluster, "definition", changes).await
}

async fn changes(namespace: &Namespace) -> Result<()> {
    let pipelines = namespace.dynamic::<TracePipeline>();
    let mut wrong = Vec::new();
    for (number, (pointer, from, to, is_taken, message)) in CHANGES.iter().enumerate() {
        // An operator may manage it: without Kafka, it makes nothing.
        let named = json!({"metadata": {"name": format!("change-{number}"), "namespace": namespace.name()}});
        let before = merged(&with(pointer, from)?, &named);
        let object = serde_json::from_value(before).context("describe a pipeline")?;
        let made = pipelines.create(&PostParams::default(), &object).await.context("make a pipeline")?;
        let mut after = merged(&with(pointer, to)?, &named);
        after["metadata"]["resourceVersion"] = json!(made.metadata.resource_version);
        let after: DynamicObject = serde_json::from_value(after).context("describe a changed pipeline")?;
        // The whole object is replaced: a merge would keep the fields that the change leaves out.
        let how = PostParams { dry_run: true, ..PostParams::default() };
        let answer = told(pipelines.replace(&format!("change-{number}"), &how, &after).await)?;
        let message = if *is_taken { "" } else { message };
        judge(&mut wrong, &format!("{pointer} {from} -> {to}"), &answer, message);
    }
    connection_changes(namespace, &mut wrong).await?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn connection_changes(namespace: &Namespace, wrong: &mut Vec<String>) -> Result<()> {
    let connections = namespace.dynamic::<TraceConnection>();
    for (number, (from, to, is_taken, message)) in CONNECTION_CHANGES.iter().enumerate() {
        let named = |value| -> Result<Value> {
            let mut object = connection(namespace.name(), "/spec/clickhouse", Some(value))?;
            object["metadata"]["name"] = json!(format!("change-{number}"));
            Ok(object)
        };
        let object = serde_json::from_value(named(from)?).context("describe a connection")?;
        connections.create(&PostParams::default(), &object).await.context("make a connection")?;
        let how = PatchParams { dry_run: true, ..PatchParams::default() };
        // A merge patch: fields that the new value does not have are removed.
        let mut after = named(to)?["spec"]["clickhouse"].clone();
        for field in ["endpoints", "shards"] {
            if after[field].is_null() {
                after[field] = Value::Null;
            }
        }
        let spec = json!({"spec": {"clickhouse": after}});
        let answer = told(connections.patch(&format!("change-{number}"), &how, &Patch::Merge(&spec)).await)?;
        judge(wrong, &format!("{from} -> {to}"), &answer, if *is_taken { "" } else { message });
    }
    Ok(())
}

/// The smallest pipeline with one value. The parents of the value must exist, as the server would fill them in.
fn with(pointer: &str, value: &str) -> Result<Value> {
    let typed: TracePipeline = serde_json::from_value(read(SMALLEST)?).context("read the smallest sample")?;
    let mut object = serde_json::to_value(typed).context("write the smallest sample")?;
    let (parent, field) = pointer.rsplit_once('/').context("a pointer without a field")?;
    let value: Value = serde_json::from_str(value).with_context(|| format!("read {value}"))?;
    object.pointer_mut(parent).with_context(|| format!("nothing at {parent}"))?[field] = value;
    Ok(object)
}

/// The object that the server would store, or its message if it rejects it.
async fn create(cluster: &Cluster, object: &Value) -> Result<Result<Value, String>> {
    let here = merged(object, &json!({"metadata": {"namespace": NAMESPACE}}));
    tried(&Namespace::named(cluster, NAMESPACE).dynamic::<TracePipeline>(), &here).await
}

/// A dry run of the creation.
async fn tried(api: &Api<DynamicObject>, object: &Value) -> Result<Result<Value, String>> {
    let how = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object.clone()).context("describe an object")?;
    told(api.create(&how, &object).await)
}

fn told(answer: kube::Result<DynamicObject>) -> Result<Result<Value, String>> {
    match answer {
        Ok(object) => Ok(Ok(object.data)),
        Err(kube::Error::Api(status)) if status.code < 500 => Ok(Err(status.message.clone())),
        Err(error) => Err(error).context("ask the API server"),
    }
}

/// Records an unexpected answer; an empty message means "accepted".
fn judge(wrong: &mut Vec<String>, what: &str, answer: &Result<Value, String>, message: &str) {
    match answer {
        Ok(_) if message.is_empty() => {}
        Ok(_) => wrong.push(format!("{what} is taken, without {message:?}")),
        Err(said) if !message.is_empty() && said.contains(message) => {}
        Err(said) => wrong.push(format!("{what}: expected {message:?}, the server says {said}")),
    }
}

fn differences(sent: &Value, back: &Value, at: &str) -> Vec<String> {
    match (sent, back) {
        (Value::Object(sent), Value::Object(back)) => {
            let names: BTreeSet<&String> = sent.keys().chain(back.keys()).collect();
            let null = Value::Null;
            let of = |fields: &serde_json::Map<String, Value>, name: &String| {
                fields.get(name).unwrap_or(&null).clone()
            };
            names
                .into_iter()
                .flat_map(|name| differences(&of(sent, name), &of(back, name), &format!("{at}.{name}")))
                .collect()
        }
        (Value::Array(sent), Value::Array(back)) if sent.len() == back.len() => {
            let pairs = sent.iter().zip(back).enumerate();
            pairs
                .flat_map(|(index, (sent, back))| differences(sent, back, &format!("{at}[{index}]")))
                .collect()
        }
        _ if sent == back => Vec::new(),
        _ => vec![format!("{at} was sent as {sent} and is {back}")],
    }
}
