//! Every odd value of OTLP, in both encodings: a `SELECT` from a table of each layout returns what gateway/VALUES.md says.
//!
//! One message a case, named by its span. A case has expressions over its row, and their expected values as text. Some messages have no
//! form in OTLP/JSON; they are still sent as text, and are malformed then.

mod cases;
mod messages;

use std::borrow::Cow;

use e2e_fixtures::letters::Place;
use e2e_fixtures::spans::{Encoding, otlp_json};
use sluice_gateway_config::Layout;

use crate::delivery::process::{self, Gateway, Stage};
use crate::prelude::*;
use cases::Case;

/// Why messages are rejected, by the label of the metric.
const REASONS: [&str; 2] = ["malformed", "row_too_large"];

const LAYOUTS: [Layout; 3] = [Layout::Json, Layout::Map, Layout::Nested];

#[test]
#[ignore = "group delivery"]
fn every_odd_value_has_its_documented_result() -> Result<()> {
    of_encoding("odd_values", Encoding::OtlpProto)
}

#[test]
#[ignore = "group delivery"]
fn every_odd_value_in_json_has_its_documented_result() -> Result<()> {
    of_encoding("odd_values_json", Encoding::OtlpJson)
}

/// One topic, and a gateway for each layout, which read it at the same time.
fn of_encoding(test: &str, encoding: Encoding) -> Result<()> {
    process::run(test, 2, async |stage: &Stage| {
        stage.topic.take_any_timestamp().await?;
        let cases = cases::all();
        let refused = send(stage, &cases, encoding).await?;
        let mut gateways = Vec::new();
        for layout in LAYOUTS {
            gateways.push((layout, start(stage, layout, encoding).await?));
        }
        let (mut differences, mut rejected) = (Vec::new(), Vec::new());
        for (layout, gateway) in gateways {
            gateway.wait_lag(0).await?;
            for case in &cases {
                let is_refused = refused_as(case, encoding).is_some();
                let found = differences_of(&gateway, case, layout, is_refused).await?;
                differences
                    .extend(found.into_iter().map(|found| format!("{layout:?}: {}: {found}", case.name)));
            }
            gateway.letters().await?.ensure_reasons(&stage.topic, &refused)?;
            rejected.push((layout, rejected_by_reason(&gateway).await?));
            gateway.stop().await?;
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        // All gateways write letters to one topic: a letter of one would hide that another read the message.
        let mut wanted = BTreeMap::from(REASONS.map(|reason| (reason, 0.0)));
        for reason in refused.values() {
            *wanted.entry(*reason).or_default() += 1.0;
        }
        for (layout, found) in rejected {
            ensure!(found == wanted, "{layout:?}: {found:?} are rejected, not {wanted:?}");
        }
        Ok(())
    })
}

/// The reason why gateways must reject a case; `None` if they must read it.
fn refused_as(case: &Case, encoding: Encoding) -> Option<&'static str> {
    let has_no_words = encoding == Encoding::OtlpJson && case.only_in_protobuf;
    case.rejected.or(has_no_words.then_some("malformed"))
}

/// How many messages a gateway has rejected for each of the reasons.
async fn rejected_by_reason(gateway: &Gateway) -> Result<BTreeMap<&'static str, f64>> {
    let mut rejected = BTreeMap::new();
    for reason in REASONS {
        let metric = format!("sluice_gateway_messages_rejected_total{{reason=\"{reason}\"}}");
        // There is no series before the first rejection.
        rejected.insert(reason, gateway.metric(&metric).await?.unwrap_or_default());
    }
    Ok(rejected)
}

/// Sends the message of every case; returns the places of those that gateways must reject, with the reasons.
async fn send(stage: &Stage, cases: &[Case], encoding: Encoding) -> Result<BTreeMap<Place, &'static str>> {
    let mut refused = BTreeMap::new();
    for (number, case) in cases.iter().enumerate() {
        let partition = i32::try_from(number % 2)?;
        let message = match encoding {
            Encoding::OtlpProto => Cow::Borrowed(&case.message),
            Encoding::OtlpJson => Cow::Owned(otlp_json(&case.message)),
        };
        let offset = stage.send_at(case.message_millis, partition, Some(&message)).await?;
        refused.extend(refused_as(case, encoding).map(|reason| ((partition, offset), reason)));
    }
    Ok(refused)
}

async fn start(stage: &Stage, layout: Layout, encoding: Encoding) -> Result<Gateway> {
    let format = match encoding {
        Encoding::OtlpProto => "OtlpProto",
        Encoding::OtlpJson => "OtlpJson",
    };
    let change = json!({
        // The largest cases have a row of 4 MiB, plus what a span and a batch add.
        "source": {"kafka": {"format": format, "recordBatchBytesMax": "5MiB", "partitionsActiveMax": 2}},
        "memory": {"limit": "256MiB"},
        "sink": {"clickhouse": {"schema": {"layout": layout}}},
    });
    stage.start(&format!("{layout:?}").to_lowercase(), &change).await
}

/// The differences between the table of a layout and the expected values of the cases.
async fn differences_of(
    gateway: &Gateway,
    case: &Case,
    layout: Layout,
    is_refused: bool,
) -> Result<Vec<String>> {
    let (selected, expected): (Vec<_>, Vec<_>) = case.results(layout).unzip();
    ensure!(!selected.is_empty(), "{} expects nothing of {layout:?}", case.name);
    let rows = gateway.select(&selected.join(", "), &format!("WHERE {}", case.row)).await?;
    if rows.len() != usize::from(!is_refused) {
        return Ok(vec![format!("{} rows", rows.len())]);
    }
    let found: Vec<Value> = rows.into_iter().flatten().collect();
    let pairs = found.iter().zip(expected).zip(selected);
    let differences = pairs.filter(|((found, expected), _)| **found != json!(expected));
    Ok(differences
        .map(|((found, expected), selected)| format!("{selected} is {found}, not {expected:?}"))
        .collect())
}
