//! Every version of a pipeline, from a watch of the API server: also versions that are over before a poll could see them.

use std::pin::pin;

use e2e::gitops::states;
use futures::StreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use tokio::sync::watch;

use super::{seen_as_meant, stored};
use crate::prelude::*;

/// How long (seconds) one watch request lasts: shorter than the client's timeout for a silent server.
const WATCH_SECONDS: u32 = 20;

/// The versions of one pipeline from now on. Watches until it is dropped.
pub struct Passing {
    pipeline: Pipeline,
    versions: watch::Receiver<Versions>,
    /// Aborted when dropped.
    _watching: JoinSet<()>,
}

/// The versions until now, and the error that ended the watch.
type Versions = (Vec<Value>, Option<String>);

impl Passing {
    /// Starts watching; the pipeline need not exist yet.
    pub async fn of(pipeline: &Pipeline) -> Result<Passing> {
        let api = pipeline.namespace().dynamic::<TracePipeline>();
        let now = api.list(&ListParams::default()).await.context("list pipelines")?;
        let from = now.metadata.resource_version.context("a list without a version")?;
        let (told, versions) = watch::channel(Versions::default());
        let name = pipeline.name().to_owned();
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            if let Err(error) = follow(&api, &name, from, &told).await {
                told.send_modify(|(_, ended)| *ended = Some(format!("{error:#}")));
            }
        });
        Ok(Passing { pipeline: pipeline.clone(), versions, _watching: watching })
    }

    /// Checks that a version that `says` accepts had exactly the conditions of this state, and that Argo CD and kstatus report the expected
    /// results.
    pub async fn was(&self, name: &str, says: impl Fn(&TracePipeline) -> bool) -> Result<()> {
        let stored = stored(name)?;
        let version = until(&format!("a version in the state {name}"), READY, async || {
            let (versions, ended) = self.versions.borrow().clone();
            let mut other = Vec::new();
            for version in versions {
                let typed: TracePipeline =
                    serde_json::from_value(version.clone()).context("read a version")?;
                let differs = stored.as_ref().and_then(|stored| states::difference(stored, &version));
                match differs {
                    None if says(&typed) => return Ok(Seen::Done(version)),
                    Some(differs) if says(&typed) => other.push(differs),
                    _ => other.push(told(&typed)),
                }
            }
            Ok(Seen::NotYet(format!("{ended:?} after {other:?}")))
        })
        .await?;
        seen_as_meant(&self.pipeline, name, version).await
    }
}

async fn follow(
    api: &Api<DynamicObject>,
    name: &str,
    mut from: String,
    told: &watch::Sender<Versions>,
) -> Result<()> {
    let this = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    loop {
        let mut events = pin!(api.watch(&this, &from).await.context("watch the pipeline")?);
        // If a watch ends, the next one continues behind the last version, so that none is missed.
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(version) | WatchEvent::Modified(version) => {
                    from = version.resource_version().context("a version without a number")?;
                    let version = serde_json::to_value(version).context("write a version")?;
                    told.send_modify(|(versions, _)| versions.push(version));
                }
                WatchEvent::Deleted(version) => {
                    from = version.resource_version().context("a version without a number")?;
                }
                WatchEvent::Bookmark(mark) => from = mark.metadata.resource_version,
                WatchEvent::Error(status) => bail!("the watch ended: {status:?}"),
            }
        }
    }
}

/// A version in a few words, for the error of a missed deadline.
fn told(version: &TracePipeline) -> String {
    let generation = version.metadata.generation;
    let Some(status) = &version.status else { return format!("{generation:?} without a status") };
    let word = |kind: &str| condition(status, kind).map(|one| format!("{}/{}", one.status, one.reason));
    format!(
        "generation {generation:?}, observed {:?}: {:?} {:?}",
        status.observed_generation,
        word(kind::READY),
        word(kind::RECONCILING)
    )
}
