//! `sluice-gateway check`: everything that can be known before a message is read; nothing is changed.

use crate::{
    guarantee::{BUSY_BLOCKS_PER_SECOND, Load, Verdict},
    sink::{self, Sink},
};
use serde::Serialize;
use sluice_clickhouse::probe::ProbeError;
use sluice_gateway_config::{CheckedConfig, SchemaManagement};
use sluice_kafka::probe_topics;
use std::{fmt, time::Duration};

/// How long Kafka may take to answer for a topic.
const KAFKA_TIMEOUT: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The memory limit, divided: name and bytes.
    pub memory_budget: Vec<Part>,
    /// What is there.
    pub found: Vec<String>,
    /// What stands in the way.
    pub problems: Vec<String>,
}

/// A part of the memory budget.
#[derive(Debug, Serialize)]
pub struct Part {
    /// Its name.
    pub part: &'static str,
    /// Its size.
    pub bytes: u64,
}

/// Asks Kafka and ClickHouse.
pub async fn check(checked: &CheckedConfig) -> Findings {
    let memory_budget =
        checked.budget().parts().map(|(part, bytes)| Part { part, bytes: bytes.get() }).into();
    let mut findings = Findings { memory_budget, found: Vec::new(), problems: Vec::new() };
    let kafka = checked.config().source.kafka.clone();
    let asked = tokio::task::spawn_blocking(move || probe_topics(&kafka, KAFKA_TIMEOUT)).await;
    match asked {
        Ok(Ok(topics)) => {
            for topic in topics {
                match topic.partitions {
                    Some(count) => {
                        findings.found.push(format!("topic {} has {count} partitions", topic.topic));
                    }
                    None => findings.problems.push(format!(
                        "source.kafka.topics: the topic {} does not exist; create it, or name another",
                        topic.topic
                    )),
                }
            }
        }
        Ok(Err(error)) => findings.problems.push(format!("source.kafka.bootstrapServers: {error}")),
        Err(error) => findings.problems.push(format!("the question to Kafka was not finished: {error}")),
    }
    if let Err(error) = check_sink(checked, &mut findings).await {
        findings.problems.push(format!("sink.clickhouse: {error}"));
    }
    findings
}

async fn check_sink(checked: &CheckedConfig, findings: &mut Findings) -> Result<(), sink::Error> {
    let clickhouse = &checked.config().sink.clickhouse;
    let sink = Sink::new(clickhouse)?;
    findings.found.push(format!("ClickHouse {}", sink.server_version().await?));
    let name = format!("{}.{}", clickhouse.database, clickhouse.table);
    match sink.check_table().await {
        Ok(fit) => {
            findings.found.push(format!("table {name} fits: {}", fit.columns));
            findings.found.extend(fit.notes);
            findings.found.push(format!("delivery {}", promised(&sink).await));
        }
        Err(sink::Error::Probe(ProbeError::UnknownTable { .. } | ProbeError::UnknownDatabase { .. }))
            if clickhouse.schema.management == SchemaManagement::CreateIfMissing =>
        {
            findings
                .found
                .push(format!("table {name} does not exist; `sluice-gateway ddl apply` creates it"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What the table allows to be promised when it is busy.
async fn promised(sink: &Sink) -> String {
    let answers = sink.deduplication().await;
    let errors: Vec<_> =
        answers.iter().filter_map(|answer| answer.as_ref().err().map(ToString::to_string)).collect();
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let load = Load { blocks_per_second: BUSY_BLOCKS_PER_SECOND, insert_timeout: sink.insert_timeout() };
    let verdict = Verdict::of(&answers, sink.servers(), &load);
    let text = format!("{verdict} (at {BUSY_BLOCKS_PER_SECOND} blocks a second)");
    errors.iter().fold(text, |text, error| format!("{text}; {error}"))
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory budget")?;
        for Part { part, bytes } in &self.memory_budget {
            writeln!(f, "  {part:<8} {:>7} KiB", bytes / 1024)?;
        }
        for line in &self.found {
            writeln!(f, "ok       {line}")?;
        }
        for line in &self.problems {
            writeln!(f, "problem  {line}")?;
        }
        Ok(())
    }
}
