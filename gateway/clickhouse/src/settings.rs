//! What every INSERT says about itself.
//!
//! Job: pin the settings on which "one INSERT is one block, whole or not at all" rests. Their defaults move between
//! versions, and a user's profile may change them. Place in the flow: made part of the query string once, by
//! [`crate::insert::InsertTarget`].
//!
//! Not here: `insert_deduplication_token`, `query_id` and `max_execution_time` (they differ between targets or
//! inserts), `insert_quorum` (how many replicas must have a row is the user's policy: [`crate::durability::quorum_settings`], or a profile's), and
//! `http_native_compression_disable_checksumming_on_decompress` (the server keeps checking our checksums).
//!
//! Every name was read from `system.settings` of ClickHouse 26.7. An older server that lacks one answers with code
//! 115: see [`SERVER_VERSION_MIN`].

/// The oldest server whose settings include all of [`PINNED`] and [`NATIVE_PINNED`]. Specified: `deduplicate_insert` and
/// `input_format_connection_handling` came with 26.2.
pub const SERVER_VERSION_MIN: (u16, u16) = (26, 2);

/// Rows of the largest block that one INSERT can be. Specified: the server's own default since 2019; a block of usual spans has a
/// tenth of that at the most.
pub const BLOCK_ROWS_MAX: u32 = 1_048_449;

/// Settings of every INSERT: name and value.
pub const PINNED: &[(&str, &str)] = &[
    // The body is frames of crate::frame.
    ("decompress", "1"),
    // On by default since 26.2: blocks of several clients would be merged in the server, and settled before that.
    ("async_insert", "0"),
    // Let a token drop what was stored under it before.
    ("deduplicate_insert", "enable"),
    // Off by default before 26.2: a retry would then leave a view empty whose first attempt failed.
    ("deduplicate_blocks_in_dependent_materialized_views", "1"),
    // One INSERT is one block: only that is stored whole or not at all. BLOCK_ROWS_MAX, as text.
    ("max_insert_block_size", "1048449"),
    // Any other value may split a block by its bytes.
    ("max_insert_block_size_bytes", "0"),
    ("input_format_max_block_size_bytes", "0"),
    // Rows are cut into blocks where these and min_insert_block_size_bytes are reached; a user's profile may have small ones.
    ("min_insert_block_size_rows", "1048449"),
    // With a handler, the server keeps the rows it has read when a connection drops: a part of a block.
    ("input_format_connection_handling", "0"),
    ("input_format_max_block_wait_ms", "0"),
    // Names and types before the rows are compared with the table's (crate::header), and are text.
    ("input_format_with_names_use_header", "1"),
    ("input_format_with_types_use_header", "1"),
    ("input_format_binary_decode_types_in_binary_format", "0"),
    // Our JSON values are binary (crate::json), not text.
    ("input_format_binary_read_json_as_string", "0"),
    // With 1, binary input of a path that occurs twice is read as other rows than were sent.
    ("type_json_skip_duplicated_paths", "0"),
    // JSON_PATHS_MAX of crate::json, as text: a lower limit would refuse what we write.
    ("format_binary_max_object_size", "100000"),
    // RowBinary is never parsed in parallel; another format would be, in pieces.
    ("input_format_parallel_parsing", "0"),
    // With break, an INSERT that takes too long ends well with what was stored until then; with the other, whatever a view refuses.
    ("timeout_overflow_mode", "throw"),
    ("materialized_views_ignore_errors", "0"),
    // A row that cannot be read fails the INSERT instead of being left out.
    ("input_format_allow_errors_num", "0"),
    ("input_format_allow_errors_ratio", "0"),
    // The status line comes after the commit; else an exception may follow a 200.
    ("wait_end_of_query", "1"),
    // Progress headers come before the status is known, and may exceed what a client takes.
    ("send_progress_in_http_headers", "0"),
    // On by default since 26.8 for small tables; costs CPU on every INSERT.
    ("materialize_statistics_on_insert", "0"),
    // Shows in system.query_log who wrote.
    ("log_comment", "sluice-gateway"),
];

/// Settings of every INSERT of columns, beside those.
pub const NATIVE_PINNED: &[(&str, &str)] = &[
    // On by default: columns of other types than the table has would be converted, and nobody would know.
    ("input_format_native_allow_types_conversion", "0"),
    // Types are text.
    ("input_format_native_decode_types_in_binary_format", "0"),
];

/// Settings of every question: a profile that has others changes rows or types of the answer. Each is the server's default, so that a
/// user who may change no setting can ask all the same. Not here: limits (`max_result_rows` and its like), which refuse a question in words,
/// and what is to happen at them, which a profile with a limit is likely to fix: then the server would refuse every question. Nor what the questions
/// about settings ask for.
pub const QUESTION_PINNED: &[(&str, &str)] = &[
    // Types before the rows are text.
    ("output_format_binary_encode_types_in_binary_format", "0"),
    // Rows that are left out.
    ("limit", "0"),
    ("offset", "0"),
    ("additional_result_filter", ""),
    ("additional_table_filters", "{}"),
    // Values that are Nullable otherwise.
    ("join_use_nulls", "0"),
    ("aggregate_functions_null_for_empty", "0"),
    // The cache refuses questions about system tables, and its answers are old.
    ("use_query_cache", "0"),
    // More of these headers come than a client takes.
    ("send_progress_in_http_headers", "0"),
];

/// Settings of `DESCRIBE TABLE`, beside those: a row for each column, with what [`crate::probe`] reads of it.
pub(crate) const DESCRIBE_PINNED: &[(&str, &str)] = &[
    ("describe_include_subcolumns", "0"),
    ("describe_include_virtual_columns", "0"),
    ("describe_compact_output", "0"),
    // A type is read as one line.
    ("print_pretty_type_names", "0"),
];

/// Settings of questions whose answer adds up or counts rows, beside those: all of them, or none. With `break`, a limit of the profile ends an
/// answer without an error. One of them is a setting of INSERTs, too; questions about those are to hear of the profile's own.
pub(crate) const WHOLE_PINNED: &[(&str, &str)] = &[
    ("timeout_overflow_mode", "throw"),
    ("group_by_overflow_mode", "throw"),
    ("result_overflow_mode", "throw"),
    ("read_overflow_mode", "throw"),
];

/// Settings of statements that make or change a table, beside [`QUESTION_PINNED`].
pub(crate) const STATEMENT_PINNED: &[(&str, &str)] = &[
    // With 1, every column is Nullable that does not say otherwise.
    ("data_type_default_nullable", "0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_stand_for_a_constant_are_that_constant() {
        let value = |name: &str| PINNED.iter().find(|(pinned, _)| *pinned == name).map(|(_, value)| *value);
        for name in ["max_insert_block_size", "min_insert_block_size_rows"] {
            assert_eq!(value(name), Some(BLOCK_ROWS_MAX.to_string().as_str()));
        }
        assert_eq!(
            value("format_binary_max_object_size"),
            Some(crate::json::JSON_PATHS_MAX.to_string().as_str())
        );
    }

    #[test]
    fn nothing_is_pinned_twice() {
        for pinned in [PINNED, QUESTION_PINNED] {
            let names: std::collections::HashSet<_> = pinned.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), pinned.len());
        }
    }

    #[test]
    fn questions_about_the_settings_of_an_insert_hear_of_the_profiles_own() {
        let decisive = crate::deduplication::DECISIVE;
        assert!(QUESTION_PINNED.iter().all(|(name, _)| !decisive.contains(name)));
    }
}
