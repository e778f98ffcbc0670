//! `sluice-gateway ddl`: prints, compares or applies the table's definition.
//!
//! The output is text or JSON. If `apply` finds a difference or fails, its last line is always JSON: the operator reads it from the end of
//! the Job's pod log.

use crate::{
    exit_codes::{EXIT_AGAIN, EXIT_DIFFERS, EXIT_FINDINGS},
    table::{
        schema::Report,
        sink::{Error, Sink},
    },
};
use sluice_clickhouse::ddl::create_all;
use sluice_gateway_config::{ClickHouse, SchemaManagement};

/// The reason for a table that accepts rows but differs otherwise: a reason of the condition `SchemaReady`.
pub const DIFFERS: &str = "SchemaDiffers";

/// The reason for servers that did not answer while the tables of the others accept rows: a reason of the same condition. It is unknown
/// whether those servers have the table, so this must not count as success.
pub const NOT_REACHED: &str = "ServersNotReached";

/// Bytes of the last line's message, as JSON writes it. Chosen: Kubernetes keeps 2 KiB from the end of the pod's log, and the rest of the
/// line takes less than 60 bytes.
const MESSAGE_BYTES_MAX: usize = 1_900;

/// Bytes of that message for the number of the differences that do not fit, and the names of the first three.
const OTHERS_BYTES_MAX: usize = 300;

/// What `schema.management: Evolve` would change.
const EVOLVE: &str = "with schema.management: Evolve, Sluice itself creates what is missing, adds columns and changes settings";

/// The output and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    /// For standard output.
    pub text: String,
    /// For standard error, as its last line.
    pub last_line: Option<String>,
    /// The exit code.
    pub code: u8,
}

impl Told {
    fn plain(text: String) -> Self {
        Self { text, last_line: None, code: 0 }
    }
}

/// The statements that create everything, each ended by a semicolon; or as a JSON list.
pub fn print(config: &ClickHouse, json: bool) -> Result<Told, Error> {
    let statements = create_all(Sink::new(config)?.table_spec());
    let text = if json { to_json(&statements) } else { statements.join(";\n") + ";\n" };
    Ok(Told::plain(text))
}

/// Compares the table with the config.
pub async fn diff(config: &ClickHouse, json: bool, mut tell: impl FnMut(&str)) -> Result<Told, Error> {
    let report = Sink::new(config)?.differences(&mut tell).await?;
    let code = if report.differences.is_empty() { 0 } else { EXIT_DIFFERS };
    Ok(Told { code, ..Told::plain(told(&report, config.schema.management, json)) })
}

/// Creates what is missing, as far as `schema.management` allows, and compares the rest.
pub async fn apply(config: &ClickHouse, json: bool, mut tell: impl FnMut(&str)) -> Result<Told, Error> {
    let management = config.schema.management;
    let report = Sink::new(config)?.apply_telling(management, &mut tell).await?;
    Ok(applied(&report, management, told(&report, management, json)))
}

/// The result of `apply`. Differences that only a person may change do not prevent another run for servers that did not answer.
fn applied(report: &Report, management: SchemaManagement, text: String) -> Told {
    let servers = report.not_reached.join(", ");
    let (reason, begin, code) = match (servers.is_empty(), report.differences.is_empty()) {
        (true, true) => return Told::plain(text),
        (true, false) => (DIFFERS, String::new(), EXIT_FINDINGS),
        (false, true) => (NOT_REACHED, format!("not reached: {servers}"), EXIT_AGAIN),
        (false, false) => (NOT_REACHED, format!("not reached: {servers}; on the others "), EXIT_AGAIN),
    };
    let bytes_max = MESSAGE_BYTES_MAX.saturating_sub(json_bytes(&begin));
    let message = begin + &summary(report, management, bytes_max);
    Told { text, last_line: Some(last_line(Some(reason), &message)), code }
}

/// As many differences as fit, each whole with its statement; then how many others there are, and what Sluice would do itself.
fn summary(report: &Report, management: SchemaManagement, bytes_max: usize) -> String {
    let hint = evolve_hint(report, management);
    let messages = report.messages();
    let all = messages.iter().copied().chain(hint).collect::<Vec<_>>().join("; ");
    if json_bytes(&all) <= bytes_max {
        return all;
    }
    let mut left = bytes_max.saturating_sub(OTHERS_BYTES_MAX + hint.map_or(0, json_bytes));
    let (mut said, mut others) = (Vec::new(), Vec::new());
    for differs in &report.differences {
        let bytes = json_bytes(&differs.message) + "; ".len();
        if bytes <= left {
            left -= bytes;
            said.push(differs.message.clone());
        } else {
            others.push(&*differs.what);
        }
    }
    let names = others.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    let names = if others.len() > 3 { names + ", …" } else { names };
    said.push(format!(
        "and {} more ({names}): `sluice-gateway ddl diff` and the log of the schema Job print the statements",
        others.len()
    ));
    said.extend(hint.map(str::to_owned));
    said.join("; ")
}

/// What Sluice would change itself with another `schema.management`, if there is anything.
fn evolve_hint(report: &Report, management: SchemaManagement) -> Option<&'static str> {
    let is_automatic = report.differences.iter().any(|differs| differs.change != "ByHand");
    (is_automatic && management != SchemaManagement::Evolve).then_some(EVOLVE)
}

/// The last line for the operator: why the command ends.
pub fn last_line(reason: Option<&str>, message: &str) -> String {
    let mut bytes = 0;
    let fits = |char: &char| {
        bytes += escaped_bytes(*char);
        bytes <= MESSAGE_BYTES_MAX
    };
    let message: String = message.chars().take_while(fits).collect();
    serde_json::json!({ "reason": reason, "message": message }).to_string()
}

/// The bytes of a text in JSON, without its quotes.
fn json_bytes(text: &str) -> usize {
    text.chars().map(escaped_bytes).sum()
}

fn escaped_bytes(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        other if other < ' ' => 6,
        other => other.len_utf8(),
    }
}

fn told(report: &Report, management: SchemaManagement, json: bool) -> String {
    if json {
        return to_json(report);
    }
    let hint = evolve_hint(report, management).map(|hint| format!("{hint}\n")).unwrap_or_default();
    format!("{report}\n{hint}")
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts and lists of texts serialise") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::schema::Differs;
    use sluice_gateway_config::parse;

    fn config() -> ClickHouse {
        let config = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 1GiB}, \
             source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
             sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t, schema: {views: {traceTimes: true}}}}}";
        parse::from_yaml(config).unwrap().sink.clickhouse
    }

    #[test]
    fn statements_are_printed_for_a_shell_and_as_a_list() {
        let text = print(&config(), false).unwrap().text;
        assert!(
            text.starts_with("CREATE DATABASE IF NOT EXISTS `d`;\nCREATE TABLE IF NOT EXISTS `d`.`t`\n"),
            "{text}"
        );
        assert!(text.ends_with("WHERE TraceId != \'\' GROUP BY TraceId;\n"), "{text}");
        let list: Vec<String> = serde_json::from_str(&print(&config(), true).unwrap().text).unwrap();
        assert_eq!(list.len(), 4);
        assert_eq!(list.join(";\n") + ";\n", text);
    }

    #[test]
    fn a_server_that_was_not_reached_is_no_success() {
        let all = Report { table: "d.t".into(), columns: "c".into(), ..Report::default() };
        let applied = |report: &Report| applied(report, SchemaManagement::CreateIfMissing, String::new());
        assert_eq!(applied(&all), Told::plain(String::new()));
        let missing = Report {
            unreachable: vec!["cannot connect to http://b:8123: refused".into()],
            not_reached: vec!["http://b:8123".into()],
            ..all
        };
        let told = applied(&missing);
        assert_eq!(told.code, EXIT_AGAIN);
        let line: serde_json::Value = serde_json::from_str(&told.last_line.unwrap()).unwrap();
        assert_eq!(line["reason"], NOT_REACHED);
        assert_eq!(line["message"], "not reached: http://b:8123");
        assert!(!to_json(&missing).contains("notReached"), "a program reads the reasons as well");
    }

    fn missing_columns(names: &[&str]) -> Report {
        let differs = |name: &&str| Differs {
            what: format!("column {name}"),
            wanted: String::new(),
            found: "missing".into(),
            change: "AddColumn",
            would: vec![format!("ALTER {name}")],
            message: format!(
                "column {name} is missing; this would take: ALTER TABLE {}{name}",
                "t".repeat(500)
            ),
            servers: vec!["http://h:8123".into()],
        };
        let differences = names.iter().map(differs).collect();
        Report { table: "d.t".into(), columns: "c".into(), differences, ..Report::default() }
    }

    #[test]
    fn the_last_line_has_whole_statements_and_counts_the_others() {
        let message = |report: &Report, management| {
            let line = applied(report, management, String::new()).last_line.unwrap();
            assert!(line.len() <= 2_048, "{}", line.len());
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            line["message"].as_str().unwrap().to_owned()
        };
        let few = missing_columns(&["A", "B"]);
        let evolved = message(&few, SchemaManagement::Evolve);
        assert_eq!(evolved, few.messages().join("; "));
        assert_eq!(message(&few, SchemaManagement::Validate), format!("{evolved}; {EVOLVE}"));
        let many = missing_columns(&["A", "B", "C", "D", "E", "F"]);
        assert_eq!(
            message(&many, SchemaManagement::Validate),
            format!(
                "{evolved}; and 4 more (column C, column D, column E, …): `sluice-gateway ddl diff` and the log of the \
                 schema Job print the statements; {EVOLVE}"
            )
        );
        let text = told(&many, SchemaManagement::Validate, false);
        assert!(many.messages().iter().all(|message| text.contains(message)), "{text}");
        assert!(text.ends_with(&format!("\n{EVOLVE}\n")), "{text}");
    }

    #[test]
    fn the_last_line_fits_what_is_kept_of_it() {
        for char in ["\u{e9}", "\"", "\n", "\u{1}", "a"] {
            let message = char.repeat(5_000);
            let line = last_line(Some(NOT_REACHED), &message);
            assert!((1_900..=2_000).contains(&line.len()), "{char:?}: {}", line.len());
            assert_eq!(json_bytes(&message), serde_json::to_string(&message).unwrap().len() - 2, "{char:?}");
        }
        assert_eq!(last_line(None, "m"), r#"{"message":"m","reason":null}"#);
    }
}
