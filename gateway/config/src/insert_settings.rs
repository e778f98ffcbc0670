//! ClickHouse settings that a config may add to every INSERT, and those that it may not, each with the reason.
//!
//! Allowed are settings that do not affect the promise "one INSERT is one block, whole, once": quorum, memory, threads, priorities,
//! limits of partitions, logging.

use crate::violation::Violations;
use std::collections::BTreeMap;

/// Maximum number of settings. Chosen: they are in the query string of every INSERT.
pub const SETTINGS_MAX: usize = 32;

/// Maximum bytes of a name or a value.
pub const SETTING_BYTES_MAX: usize = 256;

const BLOCK: &str = "one INSERT is one block, stored whole or not at all";
const ONCE: &str = "a retry must be recognised and dropped";
const FORMAT: &str = "the gateway decides how rows are written";
const REQUEST: &str = "the gateway decides how it sends requests";

/// Names, or prefixes of names that end in `_`, and the reason. The CRD has the same list.
pub const OWNED: [(&str, &str); 39] = [
    ("async_insert", BLOCK),
    ("async_insert_", BLOCK),
    ("wait_for_async_insert", BLOCK),
    ("wait_for_async_insert_timeout", BLOCK),
    ("max_insert_block_size", BLOCK),
    ("max_insert_block_size_", BLOCK),
    ("max_block_size", BLOCK),
    ("min_insert_block_size_rows", BLOCK),
    ("deduplicate_", ONCE),
    ("insert_deduplicate", ONCE),
    ("insert_deduplication_", ONCE),
    ("update_insert_deduplication_token_in_dependent_materialized_views", ONCE),
    ("materialized_views_ignore_errors", "the gateway must see the error of a failed view"),
    ("throw_if_deduplication_in_dependent_materialized_views_enabled_with_async_insert", ONCE),
    ("input_format_", FORMAT),
    ("format_", FORMAT),
    ("type_json_", FORMAT),
    ("default_format", FORMAT),
    ("date_time_input_format", FORMAT),
    ("insert_null_as_default", FORMAT),
    ("compress", REQUEST),
    ("decompress", REQUEST),
    ("enable_http_compression", REQUEST),
    ("http_", REQUEST),
    ("wait_end_of_query", REQUEST),
    ("buffer_size", REQUEST),
    ("send_progress_in_http_headers", REQUEST),
    ("query", REQUEST),
    ("query_id", REQUEST),
    ("param_", REQUEST),
    ("session_", REQUEST),
    ("close_session", REQUEST),
    ("stacktrace", REQUEST),
    ("log_comment", "it names the gateway"),
    ("max_execution_time", "it follows from insert.timeout"),
    ("timeout_overflow_mode", "it follows from insert.timeout"),
    ("database", "set database"),
    ("user", "set credentials"),
    ("password", "set credentials"),
];

/// Names that the gateway sets, where another value would only be slower, or have the server refuse the INSERT.
const TUNED: [&str; 2] = ["materialize_statistics_on_insert", "use_query_cache"];

/// The reason why a config may not set this setting; `None` if it may.
pub fn owner(name: &str) -> Option<&'static str> {
    let is_meant = |owned: &str| if owned.ends_with('_') { name.starts_with(owned) } else { name == owned };
    let owned = OWNED.iter().find(|(owned, _)| is_meant(owned)).map(|(_, instead)| *instead);
    owned.or_else(|| TUNED.contains(&name).then_some("the gateway tunes it"))
}

/// Adds what is wrong with the settings; `at` is their path.
pub(crate) fn check(settings: &BTreeMap<String, String>, at: &str, found: &mut Violations) {
    found.add_if(settings.len() > SETTINGS_MAX, at, || {
        format!("{} settings are more than {SETTINGS_MAX}", settings.len())
    });
    for (name, value) in settings {
        let at = format!("{at}.{name}");
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let is_name = !name.is_empty() && name.len() <= SETTING_BYTES_MAX && name.bytes().all(is_plain);
        found
            .add_if(!is_name, &at, || "is not the name of a setting, which has a-z, 0-9 and '_' only".into());
        if let Some(instead) = owner(name) {
            found.add(&at, format!("cannot be set here: {instead}"));
        }
        found.add_if(value.len() > SETTING_BYTES_MAX, &at, || {
            format!("{} bytes are more than {SETTING_BYTES_MAX}", value.len())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_names_what_decides_it_and_the_rest_passes() {
        for (name, expected) in [
            ("insert_quorum", None),
            ("max_memory_usage", None),
            ("max_partitions_per_insert_block", None),
            ("min_insert_block_size_bytes", None),
            ("parallel_view_processing", None),
            ("async_insert", Some(BLOCK)),
            ("max_insert_block_size_rows", Some(BLOCK)),
            ("insert_deduplication_token", Some(ONCE)),
            ("input_format_allow_errors_num", Some(FORMAT)),
            ("wait_end_of_query", Some(REQUEST)),
            ("max_execution_time", Some("it follows from insert.timeout")),
            ("materialize_statistics_on_insert", Some("the gateway tunes it")),
        ] {
            assert_eq!(owner(name), expected, "{name}");
        }
    }

    #[test]
    fn a_violation_names_the_setting() {
        let mut found = Violations::default();
        let settings = [("async_insert", "1"), ("Max Memory", "1"), ("insert_quorum", "2")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        check(&settings, "sink.clickhouse.insert.settings", &mut found);
        assert_eq!(
            found.to_string(),
            "sink.clickhouse.insert.settings.Max Memory: is not the name of a setting, which has a-z, 0-9 and '_' only\n\
             sink.clickhouse.insert.settings.async_insert: cannot be set here: one INSERT is one block, stored whole or not at all"
        );
    }
}
