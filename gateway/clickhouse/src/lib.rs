//! ClickHouse: rows as bytes, compressed frames, tables and inserts.
//!
//! Job: everything that the gateway knows about ClickHouse. It knows nothing of OTLP and Kafka: it takes values and returns "stored", or
//! an error that says what to do next.
//!
//! ```text
//! worker thread (sync, no I/O)                                     I/O threads (tokio)
//! ----------------------------------------------------------      ------------------------------------------
//! rowbinary, json, json_array -> row_frames -> frame, lz4  ====>   body  ->  client  ->  outcome::Class
//!        ^ groups; in the order of                (256 KiB)                   ^
//!        | column::TableColumns                                               | insert::InsertTarget, settings, header
//!
//! a block as columns:           native  ->  body
//! a refused block:              block_rows, row_ends  ->  the rows of a window, as a body
//! at start, `check` and `ddl`:  probe (the `clickhouse` crate)  ->  table::check;  ddl  ->  probe;  deduplication,
//!                               durability, parts
//! of a block in doubt:          fate  ->  probe
//! ```
//!
//! Owner threads: one [`row_frames::RowFrames`] and one [`json_paths::JsonPaths`] per worker, never shared; the
//! [`client::InsertClient`] is shared by all I/O threads.
//!
//! Features: `client` (on by default) is all code that talks to a server; without it, rows and frames build without a runtime.
//!
//! Limits, each named where it is used: a frame [`row_frames::FRAME_RAW_BYTES`], a worker's buffers
//! [`row_frames::RowFrames::memory_bytes`], a JSON value [`json::JSON_PATHS_MAX`], a block
//! [`settings::BLOCK_ROWS_MAX`], an answer [`client::ANSWER_BYTES_MAX`].
//!
//! Assumptions, tested with ClickHouse 26.7: a body cut anywhere stores nothing; one INSERT is one block, stored completely or not at
//! all; the same token twice stores once; rows for other types than the table has are refused.

#[cfg(feature = "client")]
pub mod bearer;
#[cfg(feature = "native")]
pub mod block_rows;
#[cfg(feature = "client")]
pub mod body;
#[cfg(feature = "client")]
mod causes;
#[cfg(feature = "client")]
pub mod client;
pub mod column;
mod date_time;
pub mod ddl;
#[cfg(feature = "client")]
pub mod deduplicated;
#[cfg(feature = "client")]
pub mod deduplication;
#[cfg(feature = "client")]
mod definition;
pub mod durability;
#[cfg(feature = "client")]
pub mod endpoint;
pub mod exception;
pub mod expiry;
#[cfg(feature = "client")]
pub mod fate;
pub mod frame;
pub mod groups;
#[cfg(feature = "client")]
pub mod header;
#[cfg(feature = "client")]
pub mod insert;
pub mod json;
pub mod json_array;
pub mod json_limits;
pub mod json_paths;
pub mod json_type;
#[cfg(feature = "client")]
pub mod lookup;
#[expect(
    unsafe_code,
    reason = "loads and copies without bounds checks, in three functions that say what they need"
)]
pub mod lz4;
#[doc(hidden)]
pub mod lz4_round_trip;
#[cfg(feature = "native")]
pub mod native;
pub mod optional;
pub mod outcome;
#[cfg(feature = "client")]
pub mod parts;
#[cfg(feature = "client")]
pub mod probe;
#[cfg(feature = "client")]
pub mod probe_error;
#[cfg(feature = "client")]
pub mod rehearsal;
pub mod room;
pub mod row_ends;
pub mod row_frames;
#[cfg(feature = "client")]
pub mod row_policy;
pub mod rowbinary;
pub mod settings;
pub mod sql;
pub mod table;
#[cfg(test)]
mod test_rows;
#[cfg(feature = "client")]
pub mod tls;
#[cfg(feature = "client")]
pub mod token_places;
pub mod ttl;
#[cfg(feature = "client")]
mod ttl_trial;
pub mod typed_value;
#[cfg(feature = "client")]
mod zones;
