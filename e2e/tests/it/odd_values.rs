//! Every odd value of OTLP goes in, and what gateway/VALUES.md says of it comes out of a `SELECT`.
//!
//! One message a case, named by its span. A case says what is selected from its row, as texts, and what that must be.

mod cases;
mod messages;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::process::{self, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn every_odd_value_has_its_documented_result() -> Result<()> {
    process::run("odd_values", 2, async |stage: &Stage| {
        let cases = cases::all();
        for (number, case) in cases.iter().enumerate() {
            stage.send(i32::try_from(number % 2)?, Some(&case.message)).await?;
        }
        // Beside the default of 1 MiB, the largest case has what a span and a batch need around its string.
        let batches = json!({"source": {"kafka": {"recordBatchBytesMax": "2MiB", "partitionsActiveMax": 2}}});
        let gateway = stage.start_with("odd", &batches).await?;
        gateway.wait_lag(0).await?;
        let mut differences = Vec::new();
        for case in &cases {
            let (selected, expected): (Vec<_>, Vec<_>) = case.results.iter().cloned().unzip();
            let selected: Vec<_> = selected.iter().map(|text| format!("toString({text})")).collect();
            let tail = format!("WHERE {}", case.row);
            let rows = gateway.select(&selected.join(", "), &tail).await?;
            let found: Vec<Value> = rows.first().cloned().unwrap_or_default();
            if rows.len() != 1 {
                differences.push(format!("{}: {} rows", case.name, rows.len()));
            }
            let pairs = found.iter().zip(&expected).zip(&selected);
            differences.extend(pairs.filter(|((found, expected), _)| **found != json!(expected)).map(
                |((found, expected), selected)| {
                    format!("{}: {selected} is {found}, not {expected:?}", case.name)
                },
            ));
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        gateway.stop().await
    })
    .await
}
