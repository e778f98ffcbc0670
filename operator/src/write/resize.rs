//! Gives OOM-killed gateways more memory in place. `sluice_plan::size::resize` decides; this file resizes pod by pod, under its own field manager.
//! A refusal by the API server is reported in the status. It does not fail the reconcile, since nothing else depends on it.

use crate::{
    read::observe::Facts,
    world::{World, error::Error},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::Status,
};
use serde_json::json;
use sluice_crds::{MemoryResize, TracePipeline};
use sluice_plan::{
    GatewaySeen, Plan,
    names::GATEWAY_CONTAINER,
    size::resize::{Answer, Ask, answered, is_asking, step},
};
use tracing::{info, warn};

/// Field manager of the memory of pods.
pub const MEMORY: &str = "sluice-operator/memory";
/// A resize that is in the status is requested after this many seconds.
const ASKING_SECONDS: u64 = 2;
/// The longest answer of the API server that the status shows, in characters.
const ANSWER_CHARS_MAX: usize = 400;

/// Requests the resizes that the status announces, and returns the resizes for the next status.
pub async fn look_after(
    pipeline: &TracePipeline,
    plan: &Plan,
    facts: &Facts,
    world: &World,
) -> Result<Vec<MemoryResize>, Error> {
    let written = pipeline.status.as_ref().map_or(&[][..], |status| &status.memory_resizes);
    let gateways = facts.observed.workload.as_ref().map_or(&[][..], |workload| &workload.gateways);
    let mut step = step(&pipeline.spec, gateways, written, world.now());
    let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), plan.names().namespace());
    for asked in &step.ask {
        let answer = ask(&api, asked, world).await?;
        answered(&mut step.next, asked, answer);
    }
    Ok(step.next)
}

/// Seconds until the next reconcile is due.
pub fn look_seconds(resizes: Option<&[MemoryResize]>) -> u64 {
    if resizes.is_some_and(is_asking) { ASKING_SECONDS } else { u64::MAX }
}

/// Applies the limit to exactly this pod: the uid protects another pod of that name.
async fn ask(api: &Api<Pod>, ask: &Ask, world: &World) -> Result<Answer, Error> {
    let Ask { pod, uid, memory } = ask;
    let size = json!({"requests": {"memory": memory}, "limits": {"memory": memory}});
    let part = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "uid": uid},
        "spec": {"containers": [{"name": GATEWAY_CONTAINER, "resources": size}]},
    });
    world.shared.metrics.wrote("Pod");
    match api.patch_resize(pod, &PatchParams::apply(MEMORY).force(), &Patch::Apply(&part)).await {
        Ok(now) => {
            info!(%pod, %memory, "an OOM-killed gateway gets more memory in place");
            Ok(GatewaySeen::of(&now).map_or(Answer::Unclear, |now| Answer::Taken(Box::new(now))))
        }
        Err(kube::Error::Api(status)) if is_decided(status.code) => {
            let answer = refused(&status, pod);
            if let Answer::Refused(why) = &answer {
                warn!(%pod, %memory, %why, "the API server refuses to give a gateway more memory in place");
            }
            Ok(answer)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Answer::Unclear),
        Err(source) => Err(Error::request(
            format!("cannot resize the memory of the pod {pod} to {memory} in place"),
            source,
        )),
    }
}

/// Whether the same request would get the same answer again.
fn is_decided(code: u16) -> bool {
    matches!(code, 400 | 403 | 404 | 405 | 422)
}

fn refused(status: &Status, pod: &str) -> Answer {
    // A server without the subresource `resize` answers 404 without naming an object.
    let names_pod = status.details.as_ref().is_some_and(|details| details.name == pod);
    match status.code {
        404 if names_pod => Answer::Unclear,
        404 | 405 => Answer::Refused(
            "this Kubernetes does not resize pods in place (1.33 or later does); increase gateway.resources.limits.memory instead"
                .to_owned(),
        ),
        _ => Answer::Refused(status.message.chars().take(ANSWER_CHARS_MAX).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;

    #[test]
    fn a_pod_that_is_gone_is_told_from_a_server_that_cannot() {
        let answer = |code, name: &str| {
            let details: StatusDetails = serde_json::from_value(json!({"name": name})).unwrap();
            let status = Status { code, details: Some(details), ..Status::failure("exceeded quota: q", "") };
            refused(&status, "a-0")
        };
        assert_eq!(answer(404, "a-0"), Answer::Unclear);
        for code in [404, 405] {
            assert!(
                matches!(answer(code, ""), Answer::Refused(why) if why.contains("1.33 or later")),
                "{code}"
            );
        }
        assert_eq!(answer(403, "a-0"), Answer::Refused("exceeded quota: q".to_owned()));
    }
}
