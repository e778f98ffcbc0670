//! Turns the spans of a message into rows in `RowBinary`.
//!
//! Job: all code that knows both OTLP and the table's columns. Owner: the worker thread of the message. The walk over the message
//! (`sluice_otlp`) calls in; bytes go straight into the row buffer of [`crate::reading::encode`].
//!
//! ```text
//!  walk --> span_row --> attributes --> json_text, value_text --> row buffer
//!              |--> span_times: start and duration
//!              |--> utf8: replaces bytes that are not UTF-8
//!              |--> resources: cache of recently encoded resources
//!              |--> origin: columns of what Kafka says of the message
//!              |--> services: how many rows of which service
//!              |--> carry: attributes that rules drop or hash, and long ones
//!              `--> raw_limit: how much one message may write
//! ```
//!
//! Nothing here uses Kafka, ClickHouse's servers, or the rest of the gateway: the fuzz targets compile these files without it.

pub mod span_row;

pub mod span_times;

pub mod origin;

mod resources;

pub mod raw_limit;

pub mod services;

pub mod attributes;

pub mod carry;

mod json_text;
mod utf8;
pub(crate) mod value_text;
