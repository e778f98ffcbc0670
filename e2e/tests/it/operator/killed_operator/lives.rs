//! Operators that are killed after their first write, and a record of what happened during one change.
//!
//! Place in the flow: under both tests. Owner: the test that made it; a process is killed when its life is dropped. Limits: [`LIVES_MAX`]
//! processes for one change.

use std::convert::Infallible;

use e2e_fixtures::cluster::or_gone;
use e2e_fixtures::local_operator::{Orders, Program, RELEASE, admit};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::interval;

use crate::own_operator::program;
use crate::prelude::*;

/// Writes of a process that are forwarded before it is killed.
const WORKS_MAX: usize = 1;

/// Most processes for one change. The longest, a rollout, takes about ten writes. Each new process may also write a changed lag, so another
/// one is killed every two seconds while pods are replaced. More than this is a loop.
const LIVES_MAX: usize = 80;

/// With fewer kills, a change was not interrupted before its end.
const KILLS_MIN: usize = 2;

/// How often pods and status are polled: a gateway lives for seconds, and a status until the next process.
const LOOK: Duration = Duration::from_millis(300);

/// Operators that are killed after their first write.
pub struct Lives<'a> {
    pub scene: &'a Scene,
    kubeconfig: PathBuf,
    program: PathBuf,
    token: String,
    /// Kubeconfig and log of each of them.
    pub folder: PathBuf,
    begun: usize,
}

/// Pods and drains that were seen during one change.
#[derive(Debug, Default)]
pub struct Course {
    pods: BTreeMap<String, BTreeSet<String>>,
    /// Drain states of the gateways, and the targets of the drains.
    drains: Vec<(DrainState, u32)>,
}

impl<'a> Lives<'a> {
    pub async fn prepare(scene: &'a Scene) -> Result<Lives<'a>> {
        let folder = files::temporary(scene.namespace.name())?;
        Ok(Lives {
            scene,
            kubeconfig: scene.environment.kubeconfig()?,
            program: program(),
            token: admit(&scene.namespace).await?,
            folder,
            begun: 0,
        })
    }

    /// Runs one operator after the other until `done` ends, which makes the change and waits until it is carried out.
    pub async fn act(&mut self, action: &str, done: impl Future<Output = Result<()>>) -> Result<Course> {
        let scene = self.scene;
        let folder = self.folder.display().to_string();
        let (mut deaths, mut course) = (Vec::new(), Course::default());
        let ended = tokio::select! {
            done = done => done,
            failed = Box::pin(self.go_on(&mut deaths)) => failed.map(|never| match never {}),
            failed = look(scene, &mut course) => failed.map(|never| match never {}),
        };
        let kills = deaths.len();
        let died_of = deaths.join(", ");
        ended.with_context(|| {
            format!("{action}: {kills} operators died of {died_of}; their logs are in {folder}")
        })?;
        say::progress(scene.namespace.name(), &format!("{action}: {kills} kills: {died_of}"));
        ensure!(kills >= KILLS_MIN, "{action} took {kills} kills, which proves nothing: {died_of}");
        Ok(course)
    }

    /// Runs one operator until `done` ends; nothing is recorded.
    pub async fn undisturbed(&mut self, done: impl Future<Output = Result<()>>) -> Result<()> {
        let mut operator = self.begin(None).await?;
        tokio::select! {
            done = done => done,
            ended = outlive(&mut operator.program) => match ended? {},
        }
    }

    /// Ends only with an error. Records in `deaths` after which write each operator was killed.
    async fn go_on(&mut self, deaths: &mut Vec<String>) -> Result<Infallible> {
        for _ in 0..LIVES_MAX {
            let mut operator = self.begin(Some(WORKS_MAX)).await?;
            tokio::select! {
                () = operator.front.wait_last() => {}
                ended = outlive(&mut operator.program) => match ended? {},
            }
            let writes = operator.front.writes();
            // SIGKILL: the answer to its write is still held, and never arrives.
            drop(operator);
            let works: Vec<String> = writes.iter().filter(|write| write.call.works()).map(line).collect();
            ensure!(works.len() == WORKS_MAX, "one operator wrote {works:?}");
            deaths.extend(works);
        }
        bail!("nothing is done after {LIVES_MAX} operators: they write for ever")
    }

    async fn begin(&mut self, works_max: Option<usize>) -> Result<LocalOperator> {
        self.free_lease().await?;
        self.begun += 1;
        let identity = format!("life-{}", self.begun);
        let orders = Orders {
            kubeconfig: &self.kubeconfig,
            namespace: &self.scene.namespace,
            program: &self.program,
            gateway_image: &self.scene.environment.gateway_image,
            identity: &identity,
        };
        LocalOperator::start_with(orders, &self.folder, self.token.clone(), works_max).await
    }

    /// A killed operator does not release its Lease; the next one would wait 15 s.
    async fn free_lease(&self) -> Result<()> {
        let leases = self.scene.namespace.api::<Lease>();
        let deleted = or_gone(leases.delete(RELEASE, &DeleteParams::default()).await);
        deleted.context("delete the Lease of an operator that was killed")
    }
}

/// Returns an error when the operator has ended by itself.
async fn outlive(operator: &mut Program) -> Result<Infallible> {
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        operator.check()?;
    }
}

fn line(write: &Write) -> String {
    let name = write.name.as_deref().unwrap_or("-");
    format!("{} {name} ({})", write.call, write.status)
}

async fn look(scene: &Scene, course: &mut Course) -> Result<Infallible> {
    let pipelines = scene.namespace.api::<TracePipeline>();
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        for (name, uid) in scene.pipeline.gateways().uids().await? {
            course.pods.entry(name).or_default().insert(uid);
        }
        let found = pipelines.get_opt(scene.pipeline.name()).await.context("get the pipeline")?;
        let scaling = found.and_then(|pipeline| pipeline.status?.scaling);
        let drain = scaling.and_then(|scaling| scaling.drain);
        course.drains.extend(drain.map(|drain| (drain.state, drain.target)));
    }
}

impl Course {
    /// This many different pods, one after the other, had the first gateway's name, the second one's, and so on.
    pub fn ensure_pods(&self, expected: &[usize]) -> Result<()> {
        let seen: Vec<usize> = self.pods.values().map(BTreeSet::len).collect();
        ensure!(seen == expected, "{expected:?} pods were to come by, but there were {:?}", self.pods);
        Ok(())
    }

    /// Gateways above `target` were drained, and no drain was late.
    pub fn ensure_drained(&self, target: u32) -> Result<()> {
        let is_late = self.drains.iter().any(|(state, _)| *state == DrainState::Waiting);
        let is_told = self.drains.contains(&(DrainState::Draining, target));
        ensure!(is_told && !is_late, "gateways left like this: {:?}", self.drains);
        Ok(())
    }
}
