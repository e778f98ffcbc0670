//! What one gateway says of itself at `/metrics` for people: the guarantee that holds, and what waits on its queue volume. None of
//! it is needed for a decision, so a gateway that does not say it is not asked in vain.

use super::{
    exposition::{Line, lines},
    gateway::{INSERT_FAILURES, OF_ROWS, SINK_BEHIND},
};
use sluice_crds::{DeliveryStatus, EXACTLY_ONCE, QueueStatus};
use sluice_plan::sink::Inserts;

const GUARANTEE: &str = "sluice_gateway_delivery_guarantee";
const SPOOL_BLOCKS: &str = "sluice_gateway_spool_blocks";
const SPOOL_BYTES: &str = "sluice_gateway_spool_bytes";
const BLOCKS_INSERTED: &str = "sluice_gateway_blocks_inserted_total";
const MESSAGES_LOST: &str = "sluice_gateway_messages_lost_total";

/// The longest word that is taken over, bytes; the definition refuses longer ones.
const WORD_BYTES_MAX: usize = 64;
/// Numbers up to here are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// What one gateway says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The guarantee that holds; `None` when it does not say.
    pub delivery: Option<DeliveryStatus>,
    /// What waits on its volume; `None` when it does not say.
    pub queue: Option<QueueStatus>,
    /// Whether it has said that nothing does.
    pub has_empty_queue: bool,
}

/// Reads an answer.
pub fn read(text: &str) -> Told {
    let (mut delivery, mut blocks, mut bytes) = (None, None, None);
    for line in lines(text) {
        match line.name {
            GUARANTEE if line.value > 0.0 => delivery = weaker(delivery, guarantee(&line)),
            SPOOL_BLOCKS => blocks = whole(line.value),
            SPOOL_BYTES => bytes = whole(line.value),
            _ => {}
        }
    }
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
    let word = |name: &str| {
        let word = line.label(name)?.into_owned();
        let is_word = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        (is_word && !word.is_empty() && word.len() <= WORD_BYTES_MAX).then_some(word)
    };
    let guarantee = word("guarantee")?;
    let reason = word("reason").filter(|_| guarantee != EXACTLY_ONCE);
    Some(DeliveryStatus { guarantee, reason })
}

/// Whatever is less than once goes before it; of two reasons, the first by the alphabet, so that the same ones give the same.
fn weaker(one: Option<DeliveryStatus>, other: Option<DeliveryStatus>) -> Option<DeliveryStatus> {
    let (Some(a), Some(b)) = (&one, &other) else { return one.or(other) };
    let is_first = (a.guarantee == EXACTLY_ONCE, a) <= (b.guarantee == EXACTLY_ONCE, b);
    if is_first { one } else { other }
}

#[expect(clippy::cast_possible_truncation, reason = "the value is checked first")]
fn whole(value: f64) -> Option<i64> {
    (0.0..EXACT_MAX).contains(&value).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../tests/gateway-metrics.txt");

    fn said(guarantee: &str, reason: &str) -> Told {
        let line = format!("{GUARANTEE}{{guarantee=\"{guarantee}\",reason=\"{reason}\"}} 1\n");
        read(&line)
    }

    #[test]
    fn what_a_gateway_exports_is_read() {
        let expected =
            DeliveryStatus { guarantee: "at_least_once".into(), reason: Some("window_off".into()) };
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
