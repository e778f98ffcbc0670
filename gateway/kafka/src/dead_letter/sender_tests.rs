//! Against librdkafka's mock cluster, which can refuse what a real broker does not refuse on demand.

use super::*;
use crate::dead_letter::{Answers, DeadLetters, Letter, LetterValue, Receipt};
use crate::ground::settings::tests::kafka;
use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use sluice_gateway_config::{Format, Kafka, OnMissing};

/// A mock takes milliseconds; a busy machine some seconds.
const PATIENCE: Duration = Duration::from_mins(1);

const LETTERS: &str = "spans.dead-letter";

struct Mock(MockCluster<'static, DefaultProducerContext>);

impl Mock {
    fn new() -> Self {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 6, 1).unwrap();
        Self(mock)
    }

    fn with_topic() -> Self {
        let mock = Self::new();
        mock.0.create_topic(LETTERS, 4, 1).unwrap();
        mock
    }

    fn letters(&self) -> DeadLetters {
        let kafka = Kafka { bootstrap_servers: vec![self.0.bootstrap_servers()], ..kafka() };
        DeadLetters::start(&kafka, None, "letters").unwrap()
    }

    fn produce_fails(&self, with: &[RDKafkaRespErr]) {
        self.0.request_errors(RDKafkaApiKey::Produce, with);
    }
}

fn letter(offset: i64) -> Letter<'static> {
    Letter {
        topic: "spans",
        partition: 5,
        offset,
        row: None,
        reason: "malformed",
        text: "text",
        code: None,
        timestamp_millis: None,
        key: Some(b"key"),
        headers: vec![],
        value: LetterValue::Message(Some(b"value"), Format::OtlpProto),
    }
}

fn answer(receipt: Receipt) -> Result<Delivered, Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, receipt).await }).expect("an answer in time")
}

#[test]
fn letters_of_a_partition_keep_together_and_in_order() {
    let mock = Mock::with_topic();
    let letters = mock.letters();
    let receipts: Vec<Receipt> = (0..20).map(|offset| letters.send(&letter(offset)).unwrap()).collect();
    for (offset, receipt) in (0..).zip(receipts) {
        // Partition 5 of the source, of 4 that there are.
        let expected = Delivered { topic: LETTERS.into(), partition: 1, offset, left_out: false };
        assert_eq!(answer(receipt), Ok(expected));
    }
    assert_eq!(letters.waiting(), 0);
}

#[test]
fn letters_that_are_sent_again_together_keep_their_order() {
    let mock = Mock::with_topic();
    mock.produce_fails(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; 3]);
    let letters = mock.letters();
    let receipts: Vec<Receipt> = (0..3).map(|offset| letters.send(&letter(offset)).unwrap()).collect();
    for (offset, receipt) in (0..).zip(receipts) {
        let expected = Delivered { topic: LETTERS.into(), partition: 1, offset, left_out: true };
        assert_eq!(answer(receipt), Ok(expected), "each without its value, and in its place");
    }
}

#[test]
fn a_letter_waits_for_brokers_that_are_away() {
    let mock = Mock::with_topic();
    mock.0.broker_down(1).unwrap();
    let letters = mock.letters();
    let mut receipt = letters.send(&letter(0)).unwrap();
    assert_eq!(receipt.try_get(), None);
    mock.0.broker_up(1).unwrap();
    assert!(answer(receipt).is_ok());
}

#[test]
fn a_letter_that_is_refused_once_is_sent_again() {
    let mock = Mock::with_topic();
    mock.produce_fails(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN]);
    let letters = mock.letters();
    assert!(answer(letters.send(&letter(0)).unwrap()).is_ok());
}

#[test]
fn a_letter_that_is_too_large_is_sent_without_its_value_and_then_without_its_headers() {
    let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    for (times, expected) in
        [(1, Ok(true)), (2, Ok(true)), (3, Err(Refused::TooLarge { topic: LETTERS.into() }))]
    {
        let mock = Mock::with_topic();
        mock.produce_fails(&vec![too_large; times]);
        let letters = mock.letters();
        let answer = answer(letters.send(&letter(0)).unwrap());
        assert_eq!(answer.map(|delivered| delivered.left_out), expected, "{times}");
    }
}

#[test]
fn a_topic_that_may_not_be_written_to_is_refused_and_remembered() {
    let mock = Mock::with_topic();
    mock.produce_fails(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let letters = mock.letters();
    let refused = answer(letters.send(&letter(0)).unwrap()).unwrap_err();
    assert!(matches!(refused, Refused::NotAuthorized { .. }), "{refused}");
    assert!(refused.to_string().contains(LETTERS), "{refused}");
    // The brokers would accept it now, but are not asked for every letter.
    assert_eq!(answer(letters.send(&letter(1)).unwrap()), Err(refused));
}

#[test]
fn a_producer_that_may_not_be_one_is_refused_and_another_one_tries_again() {
    let mock = Mock::with_topic();
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    mock.0.request_errors(RDKafkaApiKey::InitProducerId, &[denied]);
    let letters = mock.letters();
    let refused = answer(letters.send(&letter(0)).unwrap()).unwrap_err();
    assert!(matches!(refused, Refused::NotAuthorized { .. }), "{refused}");
    assert!(answer(letters.send(&letter(1)).unwrap()).is_ok());
}

#[test]
fn letters_under_way_are_answered_after_the_last_sender_is_gone() {
    let mock = Mock::with_topic();
    let letters = mock.letters();
    let receipt = letters.send(&letter(0)).unwrap();
    drop(letters);
    assert!(answer(receipt).is_ok());
}

/// The next answer to a watched letter.
fn heard(answers: &Answers, woken: &Receiver<()>) -> Result<Delivered, Refused> {
    loop {
        if let Some(answer) = answers.next() {
            return answer;
        }
        woken.recv_timeout(PATIENCE).expect("an answer in time");
    }
}

#[test]
fn a_letter_that_somebody_waits_for_is_sent_again_once_its_topic_takes_it() {
    let mock = Mock::with_topic();
    mock.produce_fails(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let letters = mock.letters();
    let (wake, woken) = bounded(1);
    let answers = letters.send_watched(&letter(0), OnMissing::Stop, &wake).unwrap();
    assert!(matches!(heard(&answers, &woken), Err(Refused::NotAuthorized { .. })));
    assert_eq!(letters.waiting(), 1, "it keeps its room");
    assert!(heard(&answers, &woken).is_ok());
    assert_eq!(letters.waiting(), 0);
}

#[test]
fn a_refused_letter_gives_its_room_back_when_nobody_waits_for_it() {
    let mock = Mock::with_topic();
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    mock.produce_fails(&[denied; 2]);
    let letters = mock.letters();
    let (wake, woken) = bounded(1);
    let answers = letters.send_watched(&letter(0), OnMissing::Skip, &wake).unwrap();
    assert!(heard(&answers, &woken).is_err());
    assert_eq!(letters.waiting(), 0);
    let answers = letters.send_watched(&letter(1), OnMissing::Stop, &wake).unwrap();
    assert!(heard(&answers, &woken).is_err());
    drop(answers);
    let deadline = Instant::now() + PATIENCE;
    while letters.waiting() > 0 {
        assert!(Instant::now() < deadline, "the letter is kept for nobody");
        std::thread::yield_now();
    }
}
