//! What gateways report, guarantee and queue, in the status and as events.

use crate::{
    bench::Bench,
    pods::{Behaviour, Pods},
    scaling::pass,
};
use serde_json::{Value, json};

/// A gateway's line about its guarantee.
pub const ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"exactly_once_effect\",reason=\"none\"} 1\n";
const WINDOW_OFF: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"window_off\"} 1\n";

/// A pipeline with two gateways that say this.
pub async fn saying(lines: &str) -> (Bench, Pods) {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    let mut pods = Pods::of(&bench.server, "prod");
    pods.become_ready(2, 8).await;
    pods.each(|gateway| lines.clone_into(&mut gateway.more));
    bench.settle("prod").await;
    (bench, pods)
}

fn status(bench: &Bench) -> Value {
    bench.server.get("tracepipelines/prod").unwrap()["status"].clone()
}

#[tokio::test]
async fn guarantee_and_queue_of_all_gateways_stand_in_the_status() {
    let (mut bench, pods) = saying(ONCE).await;
    assert_eq!(status(&bench)["delivery"], json!({"guarantee": "ExactlyOnceEffect"}));
    assert!(status(&bench)["queue"].is_null(), "these gateways do not say it");
    pods.each(|gateway| {
        gateway.more =
            format!("{WINDOW_OFF}sluice_gateway_spool_blocks 61\nsluice_gateway_spool_bytes 12345678\n");
    });
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    let writes: Vec<String> = bench.server.take_writes().into_iter().map(|write| write.what).collect();
    assert_eq!(
        writes,
        ["tracepipelines/prod/status", "events", "events"],
        "the promise, and that blocks wait"
    );
    let now = status(&bench);
    assert_eq!(now["delivery"], json!({"guarantee": "AtLeastOnce", "reason": "WindowOff"}));
    assert_eq!(now["queue"], json!({"blocks": 120, "bytes": 24_000_000}));
    assert_eq!(bench.condition("prod", "Ready"), "True Running", "it is a report, not a failure");
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

/// A gateway that waits for its table has not read its volume, which may hold the only copy of rows.
#[tokio::test]
async fn a_queue_is_not_known_to_be_empty_while_a_gateway_has_not_read_its_volume() {
    let empty = format!("{ONCE}sluice_gateway_spool_blocks 0\nsluice_gateway_spool_bytes 0\n");
    let (mut bench, pods) = saying(&empty).await;
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(status(&bench)["queue"], json!({"blocks": 0, "bytes": 0}));
    pods.all[1].behaviour.lock().unwrap().more = ONCE.into();
    pods.is_unready(1);
    bench.gateways_are_ready("prod", 1);
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    assert!(status(&bench)["queue"].is_null(), "{}", status(&bench));
}

#[tokio::test]
async fn what_rows_survive_stands_beside_the_guarantee_and_is_no_event() {
    let (mut bench, pods) =
        saying(&format!("{ONCE}sluice_gateway_durability{{durability=\"process\"}} 1\n")).await;
    assert_eq!(
        status(&bench)["delivery"],
        json!({"guarantee": "ExactlyOnceEffect", "durability": "Process"})
    );
    pods.each(|gateway| {
        gateway.more = format!("{ONCE}sluice_gateway_durability{{durability=\"fsync\"}} 1\n");
    });
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    let writes: Vec<String> = bench.server.take_writes().into_iter().map(|write| write.what).collect();
    assert_eq!(writes, ["tracepipelines/prod/status"]);
    assert_eq!(status(&bench)["delivery"]["durability"], "Fsync");
}

#[tokio::test]
async fn one_that_is_silent_changes_nothing_that_was_said() {
    let (mut bench, pods) = saying(ONCE).await;
    pods.falls_silent(1);
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(status(&bench)["delivery"], json!({"guarantee": "ExactlyOnceEffect"}));
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
async fn lost_messages_are_told_when_they_are_found_and_when_there_are_more() {
    let (mut bench, pods) = saying(&format!("{ONCE}sluice_gateway_messages_lost_total 0\n")).await;
    assert!(status(&bench)["loss"].is_null(), "{}", status(&bench));
    // What each of two gateways has counted, what it comes to, and whether it is news.
    for (counted, all, is_news) in
        [(40, 80, true), (40, 80, false), (45, 90, true), (0, 90, false), (3, 96, true)]
    {
        pods.each(|gateway| gateway.more = format!("{ONCE}sluice_gateway_messages_lost_total {counted}\n"));
        bench.restart();
        bench.server.take_events();
        bench.reconcile("prod").await.unwrap();
        assert_eq!(status(&bench)["loss"]["messages"], all, "{counted}");
        let events = bench.server.take_events();
        let told: Vec<&Value> = events.iter().filter(|event| event["reason"] == "DataLoss").collect();
        assert_eq!(told.len(), usize::from(is_news), "{counted}: {events:?}");
        assert!(told.iter().all(|event| event["type"] == "Warning"), "{told:?}");
    }
    assert_eq!(bench.condition("prod", "Ready"), "True Running", "gateways go on");
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
async fn messages_that_gateways_reject_stand_in_a_condition() {
    let (mut bench, pods) = saying(ONCE).await;
    assert_eq!(bench.condition("prod", "SourceReachable"), "True Ok", "older gateways do not say it");
    let far_ahead = 4_000_000_000_u64;
    // Minutes later, what each gateway has counted by then, and what is said.
    for (minutes, [messages, without_spans, rejected, rejected_at], expected, ready, events) in [
        (0, [10, 0, 0, 0], "True Ok", "True Running", 0),
        (1, [20, 10, 0, 0], "True MessagesWithoutSpans", "True Running", 0),
        (1, [30, 10, 0, 1_000_000_000], "True Ok", "True Running", 0),
        (1, [40, 10, 3, far_ahead], "True MessagesRejected", "True Running", 1),
        (6, [40, 10, 9, far_ahead], "True MessagesRejected", "True Running", 0),
        (6, [40, 10, 12, far_ahead], "False MessagesRejected", "False MessagesRejected", 1),
    ] {
        pods.each(|gateway| {
            gateway.messages = messages;
            gateway.more = format!(
                "{ONCE}sluice_gateway_messages_without_spans_total{{reason=\"no_value\"}} {without_spans}\n\
                 sluice_gateway_messages_rejected_total{{reason=\"malformed\"}} {rejected}\n\
                 sluice_gateway_message_rejected_timestamp_seconds {rejected_at}\n"
            );
        });
        pass(minutes * 60 + 30);
        bench.server.take_events();
        bench.reconcile("prod").await.unwrap();
        assert_eq!(bench.condition("prod", "SourceReachable"), expected);
        assert_eq!(bench.condition("prod", "Ready"), ready);
        let told = bench.server.take_events();
        let of_messages = told.iter().filter(|event| event["reason"] == "MessagesRejected").count();
        assert_eq!(of_messages, events, "{told:?}");
    }
    // Another operator has nothing to compare with yet.
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

/// Log records were in the topic before the gateway started, and it had rejected all of them when the operator first looked at it.
#[tokio::test]
async fn messages_that_were_all_rejected_before_the_first_look_make_the_source_unreachable() {
    let said = |read: u64, rejected: u64| {
        move |gateway: &mut Behaviour| {
            gateway.messages = read;
            gateway.more = format!(
                "{ONCE}sluice_gateway_messages_rejected_total{{reason=\"malformed\"}} {rejected}\n\
                 sluice_gateway_message_rejected_timestamp_seconds 4000000000\n"
            );
        }
    };
    let (mut bench, pods) = saying(ONCE).await;
    pods.each(said(0, 5));
    pass(30);
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.condition("prod", "SourceReachable"), "False MessagesRejected");
    assert_eq!(bench.condition("prod", "Ready"), "False MessagesRejected");
    // Another operator comes to the same.
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
    // Gateways that have read spans for days, and rejected some, are not said to reject all after a restart of the operator.
    pods.each(said(1_000_000, 9));
    pass(30);
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.condition("prod", "SourceReachable"), "True MessagesRejected");
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
async fn of_messages_those_of_the_last_minutes_count() {
    let (bench, pods) = saying(ONCE).await;
    let counted = |read: u64, rejected: u64, inserted: u64, refused: u64| {
        pods.each(|gateway| {
            gateway.messages = read;
            gateway.more = format!(
                "{ONCE}sluice_gateway_messages_rejected_total{{reason=\"malformed\"}} {rejected}\n\
                 sluice_gateway_message_rejected_timestamp_seconds 4000000000\n\
                 sluice_gateway_rows_inserted_total {inserted}\n\
                 sluice_gateway_dead_letters_total{{reason=\"row_refused\"}} {refused}\n"
            );
        });
    };
    let conditions = async |minutes: u64| {
        pass(minutes * 60);
        bench.reconcile("prod").await.unwrap();
        ["SourceReachable", "SinkReachable", "Ready"].map(|kind| bench.condition("prod", kind))
    };
    let sink = bench.condition("prod", "SinkReachable");
    counted(10_000, 3, 10_000, 0);
    assert_eq!(conditions(1).await, ["True MessagesRejected", &sink, "True Running"]);
    // The producer is another one, and everything is rejected.
    counted(10_000, 9, 10_000, 0);
    assert_eq!(conditions(6).await, ["False MessagesRejected", &sink, "False MessagesRejected"]);
    // It is mended, and the table refuses what it writes.
    counted(10_500, 9, 10_000, 500);
    assert_eq!(conditions(6).await[1..], ["False RowsRefused".to_owned(), "False RowsRefused".to_owned()]);
    counted(20_500, 9, 20_000, 500);
    assert_eq!(conditions(6).await[1..], [sink, "True Running".to_owned()]);
}

#[tokio::test]
async fn a_transaction_that_hangs_stands_in_a_condition_also_while_gateways_are_replaced() {
    let (mut bench, pods) = saying(ONCE).await;
    let open = |seconds: u64, messages: u64| {
        pods.each(|gateway| {
            gateway.more = format!(
                "{ONCE}sluice_gateway_open_transaction_messages{{partition=\"3\",topic=\"spans\"}} {messages}\n\
                 sluice_gateway_open_transaction_seconds{{partition=\"3\",topic=\"spans\"}} {seconds}.5\n\
                 sluice_gateway_open_transaction_first_offset{{partition=\"3\",topic=\"spans\"}} 120\n"
            );
        });
    };
    let looked = async |bench: &Bench| {
        pass(30);
        bench.reconcile("prod").await.unwrap();
        bench.condition("prod", "SourceReachable")
    };
    open(60, 7);
    assert_eq!(looked(&bench).await, "True Ok", "most end");
    open(1_000, 7);
    assert_eq!(looked(&bench).await, "False TransactionHanging");
    assert_eq!(bench.condition("prod", "Ready"), "True Running", "gateways go on");
    // A gateway that has begun again counts from 0.
    bench.server.take_writes();
    open(2, 7);
    assert_eq!(looked(&bench).await, "False TransactionHanging");
    assert_eq!(bench.server.take_writes(), []);
    pods.each(|gateway| gateway.more = ONCE.to_owned());
    for _ in 0..4 {
        looked(&bench).await;
    }
    assert_eq!(looked(&bench).await, "True Ok", "it was ended");
    open(1_000, 7);
    bench.restart();
    assert_eq!(looked(&bench).await, "False TransactionHanging");
}

#[tokio::test]
async fn partitions_that_are_added_are_told() {
    let (bench, _pods) = saying(ONCE).await;
    bench.server.take_events();
    // As if the topic had had four when it was last looked at.
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["status"]["topics"] = json!([{"name": "spans", "partitions": 4}]);
        pipeline["status"]["desiredReplicas"] = 1.into();
    });
    bench.reconcile("prod").await.unwrap();
    let events = bench.server.take_events();
    let told: Vec<&Value> = events.iter().filter(|event| event["reason"] == "PartitionsAdded").collect();
    let words = "the topic \"spans\" has 8 partitions now, 4 before; the number of gateways goes from 1 to 2";
    assert_eq!(told.len(), 1, "{events:?}");
    assert_eq!((&told[0]["note"], &told[0]["type"]), (&json!(words), &json!("Normal")));
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.take_events().is_empty());
}

#[tokio::test]
async fn a_gateway_that_takes_no_part_says_why_once_that_is_more_than_a_start() {
    let (mut bench, pods) = saying(ONCE).await;
    let why = "partition tracing/3 stands still: its dead letters cannot be written";
    pods.all[1].behaviour.lock().unwrap().absence = why.into();
    pods.is_unready(1);
    bench.gateways_are_ready("prod", 1);
    let counted =
        ("False Progressing".to_owned(), "1 of 2 gateways are ready; not ready: prod-gateway-1".to_owned());
    let told = ("False ReplicasNotReady".to_owned(), format!("prod-gateway-1: {why}"));
    assert_eq!(ready(&bench).await, counted);
    bench.server.take_events();
    assert_eq!(ready(&bench).await, told);
    let events = bench.server.take_events();
    let is_told = |event: &Value| event["type"] == "Warning" && event["note"].as_str().unwrap().contains(why);
    assert!(events.iter().any(is_told), "{events:?}");
    bench.server.take_writes();
    assert_eq!(ready(&bench).await, told);
    pods.falls_silent(1);
    assert_eq!((ready(&bench).await, bench.server.take_writes()), (told.clone(), Vec::new()), "nothing new");
    // Another operator does not know more, and so takes nothing back.
    bench.restart();
    assert_eq!((ready(&bench).await, bench.server.take_writes()), (told, Vec::new()));
}

/// The kubelet says for how long a gateway has not been ready.
#[tokio::test]
async fn an_operator_that_starts_says_at_its_first_look_why_a_gateway_has_long_not_been_ready() {
    let (mut bench, pods) = saying(ONCE).await;
    let why = "waits for the table: no server answers";
    pods.all[1].behaviour.lock().unwrap().absence = why.into();
    pods.is_unready(1);
    bench.gateways_are_ready("prod", 1);
    pass(60);
    bench.restart();
    let told = ("False ReplicasNotReady".to_owned(), format!("prod-gateway-1: {why}"));
    assert_eq!(ready(&bench).await, told);
    // Before it has an answer, the former cause holds.
    bench.restart_waiting(std::time::Duration::ZERO);
    assert_eq!(ready(&bench).await, told);
}

#[tokio::test]
async fn a_gateway_that_was_asked_to_leave_needs_no_excuse() {
    let (bench, pods) = saying(ONCE).await;
    pods.is_unready(1);
    bench.gateways_are_ready("prod", 1);
    for _ in 0..4 {
        // The operator resumes it, and another client drains it once more.
        pods.each(|gateway| {
            (gateway.can_drain, gateway.is_drained) = (true, true);
            gateway.absence = "it was drained and reads nothing until POST /resume".into();
        });
        assert_eq!(ready(&bench).await.0, "False Progressing");
    }
}

#[tokio::test]
async fn partitions_that_no_gateway_reads_make_a_pipeline_not_ready_after_half_a_minute() {
    let (mut bench, pods) = saying(ONCE).await;
    let owns = |each: u32| pods.each(|gateway| gateway.partitions = each);
    owns(2);
    let looked = async |bench: &Bench, seconds: u64| {
        pass(seconds);
        bench.reconcile("prod").await.unwrap();
        bench.condition("prod", "Ready")
    };
    assert_eq!(looked(&bench, 30).await, "True Running", "it may be a rebalance");
    assert_eq!(looked(&bench, 10).await, "True Running");
    assert_eq!(looked(&bench, 10).await, "True Running");
    bench.server.take_events();
    assert_eq!(looked(&bench, 10).await, "False PartitionsUnread");
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        words.starts_with("4 of 8 partitions have no reader") && words.contains("--group tracing.prod. "),
        "{words}"
    );
    assert_eq!(bench.condition("prod", "Reconciling"), "True Waiting");
    bench.server.take_writes();
    assert_eq!(looked(&bench, 10).await, "False PartitionsUnread");
    assert_eq!(bench.server.take_writes(), [], "nothing new");
    // Another operator has not seen it for that long, and takes nothing back.
    bench.restart();
    assert_eq!(looked(&bench, 10).await, "False PartitionsUnread");
    owns(4);
    assert_eq!(looked(&bench, 10).await, "True Running");
    // A gateway that does not answer may read the other partitions.
    owns(2);
    pods.falls_silent(1);
    for _ in 0..5 {
        assert_eq!(looked(&bench, 10).await, "True Running");
    }
}

#[tokio::test]
async fn partitions_of_a_gateway_that_ended_without_leaving_its_group_have_no_reader() {
    let (bench, mut pods) = saying(ONCE).await;
    // Only two gateways are wanted now. The session of the third has not ended yet, so no gateway reads its partitions.
    pods.become_ready(3, 8).await;
    bench.server.remove("pods/prod-gateway-2");
    for _ in 0..4 {
        pass(10);
        bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(bench.condition("prod", "Ready"), "False PartitionsUnread");
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(words.starts_with("3 of 8 partitions"), "{words}");
}

#[tokio::test]
async fn a_ready_gateway_that_does_not_answer_for_a_minute_is_named_until_it_answers() {
    let (mut bench, pods) = saying(ONCE).await;
    let well = ready(&bench).await;
    assert_eq!(well.0, "True Running");
    let answers = |answer: Option<&str>| {
        pods.all[0].behaviour.lock().unwrap().strange = answer.map(str::to_owned);
    };
    answers(Some("no state"));
    pods.falls_silent(1);
    for _ in 0..2 {
        assert_eq!(ready(&bench).await, well, "one look without an answer may be a busy node");
    }
    let told = ready(&bench).await;
    assert_eq!(told.0, "False ReplicasNotReady");
    assert!(
        told.1.starts_with("prod-gateway-0 is ready, but the operator cannot use its answer: "),
        "{}",
        told.1
    );
    assert!(
        told.1.contains("prod-gateway-1 is ready, but does not answer the operator at 127."),
        "{}",
        told.1
    );
    assert!(told.1.contains("to ports 9090 and 9091 of gateways"), "{}", told.1);
    bench.server.take_writes();
    for _ in 0..2 {
        assert_eq!(ready(&bench).await, told);
        bench.restart();
    }
    assert_eq!(bench.server.take_writes(), [], "another operator takes nothing back");
    answers(None);
    let told = ready(&bench).await;
    assert_eq!(told.0, "False ReplicasNotReady");
    assert!(
        told.1.starts_with("prod-gateway-1 is ready, but does not answer the operator at 127."),
        "{}",
        told.1
    );
}

/// Lets time pass, and says how Ready is then, and in which words.
async fn ready(bench: &Bench) -> (String, String) {
    pass(30);
    bench.reconcile("prod").await.unwrap();
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    (bench.condition("prod", "Ready"), words)
}
