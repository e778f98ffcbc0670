use super::*;

/// A state as a gateway writes it. The operator's tests read the same.
const EXPORTED: &str = include_str!("../../../operator/tests/gateway-state.json");

fn refused(answer: &str) -> (String, String) {
    match GatewayState::read(answer.as_bytes()) {
        Err(StateError::Unreadable { at, why }) => (at, why),
        other => panic!("{answer}: {other:?}"),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let read = GatewayState::read(EXPORTED.as_bytes()).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(EXPORTED).unwrap());
}

#[test]
fn what_is_left_out_has_its_default_and_what_is_not_known_is_passed_over() {
    let expected = GatewayState {
        version: 1,
        sample: GatewaySample { messages: Some(7), ..GatewaySample::default() },
        remaining: Remaining {
            blocks: 2,
            damaged: Some(false),
            draining: Some(true),
            ..Remaining::default()
        },
        ..GatewayState::default()
    };
    let answer = r#"{"version":1,"ofTheFuture":[{}],"readiness":{"since":1},"sample":{"messages":7,"x":{}},
                     "remaining":{"blocks":2,"damaged":false,"draining":true,"y":null}}"#;
    assert_eq!(GatewayState::read(answer.as_bytes()).unwrap(), expected);
}

#[test]
fn how_an_insert_failed_is_read_back_and_an_older_gateway_does_not_say_it() {
    let said = InsertErrorState {
        class: "halt".into(),
        code: Some(516),
        message: Some("wrong".into()),
        endpoint: Some("http://a:8123".into()),
        table: Some("`d`.`t`".into()),
    };
    let sample = GatewaySample { insert_error: Some(said.clone()), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    let expected = serde_json::json!({"class": "halt", "code": 516, "message": "wrong", "endpoint": "http://a:8123", "table": "`d`.`t`"});
    assert_eq!(written["insertError"], expected);
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    let least: InsertErrorState = serde_json::from_str(r#"{"class": "retry", "since": 1}"#).unwrap();
    assert_eq!(least, InsertErrorState { class: "retry".into(), ..InsertErrorState::default() });
    assert_eq!(serde_json::from_str::<GatewaySample>("{}").unwrap().insert_error, None);
}

#[test]
fn a_long_text_is_cut_in_the_middle() {
    for (text, expected) in [
        ("", ""),
        ("0123456789ab", "0123456789ab"),
        ("0123456789abc", "0123 ... abc"),
        ("ääääääääääääö", "ääää ... ääö"),
    ] {
        assert_eq!(cut_in_the_middle(text, 12), expected);
    }
}

#[test]
fn why_the_table_cannot_be_used_is_read_back_and_an_older_gateway_does_not_say_it() {
    let table_error = Some("TableMissing".to_owned());
    let sample = GatewaySample { table_error, table_missing: Some(true), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    assert_eq!((&written["tableError"], &written["tableMissing"]), (&"TableMissing".into(), &true.into()));
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    let older = serde_json::from_str::<GatewaySample>("{}").unwrap();
    assert_eq!((older.table_error, older.table_missing), (None, None));
}

#[test]
fn that_no_broker_is_reached_is_read_back_and_an_older_gateway_does_not_say_it() {
    let said = UnconnectedState { reason: "a:9092/1: refused".into(), seconds: 75 };
    let sample = GatewaySample { unconnected: Some(said), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    assert_eq!(written["unconnected"], serde_json::json!({"reason": "a:9092/1: refused", "seconds": 75}));
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    assert_eq!(serde_json::from_str::<GatewaySample>("{}").unwrap().unconnected, None);
}

#[test]
fn that_messages_are_not_fetched_is_read_back_and_a_cause_of_a_newer_gateway_is_another_one() {
    let said = UnfetchedState {
        cause: UnfetchedCause::TopicRefused,
        topic: Some("spans".into()),
        partitions: 4,
        error: None,
        seconds: 20,
    };
    let sample = GatewaySample { unfetched: Some(said), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    let expected =
        serde_json::json!({"cause": "topicRefused", "topic": "spans", "partitions": 4, "seconds": 20});
    assert_eq!(written["unfetched"], expected);
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    assert_eq!(serde_json::from_str::<GatewaySample>("{}").unwrap().unfetched, None);
    let newer: GatewaySample = serde_json::from_str(r#"{"unfetched": {"cause": "moonRefused"}}"#).unwrap();
    assert_eq!(newer.unfetched, Some(UnfetchedState::default()));
}

#[test]
fn that_a_volume_is_full_is_read_back_and_an_older_gateway_does_not_say_it() {
    let said = VolumeFullState { seconds: 75, bytes_max: 1_000, limit: VolumeLimit::Segments };
    let sample = GatewaySample { volume_full: Some(said), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    let expected = serde_json::json!({"seconds": 75, "bytesMax": 1_000, "limit": "segments"});
    assert_eq!(written["volumeFull"], expected);
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    assert_eq!(serde_json::from_str::<GatewaySample>("{}").unwrap().volume_full, None);
    let before: GatewaySample = serde_json::from_str(r#"{"volumeFull": {"seconds": 75}}"#).unwrap();
    assert_eq!(before.volume_full, Some(VolumeFullState { seconds: 75, ..VolumeFullState::default() }));
}

#[test]
fn the_parts_of_a_table_are_read_back_and_an_older_gateway_does_not_say_them() {
    let said = TablePartsState { parts: 600, delay_from: 1_000, refuse_from: 3_000, merges_behind: true };
    let sample = GatewaySample { table_parts: Some(said), ..GatewaySample::default() };
    let written = serde_json::to_value(&sample).unwrap();
    let expected =
        serde_json::json!({"parts": 600, "delayFrom": 1000, "refuseFrom": 3000, "mergesBehind": true});
    assert_eq!(written["tableParts"], expected);
    assert_eq!(serde_json::from_value::<GatewaySample>(written).unwrap(), sample);
    assert_eq!(serde_json::from_str::<GatewaySample>("{}").unwrap().table_parts, None);
}

#[test]
fn what_must_not_be_missing_has_no_default() {
    for (answer, missing) in [
        ("{}", "version"),
        (r#"{"version":1}"#, "remaining"),
        (r#"{"version":1,"remaining":{"bytes":0}}"#, "blocks"),
        (r#"{"version":1,"remaining":{"blocks":0,"damaged":false}}"#, "draining"),
        (r#"{"version":1,"remaining":{"blocks":0,"draining":true}}"#, "damaged"),
    ] {
        let (at, why) = refused(answer);
        assert!(why.contains(missing), "{answer}: at {at}: {why}");
    }
}

#[test]
fn whatever_is_cut_off_is_no_state_and_says_where() {
    for end in 0..EXPORTED.trim_end().len() {
        refused(&EXPORTED[..end]);
    }
    let (at, why) = refused(&EXPORTED.replace("\"partition\": 5", "\"partition\": \"five\""));
    assert!(at == "sample.topics[0].partitions[1].partition" && why.contains("five"), "{at}: {why}");
    refused("<html>");
    refused(&format!("{EXPORTED}{EXPORTED}"));
    let (at, why) =
        refused(&EXPORTED.replace("\"messages\": 1000", &format!("\"messages\": \"{}\"", "x".repeat(9_000))));
    assert!(at.len() <= ERROR_CHARS_MAX && why.len() <= ERROR_CHARS_MAX, "{at}: {why}");
}

#[test]
fn another_format_is_refused_whatever_it_looks_like() {
    let answer = br#"{"version":2,"remaining":"another shape"}"#;
    assert_eq!(GatewayState::read(answer), Err(StateError::Version { found: 2 }));
}

#[test]
fn the_longest_state_of_ten_thousand_partitions_can_be_read() {
    let longest = u64::MAX;
    let partition = PartitionState {
        partition: u32::MAX,
        position: Some(longest),
        committed_offset: Some(longest),
        lag_messages: Some(longest),
        still: Some("stopped_by_message".into()),
        open_transaction: Some(OpenTransactionState {
            first_offset: longest,
            messages: longest,
            seconds: longest,
        }),
    };
    assert!(serde_json::to_vec(&partition).unwrap().len() < 300);
    let topic = TopicState { name: "t".repeat(249), partitions: vec![partition; 10_000] };
    let sample = GatewaySample { topics: vec![topic], ..GatewaySample::default() };
    let state = GatewayState { version: STATE_VERSION, sample, ..GatewayState::default() };
    assert!(serde_json::to_vec(&state).unwrap().len() < STATE_BYTES_MAX);
}
