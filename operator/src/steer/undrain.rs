//! Resumes gateways that drain although the operator did not ask them to, as `sluice_plan::drain::undrain` decides. If a gateway does not answer,
//! or its pod cannot be read, the next reconcile tries again.

use crate::{
    read::{gateways::Gateway, observe::Facts},
    world::{World, status},
    write::events,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use sluice_crds::TracePipeline;
use sluice_plan::{
    Intent, Names,
    drain::{
        Answer, Request,
        undrain::{Leaving, Says, drains, suspects, words},
    },
};
use tracing::warn;

/// Gateways that are resumed at the same time: each takes a request to the API server.
const RESUMED_MAX: usize = 16;

/// Resumes gateways that are not ready and drain without a request. If all gateways are ready, no gateway is asked. The reconcile waits only for
/// gateways that answered a moment ago.
pub async fn undrain(pipeline: &TracePipeline, replicas: u32, facts: &Facts, world: &World) {
    let (Intent::Run, Ok(names)) = (Intent::of(pipeline), Names::of(pipeline)) else { return };
    let leaving = Leaving {
        drains: [status::drain(pipeline), facts.observed.scaling.drain.as_ref()],
        replacing: [status::replacement(pipeline), facts.observed.volumes.replacing.as_ref()],
        replicas,
    };
    let suspects = suspects(&facts.pods, &leaving);
    let Some(look) = &facts.look else { return };
    let said = look.said.iter().filter(|said| suspects.contains(&said.gateway.ordinal));
    let said = said.map(|said| (said.gateway.ordinal, said.says)).collect();
    let pods: Api<Pod> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let resumed = stream::iter(drains(&said)).map(|(ordinal, _)| {
        let (pods, name, leaving) = (&pods, format!("{}-{ordinal}", names.gateway()), &leaving);
        async move {
            let (says, answer) = resume(pods, &name, leaving).await;
            (ordinal, says, answer)
        }
    });
    let answers: Vec<(u32, Says, Answer)> = resumed.buffer_unordered(RESUMED_MAX).collect().await;
    // An older gateway does not say whether it drained.
    let is_known =
        |(_, says, answer): &&(u32, Says, Answer)| (*says, *answer) == (Says::Drains, Answer::Done);
    let mut undrained: Vec<u32> = answers.iter().filter(is_known).map(|(ordinal, ..)| *ordinal).collect();
    if undrained.is_empty() {
        return;
    }
    undrained.sort_unstable();
    let note = words(&undrained);
    warn!(namespace = names.namespace(), pipeline = names.pipeline(), gateways = ?undrained, "{note}");
    events::undrained(pipeline, &note, &world.shared).await;
}

/// Resumes the gateway, unless its pod says otherwise now: the copy may be older than a mark by a person, or than the operator's finalizer. Asks
/// the gateway once more whether it drains: since its answer, the operator may have resumed it.
async fn resume(pods: &Api<Pod>, name: &str, leaving: &Leaving<'_>) -> (Says, Answer) {
    let Ok(Some(pod)) = pods.get_opt(name).await else { return (Says::Silent, Answer::Silent) };
    let Some(gateway) = Gateway::of(&pod).filter(|_| !suspects([&pod], leaving).is_empty()) else {
        return (Says::Silent, Answer::Gone);
    };
    match gateway.says().await {
        says @ (Says::Drains | Says::Nothing) => (says, gateway.request(Request::Resume).await),
        says @ (Says::TakesPart | Says::Silent) => (says, Answer::Silent),
    }
}
