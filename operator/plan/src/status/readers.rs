//! Partitions that no gateway reads: the reason of `Ready` while gateways run as planned, and an addition to every other reason, such as that
//! of gateways that leave.

use super::progress::Progress;
use crate::{
    facts::Observed,
    ground::words::{form, plural},
    observed::{UNREAD_SECONDS, UnreadSeen},
    pipeline::gateway_config,
    planned::Plan,
};
use sluice_crds::{
    TracePipeline,
    status::{condition, reason},
};

/// Ends the words about partitions without a reader.
pub(super) const NO_READER: &str = "no reader";

/// Gateways run, and some of the partitions have no reader.
pub(super) fn missing(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Option<Progress> {
    let unread = lasting(pipeline, observed)?;
    let group = gateway_config::consumer_group(plan.names(), pipeline.spec.source.kafka.as_ref()?);
    let message = format!(
        "{}: no gateway owns them. If this stays, see which member has them: \
         kafka-consumer-groups.sh --describe --members --group {group}. If none has, add a gateway (kubectl scale)",
        words(unread)
    );
    Some(Progress::waiting(reason::PARTITIONS_UNREAD, message))
}

/// The same in a few words, while something else is said of the pipeline.
pub(super) fn meanwhile(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    lasting(pipeline, observed).map(words)
}

/// Partitions that have had no reader for long. A new operator keeps saying it while it has just begun to count.
fn lasting<'a>(pipeline: &TracePipeline, observed: &'a Observed) -> Option<&'a UnreadSeen> {
    let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let is_said =
        conditions.into_iter().any(|one| one.type_ == condition::READY && one.message.contains(NO_READER));
    observed.unread.as_ref().filter(|unread| is_said || unread.seconds >= UNREAD_SECONDS)
}

fn words(UnreadSeen { partitions, of, named, .. }: &UnreadSeen) -> String {
    let others = partitions.saturating_sub(u32::try_from(named.len()).unwrap_or(u32::MAX));
    let named = match (named.join(", "), others) {
        (named, _) if named.is_empty() => String::new(),
        (named, 0) => format!(" ({named})"),
        (named, others) => format!(" ({named} and {others} more)"),
    };
    format!("{partitions} of {} {} {NO_READER}{named}", plural(*of, "partition"), form(*of, "has", "have"))
}
