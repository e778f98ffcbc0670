//! Events that are published once, when the change happens.

use crate::statuses::{running, said};
use serde_json::json;
use sluice_crds::TracePipelineStatus;
use sluice_plan::{
    Observed, TopicSeen,
    observed::{MessagesSeen, OpenTransaction},
    one_time_events,
};

#[test]
fn partitions_that_were_added_are_told_once_with_the_gateways_that_read_them() {
    for (fixed, gateways) in
        [(None, "; the number of gateways goes from 3 to 6"), (Some(3), "; 3 gateways read them, as before")]
    {
        let (mut pipeline, facts) = running(&json!({}), &[]);
        pipeline.spec.replicas = fixed;
        let before = said(&pipeline, &facts);
        assert!(
            one_time_events(&TracePipelineStatus::default(), &before).is_empty(),
            "a topic that is read from now on has grown nowhere"
        );
        pipeline.status = Some(before.clone());
        let facts = Observed { partitions: [("otlp_spans".into(), TopicSeen::Known(24))].into(), ..facts };
        let after = said(&pipeline, &facts);
        let told = one_time_events(&before, &after);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].reason, told[0].is_bad), ("PartitionsAdded", false));
        assert_eq!(
            told[0].words,
            format!("the topic \"otlp_spans\" has 24 partitions now, 12 before{gateways}")
        );
        pipeline.status = Some(after.clone());
        assert!(one_time_events(&after, &said(&pipeline, &facts)).is_empty());
    }
}

#[test]
fn dead_letters_are_told_when_they_begin_and_when_their_share_changes() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let mut before = said(&pipeline, &facts);
    let counted = |read, rejected, rows_inserted, rows_refused| MessagesSeen {
        read,
        rejected,
        rejected_at: (rejected > 0).then_some(i64::MAX),
        rows_inserted,
        rows_refused,
        ..MessagesSeen::default()
    };
    for (messages, expected) in [
        (counted(99, 0, 99, 0), None),
        (counted(99, 1, 99, 0), Some(("MessagesRejected", "gateways reject some of the messages"))),
        (counted(199, 2, 199, 0), None),
        (counted(9, 9, 9, 0), Some(("MessagesRejected", "gateways reject many of the messages"))),
        (counted(0, 9, 0, 0), None),
        (counted(9, 0, 9, 0), None),
        (counted(9, 0, 9, 9), Some(("RowsRefused", "ClickHouse refuses many of the rows"))),
        (counted(9, 0, 9, 12), None),
        (counted(9, 0, 0, 12), None),
    ] {
        pipeline.status = Some(before.clone());
        let facts = Observed { messages: Some(messages.clone()), ..facts.clone() };
        let after = said(&pipeline, &facts);
        let told = one_time_events(&before, &after);
        let found = told.first().map(|event| (event.reason, event.is_bad));
        assert_eq!(found, expected.map(|(reason, _)| (reason, true)), "{messages:?}: {told:?}");
        if let Some((_, words)) = expected {
            assert!(told[0].words.starts_with(words), "{told:?}");
        }
        before = after;
    }
}

#[test]
fn a_transaction_that_hangs_is_told_once_and_not_again_as_it_ages() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let mut before = said(&pipeline, &facts);
    for (seconds, is_told) in [(60, false), (1_000, true), (90_000, false), (60, false), (1_000, true)] {
        pipeline.status = Some(before.clone());
        let topic = "otlp_spans".to_owned();
        let open = OpenTransaction { topic, partition: 3, first_offset: 120, messages: 7, seconds };
        let after = said(&pipeline, &Observed { open_transactions: Some(vec![open]), ..facts.clone() });
        let told = one_time_events(&before, &after);
        assert_eq!(told.len(), usize::from(is_told), "{seconds}: {told:?}");
        if let Some(told) = told.first() {
            assert_eq!((told.reason, told.is_bad), ("TransactionHanging", true));
            assert!(told.words.contains("kafka-transactions.sh"), "{}", told.words);
        }
        before = after;
    }
}

#[test]
fn a_source_that_is_away_or_has_fewer_partitions_has_not_grown() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let before = said(&pipeline, &facts);
    pipeline.status = Some(before.clone());
    for seen in [TopicSeen::Missing, TopicSeen::Known(3)] {
        let facts = Observed { partitions: [("otlp_spans".into(), seen)].into(), ..facts.clone() };
        assert!(one_time_events(&before, &said(&pipeline, &facts)).is_empty());
    }
}

#[test]
fn lost_messages_are_told_when_there_are_any_and_when_there_are_more() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let mut before = said(&pipeline, &facts);
    for (counts, expected) in [
        ([0, 0], None),
        ([40, 0], Some("Kafka deleted 40 messages that no gateway had read: Kafka cannot return them")),
        ([40, 0], None),
        ([40, 2], Some("Kafka deleted 2 messages that no gateway had read, 42 so far: Kafka cannot")),
        // A gateway that was started again.
        ([0, 2], None),
        ([1, 2], Some("Kafka deleted 1 message that no gateway had read, 43 so far: Kafka cannot")),
    ] {
        pipeline.status = Some(before.clone());
        let facts = Observed { messages_lost: (0..).zip(counts).collect(), ..facts.clone() };
        let after = said(&pipeline, &facts);
        let told = one_time_events(&before, &after);
        assert_eq!(told.len(), usize::from(expected.is_some()), "{told:?}");
        if let (Some(told), Some(expected)) = (told.first(), expected) {
            assert_eq!((told.reason, told.is_bad), ("DataLoss", true));
            assert!(told.words.starts_with(expected), "{}", told.words);
        }
        before = after;
    }
    assert_eq!(before.loss.unwrap().messages, 43);
}
