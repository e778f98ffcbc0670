//! What one gateway says of itself at `/metrics` for people: the guarantee that holds, what rows survive, and what waits on its queue volume. None of
//! it is needed for a decision, so a gateway that does not say it is not asked in vain.

use super::{
    exposition::{Line, lines},
    gateway::{INSERT_FAILURES, OF_ROWS, SINK_BEHIND},
};
use sluice_crds::{DeliveryStatus, EXACTLY_ONCE, QueueStatus};
use sluice_plan::sink::Inserts;

const GUARANTEE: &str = "sluice_gateway_delivery_guarantee";
const DURABILITY: &str = "sluice_gateway_durability";
const SPOOL_BLOCKS: &str = "sluice_gateway_spool_blocks";
const SPOOL_BYTES: &str = "sluice_gateway_spool_bytes";
const BLOCKS_INSERTED: &str = "sluice_gateway_blocks_inserted_total";
const MESSAGES_LOST: &str = "sluice_gateway_messages_lost_total";

/// What rows survive, in the gateways' words, the least first. A word that is not among them is less than all.
const DURABILITIES: [&str; 4] = ["unknown", "process", "fsync", "quorum"];

/// The longest word that is taken over, bytes; the definition refuses longer ones.
const WORD_BYTES_MAX: usize = 64;
/// Numbers up to here are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// What one gateway says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The guarantee that holds, and what rows survive; `None` when it does not say the former.
    pub delivery: Option<DeliveryStatus>,
    /// What waits on its volume; `None` when it does not say.
    pub queue: Option<QueueStatus>,
    /// Whether it has said that nothing does.
    pub has_empty_queue: bool,
}

/// Reads an answer.
pub fn read(text: &str) -> Told {
    let (mut delivery, mut durability, mut blocks, mut bytes) = (None, None, None, None);
    for line in lines(text) {
        match line.name {
            GUARANTEE if line.value > 0.0 => delivery = weaker(delivery, guarantee(&line)),
            // Two for a moment, while it changes.
            DURABILITY if line.value > 0.0 => durability = least(durability, word(&line, "durability")),
            SPOOL_BLOCKS => blocks = whole(line.value),
            SPOOL_BYTES => bytes = whole(line.value),
            _ => {}
        }
    }
    let delivery = delivery.map(|delivery| DeliveryStatus { durability, ..delivery });
    let queue = blocks.zip(bytes).map(|(blocks, bytes)| QueueStatus { blocks, bytes });
    Told { delivery, queue, has_empty_queue: queue.is_some_and(|queue| queue.blocks == 0) }
}

/// Messages that Kafka deleted before this gateway read them, since it was started; `None` when it does not say.
pub fn messages_lost(text: &str) -> Option<i64> {
    lines(text).find(|line| line.name == MESSAGES_LOST).and_then(|line| whole(line.value))
}

/// What this gateway has counted of its inserts since it was started; `None` when it does not say.
pub fn inserts(text: &str) -> Option<Inserts> {
    let mut done = None;
    let mut found = Inserts::default();
    for line in lines(text) {
        match line.name {
            BLOCKS_INSERTED => done = line.whole(),
            INSERT_FAILURES if !line.label("class").is_some_and(|class| OF_ROWS.contains(&&*class)) => {
                found.failed = found.failed.saturating_add(line.whole().unwrap_or(0));
            }
            SINK_BEHIND | SPOOL_BLOCKS => found.waiting |= line.value > 0.0,
            _ => {}
        }
    }
    done.map(|done| Inserts { done, ..found })
}

/// What holds for all of those that said something. The queue's numbers are sums; a guarantee, and that nothing is queued, is known once
/// all have told theirs, and is the weakest.
pub fn together(told: &[Told]) -> Told {
    let queues: Vec<QueueStatus> = told.iter().filter_map(|one| one.queue).collect();
    let sum = |of: fn(&QueueStatus) -> i64| queues.iter().map(of).fold(0, i64::saturating_add);
    let queue = (!queues.is_empty())
        .then(|| QueueStatus { blocks: sum(|queue| queue.blocks), bytes: sum(|queue| queue.bytes) });
    let is_known = !told.is_empty() && told.iter().all(|one| one.delivery.is_some());
    let all = told.iter().map(|one| one.delivery.clone());
    let delivery = if is_known { all.reduce(weaker).flatten() } else { None };
    let has_empty_queue = !told.is_empty() && told.iter().all(|one| one.has_empty_queue);
    Told { delivery, queue, has_empty_queue }
}

fn guarantee(line: &Line<'_>) -> Option<DeliveryStatus> {
    let guarantee = word(line, "guarantee")?;
    let reason = word(line, "reason").filter(|_| guarantee != EXACTLY_ONCE);
    Some(DeliveryStatus { guarantee, reason, durability: None })
}

/// A label's value, if it is a word.
fn word(line: &Line<'_>, label: &str) -> Option<String> {
    let word = line.label(label)?.into_owned();
    let is_word = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_word && !word.is_empty() && word.len() <= WORD_BYTES_MAX).then_some(word)
}

/// Whatever is less than once goes before it; of two reasons, the first by the alphabet, so that the same ones give the same.
fn weaker(one: Option<DeliveryStatus>, other: Option<DeliveryStatus>) -> Option<DeliveryStatus> {
    let (Some(a), Some(b)) = (one.clone(), other.clone()) else { return one.or(other) };
    // A gateway of before does not say it: then nothing is known of all.
    let durability = if a.durability.is_some() && b.durability.is_some() {
        least(a.durability.clone(), b.durability.clone())
    } else {
        None
    };
    let is_first = (a.guarantee == EXACTLY_ONCE, &a.guarantee, &a.reason)
        <= (b.guarantee == EXACTLY_ONCE, &b.guarantee, &b.reason);
    Some(DeliveryStatus { durability, ..if is_first { a } else { b } })
}

/// The one of two durabilities that is less; the other one where one is not said.
fn least(one: Option<String>, other: Option<String>) -> Option<String> {
    let (Some(a), Some(b)) = (&one, &other) else { return one.or(other) };
    let rank = |word: &String| DURABILITIES.iter().position(|known| known == word);
    if (rank(a), a) <= (rank(b), b) { one } else { other }
}

#[expect(clippy::cast_possible_truncation, reason = "the value is checked first")]
fn whole(value: f64) -> Option<i64> {
    (0.0..EXACT_MAX).contains(&value).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../../../tests/gateway-metrics.txt");

    fn said(guarantee: &str, reason: &str) -> Told {
        let line = format!("{GUARANTEE}{{guarantee=\"{guarantee}\",reason=\"{reason}\"}} 1\n");
        read(&line)
    }

    #[test]
    fn what_a_gateway_exports_is_read() {
        let expected = DeliveryStatus {
            guarantee: "at_least_once".into(),
            reason: Some("window_off".into()),
            durability: Some("fsync".into()),
        };
        assert_eq!(read(EXPORTED).delivery, Some(expected));
        assert_eq!(said(EXACTLY_ONCE, "none").delivery.unwrap().reason, None);
        assert_eq!(read(EXPORTED).queue, Some(QueueStatus { blocks: 3, bytes: 24_000_000 }));
        assert_eq!(inserts(EXPORTED), Some(Inserts { done: 40, failed: 3, waiting: true }));
        assert_eq!(inserts(&format!("{INSERT_FAILURES}{{class=\"retry\"}} 1\n")), None);
        assert_eq!(messages_lost(EXPORTED), Some(0));
        assert_eq!(messages_lost(&format!("{MESSAGES_LOST} 17\n")), Some(17));
    }

    #[test]
    fn what_is_not_said_or_no_word_is_not_known() {
        assert_eq!((read(""), messages_lost("")), (Told::default(), None));
        assert_eq!(read(&format!("{SPOOL_BLOCKS} 3\n")).queue, None);
        assert_eq!(read(&format!("{SPOOL_BLOCKS} -1\n{SPOOL_BYTES} NaN\n")).queue, None);
        for strange in ["", "Robert'); DROP TABLE", &"x".repeat(65)] {
            assert_eq!(said(strange, "none").delivery, None, "{strange}");
        }
    }

    #[test]
    fn nothing_is_queued_once_all_have_said_so() {
        let empty = read(&format!("{SPOOL_BLOCKS} 0\n{SPOOL_BYTES} 4096\n"));
        let full = read(&format!("{SPOOL_BLOCKS} 1\n{SPOOL_BYTES} 4096\n"));
        assert!(together(&[empty.clone(), empty.clone()]).has_empty_queue);
        for others in [vec![empty.clone(), full], vec![empty, Told::default()], Vec::new()] {
            assert!(!together(&others).has_empty_queue, "{others:?}");
        }
    }

    #[test]
    fn rows_survive_what_they_do_in_every_gateway() {
        let durable = |word: &str| {
            read(&format!(
                "{GUARANTEE}{{guarantee=\"{EXACTLY_ONCE}\",reason=\"none\"}} 1\n{DURABILITY}{{durability=\"{word}\"}} 1\n"
            ))
        };
        for (words, least) in [
            (&["fsync", "quorum"][..], Some("fsync")),
            (&["quorum", "fsync", "process"], Some("process")),
            (&["process", "unknown"], Some("unknown")),
            (&["fsync", "of_the_future"], Some("of_the_future")),
            (&["fsync", ""], None),
        ] {
            let all: Vec<Told> = words.iter().map(|word| durable(word)).collect();
            assert_eq!(together(&all).delivery.unwrap().durability.as_deref(), least, "{words:?}");
        }
        let before = said(EXACTLY_ONCE, "none");
        let both = together(&[durable("fsync"), before.clone(), durable("fsync")]).delivery.unwrap();
        assert_eq!(
            (both.guarantee.as_str(), both.durability),
            (EXACTLY_ONCE, None),
            "an older gateway does not say it"
        );
        let off = said("at_least_once", "window_off");
        assert_eq!(together(&[durable("fsync"), off.clone()]), off, "it follows no guarantee");
    }

    #[test]
    fn the_weakest_holds_for_all_and_queues_are_summed() {
        let (once, off) = (said(EXACTLY_ONCE, "none"), said("at_least_once", "window_off"));
        let forgets = said("at_least_once", "engine_forgets");
        assert_eq!(together(&[once.clone(), off.clone()]).delivery, off.delivery);
        assert_eq!(together(&[off.clone(), forgets.clone(), once.clone()]).delivery, forgets.delivery);
        assert_eq!(together(&[forgets.clone(), off]).delivery, forgets.delivery);
        assert_eq!(together(&[once.clone(), once.clone()]).delivery, once.delivery);
        assert_eq!(together(&[once, Told::default()]).delivery, None, "one is silent");
        assert_eq!(together(&[]), Told::default());
        let full = Told { queue: Some(QueueStatus { blocks: 1, bytes: i64::MAX }), ..Told::default() };
        let sum = together(&[full.clone(), Told::default(), full]).queue;
        assert_eq!(sum, Some(QueueStatus { blocks: 2, bytes: i64::MAX }));
    }
}
