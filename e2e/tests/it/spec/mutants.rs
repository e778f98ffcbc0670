//! A hundred pipelines with something wrong: fields removed, exchanged, huge, negative, of another type, in other scripts. The API server
//! rejects each with a message, or accepts it and the operator gives a verdict. The operator runs on and writes only the pipelines' own
//! objects, and another pipeline does not change.
//!
//! The operator runs as a process behind a front that records its writes, and a node without a kubelet takes its pods
//! (`e2e_fixtures::local_operator`). The mutants follow from [`SEED`].

mod mutation;

use e2e_fixtures::local_operator::{Node, POD_CORES};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;

use crate::own_operator::{self, at_rest, settings};
use crate::prelude::*;
use mutation::Mutations;

const MUTANTS: u64 = 100;

const SEED: u64 = 20_261_121;

/// Variable with another seed, for a search for more failures.
const SEED_VARIABLE: &str = "SLUICE_MUTANTS_SEED";

/// How long the operator may take until every accepted mutant has a verdict. A mutant whose Kafka cannot be reached takes 6 s, ten at a
/// time.
const VERDICTS: Duration = Duration::from_mins(4);

/// Kinds of requests with which an operator may change something.
const WRITES: [&str; 17] = [
    "apply configmaps",
    "apply deployments",
    "apply horizontalpodautoscalers",
    "apply jobs",
    "apply networkpolicies",
    "apply persistentvolumeclaims",
    "apply poddisruptionbudgets",
    "apply serviceaccounts",
    "apply services",
    "apply statefulsets",
    "apply tracepipelines",
    "apply tracepipelines/status",
    "create events",
    "create leases",
    "delete configmaps",
    "delete jobs",
    "patch leases",
];

#[test]
#[ignore = "group operator"]
fn a_hundred_mutated_pipelines_leave_operator_and_others_unharmed() -> Result<()> {
    without_operator(Uses::OwnOperator, run)
}

async fn run(cluster: &Cluster, target: &Resolved) -> Result<()> {
    ensure_definition(cluster).await?;
    let name = format!("e2e-mutants-{:x}", std::process::id());
    let namespace = Namespace::create(cluster, &name).await?;
    let topic = Topic::create(&target.kafka.host, &name, 4).await?;
    let node = Node::start(&namespace, &target.kubeconfig).await?;
    let ran = Ground { target, namespace: namespace.clone(), topic: name }.run().await;
    // The node goes last, because it ends the pods.
    let removed = namespace.delete().await.and(node.remove().await).and(topic.delete().await);
    ran.and(removed)
}

struct Ground<'a> {
    target: &'a Resolved,
    namespace: Namespace,
    topic: String,
}

/// A mutant, and the API server's answer.
struct Mutant {
    number: u64,
    /// Its name and generation, if it was accepted.
    taken: Option<String>,
}

impl Ground<'_> {
    async fn run(&self) -> Result<()> {
        let folder = files::temporary(&self.topic)?;
        let mut operator = own_operator::start(self.target, &self.namespace, "operator", &folder).await?;
        let healthy = Pipeline::new(
            &self.namespace,
            settings("healthy", &self.target.kafka.host, &self.topic, &self.target.clickhouse.host),
        );
        healthy.apply(&at_rest()).await?;
        healthy.wait_ready(READY).await.context("the healthy pipeline")?;
        let before = self.versions("healthy").await?;
        ensure!(before.len() >= 2, "the healthy pipeline has {before:?}");
        let mutants = self.apply_all().await?;
        let known = self.wait_verdicts(&mutants).await;
        operator.program.check()?;
        known?;
        let log = operator.program.log()?;
        ensure!(!log.contains("panicked"), "the operator panicked:\n{log}");
        ensure!(before == self.versions("healthy").await?, "the healthy pipeline was touched");
        self.check_writes(&operator.front.writes(), &mutants)?;
        self.check_owners().await?;
        // It still works: it carries out a change of the healthy pipeline.
        healthy.apply(&merged(&at_rest(), &json!({"replicas": 2}))).await?;
        healthy.wait_gateways(2, READY).await?;
        operator.program.stop().await?;
        fs::remove_dir_all(&folder).context("remove the test's files")
    }

    /// The object to mutate: every field of the sample. Every second one has a Kafka and no Secrets, so that the operator makes its
    /// objects.
    fn original(&self, number: u64) -> Result<Value> {
        let sample = files::yaml("config/samples/tracepipeline-full.yaml")?;
        let here = json!({
            "metadata": {"name": format!("mutant-{number}"), "namespace": self.namespace.name()},
            "spec": {
                // Of two pipelines with the same group, the younger one would only wait.
                "source": {"kafka": {"consumerGroup": format!("mutants-{number}")}},
                "gateway": {"resources": {"requests": {"cpu": POD_CORES}, "limits": {"cpu": null}}},
                // It has a worker for each core, and buffers for each worker.
                "edge": {"resources": {"requests": {"cpu": POD_CORES, "memory": "2Gi"}, "limits": {"cpu": null, "memory": "2Gi"}}},
            },
        });
        let sample = merged(&sample, &here);
        if !can_run(number) {
            return Ok(sample);
        }
        let reachable = json!({"spec": {
            "source": {"kafka": {
                "bootstrapServers": [self.target.kafka.host.as_str()], "topics": [self.topic.as_str()],
                "tls": null, "sasl": null, "recordBatchBytesMax": "1Mi",
            }},
            "sink": {"clickhouse": {"credentials": null, "tls": null, "endpoints": ["http://127.0.0.1:8123"],
                "schema": {"management": "None"}}},
            "edge": {"topic": self.topic.as_str(), "tls": null, "authentication": null},
            "replicas": 2,
        }});
        Ok(merged(&sample, &reachable))
    }

    /// Sends every mutant unchanged, without our types, and reads the answer.
    async fn apply_all(&self) -> Result<Vec<Mutant>> {
        let other = std::env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().context("read the seed"));
        let seed: u64 = other.transpose()?.unwrap_or(SEED);
        let mut mutants = Vec::new();
        for number in 0..MUTANTS {
            let mut mutations = Mutations::new(seed, number);
            let (object, what) = mutations.mutated(&self.original(number)?);
            let (status, answer) = self.send(&object).await?;
            let said = answer["message"].as_str().unwrap_or_default();
            let is_taken = status == 201;
            ensure!(
                is_taken || ((400..500).contains(&status) && !said.is_empty()),
                "mutant {number} ({what}): the API server answers {status} {said}"
            );
            if is_taken {
                say::progress("mutants", &format!("{number} is taken: {what}"));
            }
            let taken = is_taken.then(|| answer["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            mutants.push(Mutant { number, taken });
        }
        let taken = mutants.iter().filter(|mutant| mutant.taken.is_some()).count();
        say::progress("mutants", &format!("{taken} of {MUTANTS} were taken"));
        // Both must happen, or this test shows nothing.
        ensure!((15..85).contains(&taken), "{taken} of {MUTANTS} mutants were taken");
        let running =
            mutants.iter().filter(|mutant| mutant.taken.is_some() && can_run(mutant.number)).count();
        ensure!(
            running >= 5,
            "{running} mutants that have a Kafka were taken: of the others there are no objects"
        );
        Ok(mutants)
    }

    async fn send(&self, object: &Value) -> Result<(u16, Value)> {
        let path = format!("/apis/sluice.dev/v1alpha1/namespaces/{}/tracepipelines", self.namespace.name());
        let body = serde_json::to_vec(object).context("write a mutant")?;
        let request = hyper::Request::post(path).header("content-type", "application/json");
        let request = request.body(kube::client::Body::from(body)).context("make a request")?;
        let client: Client = self.namespace.cluster().client();
        let answer = client.send(request).await.context("send a mutant")?;
        let status = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.context("read the answer")?;
        let answer = serde_json::from_slice(&body.to_bytes()).context("understand the answer")?;
        Ok((status, answer))
    }

    /// Waits until every accepted mutant has a verdict: conditions of its generation.
    async fn wait_verdicts(&self, mutants: &[Mutant]) -> Result<()> {
        until("a verdict about every mutant", VERDICTS, async || {
            let seen = self.pipelines().await?;
            let is_told = |name: &String| {
                seen.get(name).is_some_and(|pipeline| {
                    let status: Option<TracePipelineStatus> =
                        serde_json::from_value(pipeline.data["status"].clone()).ok();
                    status.is_some_and(|status| {
                        status.observed_generation == pipeline.metadata.generation
                            && condition(&status, kind::READY).is_some_and(|ready| !ready.reason.is_empty())
                    })
                })
            };
            let untold = mutants.iter().filter(|mutant| !mutant.taken.as_ref().is_none_or(is_told));
            let untold: Vec<u64> = untold.map(|mutant| mutant.number).collect();
            Ok(Seen::when(untold.is_empty(), || format!("none about {untold:?}")))
        })
        .await
    }

    async fn pipelines(&self) -> Result<BTreeMap<String, DynamicObject>> {
        let api = self.namespace.dynamic::<TracePipeline>();
        let listed = api.list(&ListParams::default()).await.context("list the pipelines")?;
        Ok(listed.into_iter().map(|pipeline| (pipeline.name_any(), pipeline)).collect())
    }

    /// Every write was an expected one, in this namespace, about an object with the name of a pipeline. The API server rejected none: it
    /// accepts everything that the plan lets through.
    fn check_writes(&self, writes: &[Write], mutants: &[Mutant]) -> Result<()> {
        let names: BTreeSet<&str> =
            mutants.iter().filter_map(|mutant| mutant.taken.as_deref()).chain(["healthy"]).collect();
        for write in writes {
            let call = write.call.to_string();
            ensure!(WRITES.contains(&call.as_str()), "the operator did {call}");
            ensure!(
                write.namespace.as_deref() == Some(self.namespace.name()),
                "written elsewhere: {write:?}"
            );
            ensure!(write.status < 300, "the API server refused {write:?}");
            let Some(name) = &write.name else { continue };
            let is_known = match write.call.resource.as_str() {
                "leases" => name == "sluice",
                "tracepipelines" | "tracepipelines/status" => names.contains(name.as_str()),
                resource => {
                    // The claims of a StatefulSet begin with the name of their template.
                    let claim = name.strip_prefix("queue-").filter(|_| resource == "persistentvolumeclaims");
                    let name = claim.unwrap_or(name);
                    names
                        .iter()
                        .any(|pipeline| name.strip_prefix(pipeline).is_some_and(|rest| rest.starts_with('-')))
                }
            };
            ensure!(is_known, "the operator wrote {write:?}");
        }
        Ok(())
    }

    /// Every object with the operator's label belongs to a pipeline.
    async fn check_owners(&self) -> Result<()> {
        let pipelines = self.pipelines().await?;
        let uids: BTreeSet<String> = pipelines.values().filter_map(kube::ResourceExt::uid).collect();
        let selector = "app.kubernetes.io/managed-by=sluice-operator";
        let kinds = [
            kind_of::<StatefulSet>(),
            kind_of::<ConfigMap>(),
            kind_of::<Service>(),
            kind_of::<ServiceAccount>(),
        ];
        let objects = self.namespace.objects(&kinds, selector).await?;
        ensure!(objects.len() > 10, "only {} objects were made: no mutant came that far", objects.len());
        for (name, object) in objects {
            let owner = object.owner_references.unwrap_or_default().into_iter().next().map(|owner| owner.uid);
            ensure!(owner.as_ref().is_some_and(|uid| uids.contains(uid)), "{name} belongs to {owner:?}");
        }
        Ok(())
    }

    async fn versions(&self, pipeline: &str) -> Result<BTreeMap<String, Option<String>>> {
        let kinds = [kind_of::<StatefulSet>(), kind_of::<ConfigMap>()];
        let objects = self.namespace.objects(&kinds, &pipeline_selector(pipeline)).await?;
        Ok(objects.into_iter().map(|(name, object)| (name, object.resource_version)).collect())
    }
}

/// Whether a mutant has a Kafka and needs no Secret.
fn can_run(number: u64) -> bool {
    !number.is_multiple_of(2)
}
