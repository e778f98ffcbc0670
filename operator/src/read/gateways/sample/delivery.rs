//! What one gateway reports for people: the guarantee that holds, what rows survive, and what waits on its queue volume. No decision needs
//! any of it, so the answer of a gateway is of use without it.

use sluice_crds::{DeliveryStatus, EXACTLY_ONCE, QueueStatus, status::reason, status_word};
use sluice_gateway_config::{DeliveryState, GatewaySample, INSERT_ERROR_CHARS_MAX, cut_in_the_middle};
use sluice_plan::observed::{
    self,
    inserts::{InsertError, Inserts},
};

/// What rows survive, the least first. A word that is not among them is less than all.
const DURABILITIES: [&str; 4] = ["Unknown", "Process", "Fsync", "Quorum"];

/// The longest word that is taken over, bytes; the definition refuses longer ones.
const WORD_BYTES_MAX: usize = 64;

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

/// Takes it from a sample.
pub fn read(sample: &GatewaySample) -> Told {
    let queue = sample.queue.and_then(|queue| {
        Some(QueueStatus {
            blocks: i64::try_from(queue.blocks).ok()?,
            bytes: i64::try_from(queue.bytes).ok()?,
        })
    });
    let delivery = sample.delivery.as_ref().and_then(guarantee);
    Told { delivery, queue, has_empty_queue: queue.is_some_and(|queue| queue.blocks == 0) }
}

/// Messages that Kafka deleted before this gateway read them, since it was started; `None` when it does not say.
pub fn messages_lost(sample: &GatewaySample) -> Option<i64> {
    i64::try_from(sample.messages_lost?).ok()
}

/// What this gateway has counted of its inserts since it was started; `None` when it does not say.
pub fn inserts(sample: &GatewaySample) -> Option<Inserts> {
    let is_queued = sample.queue.is_some_and(|queue| queue.blocks > 0);
    Some(Inserts {
        done: sample.blocks_inserted?,
        failed: sample.insert_failures,
        waiting: is_queued || sample.sink_behind == Some(true),
    })
}

/// How its last insert failed; `None` when none did, or it does not say. It may be over.
pub fn insert_error(sample: &GatewaySample) -> Option<InsertError> {
    let said = sample.insert_error.as_ref()?;
    // It goes into a condition, on one line.
    let on_a_line = |text: &str| {
        cut_in_the_middle(&text.split_whitespace().collect::<Vec<_>>().join(" "), INSERT_ERROR_CHARS_MAX)
    };
    Some(InsertError {
        class: word(&said.class)?,
        code: said.code,
        message: said.message.as_deref().map(on_a_line).unwrap_or_default(),
        endpoint: said.endpoint.as_deref().map(on_a_line),
        table: said.table.as_deref().map(on_a_line),
        table_error: table_error(sample),
    })
}

/// Why it cannot use the table, while it waits for it before it reads. Older gateways say only that the table is missing.
pub fn table_error(sample: &GatewaySample) -> Option<&'static str> {
    match &sample.table_error {
        Some(said) => observed::table_error(said),
        None => (sample.table_missing == Some(true)).then_some(reason::TABLE_MISSING),
    }
}

/// What holds for all of them. The guarantee and the queue are known once all have told theirs: the guarantee is the weakest, and the queue's
/// numbers are sums. A gateway that has not read its volume yet says nothing of its queue, which may be long.
pub fn together(told: &[Told]) -> Told {
    let queues: Option<Vec<QueueStatus>> = told.iter().map(|one| one.queue).collect();
    let queue = queues.filter(|queues| !queues.is_empty()).map(|queues| {
        let sum = |of: fn(&QueueStatus) -> i64| queues.iter().map(of).fold(0, i64::saturating_add);
        QueueStatus { blocks: sum(|queue| queue.blocks), bytes: sum(|queue| queue.bytes) }
    });
    let is_known = !told.is_empty() && told.iter().all(|one| one.delivery.is_some());
    let all = told.iter().map(|one| one.delivery.clone());
    let delivery = if is_known { all.reduce(weaker).flatten() } else { None };
    let has_empty_queue = !told.is_empty() && told.iter().all(|one| one.has_empty_queue);
    Told { delivery, queue, has_empty_queue }
}

fn guarantee(delivery: &DeliveryState) -> Option<DeliveryStatus> {
    let guarantee = word(&delivery.guarantee)?;
    let reason = delivery.reason.as_deref().and_then(word).filter(|_| guarantee != EXACTLY_ONCE);
    Some(DeliveryStatus { guarantee, reason, durability: delivery.durability.as_deref().and_then(word) })
}

/// A text in the form of the status, if it is a word.
fn word(text: &str) -> Option<String> {
    let is_word = text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_word && !text.is_empty() && text.len() <= WORD_BYTES_MAX).then(|| status_word(text))
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

/// The one of two durabilities that is less, in the words of gateways or of a status; the other one where one is not said.
pub(crate) fn least(one: Option<String>, other: Option<String>) -> Option<String> {
    let (Some(a), Some(b)) = (&one, &other) else { return one.or(other) };
    let rank = |word: &String| DURABILITIES.iter().position(|known| *known == status_word(word));
    if (rank(a), a) <= (rank(b), b) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::exported, *};
    use sluice_gateway_config::{InsertErrorState, QueueState};

    fn delivering(guarantee: &str, reason: Option<&str>, durability: Option<&str>) -> Told {
        read(&GatewaySample {
            delivery: Some(DeliveryState {
                guarantee: guarantee.into(),
                reason: reason.map(str::to_owned),
                durability: durability.map(str::to_owned),
            }),
            ..GatewaySample::default()
        })
    }

    fn said(guarantee: &str, reason: &str) -> Told {
        delivering(guarantee, Some(reason), None)
    }

    fn queueing(blocks: u64, bytes: u64) -> GatewaySample {
        GatewaySample { queue: Some(QueueState { blocks, bytes }), ..GatewaySample::default() }
    }

    #[test]
    fn what_a_gateway_says_is_read() {
        let sample = exported();
        let expected = DeliveryStatus {
            guarantee: "AtLeastOnce".into(),
            reason: Some("WindowOff".into()),
            durability: Some("Fsync".into()),
        };
        assert_eq!(read(&sample).delivery, Some(expected));
        assert_eq!(said("exactly_once_effect", "none").delivery.unwrap().reason, None);
        assert_eq!(read(&sample).queue, Some(QueueStatus { blocks: 3, bytes: 24_000_000 }));
        assert_eq!(inserts(&sample), Some(Inserts { done: 40, failed: 3, waiting: true }));
        assert_eq!(inserts(&GatewaySample { blocks_inserted: None, ..sample.clone() }), None);
        assert_eq!(messages_lost(&sample), Some(0));
        assert_eq!(messages_lost(&GatewaySample { messages_lost: Some(17), ..sample }), Some(17));
    }

    #[test]
    fn how_an_insert_failed_is_read_on_one_line_and_bounded() {
        let of = |class: &str, message: Option<&str>| {
            let said = InsertErrorState {
                class: class.into(),
                code: Some(516),
                message: message.map(str::to_owned),
                endpoint: Some("http://a:8123".into()),
                ..InsertErrorState::default()
            };
            insert_error(&GatewaySample { insert_error: Some(said), ..GatewaySample::default() })
        };
        let (class, message) = ("Halt".into(), "no such user".into());
        let endpoint = Some("http://a:8123".into());
        let expected = InsertError { class, code: Some(516), message, endpoint, ..InsertError::default() };
        assert_eq!(of("halt", Some("no such\n  user\n")), Some(expected));
        assert_eq!(of("halt", None).unwrap().message, "");
        assert_eq!(of("no word!", None), None);
        assert_eq!(of("halt", Some(&"x".repeat(9_000))).unwrap().message.len(), INSERT_ERROR_CHARS_MAX);
        assert_eq!(insert_error(&exported()), None, "an older gateway");
    }

    #[test]
    fn why_the_table_cannot_be_used_is_one_of_the_known_reasons() {
        let of = |error: Option<&str>, table_missing| {
            let table_error = error.map(str::to_owned);
            super::table_error(&GatewaySample { table_error, table_missing, ..GatewaySample::default() })
        };
        for (error, missing, expected) in [
            (Some("DatabaseMissing"), None, Some("DatabaseMissing")),
            (Some("AuthFailed"), None, Some("AuthFailed")),
            (Some("OfTheFuture"), None, None),
            (None, Some(true), Some("TableMissing")),
            (None, None, None),
        ] {
            assert_eq!(of(error, missing), expected, "{error:?}");
        }
    }

    #[test]
    fn what_is_not_said_or_no_word_is_not_known() {
        let nothing = GatewaySample::default();
        assert_eq!((read(&nothing), messages_lost(&nothing)), (Told::default(), None));
        assert_eq!(read(&queueing(u64::MAX, 1)).queue, None);
        for strange in ["", "Robert'); DROP TABLE", &"x".repeat(65)] {
            assert_eq!(said(strange, "none").delivery, None, "{strange}");
        }
    }

    #[test]
    fn nothing_is_queued_once_all_have_said_so() {
        let (empty, full) = (read(&queueing(0, 4_096)), read(&queueing(1, 4_096)));
        assert!(together(&[empty.clone(), empty.clone()]).has_empty_queue);
        for others in [vec![empty.clone(), full], vec![empty, Told::default()], Vec::new()] {
            assert!(!together(&others).has_empty_queue, "{others:?}");
        }
    }

    #[test]
    fn rows_survive_what_they_do_in_every_gateway() {
        let durable = |word: &str| delivering("exactly_once_effect", None, Some(word));
        for (words, least) in [
            (&["fsync", "quorum"][..], Some("Fsync")),
            (&["quorum", "fsync", "process"], Some("Process")),
            (&["process", "unknown"], Some("Unknown")),
            (&["fsync", "of_the_future"], Some("OfTheFuture")),
            (&["fsync", ""], None),
        ] {
            let all: Vec<Told> = words.iter().map(|word| durable(word)).collect();
            assert_eq!(together(&all).delivery.unwrap().durability.as_deref(), least, "{words:?}");
        }
        let before = said("exactly_once_effect", "none");
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
        let (once, off) = (said("exactly_once_effect", "none"), said("at_least_once", "window_off"));
        let forgets = said("at_least_once", "engine_forgets");
        assert_eq!(together(&[once.clone(), off.clone()]).delivery, off.delivery);
        assert_eq!(together(&[off.clone(), forgets.clone(), once.clone()]).delivery, forgets.delivery);
        assert_eq!(together(&[forgets.clone(), off]).delivery, forgets.delivery);
        assert_eq!(together(&[once.clone(), once.clone()]).delivery, once.delivery);
        assert_eq!(together(&[once, Told::default()]).delivery, None, "one is silent");
        assert_eq!(together(&[]), Told::default());
        let full = Told { queue: Some(QueueStatus { blocks: 1, bytes: i64::MAX }), ..Told::default() };
        let sum = together(&[full.clone(), full]).queue;
        assert_eq!(sum, Some(QueueStatus { blocks: 2, bytes: i64::MAX }));
    }

    #[test]
    fn what_waits_is_not_known_while_a_gateway_has_not_read_its_volume() {
        let unread = read(&GatewaySample::default());
        for others in [queueing(0, 0), queueing(3, 24_000_000)] {
            assert_eq!(together(&[read(&others), unread.clone()]).queue, None);
        }
        assert_eq!(together(&[read(&queueing(0, 0))]).queue, Some(QueueStatus { blocks: 0, bytes: 0 }));
    }
}
