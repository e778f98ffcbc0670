//! The queries: what users typically ask about traces.

use super::variant::Variant;

/// The span attribute in the queries.
pub const TAG: &str = "http.route";

/// The resource attributes in the queries.
pub const POD: &str = "k8s.pod.name";
pub const VERSION: &str = "service.version";

/// The values in the queries, picked from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    /// A trace from the middle.
    pub trace: String,
    /// A service and one of its operations, neither the most nor the least frequent.
    pub service: String,
    pub operation: String,
    /// A rare value of [`TAG`].
    pub tag: String,
    /// A rare value of [`POD`].
    pub pod: String,
    /// A duration that one span of a thousand exceeds, nanoseconds.
    pub duration: u64,
}

pub const NAMES: [&str; 8] =
    ["trace", "operation", "tag", "duration", "services", "operations", "pod", "versions"];

/// The questions about `table` (`database.table`, unquoted), named as in [`NAMES`].
pub fn questions(variant: &Variant, table: &str, about: &Subjects) -> [(&'static str, String); 8] {
    let Subjects { trace, service, operation, tag, pod, duration } = about;
    let times = format!("(SELECT min(Start), max(End) FROM {table}_trace_id_ts WHERE TraceId = '{trace}')");
    let within = if variant.views {
        format!(" AND Timestamp >= ({times} AS times).1 AND Timestamp <= times.2")
    } else {
        String::new()
    };
    let named_in = if variant.views { format!("{table}_operations") } else { table.to_owned() };
    let texts = [
        format!("SELECT * FROM {table} WHERE TraceId = '{trace}'{within} ORDER BY Timestamp"),
        format!(
            "SELECT TraceId, Timestamp, Duration FROM {table} WHERE ServiceName = '{service}' AND SpanName = '{operation}' \
             ORDER BY Timestamp DESC LIMIT 100"
        ),
        format!(
            "SELECT TraceId, Timestamp, Duration FROM {table} WHERE {} = '{tag}'{} ORDER BY Timestamp DESC LIMIT 100",
            variant.text(TAG),
            variant.granules_with("SpanAttributes", TAG, tag),
        ),
        format!(
            "SELECT TraceId, SpanName, Duration FROM {table} WHERE Duration > {duration} ORDER BY Duration DESC LIMIT 100"
        ),
        format!("SELECT DISTINCT ServiceName FROM {named_in}"),
        format!("SELECT DISTINCT ServiceName, SpanName, SpanKind FROM {named_in}"),
        format!(
            "SELECT TraceId, Timestamp, Duration FROM {table} WHERE {} = '{pod}'{} ORDER BY Timestamp DESC LIMIT 100",
            variant.resource_text(POD),
            variant.granules_with("ResourceAttributes", POD, pod),
        ),
        format!(
            "SELECT ServiceName, {} AS version, count() FROM {table} GROUP BY ServiceName, version",
            variant.resource_text(VERSION),
        ),
    ];
    let mut texts = texts.into_iter();
    NAMES.map(|name| (name, texts.next().expect("there is a text for every name")))
}
