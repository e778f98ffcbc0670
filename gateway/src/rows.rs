//! From the spans of a message to rows in `RowBinary`.
//!
//! Job: everything that knows both OTLP and the table's columns. Owner: the worker thread whose message it is. The walk over the
//! message (`sluice_otlp`) calls in; bytes go straight into the row buffer that [`crate::reading::encode`] hands over.
//!
//! ```text
//!  walk --> span_row --> attributes --> json_text, value_text --> row buffer
//!              |--> span_times: when it was, and how long it took
//!              |--> utf8: strings that are none
//!              |--> resources: those that were seen a moment ago, as they stand in the row
//!              `--> raw_limit: how much one message may write
//! ```
//!
//! Nothing here knows Kafka, ClickHouse's servers, or the rest of the gateway: the fuzz targets compile these files without it.

pub mod span_row;

pub mod span_times;

mod resources;

pub mod raw_limit;

pub mod attributes;

mod json_text;
mod utf8;
pub(crate) mod value_text;
