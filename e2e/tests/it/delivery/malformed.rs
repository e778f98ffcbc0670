//! Messages that cannot be read become dead letters. If there is no dead-letter topic, `Stop` stops only their partition until there is
//! one, and `Skip` counts and skips them. Each is logged once.

use e2e_fixtures::letters::Place;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use prost::Message as _;

use crate::delivery::process::{self, Gateway, Stage};
use crate::prelude::*;

pub fn good(name: &str) -> Vec<u8> {
    message(Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        name: name.to_owned(),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_001,
        ..Span::default()
    })
}

/// A message of one span.
pub fn message(span: Span) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    TracesData { resource_spans }.encode_to_vec()
}

/// The expected log line about a message.
struct Rejected {
    partition: i32,
    offset: i64,
    position: u64,
    reason: &'static str,
}

/// Fills the partitions. The first has garbage; the second has a message that is cut short; both after a valid span. The third has an empty
/// message and one without a value: they have no spans and are read. The fourth has only valid messages. Then each gets one more valid
/// span.
async fn fill(stage: &Stage) -> Result<[Rejected; 2]> {
    let mut cut_short = [good("whole"), good("cut short")].concat();
    cut_short.truncate(cut_short.len() - 4);
    // Behind the first message are the key of `resource_spans`, a length, and fewer bytes than that length.
    let position = u64::try_from(good("whole").len())? + 2;
    for partition in 0..4 {
        stage.send(partition, Some(&good("before"))).await?;
    }
    let garbage = stage.send(0, Some(b"{\"resourceSpans\":[]}")).await?;
    let truncated = stage.send(1, Some(&cut_short)).await?;
    stage.send(2, Some(b"")).await?;
    stage.send(2, None).await?;
    for partition in 0..4 {
        stage.send(partition, Some(&good("behind"))).await?;
    }
    let rejected = |partition, offset, position, reason| Rejected { partition, offset, position, reason };
    Ok([
        // `{` begins a group, in which `"r` is a field of 114 bytes from byte 3 on: more than there are.
        rejected(0, garbage, 3, "TracesData field 4: runs past the end"),
        rejected(1, truncated, position, "TracesData.resource_spans: runs past the end"),
    ])
}

/// Checks that each rejected message has exactly one line that names it.
fn check_log(gateway: &Gateway, rejected: &[Rejected], topic: &str) -> Result<()> {
    let lines = gateway.log_lines()?;
    let about: Vec<&Value> = lines.iter().filter(|line| is_about_a_message(line)).collect();
    ensure!(about.len() == rejected.len(), "{} lines instead of {}: {about:?}", about.len(), rejected.len());
    for Rejected { partition, offset, position, reason } in rejected {
        let found = about.iter().find(|line| line["partition"] == *partition);
        let Some(line) = found else { bail!("no line for partition {partition}: {about:?}") };
        ensure!(line["topic"] == topic && line["offset"] == *offset, "{line}");
        ensure!(line["position"] == *position, "{line}, not {position}");
        ensure!(line["reason"].as_str().is_some_and(|text| text.contains(reason)), "{line}");
    }
    Ok(())
}

/// Whether a line is about a message that cannot be read. Other lines have a reason too: those about stopped partitions, and about slow
/// letters.
fn is_about_a_message(line: &Value) -> bool {
    let is_slow = line["message"]
        .as_str()
        .is_some_and(|text| text.contains("has not acknowledged its dead letter yet"));
    line["reason"].is_string() && line["offset"].is_i64() && !is_slow
}

/// The first span of each partition is inserted, and the last span of this many.
async fn ensure_stored(gateway: &Gateway, behind: u32) -> Result<()> {
    let named = "toString(SpanName), toString(count())";
    let found = gateway.select(named, "GROUP BY SpanName ORDER BY 1").await?;
    let behind = behind.to_string();
    ensure!(found == [["before", "4"], ["behind", behind.as_str()]], "{found:?}");
    Ok(())
}

async fn counted(gateway: &Gateway, metric: &str) -> Result<Option<f64>> {
    gateway.metric(&format!("sluice_gateway_{metric}")).await
}

fn places(rejected: &[Rejected]) -> BTreeSet<Place> {
    rejected.iter().map(|rejected| (rejected.partition, rejected.offset)).collect()
}

#[test]
fn a_message_that_cannot_be_read_becomes_a_letter() -> Result<()> {
    process::run("malformed_letter", 4, async |stage: &Stage| {
        let rejected = fill(stage).await?;
        let gateway = stage.start("letter", &json!({})).await?;
        gateway.wait_lag(0).await?;
        ensure_stored(&gateway, 4).await?;
        let letters = gateway.letters().await?;
        letters.ensure_exactly(&stage.topic, "malformed", &places(&rejected))?;
        ensure!(letters.doubled() == 0, "{letters:?}");
        for (metric, value) in [
            (r#"messages_rejected_total{reason="malformed"}"#, 2.0),
            (r#"dead_letters_total{reason="malformed"}"#, 2.0),
            ("partitions_stopped", 0.0),
            ("ledger_imbalance_rows", 0.0),
        ] {
            let found = counted(&gateway, metric).await?;
            ensure!(found == Some(value), "{metric} is {found:?}");
        }
        check_log(&gateway, &rejected, stage.topic.name())?;
        gateway.stop().await
    })
}

#[test]
fn without_a_dead_letter_topic_a_partition_stops_alone_and_goes_on_once_there_is_one() -> Result<()> {
    process::run("malformed_stop", 4, async |stage: &Stage| {
        let taken = stage.topic.refuse_dead_letters().await?;
        let rejected = fill(stage).await?;
        let gateway = stage.start("stop", &json!({})).await?;
        // Two partitions have stopped before the second of their three messages; the others are read to the end.
        gateway.wait_metric("sluice_gateway_partitions_stopped", Some(2.0)).await?;
        gateway.wait_lag(4).await?;
        ensure_stored(&gateway, 2).await?;
        check_log(&gateway, &rejected, stage.topic.name())?;

        taken.delete().await?;
        gateway.wait_lag(0).await?;
        ensure_stored(&gateway, 4).await?;
        gateway.letters().await?.ensure_exactly(&stage.topic, "malformed", &places(&rejected))?;
        ensure!(counted(&gateway, "partitions_stopped").await? == Some(0.0));
        let refused = counted(&gateway, r#"dead_letters_refused_total{cause="missing"}"#).await?;
        ensure!(refused == Some(2.0), "{refused:?}");
        gateway.stop().await
    })
}

#[test]
fn without_a_dead_letter_topic_a_message_is_skipped_where_that_is_asked_for() -> Result<()> {
    process::run("malformed_skip", 4, async |stage: &Stage| {
        stage.topic.refuse_dead_letters().await?;
        fill(stage).await?;
        // One worker logs it once, whatever the number of partitions.
        let skip = json!({"workers": 1, "delivery": {"deadLetter": {"onMissing": "Skip"}}});
        let gateway = stage.start("skip", &skip).await?;
        gateway.wait_lag(0).await?;
        ensure_stored(&gateway, 4).await?;
        let skipped = counted(&gateway, r#"messages_skipped_total{reason="malformed"}"#).await?;
        ensure!(skipped == Some(2.0), "{skipped:?}");
        ensure!(counted(&gateway, "partitions_stopped").await? == Some(0.0));
        let lines = gateway.log_lines()?;
        let about: Vec<&Value> = lines.iter().filter(|line| is_about_a_message(line)).collect();
        ensure!(about.len() == 1, "{} lines: {about:?}", about.len());
        ensure!(gateway.letters().await?.letters.is_empty());
        gateway.stop().await
    })
}
