//! What is said of a pipeline whose gateways accept OTLP themselves: whether one of them does, and where.

use super::{
    derived::whole_mib,
    progress::{Progress, named},
    verdict::Verdict,
};
use crate::{
    facts::Observed,
    ground::words::{form, plural},
    names::Names,
    observed::{FULL_SECONDS, FullVolumeSeen, Silence},
    otlp_service::OtlpService,
    pipeline::Intent,
    scale::Standing,
};
use sluice_crds::{
    OtlpSource, TracePipeline,
    status::{condition, reason},
};
use sluice_gateway_config::{ByteSize, VolumeLimit};

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

/// Gateways that insert nothing of what is in their logs, while other gateways insert, that cannot read a log, or whose volume is full. Only they can
/// insert it.
pub(super) fn standing(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    pipeline.spec.source.otlp.as_ref()?;
    let (wanted, names) = (observed.workload.as_ref()?.wanted, Names::of(pipeline).ok()?);
    let standing = match &observed.scaling.standing {
        Some(seen) => of_logs(&names, wanted, (seen, observed)),
        None => match said_before(pipeline).filter(|_| wanted > 0) {
            Some(said) if is_unasked(observed) => {
                return Some(Progress::waiting(reason::SINK_UNAVAILABLE, said.to_owned()));
            }
            // What gateways say of their volumes is known from the first look on.
            said => {
                let kept = said.map(without_full).filter(|kept| !kept.is_empty());
                kept.map(str::to_owned).into_iter().collect()
            }
        },
    };
    let full = full(pipeline, wanted, observed);
    let message = standing.into_iter().chain(full).collect::<Vec<_>>().join("; ");
    (!message.is_empty()).then(|| Progress::waiting(reason::SINK_UNAVAILABLE, message))
}

/// Whether the operator has not asked each gateway yet.
fn is_unasked(observed: &Observed) -> bool {
    observed.silent.iter().any(|silent| silent.how == Silence::NotAsked)
}

/// What is said of full volumes, behind the pods.
const FULL: &str = ": the queue volume is full of requests";

/// A message of [`standing`] without what it says of full volumes.
fn without_full(message: &str) -> &str {
    let Some((before, _)) = message.split_once(FULL) else { return message };
    before.rsplit_once("; ").map_or("", |(of_logs, _)| of_logs)
}

/// Gateways whose volume has no room for requests, with its claim, its size, the limit and what helps.
fn full(pipeline: &TracePipeline, wanted: u32, observed: &Observed) -> Option<String> {
    let lasts = |seen: &&FullVolumeSeen| seen.seconds >= FULL_SECONDS && seen.ordinal < wanted;
    let full: Vec<_> = observed.full_volumes.iter().filter(lasts).collect();
    let named_volume = |seen: &FullVolumeSeen| {
        let mut claims = observed.volumes.claims.iter();
        let capacity = claims.find(|claim| claim.ordinal == seen.ordinal).and_then(|claim| claim.capacity);
        let size = capacity.map(|bytes| whole_mib(ByteSize::bytes(bytes)));
        let size = size.unwrap_or_else(|| pipeline.spec.queue.size.clone());
        let limit = match (seen.limit, seen.bytes_max) {
            (VolumeLimit::Segments, _) => ", whose logs have as many files as they may".to_owned(),
            (VolumeLimit::Device, _) => ", whose file system has no room".to_owned(),
            (VolumeLimit::Bytes, 0) => String::new(),
            (VolumeLimit::Bytes, most) => {
                format!(", up to {} of it for requests", whole_mib(ByteSize::bytes(most)))
            }
        };
        format!("{pod} (claim queue-{pod} of {size}{limit})", pod = seen.name)
    };
    let pods = named(full.iter().copied().map(named_volume).collect())?;
    let field = more_room(&full);
    Some(format!(
        "{pods}{FULL} that are not inserted, so clients have to send again. If SinkReachable is True, clients send \
         more than ClickHouse takes: add gateways (replicas, or scaling.minReplicas in Auto) or increase {field}"
    ))
}

/// The fields that give requests more room. A larger volume has no more files.
fn more_room(full: &[&FullVolumeSeen]) -> &'static str {
    let of_files = full.iter().filter(|seen| seen.limit == VolumeLimit::Segments).count();
    match of_files {
        0 => "queue.size",
        all if all == full.len() => "source.otlp.logs",
        _ => "queue.size and source.otlp.logs",
    }
}

/// What is said of logs that stand still.
fn of_logs(names: &Names, wanted: u32, (seen, observed): (&Standing, &Observed)) -> Vec<String> {
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
    stuck.into_iter().chain(unreadable).collect()
}

/// An operator that starts needs samples of some minutes before it knows of such gateways. Until then, what an earlier one wrote into `Ready` holds.
/// With this reason, it is of [`standing`], or it repeats `SinkReachable`, or is of the schema.
fn said_before(pipeline: &TracePipeline) -> Option<&str> {
    let status = pipeline.status.as_ref()?;
    let of = |kind: &str| status.condition(kind);
    let (ready, sink) = (of(condition::READY)?, of(condition::SINK_REACHABLE)?);
    let is_of_gateways = sink.status != "False" || sink.reason == reason::INSERTS_FAILING;
    let is_of_schema = of(condition::SCHEMA_READY).is_some_and(|schema| schema.status == "False");
    let is_own = ready.reason == reason::SINK_UNAVAILABLE && ready.message != sink.message;
    (is_own && is_of_gateways && !is_of_schema).then_some(ready.message.as_str())
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
