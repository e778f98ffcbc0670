//! Hanging transactions, as the condition `SourceReachable` reports them: gateways read nothing behind them, and lag does not count those
//! messages.
//!
//! `Ready` does not change, because the pipeline's objects are right and gateways read the other partitions.

use super::{coarse::rounded, messages::said_before, verdict::Verdict};
use crate::{
    facts::Observed,
    ground::words::plural,
    observed::{OPEN_SECONDS_MAX, OpenTransaction},
};
use sluice_crds::{
    TracePipeline,
    status::{condition, reason},
};

/// Partitions that are named in a message; the others are counted.
const NAMED_MAX: usize = 3;

/// Ages in messages: the largest that is not above the age. Few, because each changed message is a write of the status.
const AGES: [(u64, &str); 8] = [
    (OPEN_SECONDS_MAX, "16 min"),
    (30 * 60, "30 min"),
    (3_600, "1 h"),
    (3 * 3_600, "3 h"),
    (12 * 3_600, "12 h"),
    (86_400, "1 day"),
    (3 * 86_400, "3 days"),
    (7 * 86_400, "7 days"),
];

/// `None` while no transaction hangs. While no gateway answers, the former condition holds, as long as there are gateways.
pub(super) fn hanging(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let Some(open) = &observed.open_transactions else {
        return said_before(pipeline, observed, condition::SOURCE_REACHABLE, &[reason::TRANSACTION_HANGING]);
    };
    let kafka = pipeline.spec.source.kafka.as_ref()?;
    let hangs =
        |open: &&OpenTransaction| open.seconds > OPEN_SECONDS_MAX && kafka.topics.contains(&open.topic);
    let mut hanging: Vec<_> = open.iter().filter(hangs).collect();
    hanging.sort_unstable();
    let OpenTransaction { topic, partition, first_offset, .. } = hanging.first()?;
    let mut named: Vec<String> = hanging.iter().take(NAMED_MAX).map(|open| in_words(open)).collect();
    named.extend((hanging.len() > NAMED_MAX).then(|| format!("and {} more", hanging.len() - NAMED_MAX)));
    let broker = kafka.bootstrap_servers.first().map_or("", String::as_str);
    Some(Verdict::no(
        reason::TRANSACTION_HANGING,
        format!(
            "an open transaction blocks the messages behind it: {}. Lag does not count them. kafka-transactions.sh --bootstrap-server \
             {broker} describe-producers --topic {topic} --partition {partition} names its producer; if the producer is gone, end the \
             transaction with abort --topic {topic} --partition {partition} --start-offset {first_offset}",
            named.join("; ")
        ),
    ))
}

fn in_words(open: &OpenTransaction) -> String {
    let OpenTransaction { topic, partition, first_offset, messages, seconds } = open;
    let age = AGES.iter().rev().find(|(age, _)| age <= seconds).map_or("", |(_, words)| words);
    let messages = rounded(i64::try_from(*messages).unwrap_or(i64::MAX));
    format!(
        "{topic}/{partition} from offset {first_offset} on, {}, for more than {age}",
        plural(messages, "message")
    )
}
