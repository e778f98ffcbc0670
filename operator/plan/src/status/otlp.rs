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
use sluice_crds::{
    OtlpSource, TracePipeline,
    status::{condition, reason},
};

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

/// Gateways that insert nothing of what is in their logs, while other gateways insert, or that cannot read a log. Only they can insert it.
pub(super) fn standing(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    pipeline.spec.source.otlp.as_ref()?;
    let (wanted, names) = (observed.workload.as_ref()?.wanted, Names::of(pipeline).ok()?);
    let Some(seen) = &observed.scaling.standing else {
        return said_before(pipeline).filter(|_| wanted > 0);
    };
    let pods = |ordinals: &[u32]| {
        let staying = ordinals.iter().filter(|ordinal| **ordinal < wanted);
        named(staying.map(|ordinal| format!("{}-{ordinal}", names.gateway())).collect())
    };
    let stuck = pods(&seen.stuck).map(|pods| {
        let failed = observed.insert_error.as_ref().filter(|failed| seen.stuck.contains(&failed.ordinal));
        let why = failed.map_or_else(|| "see the logs of the pod".to_owned(), |failed| failed.error.words());
        format!(
            "{pods}: no request that waits on the volume was inserted for 3 minutes, while other gateways insert, and none of them reads \
             this volume; {why}"
        )
    });
    let unreadable = pods(&seen.unreadable).map(|pods| {
        format!(
            "{pods}: a log on the volume cannot be read, and the requests in it are not inserted; check the volume and its disk, and see the \
             logs of the pod"
        )
    });
    let message = stuck.into_iter().chain(unreadable).collect::<Vec<_>>().join("; ");
    (!message.is_empty()).then(|| Progress::waiting(reason::SINK_UNAVAILABLE, message))
}

/// An operator that starts needs samples of some minutes before it knows of such gateways. Until then, what an earlier one wrote into `Ready` holds.
/// With this reason, it is of [`standing`], or it repeats `SinkReachable`, or is of the schema.
fn said_before(pipeline: &TracePipeline) -> Option<Progress> {
    let conditions = &pipeline.status.as_ref()?.conditions;
    let of = |kind: &str| conditions.iter().find(|one| one.type_ == kind);
    let (ready, sink) = (of(condition::READY)?, of(condition::SINK_REACHABLE)?);
    let is_of_gateways = sink.status != "False" || sink.reason == reason::INSERTS_FAILING;
    let is_of_schema = of(condition::SCHEMA_READY).is_some_and(|schema| schema.status == "False");
    let is_own = ready.reason == reason::SINK_UNAVAILABLE && ready.message != sink.message;
    (is_own && is_of_gateways && !is_of_schema)
        .then(|| Progress::waiting(reason::SINK_UNAVAILABLE, ready.message.clone()))
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
