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
use sluice_gateway_config::ClickHouse;

/// The reason for a table that accepts rows but differs otherwise: a reason of the condition `SchemaReady`.
pub const DIFFERS: &str = "SchemaDiffers";

/// The reason for servers that did not answer while the tables of the others accept rows: a reason of the same condition. It is unknown
/// whether those servers have the table, so this must not count as success.
pub const NOT_REACHED: &str = "ServersNotReached";

/// Characters of the last line's message. Chosen: Kubernetes keeps 2 KiB from the end of the pod's log.
const MESSAGE_CHARS_MAX: usize = 1_000;

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
    Ok(Told { code, ..Told::plain(told(&report, json)) })
}

/// Creates what is missing, as far as `schema.management` allows, and compares the rest.
pub async fn apply(config: &ClickHouse, json: bool, mut tell: impl FnMut(&str)) -> Result<Told, Error> {
    let report = Sink::new(config)?.apply_telling(config.schema.management, &mut tell).await?;
    Ok(applied(&report, told(&report, json)))
}

/// The result of `apply`. Differences that only a person may change do not prevent another run for servers that did not answer.
fn applied(report: &Report, text: String) -> Told {
    let differs = report.messages().join("; ");
    let (reason, message, code) = match (&report.not_reached[..], &*differs) {
        ([], "") => return Told::plain(text),
        ([], _) => (DIFFERS, differs, EXIT_FINDINGS),
        (servers, "") => (NOT_REACHED, format!("not reached: {}", servers.join(", ")), EXIT_AGAIN),
        (servers, _) => {
            (NOT_REACHED, format!("not reached: {}; on the others {differs}", servers.join(", ")), EXIT_AGAIN)
        }
    };
    Told { text, last_line: Some(last_line(Some(reason), &message)), code }
}

/// The last line for the operator: why the command ends.
pub fn last_line(reason: Option<&str>, message: &str) -> String {
    let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    serde_json::json!({ "reason": reason, "message": message }).to_string()
}

fn told(report: &Report, json: bool) -> String {
    if json { to_json(report) } else { format!("{report}\n") }
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts and lists of texts serialise") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(applied(&all, String::new()), Told::plain(String::new()));
        let missing = Report {
            unreachable: vec!["cannot connect to http://b:8123: refused".into()],
            not_reached: vec!["http://b:8123".into()],
            ..all
        };
        let told = applied(&missing, String::new());
        assert_eq!(told.code, EXIT_AGAIN);
        let line: serde_json::Value = serde_json::from_str(&told.last_line.unwrap()).unwrap();
        assert_eq!(line["reason"], NOT_REACHED);
        assert_eq!(line["message"], "not reached: http://b:8123");
        assert!(!to_json(&missing).contains("notReached"), "a program reads the reasons as well");
    }

    #[test]
    fn the_last_line_fits_what_is_kept_of_it() {
        let line = last_line(Some(DIFFERS), &"\u{e9}".repeat(5_000));
        assert!(line.len() <= 2_048, "{}", line.len());
        assert_eq!(last_line(None, "m"), r#"{"message":"m","reason":null}"#);
    }
}
