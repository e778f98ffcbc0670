//! `sluice-gateway check`: finds problems before any message is read; changes nothing.

use crate::{
    app::queue_volume::AFTER_ENQUEUE,
    guarantee::{BUSY_BLOCKS_PER_SECOND, Load, Reason, Verdict},
    table::sink::{self, NarrowMemory, Sink, shards},
};
use rustix::fs::{Access, access};
use serde::Serialize;
use sluice_clickhouse::{durability::UNKNOWN, probe_error::ProbeError, ttl::AtOnce};
use sluice_gateway_config::{
    CheckedConfig, ClickHouse, Commit, DeadLetter, GatewayConfig, Kafka, Layout, OnMissing, OtlpSource,
    Queue, QueueMode, SchemaManagement, Sizing,
    budget::{Budget, smallest_limit},
    in_two_shards,
};
use sluice_kafka::{
    ProbeError as KafkaProbeError, TopicPartitions, batch_warning,
    dead_letter::{TOPIC_PARTITIONS_MAX, default_topic},
    probe_topics,
    retention::read_limits,
    would_make,
};
use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

/// How long Kafka may take to answer for a topic.
const KAFKA_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The parts of the memory limit: name and bytes.
    pub memory_budget: Vec<Part>,
    /// What is in order.
    pub found: Vec<String>,
    /// What may become a problem.
    pub warnings: Vec<String>,
    /// What prevents the gateway from working.
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
    let mut findings = Findings::of(checked.budget());
    if checked.config().delivery.commit == Commit::AfterEnqueue {
        findings.warnings.push(format!("delivery.commit AfterEnqueue: {AFTER_ENQUEUE}"));
    }
    findings.queue(&checked.config().queue);
    if let Some(otlp) = &checked.config().source.otlp {
        findings.otlp(checked.config(), otlp);
    }
    let is_compacted = match &checked.config().source.kafka {
        Some(kafka) => check_kafka(kafka, checked.config(), &mut findings).await,
        None => false,
    };
    let clickhouse = &checked.config().sink.clickhouse;
    findings.shards(&clickhouse.shards());
    match shards(clickhouse) {
        Ok(shards) => {
            for sink in &shards {
                if let Err(error) = check_sink(clickhouse, sink, is_compacted, &mut findings).await {
                    findings.problems.push(format!("sink.clickhouse: {error}"));
                }
            }
        }
        Err(error) => findings.problems.push(format!("sink.clickhouse: {error}")),
    }
    findings
}

/// Looks at Kafka's topics. Returns whether one is compacted.
async fn check_kafka(kafka: &Kafka, config: &GatewayConfig, findings: &mut Findings) -> bool {
    let topics = check_topics(kafka, findings).await;
    let is_compacted = check_limits((kafka, config), &topics, findings).await;
    check_dead_letters(kafka, &config.delivery.dead_letter, &topics, findings).await;
    is_compacted
}

/// The config's topics with their numbers of partitions; topics that do not exist are left out.
async fn check_topics(kafka: &Kafka, findings: &mut Findings) -> Vec<(String, usize)> {
    let mut there = Vec::new();
    let topics = match ask(kafka).await {
        Ok(topics) => topics,
        Err(problem) => {
            findings.problems.push(problem);
            return there;
        }
    };
    for topic in topics {
        let Some(count) = topic.partitions else {
            findings.problems.push(format!(
                "source.kafka.topics: the topic {} does not exist; create it, or name another one",
                topic.topic
            ));
            continue;
        };
        findings.found.push(format!("topic {} has {count} partitions", topic.topic));
        there.push((topic.topic, count));
    }
    there
}

/// Warns of topics with larger record batches than the config expects. Returns whether a topic is compacted. Topics whose configuration
/// the user may not describe are left out, as a gateway leaves them out.
async fn check_limits(
    (kafka, config): (&Kafka, &GatewayConfig),
    topics: &[(String, usize)],
    findings: &mut Findings,
) -> bool {
    let names = topics.iter().map(|(topic, _)| topic.clone()).collect::<Vec<_>>();
    if names.is_empty() {
        return false;
    }
    let asking = Kafka { topics: names, ..kafka.clone() };
    let limits = read_limits(&asking, KAFKA_TIMEOUT).await.unwrap_or_default();
    let warnings = limits.iter().filter_map(|(topic, limits)| {
        let enough = |batch| smallest_limit(&Sizing { record_batch_bytes_max: batch, ..config.sizing() });
        batch_warning(&asking, topic, limits.batch_bytes_max?, enough)
    });
    findings.warnings.extend(warnings);
    limits.iter().any(|(_, limits)| limits.is_compacted)
}

/// The brokers' answer about the config's topics, or the problem.
async fn ask(kafka: &Kafka) -> Result<Vec<TopicPartitions>, String> {
    let asking = kafka.clone();
    match tokio::task::spawn_blocking(move || probe_topics(&asking, KAFKA_TIMEOUT)).await {
        Ok(Ok(topics)) => Ok(topics),
        // No broker was asked: a property, or a file of tls, is wrong.
        Ok(Err(error @ KafkaProbeError::Settings { .. })) => Err(format!("source.kafka: {error}")),
        Ok(Err(error)) => Err(format!("source.kafka.bootstrapServers: {error}")),
        Err(error) => Err(format!("the request to Kafka did not finish: {error}")),
    }
}

/// Checks whether dead-letter topics exist or can be created. A gateway without bad messages needs none, so a missing topic is no problem
/// yet.
async fn check_dead_letters(
    kafka: &Kafka,
    dead_letter: &DeadLetter,
    sources: &[(String, usize)],
    findings: &mut Findings,
) {
    let names = sources.iter().map(|(source, count)| {
        let topic = dead_letter.topic.clone().unwrap_or_else(|| default_topic(source));
        (topic, (*count).min(TOPIC_PARTITIONS_MAX))
    });
    // One topic may serve all sources.
    for (topic, count) in names.collect::<BTreeMap<_, _>>() {
        let asking = Kafka { topics: vec![topic.clone()], ..kafka.clone() };
        let is_there = match ask(&asking).await {
            Ok(found) => found.iter().any(|found| found.partitions.is_some()),
            // The problem that brokers do not answer is already reported for the sources.
            Err(problem) => return findings.warnings.push(problem),
        };
        if is_there {
            findings.found.push(format!("dead-letter topic {topic} exists"));
            continue;
        }
        match would_make(kafka, &topic, count, KAFKA_TIMEOUT).await {
            Ok(()) => findings.found.push(format!(
                "dead-letter topic {topic} does not exist; a gateway creates it for its first letter"
            )),
            Err(why) => findings.warnings.push(missing_letters(dead_letter.on_missing, &topic, &why)),
        }
    }
}

/// The warning about a dead-letter topic that neither exists nor can be created.
fn missing_letters(on_missing: OnMissing, topic: &str, why: &str) -> String {
    let consequence = match on_missing {
        OnMissing::Stop => "stops its partition until the topic exists",
        OnMissing::Skip => "is skipped and counted, but is in no dead-letter topic",
    };
    format!(
        "delivery.deadLetter: the topic {topic} does not exist, or the user may not describe it, and Kafka would refuse to create it \
         ({why}); a message that cannot be read {consequence}; create it, or allow the gateway's user to describe and write to it"
    )
}

async fn check_sink(
    clickhouse: &ClickHouse,
    sink: &Sink,
    is_compacted: bool,
    findings: &mut Findings,
) -> Result<(), sink::Error> {
    findings.found.push(format!("ClickHouse {} at {}", sink.server_version().await?, sink.servers_named()));
    let name = format!("{}.{}", clickhouse.database, clickhouse.table);
    let block_bytes_max = clickhouse.insert.max_bytes.get();
    match sink.check_table().await {
        Ok(fit) => {
            findings.found.push(format!("table {name} fits: {}", fit.columns.text()));
            findings.found.extend(fit.notes);
            let obstacles = sink.obstacles(&fit.columns).await;
            findings.problems.extend(
                obstacles.into_iter().map(|error| format!("sink.clickhouse: no INSERT can succeed: {error}")),
            );
            let has_json = fit.columns.has_json();
            findings.narrow_memory(sink.narrow_memory(block_bytes_max, has_json).await);
            findings.promise(&promised(sink, is_compacted).await);
            findings.found.push(format!("durability {}", durability(sink).await));
            findings.acts_at_once(&sink.acting_at_once().await.unwrap_or_default());
            let report = sink.differences(&mut |_| ()).await?;
            let differences =
                report.messages().into_iter().map(|message| format!("sink.clickhouse.schema: {message}"));
            findings.warnings.extend(differences);
        }
        Err(sink::Error::Probe(ProbeError::UnknownTable { .. } | ProbeError::UnknownDatabase { .. }))
            if may_create(clickhouse.schema.management) =>
        {
            let obstacles = sink.obstacles_to_create().await;
            if obstacles.is_empty() {
                findings
                    .found
                    .push(format!("table {name} does not exist; `sluice-gateway ddl apply` creates it"));
            }
            findings.problems.extend(obstacles.into_iter().map(|error| format!("sink.clickhouse: {error}")));
            let schema = &clickhouse.schema;
            let has_json = schema.preset.is_none() && schema.layout.unwrap_or_default() == Layout::Json;
            findings.narrow_memory(sink.narrow_memory(block_bytes_max, has_json).await);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Why a gateway could not use this folder for its queue volume. Creates nothing.
fn queue_obstacle(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_dir() => Some("it is not a folder".to_owned()),
        Ok(_) => access(path, Access::WRITE_OK | Access::EXEC_OK).err().map(|error| error.to_string()),
    }
}

fn may_create(management: SchemaManagement) -> bool {
    matches!(management, SchemaManagement::CreateIfMissing | SchemaManagement::Evolve)
}

/// The delivery guarantee of the table under load, and why servers did not answer.
struct Promised {
    verdict: Verdict,
    errors: Vec<String>,
}

async fn promised(sink: &Sink, is_compacted: bool) -> Promised {
    let answers = sink.deduplication().await;
    let errors: Vec<_> =
        answers.iter().filter_map(|answer| answer.as_ref().err().map(ToString::to_string)).collect();
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let load = Load { blocks_per_second: BUSY_BLOCKS_PER_SECOND, insert_timeout: sink.insert_timeout() };
    let verdict = Verdict::of(&answers, sink.servers(), &load);
    let verdict = if is_compacted { verdict.and(Reason::TopicCompacted) } else { verdict };
    Promised { verdict, errors }
}

/// The failures that acknowledged rows survive.
async fn durability(sink: &Sink) -> String {
    match sink.durability().await {
        Ok(Some(known)) => known.to_string(),
        Ok(None) => format!(
            "{UNKNOWN}: the gateway's user may not read it, or the table's engine stores rows in other tables"
        ),
        Err(error) => format!("{UNKNOWN}: {error}"),
    }
}

impl Findings {
    /// Findings with only the memory budget.
    fn of(budget: &Budget) -> Self {
        let memory_budget =
            budget.parts().into_iter().map(|(part, bytes)| Part { part, bytes: bytes.get() }).collect();
        Self { memory_budget, found: Vec::new(), warnings: Vec::new(), problems: Vec::new() }
    }

    /// Adds where OTLP is accepted, and whether the files for it can be read.
    fn otlp(&mut self, config: &GatewayConfig, otlp: &OtlpSource) {
        let listen = &otlp.listen;
        let at = [("gRPC", &listen.grpc), ("HTTP", &listen.http)];
        let at =
            at.into_iter().filter_map(|(name, address)| Some(format!("{name} on {}", address.as_ref()?)));
        let (at, logs) = (at.collect::<Vec<_>>().join(" and "), config.logs());
        self.found
            .push(format!("source.otlp accepts {at}, and keeps requests in {logs} logs on the queue volume"));
        let tls = listen.tls.iter().flat_map(|tls| {
            let files = [Some(&tls.certificate_file), Some(&tls.key_file), tls.client_ca_file.as_ref()];
            files.into_iter().flatten().map(|file| ("tls", file))
        });
        let credentials = listen.authentication.iter().flat_map(|files| {
            let files = [files.bearer_tokens_file.as_ref(), files.basic_users_file.as_ref()];
            files.into_iter().flatten().map(|file| ("authentication", file))
        });
        for (field, file) in tls.chain(credentials) {
            if let Err(error) = std::fs::File::open(file) {
                self.problems.push(format!("source.otlp.listen.{field}: {file} cannot be read: {error}"));
            }
        }
    }

    /// Adds whether the queue volume is there. It is a warning, because a person may check a config where no gateway runs.
    fn queue(&mut self, Queue { mode, path, .. }: &Queue) {
        if *mode == QueueMode::Disabled {
            return;
        }
        match queue_obstacle(Path::new(path)) {
            None => self.found.push(format!("the queue volume {path} can be written")),
            Some(why) => self.warnings.push(format!(
                "queue.path: {path} cannot be used as queue volume ({why}), and with queue.mode Spill a gateway does not start without it: \
                 mount it there with write access for this user, or set queue.mode Disabled"
            )),
        }
    }

    /// Adds servers that stand in two shards in different spellings. A gateway starts with them, because earlier versions took them; a config
    /// that is written today must not have them.
    fn shards(&mut self, shards: &[&[String]]) {
        let shared = in_two_shards(shards.iter().copied());
        self.problems.extend(shared.iter().map(|shared| {
            let (number, words) = (shared.other.0, shared.words());
            format!("sink.clickhouse.shards[{number}]: {words}; list each server in one shard, and once")
        }));
    }

    /// Adds rules of the table's TTL that act on new rows at once. A gateway inserts such rows, so that is a warning and no problem; it may
    /// be meant for a rule with a condition.
    fn acts_at_once(&mut self, rules: &[AtOnce]) {
        self.warnings.extend(rules.iter().map(|rule| format!("sink.clickhouse: {rule}")));
    }

    /// Adds limits on the user's memory. With one that takes smaller blocks a gateway works, so that is a warning and no problem.
    fn narrow_memory(&mut self, limits: Vec<NarrowMemory>) {
        for NarrowMemory { text, refuses_all } in limits {
            let list = if refuses_all { &mut self.problems } else { &mut self.warnings };
            list.push(format!("sink.clickhouse: {text}"));
        }
    }

    /// Adds the guarantee. A gateway works with `at_least_once`, so that is a warning and no problem.
    fn promise(&mut self, Promised { verdict, errors }: &Promised) {
        let text = format!("delivery {verdict} (at {BUSY_BLOCKS_PER_SECOND} blocks a second)");
        let text = errors.iter().fold(text, |text, error| format!("{text}; {error}"));
        if verdict.reasons.is_empty() { self.found.push(text) } else { self.warnings.push(text) }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory budget")?;
        let limit = self.memory_budget.iter().map(|part| part.bytes).sum();
        for Part { part, bytes } in self.memory_budget.iter().chain([&Part { part: "limit", bytes: limit }]) {
            // The parts of a limit need not be whole KiB.
            writeln!(f, "  {part:<8} {bytes:>13} bytes")?;
        }
        for line in &self.found {
            writeln!(f, "ok       {line}")?;
        }
        for line in &self.warnings {
            writeln!(f, "warning  {line}")?;
        }
        for line in &self.problems {
            writeln!(f, "problem  {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::metrics::reference;
    use sluice_gateway_config::ByteSize;

    /// Budgets of limits that divide into whole KiB, and of one that does not.
    fn budgets() -> impl Iterator<Item = (u64, Budget)> {
        let limits = [ByteSize::mib(192), ByteSize::mib(256), ByteSize::bytes((400 << 20) + 1)];
        limits
            .into_iter()
            .map(|limit| (limit.get(), Budget::divide(&Sizing { limit, ..reference::sizing() }).unwrap()))
    }

    #[test]
    fn the_parts_that_are_printed_add_up_to_the_limit() {
        for (limit, budget) in budgets() {
            let text = Findings::of(&budget).to_string();
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some("memory budget"));
            let parts: Vec<(&str, u64)> = lines
                .map(|line| {
                    let words: Vec<_> = line.split_whitespace().collect();
                    let [part, bytes, "bytes"] = words[..] else { panic!("{line}") };
                    (part, bytes.parse().unwrap())
                })
                .collect();
            let Some((last, parts)) = parts.split_last() else { panic!("{text}") };
            assert_eq!(*last, ("limit", limit));
            assert_eq!(parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), limit, "{text}");
            let names: Vec<_> = parts.iter().map(|(part, _)| *part).collect();
            assert_eq!(names, budget.parts().into_iter().map(|(part, _)| part).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_guarantee_that_does_not_hold_is_a_warning() {
        let once = Verdict { reasons: [].into(), age_budget: Duration::from_mins(8), views: false };
        let text = |verdict: Verdict, errors: Vec<String>| {
            let mut findings = Findings::of(&budgets().next().unwrap().1);
            findings.promise(&Promised { verdict, errors });
            assert!(findings.problems.is_empty());
            findings.to_string()
        };
        assert!(text(once.clone(), Vec::new()).contains("\nok       delivery exactly_once_effect: "));
        for reason in [Reason::SettingsLost, Reason::TopicCompacted] {
            let text = text(once.clone().and(reason), vec!["a server is away".into()]);
            let line = format!(
                "\nwarning  delivery at_least_once: {reason} (at 10 blocks a second); a server is away\n"
            );
            assert!(text.contains(&line), "{text}");
            assert!(!text.contains("ok       delivery"), "{text}");
        }
    }

    #[test]
    fn a_queue_folder_that_is_not_there_is_named() {
        let volume = crate::volume::test_volume::Volume::new("check");
        let file = volume.path().join("file");
        std::fs::write(&file, "").unwrap();
        let text = |mode, path: &Path| {
            let mut findings = Findings::of(&budgets().next().unwrap().1);
            findings.queue(&Queue { mode, path: path.display().to_string(), max_bytes: None });
            assert!(findings.problems.is_empty());
            findings.to_string()
        };
        let there = text(QueueMode::Spill, volume.path());
        assert!(
            there.contains(&format!("\nok       the queue volume {} can", volume.path().display())),
            "{there}"
        );
        for (path, why) in [(volume.path().join("none"), "No such file"), (file, "it is not a folder")] {
            let found = text(QueueMode::Spill, &path);
            let words =
                format!("\nwarning  queue.path: {} cannot be used as queue volume ({why}", path.display());
            assert!(found.contains(&words), "{found}");
            assert!(!text(QueueMode::Disabled, &path).contains("queue volume"));
        }
    }

    #[test]
    fn a_server_in_two_shards_is_a_problem_in_any_spelling() {
        let of = |shards: [&str; 2]| {
            let shards = shards.map(|endpoint| [endpoint.to_owned()]);
            let mut findings = Findings::of(&budgets().next().unwrap().1);
            findings.shards(&shards.each_ref().map(<[String; 1]>::as_slice));
            findings.problems
        };
        assert!(of(["http://a:8123", "http://b:8123"]).is_empty());
        assert_eq!(
            of(["http://a:8123", "http://A:8123/"]),
            [
                "sink.clickhouse.shards[1]: \"http://A:8123/\" and \"http://a:8123\" of shards[0] are one address, so two shards share one \
              server; list each server in one shard, and once"
            ]
        );
    }

    #[test]
    fn a_ttl_that_deletes_new_rows_at_once_is_a_warning() {
        let mut findings = Findings::of(&budgets().next().unwrap().1);
        findings.acts_at_once(&[]);
        assert!(findings.warnings.is_empty());
        let rule = "toDate(Timestamp) + toIntervalDay(50000)".to_owned();
        findings.acts_at_once(&[AtOnce { rule, reason: "its type is Date".into() }]);
        assert!(findings.problems.is_empty());
        let line = "\nwarning  sink.clickhouse: the table's TTL toDate(Timestamp) + toIntervalDay(50000) deletes every new row at once: its";
        assert!(findings.to_string().contains(line), "{findings}");
    }

    #[test]
    fn the_parts_in_json_add_up_to_the_limit() {
        for (limit, budget) in budgets() {
            let json = serde_json::to_value(Findings::of(&budget)).unwrap();
            let parts = json["memoryBudget"].as_array().unwrap();
            let bytes = parts.iter().map(|part| part["bytes"].as_u64().unwrap());
            assert_eq!(bytes.sum::<u64>(), limit, "{json}");
            assert!(parts.iter().all(|part| part["part"].is_string()), "{json}");
        }
    }
}
