//! All wrong fields of a text at once.
//!
//! Place in the flow: [`super::from_yaml`] calls this with YAML that is not a valid config. Reading ends at the first wrong field. So
//! that field is corrected from [`EXAMPLE`], or removed, and the text is read again, until it is a config. Rules between fields are then
//! checked too, except for corrected fields.
//!
//! Limits: [`FINDINGS_MAX`] fields of texts of [`TEXT_BYTES_MAX`]. The text is read once more for every wrong field, and, if a field is
//! missing, once more for every other missing field.

use super::{Wrong, typed};
use crate::{GatewayConfig, violation::Violations};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Chosen: more than a user corrects at once.
const FINDINGS_MAX: usize = 32;

/// For larger texts only the first wrong field is reported. Chosen: eight times a config with every field.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A valid value for every required field.
const EXAMPLE: &str = "\
contractVersion: 1
pipeline: {namespace: example, name: example}
source:
  kafka:
    bootstrapServers: [example:9092]
    topics: [example]
    consumerGroup: example
    sasl: {mechanism: Plain, usernameFile: example, passwordFile: example}
sink:
  clickhouse:
    endpoints: [http://example:8123]
    database: example
    table: example
    credentials: {usernameFile: example, passwordFile: example}
workers: 1
memory: {limit: 1GiB}
";

/// The same of `source.otlp`, in place of Kafka.
const EXAMPLE_OTLP: &str = "\
listen:
  grpc: 0.0.0.0:4317
  tls: {certificateFile: example, keyFile: example}
";

/// The parameters of the memory budget: if one of these is wrong, the limit cannot be checked.
const BUDGET_FIELDS: [&str; 9] = [
    "memory",
    "sink.clickhouse.insert",
    "sink.clickhouse.shards",
    "source.kafka.format",
    "source.kafka.partitionsActiveMax",
    "source.kafka.recordBatchBytesMax",
    "source.otlp.limits",
    "source.otlp.logs",
    "workers",
];

/// All errors of a text whose first error is `first`. `None` if no more is known.
pub(super) fn findings(text: &str, first: &Wrong) -> Option<Violations> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut tree: Value = typed(text).ok()?;
    let mut example: Value = typed(EXAMPLE).ok()?;
    if tree.pointer("/source/otlp").is_some() {
        *example.pointer_mut("/source")? = serde_json::json!({ "otlp": typed::<Value>(EXAMPLE_OTLP).ok()? });
    }
    let mut found = Violations::default();
    while found.iter().len() < FINDINGS_MAX {
        let wrong = match read(&tree) {
            Ok(config) => {
                add_rules(config, &mut found);
                break;
            }
            Err(wrong) => wrong,
        };
        let Some(field) = mend(&mut tree, &example, &wrong) else { break };
        // Positions in the tree's text differ from those in the original text, where only the first is known.
        found.add(field, if wrong.is_same(first) { &first.message } else { &wrong.plain });
    }
    (!found.is_empty()).then_some(found)
}

/// Reads a tree like its text: a field determines the type of a YAML scalar.
fn read(tree: &Value) -> Result<GatewayConfig, Wrong> {
    typed(&serde_saphyr::to_string(tree).unwrap_or_default())
}

/// Corrects the wrong field, or removes it. Returns its path, or `None` if neither is possible.
fn mend(tree: &mut Value, example: &Value, wrong: &Wrong) -> Option<String> {
    let path = wrong.path.as_ref()?;
    let (pointer, of_example) = (pointer(path, false)?, pointer(path, true)?);
    let right = example.pointer(&of_example);
    let there = tree.pointer_mut(&pointer)?;
    match right {
        Some(Value::Object(fields)) if there.is_object() => {
            let field = fields.iter().find_map(|(field, value)| {
                let mut tried = tree.clone();
                let object = tried.pointer_mut(&pointer)?.as_object_mut()?;
                if object.contains_key(field) {
                    return None;
                }
                object.insert(field.clone(), value.clone());
                let is_it = read(&tried).err().is_none_or(|now| !now.is_same(wrong));
                is_it.then_some((field, tried))
            });
            let (field, mended) = field?;
            *tree = mended;
            let at = wrong.at();
            Some(if at == "." { field.clone() } else { format!("{at}.{field}") })
        }
        Some(right) if there != right => {
            *there = right.clone();
            Some(wrong.at())
        }
        _ => remove(tree, &pointer).then(|| wrong.at()),
    }
}

/// A path as a JSON pointer (RFC 6901); for an example, whose lists have one element, with index 0.
fn pointer(path: &Path, of_example: bool) -> Option<String> {
    path.iter().try_fold(String::new(), |pointer, segment| {
        let token = match segment {
            Segment::Seq { .. } if of_example => "0".to_owned(),
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
        Some(format!("{pointer}/{token}"))
    })
}

fn remove(tree: &mut Value, pointer: &str) -> bool {
    let Some((parent, token)) = pointer.rsplit_once('/') else { return false };
    match tree.pointer_mut(parent) {
        Some(Value::Object(object)) => object.remove(&token.replace("~1", "/").replace("~0", "~")).is_some(),
        Some(Value::Array(list)) => {
            let index = token.parse().ok().filter(|index| *index < list.len());
            index.map(|index: usize| list.remove(index)).is_some()
        }
        _ => false,
    }
}

/// Adds violations of rules, except those that concern corrected fields.
fn add_rules(config: GatewayConfig, found: &mut Violations) {
    let Err(broken) = config.check() else { return };
    let mended: Vec<String> = found.iter().map(|violation| violation.path.clone()).collect();
    let is_near = |path: &str| mended.iter().any(|field| is_within(path, field) || is_within(field, path));
    let knows_budget = !BUDGET_FIELDS.into_iter().any(is_near);
    for violation in &broken {
        let is_told = if violation.path == "memory.limit" { knows_budget } else { !is_near(&violation.path) };
        if is_told {
            found.add(violation.path.clone(), violation.message.clone());
        }
    }
}

/// Whether one path equals the other or lies inside it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixtures::SMALLEST, parse::from_yaml};

    fn paths(text: &str) -> Vec<String> {
        let error = from_yaml(text).unwrap_err().to_string();
        error.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_example_is_a_config() {
        from_yaml(EXAMPLE).unwrap().check().unwrap();
    }

    #[test]
    fn every_wrong_field_is_named_and_every_broken_rule_beside_them() {
        let text = SMALLEST
            .replace("    topics: [otlp_spans]", "    topic: [otlp_spans]\n    partitionsActiveMax: 0")
            .replace("workers: 2", "workers: many\nlog: {level: loud, format: Html}")
            .replace("table: otel_traces", "table: a b\n    insert: {maxRows: x, concurrency: 0}");
        let mut found = paths(&text);
        found.sort();
        let expected = [
            "log.format",
            "log.level",
            "sink.clickhouse.insert.concurrency",
            "sink.clickhouse.insert.maxRows",
            "sink.clickhouse.table",
            "source.kafka.partitionsActiveMax",
            "source.kafka.topic",
            "source.kafka.topics",
            "workers",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_wrong_field_is_told_with_its_place() {
        let text = SMALLEST.replace("192MiB", "192").replace("workers: 2", "workers: many");
        let error = from_yaml(&text).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        let placed: Vec<_> = lines.iter().filter(|line| line.contains("line")).collect();
        assert!(lines.len() == 2 && placed.len() == 1 && placed[0].starts_with("workers"), "{error}");
    }

    #[test]
    fn fields_that_are_missing_are_named_wherever_they_are() {
        assert_eq!(paths("contractVersion: 1\n"), ["pipeline", "source", "sink", "workers", "memory"]);
        let sasl = SMALLEST.replace("    topics", "    sasl: {}\n    topics");
        assert_eq!(
            paths(&sasl),
            [
                "source.kafka.sasl.mechanism",
                "source.kafka.sasl.usernameFile",
                "source.kafka.sasl.passwordFile"
            ]
        );
    }

    #[test]
    fn an_element_of_a_list_that_is_wrong_is_named_with_its_number() {
        let text = SMALLEST.replace("topics: [otlp_spans]", "topics: [a, {b: c}, [d]]");
        assert_eq!(paths(&text), ["source.kafka.topics[1]", "source.kafka.topics[2]"]);
    }

    #[test]
    fn the_number_of_findings_has_a_limit() {
        let unknown: String = (0..100).map(|n| format!("unknown{n}: 1")).collect::<Vec<_>>().join("\n");
        assert_eq!(paths(&(SMALLEST.to_owned() + &unknown)).len(), FINDINGS_MAX);
    }
}
