//! What is said of a pipeline whose gateways accept OTLP themselves: whether one of them does, and where.

use super::{
    progress::{Progress, named},
    verdict::Verdict,
};
use crate::{
    facts::Observed,
    ground::words::{form, plural},
    names::Names,
    otlp_service::OtlpService,
    pipeline::Intent,
};
use sluice_crds::{OtlpSource, TracePipeline, status::reason};

/// Whether a gateway accepts OTLP.
pub(super) fn reachable(pipeline: &TracePipeline, otlp: &OtlpSource, observed: &Observed) -> Verdict {
    let seen = observed.workload.as_ref();
    let ready = seen.map_or(0, |seen| seen.ready);
    if ready > 0 {
        let accept = form(ready, "accepts", "accept");
        let message = format!("{} {accept} OTLP at {}", plural(ready, "gateway"), place(pipeline, otlp));
        return Verdict::yes(reason::OK, message);
    }
    let refused = "until then, clients get no answer and have to send again";
    match seen.filter(|seen| seen.wanted > 0) {
        _ if Intent::of(pipeline) == Intent::Suspend => {
            Verdict::no(reason::SUSPENDED, "the pipeline is suspended: no gateway accepts OTLP")
        }
        Some(seen) => Verdict::no(
            reason::REPLICAS_NOT_READY,
            format!(
                "0 of {} {} ready, so that none accepts OTLP; {refused}",
                plural(seen.wanted, "gateway"),
                form(seen.wanted, "is", "are")
            ),
        ),
        None => Verdict::unknown(reason::NOT_PROBED, "no gateway runs that could accept OTLP"),
    }
}

/// Gateways that insert nothing of what is in their logs, while other gateways insert. Only they can insert it.
pub(super) fn standing(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    let (watched, names) = (observed.scaling.watched.as_ref()?, Names::of(pipeline).ok()?);
    let pods = watched.stuck_gateways.iter().map(|ordinal| format!("{}-{ordinal}", names.gateway()));
    let pods = named(pods.collect())?;
    let why = match &observed.insert_error {
        Some(error) => format!("; {}", error.words()),
        None => "; see the logs of the pod".to_owned(),
    };
    let message = format!(
        "{pods}: no request that waits on the volume was inserted for 2 minutes, while other gateways insert, and none of them reads this \
         volume{why}"
    );
    Some(Progress::waiting(reason::SINK_UNAVAILABLE, message))
}

/// What `Ready` says of gateways that run.
pub(super) fn running(replicas: u32, pipeline: &TracePipeline, otlp: &OtlpSource) -> String {
    let accept = form(replicas, "accepts", "accept");
    format!("{} {accept} OTLP at {}", plural(replicas, "gateway"), place(pipeline, otlp))
}

/// Host and ports of the Service; with a name that cannot be one, only the ports.
fn place(pipeline: &TracePipeline, otlp: &OtlpSource) -> String {
    let [grpc, http] = otlp.listeners().ports();
    let ports = [grpc.map(|port| (port, "gRPC")), http.map(|port| (port, "HTTP"))];
    let ports = ports.into_iter().flatten().map(|(port, protocol)| format!(":{port} ({protocol})"));
    let ports = ports.collect::<Vec<_>>().join(" and ");
    let host = Names::of(pipeline).map(|names| OtlpService::host(&names.otlp(), names.namespace()));
    host.map_or_else(|_| ports.clone(), |host| format!("{host}{ports}"))
}
