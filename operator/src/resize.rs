//! Gives gateways more memory in place: asks the API server for what `sluice_plan::resize` decides, pod by pod, under a field manager of its
//! own. What it does not take is told in the status and is no failure: nothing else waits for it.

use crate::{
    api_error::{ApiError, ErrorClass},
    observe::Facts,
    reconcile::World,
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
    resize::{Answer, Ask, answered, is_asking, step},
};
use tracing::{info, warn};

/// Field manager of the memory of pods.
pub const MEMORY: &str = "sluice-operator/memory";
/// What stands in the status is asked for after so many seconds.
const ASKING_SECONDS: u64 = 2;
/// The longest answer of the API server that is told, in characters.
const ANSWER_CHARS_MAX: usize = 400;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server gave no answer that decides anything.
    #[error("cannot resize the memory of the pod {pod} to {memory} in place")]
    Ask {
        /// Its name.
        pod: String,
        /// What it was to be given.
        memory: String,
        /// What the API server said.
        source: ApiError,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Ask { source, .. } => source.class(),
        }
    }
}

/// Asks for what the status says that is asked for, and says what it is to say next.
pub async fn look_after(
    pipeline: &TracePipeline,
    plan: &Plan,
    facts: &Facts,
    world: &World,
) -> Result<Vec<MemoryResize>, Error> {
    let written = pipeline.status.as_ref().map_or(&[][..], |status| &status.memory_resizes);
    let gateways = facts.observed.workload.as_ref().map_or(&[][..], |workload| &workload.gateways);
    let mut step = step(&pipeline.spec, gateways, written, world.shared.scaling.now());
    let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), plan.names().namespace());
    for asked in &step.ask {
        let answer = ask(&api, asked, world).await?;
        answered(&mut step.next, asked, answer);
    }
    Ok(step.next)
}

/// The next look is due after so many seconds.
pub fn look_seconds(resizes: Option<&[MemoryResize]>) -> u64 {
    if resizes.is_some_and(is_asking) { ASKING_SECONDS } else { u64::MAX }
}

/// Applies the limit to the very pod: with its uid in it, another one of that name is not touched.
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
        Err(source) => Err(Error::Ask { pod: pod.clone(), memory: memory.clone(), source: source.into() }),
    }
}

/// Whether asking once more would bring the same answer.
fn is_decided(code: u16) -> bool {
    matches!(code, 400 | 403 | 404 | 405 | 422)
}

fn refused(status: &Status, pod: &str) -> Answer {
    // A server that has no such subresource says so without naming an object.
    let names_pod = status.details.as_ref().is_some_and(|details| details.name == pod);
    match status.code {
        404 if names_pod => Answer::Unclear,
        404 | 405 => Answer::Refused(
            "this Kubernetes does not resize pods in place (1.33 or later does); increase gateway.resources.memory instead"
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
