//! Dead letters in a real Kafka: topics that are created, cannot be created, or accept too little; and the command.

use crate::broker::Topic;
use rdkafka::message::{Headers as _, Message as _};
use sluice_gateway_config::Format;
use sluice_kafka::{
    BorrowedMessage, OwnedMessage, ReadError, TopicReader,
    dead_letter::{DeadLetters, Delivered, Head, Letter, LetterValue, REPLAYED, Receipt, Refused},
};
use std::{ops::ControlFlow, process::Command, time::Duration};

const PATIENCE: Duration = Duration::from_mins(1);

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

fn letter<'a>(topic: &'a str, offset: i64, value: &'a [u8]) -> Letter<'a> {
    Letter {
        topic,
        partition: 2,
        offset,
        row: None,
        reason: "malformed",
        text: "it is not an OTLP trace message",
        code: None,
        timestamp_millis: Some(1_700_000_000_000),
        key: Some(b"key"),
        headers: vec![("tenant", Some(b"a"))],
        value: LetterValue::Message(Some(value), Format::OtlpProto),
    }
}

async fn answer(receipt: Receipt) -> Result<Delivered, Refused> {
    tokio::time::timeout(PATIENCE, receipt).await.expect("an answer in time")
}

fn read(topic: &Topic, name: &str) -> Vec<OwnedMessage> {
    let patience = sluice_kafka::Patience { answer: PATIENCE, message: PATIENCE };
    let reader = TopicReader::new(&topic.kafka(), "live", patience).unwrap();
    let mut found = Vec::new();
    for partition in reader.partitions(name).unwrap() {
        let bounds = reader.bounds(name, partition).unwrap();
        let take = |message: &BorrowedMessage<'_>| {
            found.push(message.detach());
            Ok::<_, ReadError>(ControlFlow::Continue(()))
        };
        reader.read((name, partition), bounds, take).unwrap();
    }
    found
}

fn head(message: &OwnedMessage) -> Head {
    Head::read(message.headers().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_put_into_a_topic_that_is_made_for_it() {
    let topic = Topic::create("made", 3).await;
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let delivered = answer(letters.send(&letter(&topic.name, 41, b"garbage")).unwrap()).await.unwrap();
    assert_eq!((delivered.topic.as_str(), delivered.partition), (topic.letters().as_str(), 2));
    assert!(!delivered.left_out);
    assert_eq!(topic.partitions(&topic.letters()), 3);
    let found = read(&topic, &topic.letters());
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].key(), found[0].payload()), (Some(&b"key"[..]), Some(&b"garbage"[..])));
    let head = head(&found[0]);
    assert_eq!((head.coordinates.partition, head.coordinates.offset), (2, 41));
    assert_eq!((head.reason.as_str(), head.value.as_str()), ("malformed", "message"));
    let tenant = found[0].headers().unwrap().iter().find(|header| header.key == "tenant").unwrap();
    assert_eq!(tenant.value, Some(&b"a"[..]));
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_the_brokers_do_not_make_is_missing() {
    let topic = Topic::create("collides", 1).await;
    // Kafka makes no two topics whose names differ in dots and underscores alone.
    let taken = topic.letters().replace('.', "_");
    topic.create_other(&taken, 1, &[]).await;
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let refused = answer(letters.send(&letter(&topic.name, 0, b"x")).unwrap()).await.unwrap_err();
    assert!(matches!(refused, Refused::Missing { .. }), "{refused}");
    assert_eq!(refused.label(), "missing");
    topic.delete_other(&taken).await;
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_takes_little_gets_letters_without_their_values() {
    let topic = Topic::create("little", 1).await;
    topic.create_other(&topic.letters(), 1, &[("max.message.bytes", "2000")]).await;
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let (small, large) = (noise(500), noise(5_000));
    let small = letters.send(&letter(&topic.name, 0, &small)).unwrap();
    let large = letters.send(&letter(&topic.name, 1, &large)).unwrap();
    assert!(!answer(small).await.unwrap().left_out);
    assert!(answer(large).await.unwrap().left_out);
    let found = read(&topic, &topic.letters());
    let sizes: Vec<_> =
        found.iter().map(|message| (message.payload().map(<[u8]>::len), head(message).value_bytes)).collect();
    assert_eq!(sizes, [(Some(500), Some(500)), (None, Some(5_000))]);
    assert_eq!(head(&found[1]).value, "left-out");
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_takes_no_letter_at_all_says_so() {
    let topic = Topic::create("least", 1).await;
    topic.create_other(&topic.letters(), 1, &[("max.message.bytes", "100")]).await;
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let refused = answer(letters.send(&letter(&topic.name, 0, b"x")).unwrap()).await;
    assert_eq!(refused, Err(Refused::TooLarge { topic: topic.letters() }));
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_go_on_after_their_topic_was_deleted() {
    let topic = Topic::create("deleted", 1).await;
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    answer(letters.send(&letter(&topic.name, 0, b"x")).unwrap()).await.unwrap();
    topic.delete_letters().await;
    answer(letters.send(&letter(&topic.name, 1, b"y")).unwrap()).await.unwrap();
    assert_eq!(read(&topic, &topic.letters()).len(), 1);
    topic.delete().await;
}

/// What the command prints, and its exit code.
fn command(topic: &Topic, arguments: &[&str]) -> (String, String, Option<i32>) {
    let file = std::env::temp_dir().join(format!("{}.yaml", topic.name));
    std::fs::write(&file, topic.config()).unwrap();
    let (action, rest) = arguments.split_first().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
        .args(["dead-letter", action, "--config"])
        .arg(&file)
        .args(rest)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_shows_and_replays() {
    let topic = Topic::create("command", 3).await;
    let (out, told, code) = command(&topic, &["list"]);
    assert_eq!((out.as_str(), code), ("", Some(0)), "{told}");
    assert!(told.contains("no letter was ever written to it"), "{told}");

    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let span = crate::messages::message(vec![crate::messages::span(vec![])]);
    // The second is the first once more, after a crash.
    for offset in [41, 41, 42] {
        answer(letters.send(&letter(&topic.name, offset, &span)).unwrap()).await.unwrap();
    }
    let gone = Letter { value: LetterValue::Gone, ..letter(&topic.name, 43, b"") };
    answer(letters.send(&gone).unwrap()).await.unwrap();

    let (out, told, code) = command(&topic, &["list"]);
    assert_eq!((out.lines().count(), code), (3, Some(0)), "{out}{told}");
    assert!(out.contains(&format!("{}/2@41  malformed", topic.name)), "{out}");
    assert!(told.contains("3 letters; 4 messages read, 1 of them again the same letter"), "{told}");
    let (out, ..) = command(&topic, &["list", "--json", "--partition", "2", "--offset", "42"]);
    let line: serde_json::Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!((&line["offset"], &line["reason"]), (&42.into(), &"malformed".into()));
    assert_eq!(command(&topic, &["list", "--limit", "1"]).0.lines().count(), 1);
    assert_eq!(command(&topic, &["list", "--since", "1h"]).0.lines().count(), 3);

    let (out, _, code) = command(&topic, &["show", "--partition", "2", "--offset", "41"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("sluice.dev/reason") && out.contains("span name"), "{out}");

    let (out, _, code) = command(&topic, &["replay", "--dry-run"]);
    assert_eq!((out.matches("would be replayed").count(), code), (2, Some(1)), "{out}");
    assert!(read(&topic, &topic.name).is_empty());
    let (out, told, code) = command(&topic, &["replay"]);
    assert!(out.contains("not replayed: its value is gone, and Kafka no longer has the original"), "{out}");
    assert_eq!(code, Some(1), "{told}");
    let replayed = read(&topic, &topic.name);
    assert_eq!(replayed.len(), 2);
    for message in &replayed {
        assert_eq!((message.payload(), message.key()), (Some(&span[..]), Some(&b"key"[..])));
        assert_eq!(message.partition(), 2);
        let names: Vec<&str> = message.headers().unwrap().iter().map(|header| header.key).collect();
        assert_eq!(names, [REPLAYED, "tenant"]);
    }
    assert_eq!(command(&topic, &["list", "--topic", "sluice-live-no-such-topic"]).2, Some(69));
    assert_eq!(command(&topic, &["list", "--since", "yesterday"]).2, Some(64));
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_was_left_out_is_replayed_from_the_original() {
    let topic = Topic::create("original", 3).await;
    topic.produce(2, b"original");
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    let large = noise(2 << 20);
    assert!(answer(letters.send(&letter(&topic.name, 0, &large)).unwrap()).await.unwrap().left_out);
    let (out, told, code) = command(&topic, &["replay"]);
    assert!(out.contains("@1 with the original's value"), "{out}{told}");
    assert_eq!(code, Some(0));
    let values: Vec<_> =
        read(&topic, &topic.name).iter().map(|message| message.payload().map(<[u8]>::to_vec)).collect();
    assert_eq!(values, [Some(b"original".to_vec()), Some(b"original".to_vec())]);
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_of_a_message_in_json_is_replayed_in_json() {
    let mut topic = Topic::create("json", 3).await;
    topic.format = "OtlpJson";
    let span = |name: &str| serde_json::json!({"name": name, "unknown": 1});
    let message = |spans: &[serde_json::Value]| serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    topic.produce(2, message(&[span("good"), span("bad")]).to_string().as_bytes());
    let letters = DeadLetters::start(&topic.kafka(), None, "live").unwrap();
    // A gateway knows the span as protobuf alone.
    let refused = letter(&topic.name, 0, b"").with_span(1, b"protobuf").with_code(Some(469));
    answer(letters.send(&refused).unwrap()).await.unwrap();
    let (out, told, code) = command(&topic, &["replay"]);
    assert!(
        out.contains("@0 row 1  replayed to") && out.contains("with the original's value"),
        "{out}{told}"
    );
    assert_eq!(code, Some(0));
    let replayed = read(&topic, &topic.name);
    let value: serde_json::Value = serde_json::from_slice(replayed[1].payload().unwrap()).unwrap();
    assert_eq!(value, message(&[span("bad")]));
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_says_whether_there_would_be_a_dead_letter_topic() {
    let topic = Topic::create("checked", 2).await;
    let check = || async {
        let checked = sluice_gateway_config::parse::from_yaml(&topic.config()).unwrap().check().unwrap();
        sluice_gateway::commands::check::check(&checked).await
    };
    let about = |lines: &[String]| lines.iter().find(|line| line.contains(&topic.letters())).cloned();
    let made = about(&check().await.found).unwrap();
    assert!(made.contains("a gateway creates it for its first letter"), "{made}");
    let taken = topic.letters().replace('.', "_");
    topic.create_other(&taken, 1, &[]).await;
    let refused = about(&check().await.warnings).unwrap();
    assert!(
        refused.contains("Kafka would refuse to create it") && refused.contains("stops its partition"),
        "{refused}"
    );
    topic.delete_other(&taken).await;
    topic.create_other(&topic.letters(), 1, &[]).await;
    let there = about(&check().await.found).unwrap();
    assert!(there.ends_with("exists"), "{there}");
    topic.delete().await;
}
