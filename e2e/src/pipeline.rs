//! The `TracePipeline` of a test: written as a user would, applied, watched and deleted.
//!
//! Job: build the object from what a test needs to say, and wait for what its status says. Place in the flow: between the
//! fixtures (namespace, topic, database) and the load. Owner: the test. Limits: waits need a deadline, and a passed one
//! shows the whole status.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams};
use serde_json::{Map, Value, json};
use sluice_crds::{TracePipeline, TracePipelineStatus};

use crate::cluster::{Namespace, Pods, Seen, is_missing, until};

/// Name of the Secret with the `ClickHouse` user, in the test's namespace.
pub const CREDENTIALS: &str = "clickhouse";

/// Table that every test's pipeline writes.
pub const TABLE: &str = "otel_traces";

/// What a test's pipeline needs to know. All addresses are as seen from a pod.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the pipeline.
    pub name: String,
    /// Brokers, each `host:port`.
    pub brokers: Vec<String>,
    /// Topic to read.
    pub topic: String,
    /// `ClickHouse` over HTTP, `http://host:port`.
    pub clickhouse: String,
    /// Database to write; the table is [`TABLE`].
    pub database: String,
    /// The gateway's image.
    pub image: String,
    /// Storage class of the queue volumes, or the cluster's default.
    pub storage_class: Option<String>,
}

impl Settings {
    /// The object, with the small sizes that tests use.
    pub fn manifest(&self) -> Value {
        let mut object = json!({
            "apiVersion": "sluice.dev/v1alpha1",
            "kind": "TracePipeline",
            "metadata": {"name": self.name},
            "spec": {
                "source": {"kafka": {
                    "bootstrapServers": self.brokers,
                    "topics": [self.topic],
                    "consumerGroup": self.consumer_group(),
                    "initialOffset": "Earliest",
                    "format": "OtlpProto",
                }},
                "sink": {"clickhouse": {
                    "endpoints": [self.clickhouse],
                    "database": self.database,
                    "table": TABLE,
                    "credentials": {"secretRef": {"name": CREDENTIALS}},
                    "schema": {"management": "CreateIfMissing"},
                }},
                "partitionsPerReplica": 4,
                "gateway": {
                    "image": self.image,
                    // A tenth of a core is reserved, so that several tests fit on a machine of two.
                    "resources": {"memory": "256Mi", "cpuRequest": "100m"},
                    "workers": 1,
                },
                "queue": {"mode": "Spill", "size": "1Gi"},
                // What most tests change is not what a canary is there to find.
                "rollout": {"canary": {"duration": "1s"}},
            },
        });
        if let Some(class) = &self.storage_class {
            object["spec"]["queue"]["storageClassName"] = json!(class);
        }
        object
    }

    /// The consumer group: the topic's name, which no other test has.
    pub fn consumer_group(&self) -> String {
        format!("{}.gateways", self.topic)
    }
}

/// `base` with `change` merged over it: objects by key, null removes, all else replaces (RFC 7386).
pub fn merged(base: &Value, change: &Value) -> Value {
    let Value::Object(change) = change else { return change.clone() };
    let mut merged = base.as_object().cloned().unwrap_or_else(Map::new);
    for (key, value) in change {
        if value.is_null() {
            merged.remove(key);
        } else {
            let inner = merged.get(key).cloned().unwrap_or(Value::Null);
            merged.insert(key.clone(), self::merged(&inner, value));
        }
    }
    Value::Object(merged)
}

/// A pipeline in a test's namespace.
#[derive(Clone)]
pub struct Pipeline {
    namespace: Namespace,
    settings: Settings,
}

impl Pipeline {
    /// A pipeline that [`Pipeline::apply`] makes.
    pub fn new(namespace: &Namespace, settings: Settings) -> Pipeline {
        Pipeline { namespace: namespace.clone(), settings }
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Where it is.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The usual object with `change` merged over its spec, as a file has it.
    pub fn manifest(&self, change: &Value) -> Value {
        let change = json!({"metadata": {"namespace": self.namespace.name()}, "spec": change});
        merged(&self.settings.manifest(), &change)
    }

    /// Makes it, or changes it to, the usual object with `change` merged over its spec. A refusal by the API server is an
    /// error with the server's words.
    pub async fn apply(&self, change: &Value) -> Result<()> {
        self.namespace.apply(&self.manifest(change)).await.map(drop)
    }

    fn api(&self) -> Api<TracePipeline> {
        self.namespace.api()
    }

    /// The object as it is now.
    pub async fn get(&self) -> Result<TracePipeline> {
        self.api().get(self.name()).await.with_context(|| format!("get pipeline {}", self.name()))
    }

    /// Its gateways' pods.
    pub fn gateways(&self) -> Pods {
        self.namespace.gateways(self.name())
    }

    /// Waits until it is Ready in its newest generation, with as many ready gateways as it wants.
    pub async fn wait_ready(&self, deadline: Duration) -> Result<TracePipelineStatus> {
        self.wait("Ready", deadline, |status| {
            let ready = condition(status, sluice_crds::status::condition::READY);
            ready.is_some_and(|ready| ready.status == "True")
                && status.ready_replicas == status.desired_replicas
                && status.ready_replicas.is_some_and(|replicas| replicas > 0)
        })
        .await
    }

    /// Waits until condition `kind` has `status` with `reason`, about the newest generation; gives its message.
    pub async fn wait_condition(
        &self,
        kind: &str,
        (status, reason): (&str, &str),
        deadline: Duration,
    ) -> Result<String> {
        let what = format!("{kind}={status} with reason {reason}");
        let found = self
            .wait(&what, deadline, |seen| {
                condition(seen, kind).is_some_and(|found| found.status == status && found.reason == reason)
            })
            .await?;
        Ok(condition(&found, kind).map(|found| found.message.clone()).unwrap_or_default())
    }

    /// Waits until the status is about the newest generation and `wanted` says so.
    pub async fn wait(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&TracePipelineStatus) -> bool,
    ) -> Result<TracePipelineStatus> {
        until(&format!("pipeline {} {what}", self.name()), deadline, async || {
            let object = self.get().await?;
            let generation = object.metadata.generation;
            let Some(status) = object.status else { return Ok(Seen::NotYet("no status".to_owned())) };
            if status.observed_generation == generation && wanted(&status) {
                return Ok(Seen::Done(status));
            }
            Ok(Seen::NotYet(format!("generation {generation:?}, {}", status_line(&status))))
        })
        .await
    }

    /// Deletes it and waits until it is gone.
    pub async fn delete(&self, deadline: Duration) -> Result<()> {
        match self.api().delete(self.name(), &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => {
                return Err(error).with_context(|| format!("delete pipeline {}", self.name()));
            }
            _ => {}
        }
        until(&format!("end of pipeline {}", self.name()), deadline, async || {
            let found = self.api().get_opt(self.name()).await.context("get the pipeline")?;
            Ok(found.map_or(Seen::Done(()), |left| {
                Seen::NotYet(format!("finalizers {:?}", left.metadata.finalizers))
            }))
        })
        .await
    }
}

/// The condition of type `kind`.
pub fn condition<'a>(status: &'a TracePipelineStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind)
}

/// A status in one line, for the words of a passed deadline.
fn status_line(status: &TracePipelineStatus) -> String {
    let conditions: Vec<String> = status
        .conditions
        .iter()
        .map(|found| format!("{}={} {} ({})", found.type_, found.status, found.reason, found.message))
        .collect();
    format!(
        "observed {:?}, {:?} of {:?} replicas ready, {}",
        status.observed_generation,
        status.ready_replicas,
        status.desired_replicas,
        conditions.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            name: "traces".to_owned(),
            brokers: vec!["kafka:9092".to_owned()],
            topic: "spans".to_owned(),
            clickhouse: "http://clickhouse:8123".to_owned(),
            database: "db".to_owned(),
            image: "sluice-gateway:test".to_owned(),
            storage_class: None,
        }
    }

    #[test]
    fn the_manifest_is_a_trace_pipeline() {
        let pipeline: TracePipeline = serde_json::from_value(settings().manifest()).unwrap();
        assert_eq!(pipeline.spec.source.kafka.topics, ["spans"]);
        assert_eq!(pipeline.spec.gateway.resources.memory, "256Mi");
        assert_eq!(pipeline.spec.queue.storage_class_name, None);
        let with_class = Settings { storage_class: Some("local".to_owned()), ..settings() };
        let pipeline: TracePipeline = serde_json::from_value(with_class.manifest()).unwrap();
        assert_eq!(pipeline.spec.queue.storage_class_name.as_deref(), Some("local"));
    }

    #[test]
    fn a_change_is_merged_key_by_key() {
        let base = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        let change = json!({"a": {"b": null, "c": [3]}, "e": {"f": true, "g": null}});
        assert_eq!(merged(&base, &change), json!({"a": {"c": [3]}, "d": "x", "e": {"f": true}}));
    }
}
