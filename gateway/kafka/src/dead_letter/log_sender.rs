//! The thread that writes letters to a log of this process: takes them from the queue, appends, and answers.
//!
//! A letter is answered with "delivered" once it is durable. If the log has no room, the letter is refused; one whose worker waits is tried again
//! every [`REFUSAL_KEPT`], as with a topic.
//!
//! Limits: those of the queue.

use crate::dead_letter::{
    letter::{Record, Trim},
    outcome::{Delivered, Refused},
    queue::{Reply, Request},
    stored::STORED_TOPIC,
    topic::REFUSAL_KEPT,
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long the thread waits for a letter before it looks at refused ones.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// Why a letter has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// The log is full. What frees room, in words.
    Full { volume: String, why: String },
    /// The process is ending; the store has reported why.
    Ended,
}

/// A log of letters.
pub trait LetterStore: Send {
    /// Appends a letter durably. Returns its offset.
    fn append(&mut self, letter: Vec<u8>) -> Result<i64, NoRoom>;
}

/// The thread's state.
pub(super) struct LogSender {
    store: Box<dyn LetterStore>,
    requests: Receiver<Request>,
    /// Letters for which there was no room, and since when.
    refused: VecDeque<(Instant, Record, Reply)>,
}

impl LogSender {
    pub(super) fn new(store: Box<dyn LetterStore>, requests: Receiver<Request>) -> Self {
        Self { store, requests, refused: VecDeque::new() }
    }

    /// Writes until all handles are dropped.
    pub(super) fn run(mut self) {
        loop {
            match self.requests.recv_timeout(IDLE_WAIT) {
                Ok(Request { record, reply }) => self.write(record, reply),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write_refused_again();
        }
    }

    fn write_refused_again(&mut self) {
        self.refused.retain(|(.., reply)| !reply.is_given_up());
        while let Some((_, record, reply)) =
            self.refused.pop_front_if(|(since, ..)| since.elapsed() >= REFUSAL_KEPT)
        {
            self.write(record, reply);
        }
    }

    fn write(&mut self, record: Record, mut reply: Reply) {
        let refused = match self.store.append(record.stored()) {
            Ok(offset) => {
                let left_out = record.kept != Trim::All;
                return reply.answer(Ok(Delivered {
                    topic: STORED_TOPIC.to_owned(),
                    partition: 0,
                    offset,
                    left_out,
                }));
            }
            Err(NoRoom::Full { volume, why }) => Refused::Full { volume, why },
            Err(NoRoom::Ended) => Refused::Ended,
        };
        if reply.keeps(&refused) {
            self.refused.push_back((Instant::now(), record, reply));
        } else {
            reply.answer(Err(refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::dead_letter::{
        DeadLetters, Delivered, Head, Letter, LetterStore, LetterValue, NoRoom, Refused, read_stored,
    };
    use crossbeam_channel::bounded;
    use rdkafka::message::Message as _;
    use sluice_gateway_config::{Format, OnMissing};
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Kept {
        letters: Vec<Vec<u8>>,
        is_full: bool,
    }

    struct Store(Arc<Mutex<Kept>>);

    impl LetterStore for Store {
        fn append(&mut self, letter: Vec<u8>) -> Result<i64, NoRoom> {
            let mut kept = self.0.lock().unwrap();
            if kept.is_full {
                return Err(NoRoom::Full { volume: "/queue".to_owned(), why: "64MiB are used".to_owned() });
            }
            kept.letters.push(letter);
            Ok(i64::try_from(kept.letters.len()).unwrap() - 1)
        }
    }

    fn letter(offset: i64) -> Letter<'static> {
        Letter {
            topic: "otlp",
            partition: 1,
            offset,
            row: Some(2),
            reason: "row_refused",
            text: "it does not fit",
            code: Some(53),
            timestamp_millis: Some(7),
            key: None,
            headers: vec![("null", None)],
            value: LetterValue::Message(Some(b"value"), Format::OtlpProto),
        }
    }

    #[test]
    fn a_letter_is_read_from_the_log_as_it_would_be_from_a_topic() {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let letters = DeadLetters::start_log(Box::new(Store(kept.clone()))).unwrap();
        let delivered = letters.send(&letter(41)).unwrap();
        let answer = futures_free(delivered);
        assert!(
            matches!(answer, Ok(Delivered { partition: 0, offset: 0, left_out: false, .. })),
            "{answer:?}"
        );
        let stored = kept.lock().unwrap().letters.remove(0);
        let message = read_stored(&stored, 0, 9).unwrap();
        let head = Head::read(message.headers().unwrap()).unwrap();
        assert_eq!((head.coordinates.offset, head.coordinates.row, head.code), (41, Some(2), Some(53)));
        assert_eq!(message.payload(), Some(&b"value"[..]));
    }

    #[test]
    fn a_full_log_refuses_and_takes_a_letter_that_is_waited_for_later() {
        let kept = Arc::new(Mutex::new(Kept { is_full: true, ..Kept::default() }));
        let letters = DeadLetters::start_log(Box::new(Store(kept.clone()))).unwrap();
        let refused = futures_free(letters.send(&letter(1)).unwrap()).unwrap_err();
        assert!(
            matches!(refused, Refused::Full { .. }) && refused.to_string().contains("/queue"),
            "{refused}"
        );
        let (wake, woken) = bounded(1);
        let answers = letters.send_watched(&letter(1), OnMissing::Stop, &wake).unwrap();
        woken.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        assert!(matches!(answers.next(), Some(Err(Refused::Full { .. }))));
        kept.lock().unwrap().is_full = false;
        woken.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        assert!(matches!(answers.next(), Some(Ok(_))));
    }

    /// The outcome of a receipt, without a runtime.
    fn futures_free(mut receipt: crate::dead_letter::Receipt) -> Result<Delivered, Refused> {
        loop {
            if let Some(answer) = receipt.try_get() {
                return answer;
            }
            std::thread::yield_now();
        }
    }
}
