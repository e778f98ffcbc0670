//! The settings of every INSERT.
//!
//! Job: pins the settings on which "one INSERT is one block, complete or not at all" rests. Their defaults change between versions, and a
//! user's profile may change them. Place in the flow: [`crate::insert::InsertTarget`] adds them to the query string once.
//!
//! Not here: `insert_deduplication_token`, `query_id` and `max_execution_time` (they differ between targets or
//! inserts), `insert_quorum` (how many replicas must have a row is the user's policy: [`crate::durability::quorum_settings`], or a profile's), and
//! `http_native_compression_disable_checksumming_on_decompress` (the server keeps checking our checksums).
//!
//! Every name was read from `system.settings` of ClickHouse 26.7. An older server without one of them answers with code 115: see
//! [`SERVER_VERSION_MIN`].

/// The oldest server whose settings include all of [`PINNED`] and [`NATIVE_PINNED`]. Specified: `deduplicate_insert` and
/// `input_format_connection_handling` came with 26.2.
pub const SERVER_VERSION_MIN: (u16, u16) = (26, 2);

/// Maximum rows of a block that one INSERT can be. Specified: the server's own default since 2019; a block of usual spans has at most a
/// tenth of that.
pub const BLOCK_ROWS_MAX: u32 = 1_048_449;

/// Settings of every INSERT: name and value.
pub const PINNED: &[(&str, &str)] = &[
    // The body is frames of crate::frame.
    ("decompress", "1"),
    // On by default since 26.2: the server would merge blocks of several clients, after it acknowledged them.
    ("async_insert", "0"),
    // Drops rows that were stored under the token before.
    ("deduplicate_insert", "enable"),
    // Off by default before 26.2: if the first attempt failed in a view, a retry would leave that view without the rows.
    ("deduplicate_blocks_in_dependent_materialized_views", "1"),
    // One INSERT is one block: only a block is stored completely or not at all. BLOCK_ROWS_MAX, as text.
    ("max_insert_block_size", "1048449"),
    // Any other value may split a block by its bytes.
    ("max_insert_block_size_bytes", "0"),
    ("input_format_max_block_size_bytes", "0"),
    // Rows are cut into blocks when these and min_insert_block_size_bytes are reached; a user's profile may set small values.
    ("min_insert_block_size_rows", "1048449"),
    // With a handler, the server stores the rows read so far when a connection drops: a part of a block.
    ("input_format_connection_handling", "0"),
    ("input_format_max_block_wait_ms", "0"),
    // Names and types before the rows are compared with the table's (crate::header); they are text.
    ("input_format_with_names_use_header", "1"),
    ("input_format_with_types_use_header", "1"),
    ("input_format_binary_decode_types_in_binary_format", "0"),
    // The gateway's JSON values are binary (crate::json), not text.
    ("input_format_binary_read_json_as_string", "0"),
    // With 1, binary input with a repeated path is read as other rows than were sent.
    ("type_json_skip_duplicated_paths", "0"),
    // JSON_PATHS_MAX of crate::json, as text: a lower limit would refuse the gateway's rows.
    ("format_binary_max_object_size", "100000"),
    // RowBinary is never parsed in parallel; another format would be, in pieces.
    ("input_format_parallel_parsing", "0"),
    // With `break`, an INSERT that takes too long succeeds with the rows stored so far; with the other, a view's refusal is ignored.
    ("timeout_overflow_mode", "throw"),
    ("materialized_views_ignore_errors", "0"),
    // A row that cannot be read fails the INSERT instead of being skipped.
    ("input_format_allow_errors_num", "0"),
    ("input_format_allow_errors_ratio", "0"),
    // The status line comes after the commit; otherwise an exception may follow a 200.
    ("wait_end_of_query", "1"),
    // Progress headers come before the status is known, and may exceed a client's limit.
    ("send_progress_in_http_headers", "0"),
    // On by default since 26.8 for small tables; costs CPU on every INSERT.
    ("materialize_statistics_on_insert", "0"),
    // With 1 and an overflow mode of `break` in a profile, the server refuses every statement (731). An INSERT has no use for the cache.
    ("use_query_cache", "0"),
    // Shows the writer in system.query_log.
    ("log_comment", "sluice-gateway"),
];

/// Settings of every INSERT of columns, besides those.
pub const NATIVE_PINNED: &[(&str, &str)] = &[
    // On by default: columns of other types than the table's would silently be converted.
    ("input_format_native_allow_types_conversion", "0"),
    // Types are text.
    ("input_format_native_decode_types_in_binary_format", "0"),
];

/// Settings of every query: other values in a profile would change rows or types of the answer. Each has the server's default, so that a
/// user who may change no setting can still query. Not included: limits (`max_result_rows` and so on), which refuse a query with an
/// error; the overflow modes of these limits, which a profile with a limit is likely to fix, so that the server would refuse every query;
/// and the settings that queries about settings read.
pub const QUESTION_PINNED: &[(&str, &str)] = &[
    // Types before the rows are text.
    ("output_format_binary_encode_types_in_binary_format", "0"),
    // Rows would be left out.
    ("limit", "0"),
    ("offset", "0"),
    ("additional_result_filter", ""),
    ("additional_table_filters", "{}"),
    // Values would be Nullable otherwise.
    ("join_use_nulls", "0"),
    ("aggregate_functions_null_for_empty", "0"),
    // The cache refuses queries of system tables, and its answers are old.
    ("use_query_cache", "0"),
    // These headers may be more than a client accepts.
    ("send_progress_in_http_headers", "0"),
];

/// Settings of `DESCRIBE TABLE`, besides those: one row per column, with the fields that [`crate::probe`] reads.
pub(crate) const DESCRIBE_PINNED: &[(&str, &str)] = &[
    ("describe_include_subcolumns", "0"),
    ("describe_include_virtual_columns", "0"),
    ("describe_compact_output", "0"),
    // A type is read as one line.
    ("print_pretty_type_names", "0"),
];

/// Settings of queries that aggregate or count rows, besides those: the answer covers all rows or is an error. With `break`, a limit of
/// the profile would cut an answer without an error. One of them is a setting of INSERTs, too; queries about those must see the profile's
/// own value.
pub(crate) const WHOLE_PINNED: &[(&str, &str)] = &[
    ("timeout_overflow_mode", "throw"),
    ("group_by_overflow_mode", "throw"),
    ("result_overflow_mode", "throw"),
    ("read_overflow_mode", "throw"),
];

/// Settings of a question that evaluates a TTL, besides [`QUESTION_PINNED`]: times that a type does not hold wrap, as in a merge.
pub(crate) const TRIAL_PINNED: &[(&str, &str)] = &[("date_time_overflow_behavior", "ignore")];

/// Settings of statements that create or change a table, besides [`QUESTION_PINNED`].
pub(crate) const STATEMENT_PINNED: &[(&str, &str)] = &[
    // With 1, every column without an explicit modifier is Nullable.
    ("data_type_default_nullable", "0"),
];

/// The table of `system` with the server-wide values of table settings.
pub(crate) fn settings_table(of_replicated: bool) -> &'static str {
    if of_replicated { "replicated_merge_tree_settings" } else { "merge_tree_settings" }
}

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

    /// With it, the profile of the user may refuse every INSERT.
    #[test]
    fn neither_an_insert_nor_a_question_uses_the_query_cache() {
        for pinned in [PINNED, QUESTION_PINNED] {
            assert!(pinned.contains(&("use_query_cache", "0")));
        }
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
