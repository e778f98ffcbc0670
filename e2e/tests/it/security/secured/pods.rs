//! A pipeline whose every connection is secured by Secrets, as pods. The operator reads its partitions, the schema Job makes its table, and
//! its gateways read and insert, all of them with TLS, a client certificate, user and password. If the password changes, only its Secret
//! has to be changed.

use e2e_stack::clickhouse;
use k8s_openapi::api::core::v1::Secret;
use sluice_crds::SecretUse;
use sluice_plan::KeptVersions;
use sluice_plan::names::INSTANCE;

use super::broker::{Broker, PASSWORD, USER};
use super::front::Front;
use super::keys::{AUTHORITY, CERTIFICATE, Keys, NOT_READ, STRIMZI_USER};
use crate::prelude::*;

const NEXT_PASSWORD: &str = "stable battery";

/// Servers of one scene, which its pods reach only through fronts.
pub struct Own {
    folder: PathBuf,
    keys: Keys,
    broker: Broker,
    /// The reserved port of the broker's listener behind the front.
    _port: Port,
    pub kafka: Front,
    pub clickhouse: Front,
}

impl Own {
    /// Starts them, makes the Secrets of the clients, and makes the scene's topic, load and pipeline use them.
    pub async fn start(scene: &mut Scene) -> Result<Own> {
        // Pods of another cluster cannot reach this machine.
        scene.environment.local_clickhouse_only()?;
        let folder = files::temporary(scene.namespace.name())?;
        let keys = Keys::make(&folder)?;
        keys.apply(&scene.namespace, "ca", &AUTHORITY, &[]).await?;
        keys.apply(&scene.namespace, "client", &CERTIFICATE, &[]).await?;
        scene.namespace.apply_credentials("kafka", USER, PASSWORD).await?;
        let port = Port::hold()?;
        let listen = port.address();
        let kafka = Front::start(NODE_ADDRESS, &listen, None).await?;
        let broker = Broker::start(&folder, &keys, Some([&*listen, &*kafka.address]), None).await?;
        let clickhouse = Front::start(NODE_ADDRESS, clickhouse::HOST_URL, Some((&keys, true))).await?;
        let settings = Settings {
            brokers: vec![kafka.address.clone()],
            clickhouse: clickhouse.url(),
            ..scene.pipeline.settings().clone()
        };
        scene.topic = Topic::create(&broker.host, &settings.topic, scene.topic.partitions()).await?;
        scene.producer = Producer::new(&broker.host, Compression::default(), Run::fresh())?;
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        Ok(Own { folder, keys, broker, _port: port, kafka, clickhouse })
    }

    /// A spec that names the Secrets, with `change` merged over it. The user of `ClickHouse` is the scene's own.
    pub fn spec(change: &Value) -> Value {
        let (ca, client) = (json!({"name": "ca"}), json!({"name": "client"}));
        let tls = json!({"caSecretRef": ca, "clientCertificateSecretRef": client});
        let sasl = json!({"mechanism": "ScramSha512", "secretRef": {"name": "kafka"}});
        let secured = json!({
            "source": {"kafka": {"tls": tls, "sasl": sasl}},
            "sink": {"clickhouse": {"tls": tls}},
        });
        merged(&secured, change)
    }

    /// From now on, Kafka asks new connections for another password; existing connections stay.
    pub fn change_password(&self) -> Result<()> {
        self.broker.change_password(NEXT_PASSWORD)
    }

    /// Writes the new password into the Secret.
    pub async fn apply_changed_password(scene: &Scene) -> Result<()> {
        scene.namespace.apply_credentials("kafka", USER, NEXT_PASSWORD).await
    }

    /// Ends the servers and removes their data. Without this call, their data stays.
    pub fn remove(self) -> Result<()> {
        let folder = self.folder.clone();
        drop(self);
        fs::remove_dir_all(&folder).context("remove the test's files")
    }
}

#[test]
#[ignore = "group secrets"]
fn a_pipeline_connects_by_its_secrets_and_follows_one_that_changes() -> Result<()> {
    scene::run("secured_pods", Uses::Servers, 4, async |scene: &mut Scene| {
        let own = Own::start(scene).await?;
        own.keys.apply(&scene.namespace, "strimzi-user", &STRIMZI_USER, &NOT_READ).await?;
        // In Strimzi's form: a certificate under Strimzi's keys, and a password without a user.
        let certificate =
            json!({"name": "strimzi-user", "certificateKey": "user.crt", "privateKeyKey": "user.key"});
        let kafka = json!({"tls": {"clientCertificateSecretRef": certificate}, "sasl": {"username": USER}});
        scene.start(&Own::spec(&json!({"replicas": 2, "source": {"kafka": kafka}}))).await?;
        made_by_job(scene).await?;
        refused(scene).await?;
        let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;
        touched(scene).await?;
        let rolled = changed(scene, &own).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        scene.end(load).await?;
        scene.assert_same_gateways(&rolled).await.context("after they were replaced once")?;
        away(scene, &own).await?;
        // Now, because its servers can still be reached.
        scene.pipeline.delete(FLOW).await?;
        own.remove()
    })
}

/// A pipeline whose certificate the broker rejects, and one that does not trust the broker's certificate, wait; the others run on.
async fn refused(scene: &Scene) -> Result<()> {
    scene.namespace.apply_credentials("stranger", USER, "battery staple").await?;
    let stranger = json!({"secretRef": {"name": "stranger"}});
    // The authority of the broker's certificate is not a public one.
    let doubter = json!({"caSecretRef": null});
    for (name, change, reason) in [
        ("source-refuses-user", json!({"consumerGroup": "stranger", "sasl": stranger}), reason::AUTH_FAILED),
        ("source-without-tls", json!({"consumerGroup": "doubter", "tls": doubter}), reason::TLS_FAILED),
    ] {
        let settings = Settings { name: name.to_owned(), ..scene.pipeline.settings().clone() };
        let pipeline = Pipeline::new(&scene.namespace, settings);
        pipeline.apply(&Own::spec(&json!({"source": {"kafka": change}}))).await?;
        reached(&pipeline, name, READY, says(reason)).await?;
        pipeline.delete(FLOW).await?;
    }
    Ok(())
}

/// The broker accepts connections and does not answer.
async fn away(scene: &Scene, own: &Own) -> Result<()> {
    own.broker.rest(true)?;
    let told = reached(&scene.pipeline, "source-away", READY, says(reason::TIMEOUT)).await;
    own.broker.rest(false)?;
    told?;
    scene.pipeline.wait_ready(READY).await.map(drop)
}

fn says(reason: &str) -> impl Fn(&TracePipelineStatus) -> bool {
    move |status| has(status, kind::SOURCE_REACHABLE, reason)
}

/// The Job made the table through the front: the spec has no other address.
async fn made_by_job(scene: &Scene) -> Result<()> {
    let found = scene.pipeline.condition(kind::SCHEMA_READY).await?;
    ensure!((found.status.as_str(), found.reason.as_str()) == ("True", reason::OK), "{}", found.message);
    let of_pipeline = format!("{INSTANCE}={}", scene.pipeline.name());
    let jobs = scene.namespace.api::<Job>().list(&ListParams::default().labels(&of_pipeline)).await;
    let jobs = jobs.context("list Jobs")?.items;
    let succeeded = jobs.iter().filter_map(|job| job.status.as_ref()?.succeeded).sum::<i32>();
    ensure!((jobs.len(), succeeded) == (1, 1), "{succeeded} of {} Jobs succeeded", jobs.len());
    Ok(())
}

/// A label and a key that gateways do not use: the operator records that it has seen them, and replaces no gateway. `made_by_job` has seen
/// one Job; another one would have another name.
async fn touched(scene: &Scene) -> Result<()> {
    let secrets = scene.namespace.api::<Secret>();
    let workload = async || scene.pipeline.workload().await?.context("there is no StatefulSet");
    let (gateways, before) = (scene.pipeline.gateways().uids().await?, workload().await?);
    let change = json!({"metadata": {"labels": {"touched": "true"}}, "stringData": {"not-used": "x"}});
    for name in ["kafka", "ca", "client"] {
        merge(&secrets, name, change.clone()).await?;
    }
    let after = until("a note of what is kept", READY, async || {
        let workload = workload().await?;
        let noted = KeptVersions::noted_by(&workload);
        let is_noted = |of| noted.of(of).is_some();
        let uses = [SecretUse::KafkaUser, SecretUse::KafkaAuthorities, SecretUse::ClickHouseCertificate];
        let is_whole = uses.into_iter().all(is_noted);
        Ok(if is_whole { Seen::Done(workload) } else { Seen::NotYet(format!("{noted:?}")) })
    })
    .await?;
    ensure!(after.metadata.generation == before.metadata.generation, "another spec: {:?}", after.spec);
    ensure!(scene.pipeline.gateways().uids().await? == gateways, "gateways were replaced");
    made_by_job(scene).await
}

/// New connections need the new password. Each gateway is replaced exactly once; returns the new ones.
async fn changed(scene: &Scene, own: &Own) -> Result<Uids> {
    let before = scene.pipeline.gateways().uids().await?;
    own.change_password()?;
    Own::apply_changed_password(scene).await?;
    let mut seen: BTreeMap<String, BTreeSet<String>> =
        before.iter().map(|(name, uid)| (name.clone(), [uid.clone()].into())).collect();
    let after = until("other gateways in place of all", READY, async || {
        let uids = scene.pipeline.gateways().uids().await?;
        for (name, uid) in &uids {
            seen.entry(name.clone()).or_default().insert(uid.clone());
        }
        let is_new = are_others(&uids, &before);
        let status = scene.pipeline.get().await?.status.unwrap_or_default();
        Ok(if is_new && is_complete(&status, 2) {
            Seen::Done(uids)
        } else {
            Seen::NotYet(format!("{uids:?}, {:?}", status.rollout))
        })
    })
    .await?;
    ensure!(seen.values().all(|uids| uids.len() == 2), "each was to be made again once: {seen:?}");
    Ok(after)
}
