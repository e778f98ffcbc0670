//! What a status says of messages, rows and transactions, as gateways count them.

use crate::statuses::{condition, now, running, said, summary, summary_of};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{
    Observed,
    observed::{MessagesSeen, OpenTransaction},
};

#[test]
fn what_gateways_cannot_read_is_said_and_remembered_while_none_answers() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let at = |second| now(second).0.as_second();
    let seen = |read, without_spans, rejected_at| {
        let reasons = ["malformed".to_owned()].into();
        Some(MessagesSeen {
            read,
            without_spans,
            rejected: 3,
            reasons,
            rejected_at,
            ..MessagesSeen::default()
        })
    };
    let of = |pipeline: &TracePipeline, messages| {
        let status = said(pipeline, &Observed { messages, ..well.clone() });
        let readable = condition(&status, "SourceReachable");
        (format!("{}/{}", readable.status, readable.reason), readable.message.clone(), status)
    };
    assert_eq!(of(&pipeline, None).0, "True/Ok");
    assert_eq!(of(&pipeline, seen(9, 1, None)).0, "True/Ok");
    assert_eq!(of(&pipeline, seen(9, 9, None)).0, "True/MessagesWithoutSpans");
    let (_, often, said_often) = of(&pipeline, seen(9, 1, Some(at(0))));
    assert!(often.starts_with("gateways reject many of the messages (malformed)"), "{often}");
    // A share that goes to and fro around a tenth is said once.
    let before = pipeline.status.replace(said_often.clone());
    assert_eq!(of(&pipeline, seen(40, 1, Some(at(0)))).2, said_often, "3 of 42");
    pipeline.status = before;
    let (some, message, status) = of(&pipeline, seen(99, 1, Some(at(0))));
    assert_eq!(some, "True/MessagesRejected");
    assert!(
        message.contains("some of the messages (malformed)") && message.contains("dead-letter demo list"),
        "{message}"
    );
    assert_eq!(summary_of(&status), "True/Running", "gateways go on");
    let (rejected, all, none_is_read) = of(&pipeline, seen(0, 0, Some(at(0))));
    assert_eq!(rejected, "False/MessagesRejected");
    assert!(all.contains("source.kafka.format OtlpProto"), "{all}");
    assert_eq!(summary(&none_is_read), ["False/MessagesRejected", "True/Waiting", "False/Ok"]);
    assert_eq!(condition(&none_is_read, "Ready").message, all);
    for status in [status, none_is_read] {
        pipeline.status = Some(status.clone());
        assert_eq!(of(&pipeline, None).2, status, "gateways are away");
    }
}

#[test]
fn rows_that_clickhouse_refuses_are_said_once_they_are_many_and_keep_a_pipeline_from_being_ready_alone() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let of = |pipeline: &TracePipeline, counted: Option<(u64, u64)>| {
        let messages = counted.map(|(rows_inserted, rows_refused)| MessagesSeen {
            read: 9,
            rows_inserted,
            rows_refused,
            ..MessagesSeen::default()
        });
        let status = said(pipeline, &Observed { messages, ..well.clone() });
        let reachable = condition(&status, "SinkReachable");
        (format!("{}/{}", reachable.status, reachable.reason), status)
    };
    for (counted, reachable, ready) in [
        ((1_000, 3), "True/Ok", "True/Running"),
        ((40, 3), "True/Ok", "True/Running"),
        ((20, 3), "True/RowsRefused", "True/Running"),
        ((40, 3), "True/RowsRefused", "True/Running"),
        ((1_000, 3), "True/Ok", "True/Running"),
        ((0, 3), "False/RowsRefused", "False/RowsRefused"),
    ] {
        let (found, status) = of(&pipeline, Some(counted));
        assert_eq!((found.as_str(), summary_of(&status).as_str()), (reachable, ready), "{counted:?}");
        pipeline.status = Some(status.clone());
        assert_eq!(of(&pipeline, None).1, status, "gateways are away");
    }
    let refused = of(&pipeline, Some((0, 3))).1;
    let message = &condition(&refused, "SinkReachable").message;
    assert!(message.ends_with("kubectl sluice dead-letter demo list shows why"), "{message}");
}

#[test]
fn a_transaction_that_hangs_is_said_with_what_ends_it() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let topic = pipeline.spec.source.kafka.as_ref().unwrap().topics[0].clone();
    let open = |partition, messages, seconds| OpenTransaction {
        topic: topic.clone(),
        partition,
        first_offset: 120,
        messages,
        seconds,
    };
    let of = |pipeline: &TracePipeline, open_transactions: Option<Vec<OpenTransaction>>| {
        let status = said(pipeline, &Observed { open_transactions, ..well.clone() });
        let readable = condition(&status, "SourceReachable");
        (format!("{}/{}", readable.status, readable.reason), readable.message.clone(), status)
    };
    assert_eq!(of(&pipeline, Some(vec![])).0, "True/Ok");
    assert_eq!(
        of(&pipeline, Some(vec![open(3, 1_234, 960)])).0,
        "True/Ok",
        "its coordinator may still abort it"
    );
    let other = OpenTransaction { topic: "other".into(), ..open(3, 1_234, 5_000) };
    assert_eq!(of(&pipeline, Some(vec![other])).0, "True/Ok", "no topic of this pipeline");
    let (hangs, message, status) = of(&pipeline, Some(vec![open(7, 1, 3_600), open(3, 1_234, 961)]));
    assert_eq!((hangs.as_str(), summary_of(&status).as_str()), ("False/TransactionHanging", "True/Running"));
    for words in [
        &format!("{topic}/3 from offset 120 on, 1200 messages, for more than 16 min; {topic}/7"),
        "1 message, for more than 1 h. Lag does not count them.",
        &format!(":9092 describe-producers --topic {topic} --partition 3 names its producer"),
        &format!("abort --topic {topic} --partition 3 --start-offset 120"),
    ] {
        assert!(message.contains(words), "{words} is not in {message}");
    }
    // What moves all the time is not written all the time.
    assert_eq!(of(&pipeline, Some(vec![open(7, 1, 3_700), open(3, 1_299, 1_700)])).1, message);
    let many = (0..9).map(|partition| open(partition, 5, 999_999)).collect();
    let many = of(&pipeline, Some(many)).1;
    assert!(many.contains("; and 6 more. ") && many.len() < 600, "{many}");
    pipeline.status = Some(status.clone());
    assert_eq!(of(&pipeline, None).2, status, "gateways are away");
    assert_eq!(of(&pipeline, Some(vec![])).0, "True/Ok", "it was ended");
}
