//! `kubectl sluice` with a running pipeline: each command prints the right facts, also as JSON, and exits with the status in its help.

use e2e_stack::programs;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use sluice_gateway_config::pod_uid::POD_UID_HEADER;
use sluice_plan::names::{ADMIN_PORT, CONTROL_PORT, KEPT_OUT};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::environment;
use crate::prelude::*;

/// Partitions of the topic; the pipeline has one gateway for four of them.
const PARTITIONS: i32 = 8;

/// Spans that the pipeline reads: enough that the group has committed every partition.
const SPANS: u64 = 20_000;

struct Ended {
    code: Option<i32>,
    out: String,
    told: String,
}

impl Ended {
    /// Its output as JSON; fails unless the exit status is `code`.
    fn json(&self, code: i32) -> Result<Value> {
        self.has(code, "")?;
        serde_json::from_str(&self.out).with_context(|| format!("understand {:?}", self.out))
    }

    /// Fails unless its output contains `part` and the exit status is `code`.
    fn has(&self, code: i32, part: &str) -> Result<()> {
        ensure!(self.code == Some(code), "ended with {:?}: {}{}", self.code, self.out, self.told);
        ensure!(
            self.out.contains(part) || self.told.contains(part),
            "{part:?} is missing in {}{}",
            self.out,
            self.told
        );
        Ok(())
    }
}

struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Plugin {
    fn of(scene: &Scene) -> Result<Plugin> {
        let program = environment::program("SLUICE_KUBECTL_PROGRAM", programs::KUBECTL);
        let kubeconfig = scene.environment.kubeconfig()?;
        Ok(Plugin { program, kubeconfig, namespace: scene.namespace.name().to_owned() })
    }

    async fn run(&self, words: &str) -> Result<Ended> {
        let mut command = tokio::process::Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig).args(["-n", &self.namespace]).args(words.split(' '));
        let output = command
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("run kubectl sluice {words}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended { code: output.status.code(), out: text(&output.stdout), told: text(&output.stderr) })
    }

    /// Waits until a command ends with success, and `is_so` accepts its output.
    async fn wait(&self, what: &str, words: &str, is_so: impl Fn(&str) -> bool) -> Result<Ended> {
        until(what, READY, async || {
            let ended = self.run(words).await?;
            let is_done = ended.code == Some(0) && is_so(&ended.out);
            Ok(if is_done { Seen::Done(ended) } else { Seen::NotYet(ended.out + &ended.told) })
        })
        .await
    }
}

#[test]
#[ignore = "group operator"]
fn the_plugin_tells_and_drains_a_pipeline_that_runs() -> Result<()> {
    scene::run("the_plugin_tells_and_drains", Uses::Servers, PARTITIONS, async |scene: &mut Scene| {
        let plugin = Plugin::of(scene)?;
        plugin.run("status traces").await?.has(66, "there is no pipeline traces")?;
        scene.start(&with_nothing_deprecated()).await?;
        let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..SPANS).await?;
        scene.assert_nothing_lost(&sent).await?;
        tells(&plugin).await?;
        audits(scene, &plugin).await?;
        let found = letters(scene, &plugin).await;
        scene.topic.delete_dead_letters().await?;
        found?;
        drains(scene, &plugin).await
    })
}

/// The pipelines of other tests still have the former fields of resources, about which `status` warns.
fn with_nothing_deprecated() -> Value {
    let (requests, limits) = (json!({"cpu": "100m"}), json!({"memory": "256Mi"}));
    json!({"gateway": {"resources": {"memory": null, "cpuRequest": null, "requests": requests, "limits": limits}}})
}

/// `status`, `lag` and `spool`, for people and for programs.
async fn tells(plugin: &Plugin) -> Result<()> {
    let is_ready = |out: &str| out.contains("2 of 2 gateways ready");
    plugin.wait("a status that says ready", "status traces", is_ready).await?;
    let story = plugin.run("status --json").await?.json(0)?;
    ensure!(story[0]["name"] == "traces" && story[0]["toDo"] == json!([]), "{story}");
    let is_read = |one: &Value| one["lagMessages"] == 0 && one["gateway"].is_string();
    let are_read = |out: &str| {
        let lag: Value = serde_json::from_str(out).unwrap_or_default();
        lag["partitions"].as_array().is_some_and(|all| all.len() == 8 && all.iter().all(is_read))
    };
    plugin.wait("every partition told, and none behind", "lag traces --json", are_read).await?;
    plugin.run("lag traces").await?.has(0, "0 messages behind in 8 partitions")?;
    let spool = plugin.run("spool traces --json").await?.json(0)?;
    let gateways = spool["gateways"].as_array().context("no gateways")?;
    let is_known = |one: &Value| one["blocks"] == 0 && one["volumeFreeBytes"].as_u64() > Some(0);
    ensure!(gateways.len() == 2 && gateways.iter().all(is_known), "{spool}");
    plugin.run("spool traces").await?.has(0, "traces-gateway-1")
}

/// `audit` of complete rows, and of nothing; neither leaves a pod.
async fn audits(scene: &Scene, plugin: &Plugin) -> Result<()> {
    let report = plugin.run("audit traces --json").await?.json(0)?;
    let totals = &report["totals"];
    ensure!(totals["spans"] == SPANS && totals["missing"] == 0 && totals["doubled"] == 0, "{totals}");
    let text = plugin.run("audit traces --partition 3").await?;
    text.has(0, "nothing is missing or doubled")?;
    ensure!(text.out.starts_with("Kafka against ") && text.out.contains("/3 "), "{}", text.out);
    // The gateway checks the form of an option; the plugin passes on its exit code and message.
    plugin.run("audit traces --since yesterday").await?.has(64, "--since")?;
    plugin.run("audit others").await?.has(66, "there is no pipeline others")?;
    until("no pod of an audit", READY, async || {
        let left: Vec<Pod> = scene.namespace.list("app.kubernetes.io/component=audit").await?;
        let left: Vec<_> = left.iter().map(Pod::name_any).collect();
        Ok(Seen::when(left.is_empty(), || left.join(", ")))
    })
    .await
}

/// `dead-letter`, with a message that cannot be read.
async fn letters(scene: &Scene, plugin: &Plugin) -> Result<()> {
    let mut cut_short = good("cut short");
    cut_short.truncate(cut_short.len() - 4);
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &scene.environment.kafka.host)
        .create()
        .context("make a producer")?;
    let record = FutureRecord::<(), _>::to(scene.topic.name()).partition(3).payload(&cut_short);
    let sent = producer.send(record, Duration::from_secs(30)).await;
    sent.map_err(|(error, _)| error).context("produce a message that cannot be read")?;
    let list = "dead-letter traces list --json --limit 5";
    let letter = plugin.wait("a letter", list, |out| !out.is_empty()).await?.json(0)?;
    ensure!(letter["partition"] == 3 && letter["topic"] == scene.topic.name(), "{letter}");
    plugin.run("dead-letter traces show --limit 1").await?.has(0, scene.topic.name())?;
    let would_be = format!("would be replayed to {}/3", scene.topic.name());
    plugin.run("dead-letter traces replay --dry-run --limit 1").await?.has(0, &would_be)?;
    // The gateway rejects a wrong option; the plugin passes on its exit status.
    plugin.run("dead-letter traces list --nonsense").await?.has(64, "--nonsense")
}

/// `drain` until nothing is held, while the operator leaves the gateway alone, and `undrain`.
async fn drains(scene: &Scene, plugin: &Plugin) -> Result<()> {
    let found = scene.pipeline.gateways().first().await?;
    let pod = found.name_any();
    has_partitions(plugin, &pod, |count| count == PARTITIONS / 2).await?;
    takes_commands_of_who_names_it(&found).await?;
    let held = plugin.run(&format!("drain {pod} --json --timeout 60")).await?.json(0)?;
    ensure!(held["blocks"] == 0 && held["uncommitted"] == 0, "{held}");
    has_partitions(plugin, &pod, |count| count == 0).await?;
    ensure!(is_kept_out(scene, &pod).await?, "the operator is not told that {pod} is kept out");
    plugin.run(&format!("drain {pod} --resume")).await?.has(0, "takes part again")?;
    ensure!(!is_kept_out(scene, &pod).await?, "{pod} is still marked as kept out");
    has_partitions(plugin, &pod, |count| count > 0).await?;
    plugin.run("drain traces-gateway-77").await?.has(66, "there is no pod traces-gateway-77")
}

/// From another address than its own, a gateway accepts drain requests only if they name its pod, whatever the network allows.
async fn takes_commands_of_who_names_it(pod: &Pod) -> Result<()> {
    let uid = pod.uid().context("a pod without a UID")?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("a pod without an address")?;
    for (port, path, named, expected) in [
        (CONTROL_PORT, "/drain", None, "404"),
        (CONTROL_PORT, "/drain", Some("00000000-0000-4000-8000-000000000000"), "421"),
        (ADMIN_PORT, "/drain", Some(&*uid), "404"),
        // It has already joined its group.
        (CONTROL_PORT, "/resume", Some(&*uid), "200"),
    ] {
        let name = named.map(|uid| format!("{POD_UID_HEADER}: {uid}\r\n")).unwrap_or_default();
        let request = format!("POST {path} HTTP/1.1\r\nHost: gateway\r\n{name}Connection: close\r\n\r\n");
        let mut stream =
            TcpStream::connect((&*address, u16::try_from(port)?)).await.context("connect to the pod")?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.split(' ').nth(1) == Some(expected), "{port} {path} {named:?}: {answer}");
    }
    Ok(())
}

/// Waits until every partition has a gateway, and this gateway has a number of partitions that `wanted` accepts.
async fn has_partitions(plugin: &Plugin, pod: &str, wanted: impl Fn(i32) -> bool) -> Result<()> {
    until(&format!("the partitions of {pod}"), READY, async || {
        let lag = plugin.run("lag traces --json").await?.json(0)?;
        let owners: Vec<Option<&str>> = lag["partitions"]
            .as_array()
            .context("no partitions")?
            .iter()
            .map(|one| one["gateway"].as_str())
            .collect();
        let count = i32::try_from(owners.iter().filter(|owner| **owner == Some(pod)).count())?;
        Ok(Seen::when(owners.iter().all(Option::is_some) && wanted(count), || format!("{owners:?}")))
    })
    .await
}

async fn is_kept_out(scene: &Scene, pod: &str) -> Result<bool> {
    let pods = scene.pipeline.gateways().list().await?;
    let pod = pods.iter().find(|one| one.name_any() == pod).with_context(|| format!("{pod} is gone"))?;
    Ok(pod.annotations().contains_key(KEPT_OUT))
}
