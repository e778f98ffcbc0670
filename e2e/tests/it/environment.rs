//! Where the tests run: cluster, servers and image, from the environment variables that `cargo verify` sets.

use std::panic::{AssertUnwindSafe, resume_unwind};

use e2e_fixtures::cluster::{Operator, Paused};
use e2e_fixtures::login::Login;
use e2e_stack::TargetArgs;
use e2e_stack::images::ImageStore;
use e2e_stack::programs::{Form, Program};
use e2e_stack::target::{Address, Target};
use futures::FutureExt as _;

use crate::prelude::*;

/// Variable with the gateway's image, as a pod refers to it.
const GATEWAY_IMAGE: &str = "SLUICE_GATEWAY_IMAGE";

const HINT: &str = "these tests are run by `cargo verify`, which brings up what they need";

/// The parts that every test shares.
pub struct Environment {
    pub cluster: Cluster,
    pub operator: Operator,
    /// `ClickHouse` for programs of this machine.
    pub server: Server,
    /// `ClickHouse` for pods.
    pub clickhouse_pods: Login,
    pub kafka: Address,
    pub gateway_image: String,
    target: Target,
}

impl Environment {
    /// Reads the variables and sends one request to every part, so that a missing one is reported once and clearly.
    pub async fn resolve() -> Result<Environment> {
        let gateway_image = std::env::var(GATEWAY_IMAGE)
            .ok()
            .with_context(|| format!("{GATEWAY_IMAGE} is not set: {HINT}"))?;
        let target = TargetArgs::from_environment().target()?;
        let resolved = target.resolve()?;
        let cluster = Cluster::connect(&resolved.kubeconfig).await.context(HINT)?;
        cluster.ensure_takes_pods().await?;
        let operator = Operator::find(&cluster).await.context(HINT)?;
        let server = Login::of(&resolved.clickhouse.host)?.server();
        let clickhouse_pods = Login::of_gateways(&resolved.clickhouse)?;
        ensure!(server.answers().await, "ClickHouse at {} does not answer: {HINT}", resolved.clickhouse.host);
        Ok(Environment {
            cluster,
            operator,
            server,
            clickhouse_pods,
            kafka: resolved.kafka,
            gateway_image,
            target,
        })
    }

    /// Kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        Ok(self.target.resolve()?.kubeconfig)
    }

    /// Where images are loaded for the cluster. An error if the cluster pulls its images.
    pub fn images(&self) -> Result<ImageStore> {
        let images = self.target.resolve()?.images;
        images.with_context(|| {
            format!("this test gives the cluster an image, which it pulls: {:?}", self.target)
        })
    }

    /// An error unless `ClickHouse` is the local stack's. A test can put a front only before that one.
    pub fn local_clickhouse_only(&self) -> Result<()> {
        ensure!(
            self.target.clickhouse.is_none(),
            "this test puts something in front of ClickHouse, which only the local stack lets it do: {:?}",
            self.target
        );
        Ok(())
    }
}

/// The file that the variable names, or a program of this checkout, which `cargo verify` has compiled.
pub fn program(variable: &str, compiled: Program) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| compiled.file(Form::Checked), PathBuf::from)
}

/// Runs a test to its end. Each test has a runtime of its own, with several threads.
pub fn block_on<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("start a runtime")?.block_on(test)
}

/// Runs `body` with the cluster and the servers while the installed operator is paused: with an operator of its own, at the same time as
/// such tests or alone.
pub fn without_operator<T>(
    uses: Uses,
    body: impl AsyncFnOnce(&Cluster, &Resolved) -> Result<T>,
) -> Result<T> {
    block_on(async {
        let turn = uses.turn().await?;
        let target = TargetArgs::from_environment().target()?.resolve()?;
        let cluster = Cluster::connect(&target.kubeconfig).await?;
        cluster.ensure_takes_pods().await?;
        let ran = while_operator_rests(&cluster, Box::pin(body(&cluster, &target))).await;
        if let Err(error) = &ran {
            turn.failed(&format!("{error:#}"));
        }
        ran
    })
}

/// Runs `body` in a namespace of the test's own, and removes the namespace.
pub async fn in_namespace(
    cluster: &Cluster,
    test: &str,
    body: impl AsyncFnOnce(&Namespace) -> Result<()>,
) -> Result<()> {
    let name = format!("e2e-{test}-{:x}", std::process::id());
    let namespace = Namespace::create(cluster, &name).await?;
    let played = Box::pin(body(&namespace)).await;
    namespace.delete().await.and(played)
}

/// Awaits `body` while the cluster has these objects without a namespace.
pub async fn with_objects(
    cluster: &Cluster,
    objects: &[Value],
    body: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut played = Ok(());
    for object in objects {
        played = played.and(cluster.apply_strictly(object).await.map(drop));
    }
    if played.is_ok() {
        played = body.await;
    }
    for object in objects {
        played = played.and(cluster.delete(object).await);
    }
    played
}

/// The paused operator, and the number of tests for which it is paused.
static RESTS: tokio::sync::Mutex<(usize, Option<Paused>)> = tokio::sync::Mutex::const_new((0, None));

/// Awaits `body` while the installed operator is paused. The first such test pauses it, and the last one resumes it. For tests that run
/// with an operator of their own, or alone.
pub async fn while_operator_rests<T>(cluster: &Cluster, body: impl Future<Output = Result<T>>) -> Result<T> {
    {
        let mut rests = RESTS.lock().await;
        if rests.1.is_none() {
            rests.1 = Some(Operator::pause_installed(cluster).await?);
        }
        rests.0 += 1;
    }
    let ran = AssertUnwindSafe(body).catch_unwind().await;
    let mut rests = RESTS.lock().await;
    rests.0 -= 1;
    if rests.0 == 0
        && let Some(paused) = rests.1.take()
    {
        paused.resume(cluster).await?;
    }
    drop(rests);
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Addresses of Kafka and `ClickHouse` for programs of this machine.
pub struct Servers {
    pub server: Server,
    pub kafka: String,
    pub clickhouse: Login,
}

impl Servers {
    /// Files with the user and the password of `ClickHouse`, as a gateway's config names them.
    pub fn credentials(&self, folder: &Path) -> Result<Value> {
        let (user, password) = (folder.join("ch-user"), folder.join("ch-password"));
        fs::write(&user, &self.clickhouse.user).context("write the user's name")?;
        fs::write(&password, &self.clickhouse.password).context("write the password")?;
        Ok(json!({"usernameFile": user, "passwordFile": password}))
    }
}

/// Only the servers, for tests that need no cluster.
pub async fn servers() -> Result<Servers> {
    let target = TargetArgs::from_environment().target()?;
    let resolved = target.resolve()?;
    let clickhouse = Login::of(&resolved.clickhouse.host)?;
    let server = clickhouse.server();
    ensure!(server.answers().await, "ClickHouse at {} does not answer: {HINT}", clickhouse.url);
    Ok(Servers { server, kafka: resolved.kafka.host, clickhouse })
}

/// Runs work that blocks its thread for seconds, outside of the runtime's threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("a thread that blocks for the test ended")?
}

/// Time for a pipeline to become Ready: schema Job, volumes and pods start in seconds, on busy cores in a minute.
pub const READY: Duration = Duration::from_mins(3);

#[test]
fn credentials_are_taken_out_of_a_url() {
    let apart = |url| Login::of(url).map(|login| (login.url, login.user, login.password)).unwrap();
    assert_eq!(apart("http://u:p@h:1"), ("http://h:1".into(), "u".into(), "p".into()));
    assert_eq!(apart("http://h:1"), ("http://h:1".into(), "default".into(), String::new()));
}
