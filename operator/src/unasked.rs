//! Takes back gateways that drain although nobody asked them to, as `sluice_plan::drain::undrain` decides. One that does not hear it, or
//! whose pod cannot be looked at, is asked at the next look.

use crate::{gateways::Gateway, observe::Facts, reconcile::World, replacement, report, scaling};
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

/// Gateways that are told at the same time: each costs the API server a request.
const TOLD_MAX: usize = 16;

/// Has gateways take part again that are not ready, and drain without being asked to. At rest all are ready, and nobody is asked. Only those
/// are waited for that answered a moment ago.
pub async fn take_back(pipeline: &TracePipeline, replicas: u32, facts: &Facts, world: &World) {
    let (Intent::Run, Ok(names)) = (Intent::of(pipeline), Names::of(pipeline)) else { return };
    let leaving = Leaving {
        drains: [scaling::written(pipeline), facts.observed.scaling.drain.as_ref()],
        replacing: [replacement::written(pipeline), facts.observed.volumes.replacing.as_ref()],
        replicas,
    };
    let suspects = suspects(&facts.pods, &leaving);
    let Some(look) = &facts.look else { return };
    let said = look.said.iter().filter(|said| suspects.contains(&said.gateway.ordinal));
    let said = said.map(|said| (said.gateway.ordinal, said.says)).collect();
    let pods: Api<Pod> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let told = stream::iter(drains(&said)).map(|(ordinal, _)| {
        let (pods, name, leaving) = (&pods, format!("{}-{ordinal}", names.gateway()), &leaving);
        async move {
            let (says, answer) = tell(pods, &name, leaving).await;
            (ordinal, says, answer)
        }
    });
    let answers: Vec<(u32, Says, Answer)> = told.buffer_unordered(TOLD_MAX).collect().await;
    // An older gateway does not say whether it did drain.
    let is_known =
        |(_, says, answer): &&(u32, Says, Answer)| (*says, *answer) == (Says::Drains, Answer::Done);
    let mut taken_back: Vec<u32> = answers.iter().filter(is_known).map(|(ordinal, ..)| *ordinal).collect();
    if taken_back.is_empty() {
        return;
    }
    taken_back.sort_unstable();
    let note = words(&taken_back);
    warn!(namespace = names.namespace(), pipeline = names.pipeline(), gateways = ?taken_back, "{note}");
    report::taken_back(pipeline, &note, &world.shared).await;
}

/// Has it take part again, unless its pod as it is now says otherwise: the copy may be from before a person has marked it, or from
/// before it was held. It is asked once more whether it drains: since it has said so, the operator may have told it to stay.
async fn tell(pods: &Api<Pod>, name: &str, leaving: &Leaving<'_>) -> (Says, Answer) {
    let Ok(Some(pod)) = pods.get_opt(name).await else { return (Says::Silent, Answer::Silent) };
    let Some(gateway) = Gateway::of(&pod).filter(|_| !suspects([&pod], leaving).is_empty()) else {
        return (Says::Silent, Answer::Gone);
    };
    match gateway.says().await {
        says @ (Says::Drains | Says::Nothing) => (says, gateway.request(Request::Resume).await),
        says @ (Says::TakesPart | Says::Silent) => (says, Answer::Silent),
    }
}
