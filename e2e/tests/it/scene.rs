//! The scene of one test: its namespace, topic, database and pipeline, made before it and removed after it.
//!
//! Limits: these objects are the test's own. Which test may stop shared servers is decided by turns.

use std::panic::{AssertUnwindSafe, resume_unwind};

use e2e_fixtures::cluster::Evidence;
use e2e_fixtures::oracle::{Patience, Verdict};
use futures::FutureExt as _;
use kube::api::ApiResource;

use crate::account::assert_exactly_once;
use crate::environment::{self, Environment};
use crate::prelude::*;

/// Number of scenes that this process has opened, so that each has its own names.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// How long to wait for rows. A stall of a minute is longer than any back-off of the gateway.
pub const PATIENCE: Patience = Patience { deadline: Duration::from_mins(5), stall: Duration::from_mins(1) };

/// Time for a load to pass, for gateways to leave, for volumes to be drained by a Job, and for the operator to notice an outage. On an idle
/// machine, all but the last take seconds. The last takes two checks half a minute apart.
pub const FLOW: Duration = Duration::from_mins(3);

/// The usual load, spans of a kilobyte a second: several messages a second and partition, and little of two shared cores.
pub const SPANS_PER_SECOND: u64 = 2_000;

/// Spans that must come between two steps: two seconds of the usual load.
pub const SPANS_BETWEEN: u64 = 2 * SPANS_PER_SECOND;

/// A small load, spans a second: enough to notice a missing or doubled span at any step.
pub const FEW_PER_SECOND: u64 = 1_000;

/// As [`SPANS_BETWEEN`], of the small load.
pub const FEW_BETWEEN: u64 = 2 * FEW_PER_SECOND;

/// UIDs by the names of pods.
pub type Uids = BTreeMap<String, String>;

/// Whether there are as many pods as before with the same names, and each is a new one.
pub fn are_others(now: &Uids, before: &Uids) -> bool {
    now.keys().eq(before.keys()) && now.iter().all(|(name, uid)| before.get(name) != Some(uid))
}

/// Everything that one test has of its own.
pub struct Scene {
    pub environment: Environment,
    pub namespace: Namespace,
    pub topic: Topic,
    pub database: Database,
    pub pipeline: Pipeline,
    pub producer: Producer,
}

/// The objects until now, which are always removed.
#[derive(Default)]
struct Made {
    namespace: Option<Namespace>,
    topic: Option<(Topic, String)>,
    database: Option<Database>,
}

/// Runs `body` in a new scene with a topic of `partitions`; collects evidence if it fails, and removes everything.
pub fn run(
    test: &str,
    uses: Uses,
    partitions: i32,
    body: impl AsyncFnOnce(&mut Scene) -> Result<()>,
) -> Result<()> {
    block_on(async {
        let turn = uses.turn().await?;
        let environment = Environment::resolve().await?;
        let cluster = environment.cluster.clone();
        say::progress(test, "begins");
        let mut made = Made::default();
        let played = async {
            let mut scene = open(environment, test, partitions, &mut made).await?;
            body(&mut scene).await
        };
        let played = AssertUnwindSafe(played).catch_unwind().await;
        let failure = match &played {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:?}")),
            Err(panic) => Some(panic_text(panic.as_ref())),
        };
        if let Some(failure) = &failure {
            let namespace = made.namespace.as_ref().map_or("", |namespace| namespace.name());
            collect(&Evidence::of(&cluster, test)?, namespace, failure).await;
            turn.failed(failure);
        }
        // Only this test's objects are removed, so the next test may begin, unless this test's own operator must remove them.
        let turn = (uses != Uses::Servers).then_some(turn);
        let removed = made.remove().await;
        drop(turn);
        // At once, because an interrupted run never prints the messages of its failed tests.
        say::progress(test, &failure.map_or("passed".to_owned(), |failure| format!("failed: {failure}")));
        match played {
            Ok(outcome) => outcome.and(removed),
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// Collects the evidence of a failure. An error in that is only printed, because it is not the failure.
async fn collect(evidence: &Evidence, namespace: &str, failure: &str) {
    let noted = evidence.note("failure.txt", failure);
    let collected = if namespace.is_empty() { Ok(()) } else { evidence.collect(namespace).await };
    say::progress("evidence", &format!("kept in {}", evidence.folder().display()));
    for error in [noted.err(), collected.err()].into_iter().flatten() {
        say::error(&format!("evidence is incomplete: {error:#}"));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without words"))
}

async fn open(environment: Environment, test: &str, partitions: i32, made: &mut Made) -> Result<Scene> {
    let name = unique_name(test);
    let namespace = Namespace::create(&environment.cluster, &name).await?;
    made.namespace = Some(namespace.clone());
    let settings = Settings {
        name: "traces".to_owned(),
        brokers: vec![environment.kafka.pods.clone()],
        topic: name.clone(),
        clickhouse: environment.clickhouse_pods.url.clone(),
        database: name.replace('-', "_"),
        image: environment.gateway_image.clone(),
        storage_class: None,
    };
    let topic = Topic::create(&environment.kafka.host, &settings.topic, partitions).await?;
    made.topic = Some((topic.clone(), settings.consumer_group()));
    let database = Database::create(&environment.server, &settings.database).await?;
    made.database = Some(database.clone());
    let producer = Producer::new(&environment.kafka.host, Compression::default(), Run::fresh())?;
    let pipeline = Pipeline::new(&namespace, settings);
    Ok(Scene { environment, namespace, topic, database, pipeline, producer })
}

/// A name that no other test has or had: the name of a terminating namespace cannot be used again.
fn unique_name(test: &str) -> String {
    let test: String = test.replace('_', "-").chars().take(30).collect();
    let test = test.trim_end_matches('-');
    format!("e2e-{test}-{:x}-{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed))
}

impl Made {
    /// Removes all of it, the pipeline first. Continues after a failure and returns the first.
    async fn remove(self) -> Result<()> {
        let mut removed = Ok(());
        if let Some(namespace) = self.namespace {
            removed = removed.and(namespace.delete().await);
        }
        if let Some((topic, group)) = self.topic {
            removed = removed.and(topic.delete().await).and(topic.delete_group(&group).await);
        }
        if let Some(database) = self.database {
            removed = removed.and(database.delete().await);
        }
        removed.context("remove what the test made")
    }
}

impl Scene {
    /// Puts a front between `ClickHouse` and this scene's gateways, which must not exist yet. The local stack's pods must reach this
    /// machine. Faults of the front affect no other test.
    pub async fn front(&mut self) -> Result<SinkFront> {
        self.environment.local_clickhouse_only()?;
        let server = environment::servers().await?.clickhouse.url;
        let upstream = server.strip_prefix("http://").context("ClickHouse's URL is not http")?;
        let front = SinkFront::start_on(NODE_ADDRESS, upstream).await?;
        let settings = Settings { clickhouse: front.url(), ..self.pipeline.settings().clone() };
        self.pipeline = Pipeline::new(&self.namespace, settings);
        Ok(front)
    }

    /// Makes the Secret of the `ClickHouse` user that gateways use.
    pub async fn apply_credentials(&self) -> Result<()> {
        let clickhouse = &self.environment.clickhouse_pods;
        self.namespace.apply_credentials(CREDENTIALS, &clickhouse.user, &clickhouse.password).await
    }

    /// Makes the Secret and the pipeline, with `change` merged over its spec, and waits until it is Ready.
    pub async fn start(&self, change: &Value) -> Result<()> {
        self.apply_credentials().await?;
        self.change(change).await.map(drop)
    }

    /// Applies the pipeline, with `change` merged over its spec, and waits until it is Ready.
    pub async fn change(&self, change: &Value) -> Result<TracePipelineStatus> {
        self.pipeline.apply(change).await?;
        self.pipeline.wait_ready(READY).await
    }

    pub async fn start_default(&self) -> Result<()> {
        self.start(&json!({})).await
    }

    /// All partitions of the topic, with spans of `shape`.
    pub fn feed(&self, shape: Shape, spans_per_second: Option<u64>) -> Feed {
        let numbered = Feed::numbered(self.topic.name(), self.topic.partitions());
        Feed { shape, spans_per_second, ..numbered }
    }

    /// A background load of numbered spans.
    pub fn load(&self, spans_per_second: u64) -> Load {
        Load::start(&self.producer, self.feed(Shape::Numbered, Some(spans_per_second)))
    }

    /// As [`Self::load`]; returns once `rows` rows are stored.
    pub async fn flowing_load(&self, spans_per_second: u64, rows: u64, deadline: Duration) -> Result<Load> {
        let load = self.load(spans_per_second);
        self.wait_rows(rows, deadline).await.map(|()| load)
    }

    /// Ends a load, and checks that each of its spans has one row.
    pub async fn end(&self, load: Load) -> Result<()> {
        self.assert_nothing_lost(&load.stop().await?).await.map(drop)
    }

    pub async fn assert_same_gateways(&self, before: &Uids) -> Result<()> {
        let after = self.pipeline.gateways().uids().await?;
        ensure!(after == *before, "the gateways are {after:?}, were {before:?}");
        Ok(())
    }

    pub async fn wait_other_gateways(&self, before: &Uids, deadline: Duration) -> Result<()> {
        let what = "other gateways in place of all";
        self.pipeline.gateways().wait(what, deadline, |now| are_others(now, before)).await
    }

    /// Waits until the pipeline has no objects of these kinds.
    pub async fn wait_without(&self, kinds: &[ApiResource], deadline: Duration) -> Result<()> {
        let selector = pipeline_selector(self.pipeline.name());
        until("end of what the pipeline had", deadline, async || {
            let left = self.namespace.objects(kinds, &selector).await?;
            Ok(Seen::when(left.is_empty(), || format!("{:?}", left.keys())))
        })
        .await
    }

    pub fn oracle(&self) -> Oracle {
        self.database.oracle(TABLE, self.producer.run())
    }

    pub async fn wait_rows(&self, rows: u64, deadline: Duration) -> Result<()> {
        let oracle = self.oracle();
        until(&format!("{rows} rows"), deadline, async || {
            let stored = oracle.rows().await?;
            Ok(Seen::when(stored >= rows, || format!("{stored} rows")))
        })
        .await
    }

    /// Waits until `load` had `more` spans acknowledged from now on.
    pub async fn wait_acked(&self, load: &Load, more: u64, deadline: Duration) -> Result<()> {
        let wanted = load.acked() + more;
        until(&format!("{wanted} acknowledged spans"), deadline, async || {
            let acked = load.acked();
            Ok(Seen::when(acked >= wanted, || format!("{acked} acknowledged")))
        })
        .await
    }

    /// Waits until all of `sent` is stored and committed. Nothing may be lost, doubled or foreign, and no gateway may report that something
    /// was, or may be. With either value of `delivery.commit`, a row is in the table once, as long as the table's window has its token.
    pub async fn assert_nothing_lost(&self, sent: &Sent) -> Result<Verdict> {
        ensure!(sent.doubtful.is_empty(), "Kafka did not take every message: {:?}", sent.failure);
        // After this, no INSERT is on its way that could double a row after the count. Before it, each count would read a table that is not complete.
        self.wait_committed().await?;
        let verdict = self.oracle().wait_until_complete(sent, PATIENCE, |_| {}).await?;
        let report = serde_json::to_string(&verdict).context("write the verdict")?;
        say::progress(self.namespace.name(), &report);
        ensure!(verdict.lost == 0, "{} of {} spans are lost", verdict.lost, verdict.spans);
        ensure!(verdict.doubled == 0, "{} of {} rows are there again", verdict.doubled, verdict.rows);
        ensure!(verdict.foreign == 0, "{} rows are of spans that were not produced", verdict.foreign);
        assert_exactly_once(&self.namespace).await?;
        Ok(verdict)
    }

    pub async fn wait_committed(&self) -> Result<()> {
        let group = self.pipeline.settings().consumer_group();
        until(&format!("group {group} without lag"), PATIENCE.deadline, async || {
            let lag = self.topic.lag(&group).await?;
            Ok(Seen::when(lag.messages == 0, || format!("{lag:?}")))
        })
        .await
    }
}
