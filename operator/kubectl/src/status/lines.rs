//! The lines of a pipeline's summary, one function each.

use crate::table::{size, time};
use sluice_crds::{
    EXACTLY_ONCE, ManagementState, QueueMode, QueueStatus, ScalingMode, TracePipeline, TracePipelineStatus,
};
use sluice_plan::words::{form, plural};

pub(super) fn runs(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let Some(wanted) = status.desired_replicas else { return "no gateways yet".into() };
    let of = |count: Option<u32>| count.unwrap_or(0);
    let image = status.image.as_deref().unwrap_or("image unknown");
    let other = status.operator_image.as_ref().map_or_else(String::new, |other| {
        format!(" (the operator's gateway image is {other}; gateway.upgradeStrategy: Automatic rolls it out)")
    });
    let updated = match of(status.updated_replicas) {
        updated if updated == wanted => String::new(),
        updated => format!(", {updated} on the newest revision"),
    };
    format!(
        "{} of {} ready{updated}; {image}{other}, {} each",
        of(status.ready_replicas),
        plural(wanted, "gateway"),
        pipeline.spec.gateway.resources.memory().text
    )
}

/// The edge; `None` if there is none.
pub(super) fn edge(pipeline: &TracePipeline, status: &TracePipelineStatus) -> Option<String> {
    let Some(edge) = pipeline.spec.edge.as_deref() else {
        return status.edge.map(|seen| format!("is removed, {} left", plural(seen.replicas, "pod")));
    };
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let ports = [(edge.grpc.enabled, edge.grpc.port, "gRPC"), (edge.http.enabled, edge.http.port, "HTTP")];
    let ports = ports.into_iter().filter(|(is_on, ..)| *is_on);
    let ports =
        ports.map(|(_, port, protocol)| format!("{port} ({protocol})")).collect::<Vec<_>>().join(" and ");
    let pods = status.edge.map_or_else(
        || "no pods yet".to_owned(),
        |seen| format!("{} of {} ready", seen.ready_replicas, plural(seen.replicas, "pod")),
    );
    Some(format!("{pods}; OTLP at {name}-edge:{ports}"))
}

pub(super) fn reads(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let Some(kafka) = &pipeline.spec.source.kafka else { return accepts(pipeline, status) };
    let topics = kafka.topics.iter().map(|name| {
        let known = status.topics.iter().find(|topic| topic.name == *name);
        known.map_or_else(
            || name.clone(),
            |topic| format!("{name} ({})", plural(topic.partitions, "partition")),
        )
    });
    let topics = topics.collect::<Vec<_>>().join(", ");
    let asked = kafka.consumer_group.as_deref();
    let group = status.consumer_group.as_deref().or(asked).unwrap_or_default();
    let group = if group.is_empty() { String::new() } else { format!(" as {group}") };
    let brokers = match &kafka.connection_ref {
        // Those that gateways were given, which a change of the connection may be about to replace.
        Some(named) if status.bootstrap_servers.is_empty() => format!("the TraceConnection {}", named.name),
        Some(named) => format!("{} (TraceConnection {})", status.bootstrap_servers.join(", "), named.name),
        None => kafka.bootstrap_servers.join(", "),
    };
    format!("{topics}{group} from {brokers}")
}

/// Where gateways accept OTLP, without Kafka.
fn accepts(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let Some(otlp) = &pipeline.spec.source.otlp else { return "nothing: the spec has no source".into() };
    let listeners = otlp.listeners();
    let protocols = [listeners.grpc.enabled.then_some("gRPC"), listeners.http.enabled.then_some("HTTP")];
    let at = protocols.into_iter().flatten().zip(&status.endpoints);
    let at = at.map(|(protocol, endpoint)| format!("{endpoint} ({protocol})")).collect::<Vec<_>>();
    let clients = match (listeners.tls, listeners.authentication) {
        (_, Some(_)) => "from clients with a token or a user",
        (Some(tls), None) if tls.client_ca_secret_ref.is_some() => "from clients with a certificate",
        (_, None) => "from every client that reaches it",
    };
    let secured = if listeners.tls.is_some() { "OTLP with TLS" } else { "OTLP" };
    let at = if at.is_empty() { "no Service yet".to_owned() } else { at.join(" and ") };
    format!("{secured} at {at}, {clients}")
}

pub(super) fn writes(pipeline: &TracePipeline) -> String {
    let clickhouse = &pipeline.spec.sink.clickhouse;
    let servers = match clickhouse.shards.len() {
        0 => match &clickhouse.connection_ref {
            Some(named) => format!("the servers of the TraceConnection {}", named.name),
            None => clickhouse.endpoints.join(", "),
        },
        1 => format!("one shard, {}", clickhouse.shards[0].endpoints.join(", ")),
        shards => {
            let names: Vec<&str> =
                clickhouse.shards.iter().filter_map(|shard| shard.name.as_deref()).collect();
            let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            format!("{shards} shards{names}")
        }
    };
    format!("{}.{} at {servers}", clickhouse.database, clickhouse.table)
}

pub(super) fn behind(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let Some(lag) = status.lag else { return "unknown".into() };
    let messages = match &pipeline.spec.source.otlp {
        Some(_) => format!("{} in the gateways' logs", plural(lag.messages, "request")),
        None => plural(lag.messages, "message"),
    };
    let seconds = status.scaling.as_ref().and_then(|scaling| scaling.lag_seconds);
    let as_time = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let as_time = as_time.map_or_else(String::new, |seconds| format!(", {} of arrivals", time(seconds)));
    format!("{messages}{as_time}")
}

pub(super) fn queue(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let line = match (status.queue, unknown_queue(pipeline, status)) {
        (Some(queue), None) => waiting(pipeline, queue)
            .unwrap_or_else(|| "nothing waits on the queue volumes of the gateways".into()),
        (None, None) => "no volume, or unknown".into(),
        (queue, Some(unknown)) => match queue.and_then(|queue| waiting(pipeline, queue)) {
            Some(before) => format!("{before} when it was last known; {unknown}"),
            None => unknown,
        },
    };
    match status.volumes.as_ref().map_or(0, |volumes| volumes.orphaned) {
        0 => line,
        orphaned => {
            format!("{line}; {} without a gateway may hold something", plural(orphaned, "queue volume"))
        }
    }
}

/// What waits, in words; `None` if nothing does.
fn waiting(pipeline: &TracePipeline, queue: QueueStatus) -> Option<String> {
    let bytes = size(u64::try_from(queue.bytes).unwrap_or(0));
    if pipeline.spec.source.otlp.is_some() {
        let words = "on the queue volumes, which are the only copy of what waits";
        return (queue.bytes > 0).then(|| format!("the logs have {bytes} {words}"));
    }
    (queue.blocks > 0).then(|| format!("{}, {bytes} on the queue volumes", plural(queue.blocks, "block")))
}

/// Why it is not known how much waits; `None` if it is known, or if no gateway is wanted. A gateway reads its volume only once it can use its
/// table, and is not ready before.
fn unknown_queue(pipeline: &TracePipeline, status: &TracePipelineStatus) -> Option<String> {
    let is_on = pipeline.spec.queue.mode == QueueMode::Spill;
    let wanted = status.desired_replicas.filter(|wanted| is_on && *wanted > 0)?;
    let why = match wanted.saturating_sub(status.ready_replicas.unwrap_or(0)) {
        0 if status.queue.is_some() => return None,
        0 => "not every gateway has said what waits on its volume".to_owned(),
        unready => format!(
            "{unready} of {} {} not ready and may not have read {} yet",
            plural(wanted, "gateway"),
            form(unready, "is", "are"),
            form(unready, "its volume", "their volumes")
        ),
    };
    Some(format!("{why}: how much waits is not known"))
}

/// That claims are to be kept while it is not known what is on their volumes, if that may be the only copy of rows.
pub(super) fn keep_claims(pipeline: &TracePipeline, status: &TracePipelineStatus) -> Option<String> {
    let unknown = unknown_queue(pipeline, status).filter(|_| pipeline.spec.has_only_copies_on_volumes())?;
    Some(format!("delete no claim of a queue volume, which may hold the only copy of rows: {unknown}"))
}

pub(super) fn delivery(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let promised = status.delivery.as_ref().map_or_else(
        || "unknown".into(),
        |delivery| match &delivery.reason {
            _ if delivery.guarantee == EXACTLY_ONCE => {
                format!("{EXACTLY_ONCE}: every row is in the table once")
            }
            Some(reason) => {
                format!("{}: no row is missing, some may be stored twice ({reason})", delivery.guarantee)
            }
            None => delivery.guarantee.clone(),
        },
    );
    let survives = status.delivery.as_ref().and_then(|delivery| delivery.durability.as_deref()).map(survives);
    // The guarantee covers messages that were read; these were never read.
    let lost = status.loss.as_ref().map(|loss| {
        let (messages, at) = (plural(loss.messages, "message"), loss.last_time.0);
        match &pipeline.spec.source.otlp {
            Some(_) => {
                format!("; but {messages} could not be read from damaged volumes, last noticed at {at}")
            }
            None => format!("; but Kafka deleted {messages} before they were read, last noticed at {at}"),
        }
    });
    promised + &survives.unwrap_or_default() + &lost.unwrap_or_default()
}

/// What stored rows survive, appended to the guarantee.
fn survives(durability: &str) -> String {
    let what = match durability {
        "Process" => "the end of the ClickHouse process, not a power failure of its host",
        "Fsync" => "a power failure of ClickHouse's host",
        "Quorum" => "the loss of a ClickHouse host",
        "Unknown" => return "; what it survives is unknown".into(),
        other => return format!("; what it survives is {other}"),
    };
    format!("; it survives {what}")
}

pub(super) fn size_of(pipeline: &TracePipeline, status: &TracePipelineStatus) -> String {
    let (spec, scaling) = (&pipeline.spec, status.scaling.as_ref());
    let why = scaling.map(|scaling| scaling.reason.as_str()).filter(|words| !words.is_empty());
    match (spec.scaling.mode, why) {
        (mode, Some(why)) => format!("{mode:?}: {why}"),
        (ScalingMode::External, None) => {
            "External: an HPA or another writer of the scale subresource decides".into()
        }
        (mode, None) => match spec.replicas {
            Some(replicas) => format!("{mode:?}: spec.replicas is {replicas}"),
            None if spec.source.otlp.is_some() => {
                format!("{mode:?}: 2 gateways, because spec.replicas is not set")
            }
            None => format!("{mode:?}: one gateway for {}", plural(spec.partitions_per_replica, "partition")),
        },
    }
}

/// The first line of what to do for an unmanaged pipeline, in case its owner forgot to manage it again.
pub(super) fn left_alone(pipeline: &TracePipeline) -> Option<String> {
    (pipeline.spec.management_state == ManagementState::Unmanaged).then(|| {
        "managementState is Unmanaged: the operator repairs, scales and changes nothing until you set it to Managed"
            .into()
    })
}

/// Fields that the next release does not read.
pub(super) fn deprecated(pipeline: &TracePipeline) -> impl Iterator<Item = String> {
    let found = pipeline.spec.gateway.resources.deprecated().into_iter();
    found.map(|one| {
        format!("{} is deprecated, and the next release does not read it: use {}", one.field, one.instead)
    })
}
