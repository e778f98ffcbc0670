//! How rows are inserted.

use crate::repeated::repeated_at;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What decides what an INSERT is. The gateway's config knows the same names and more, with a reason each; these are refused at once.
const OWNED: &str = "self.all(k, !(k in ['wait_for_async_insert', 'wait_for_async_insert_timeout', 'max_block_size', \
    'min_insert_block_size_rows', \
    'update_insert_deduplication_token_in_dependent_materialized_views', 'materialized_views_ignore_errors', \
    'throw_if_deduplication_in_dependent_materialized_views_enabled_with_async_insert', 'default_format', \
    'date_time_input_format', 'insert_null_as_default', 'compress', 'decompress', 'enable_http_compression', \
    'wait_end_of_query', 'buffer_size', 'send_progress_in_http_headers', 'query', 'query_id', 'close_session', \
    'stacktrace', 'log_comment', 'max_execution_time', 'timeout_overflow_mode', 'database', 'user', 'password', \
    'materialize_statistics_on_insert']) && !k.startsWith('async_insert') && !k.startsWith('max_insert_block_size') \
    && !k.startsWith('deduplicate_') && !k.startsWith('insert_dedup') && !k.startsWith('input_format_') \
    && !k.startsWith('format_') && !k.startsWith('type_json_') && !k.startsWith('http_'))";

/// More of it, beside what the server's estimate of a rule's cost leaves room for.
const OF_THE_SESSION: &str = "self.all(k, !k.startsWith('session_') && !k.startsWith('param_'))";

/// How rows are inserted.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Insert {
    /// How blocks go over the wire: RowBinary (the default) or Native. With Native a gateway turns rows into columns before it sends
    /// them: ClickHouse needs about half the CPU for an INSERT, a gateway more CPU and 48Mi more memory. What is stored is the same.
    #[serde(default = "format", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InsertFormat")]
    pub format: Option<InsertFormat>,

    /// More settings of ClickHouse for every INSERT, by name, at most 32, for what no other field decides, such as insert_quorum. A setting
    /// that could split an INSERT, cut it or store it twice is refused.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = repeated_at(&["*: cannot be set here"], Rule::new(OWNED)
        .message("settings has a name that the gateway decides: one that cuts or delays a block (async_insert*, \
                  max_insert_block_size*), deduplicates (deduplicate_*, insert_deduplicat*), reads rows (input_format_*, \
                  format_*, type_json_*), asks the server (http_*, query*), or that another field sets")),
        validation = repeated_at(&["*: cannot be set here"], Rule::new(OF_THE_SESSION)
        .message("settings has a name that the gateway decides: one of a session (session_*) or of a query's parameters (param_*)")))]
    pub settings: BTreeMap<String, SettingValue>,
}

impl Default for Insert {
    fn default() -> Self {
        Self { format: format(), settings: BTreeMap::new() }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn format() -> Option<InsertFormat> {
    Some(InsertFormat::default())
}

/// How blocks go over the wire.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertFormat {
    /// As rows.
    #[default]
    RowBinary,
    /// As columns.
    Native,
}

/// The value of a setting, as text.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SettingValue(#[schemars(length(max = 256))] pub String);
