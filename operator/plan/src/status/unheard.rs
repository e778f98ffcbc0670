//! What `Ready` said of gateways that are not ready and that the operator has not heard yet, as after a start of the operator. It holds until the
//! operator has asked them: a cause that is not known yet has not passed.

use crate::{facts::Observed, observed::PodSeen};
use sluice_crds::{TracePipeline, status::condition};

/// The former message of `Ready`, if it has this reason and names a cause of such a gateway.
pub(super) fn said_before(pipeline: &TracePipeline, observed: &Observed, reason: &str) -> Option<String> {
    let ready = pipeline.status.as_ref()?.condition(condition::READY)?;
    let before = Some(ready).filter(|before| before.status == "False" && before.reason == reason)?;
    let is_named = |pod: &PodSeen| is_unheard(pod) && before.message.contains(&format!("{}: ", pod.name));
    let pods = observed.workload.as_ref().map_or(&[][..], |workload| &workload.pods);
    pods.iter().any(is_named).then(|| before.message.clone())
}

/// A pod that Kubernetes has a cause for needs none of its gateway.
fn is_unheard(pod: &PodSeen) -> bool {
    pod.is_unheard && pod.going.is_none() && pod.trouble.is_none()
}
