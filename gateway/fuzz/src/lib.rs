//! Fuzz targets: everything of the gateway that reads foreign bytes, and what is written from them.
//!
//! Job: check for any bytes whether a promise holds. Place: beside the gateway. `cargo verify` replays the inputs that are checked in
//! (`tests/corpus.rs`). Its group `deep` runs each target for a fixed number of runs from a fixed seed.
//! `cargo run -p e2e-verify -- fuzz` runs them for as long as wanted. Owner: libFuzzer, one thread.
//!
//! | target | bytes are | promised |
//! | --- | --- | --- |
//! | [`otlp_walk`] | a Kafka message | spans or `Malformed`, and work in proportion to the bytes |
//! | [`otlp_json`] | a Kafka message in JSON | a message that the walk reads, not longer than the text, or `Malformed` |
//! | [`otlp_framing`] | what a client sends to the OTLP server, or a file of credentials | the same from chunks of any size; no error repeats a line |
//! | [`otlp_rows`] | a Kafka message | its rows whole or not at all, and no more bytes than it may write; each can be read, its paths are unique, its strings are UTF-8 |
//! | [`otlp_split`] | a request to the edge | messages that have each of its spans once, within their limits; or `Malformed`, as the walk says |
//! | [`frame_read`] | a compressed frame | raw bytes or an error, the same from two readers |
//! | [`frame_round_trip`] | rows | the frames made of them hold them, and the LZ4 blocks keep the format's rules |
//! | [`native_block`] | a block's rows, or a Kafka message | columns that hold the same values as the rows, or a reason; rows of a message are rows |
//! | [`rowbinary_skip`] | a value in `RowBinary` | its end or an error |
//! | [`spool_log`] | changes of the files of a log | the log is opened or refused, and reading it ends; a message has the bytes that were appended at its offset |
//! | [`gateway_config`] | a config | a config or an error; a config is written and read back equal |
//!
//! Work is counted, never timed: keys read by the walk, as `sluice_otlp` counts them with its feature `keys-read`.
//!
//! The programs are built with sanitizers and from nothing, so they leave out what is slow to build: the gateway's modules that make
//! rows are compiled here from their own files, without librdkafka and the servers around them.

// Their own crate calls the room by this name.
#[path = "../../src/rows"]
#[allow(dead_code, reason = "the gateway uses what the targets do not")]
mod rows {
    pub mod attributes;
    pub mod carry;
    pub mod json_text;
    pub mod origin;
    pub mod raw_limit;
    pub mod resources;
    pub mod services;
    pub mod span_row;
    pub mod span_times;
    pub mod utf8;
    pub mod value_text;
}

#[path = "../../otlp_server/src"]
#[allow(dead_code, reason = "the server uses what the targets do not")]
mod otlp_server {
    pub mod credential_lines;
    pub mod http2_frames;
    #[path = "body/message_head.rs"]
    pub mod message_head;
}

/// The readers of the end-to-end tests, which were written apart from the gateway's writers.
#[path = "../../../e2e/bench/src/throughput"]
#[allow(dead_code, reason = "the end-to-end tests use what the targets do not")]
mod reader {
    pub mod frames;
    pub mod kind;
}

pub mod frame_read;
pub mod frame_round_trip;
pub mod gateway_config;
pub mod native_block;
pub mod otlp_framing;
pub mod otlp_json;
pub mod otlp_rows;
pub mod otlp_split;
pub mod otlp_walk;
mod row;
pub mod rowbinary_skip;
pub mod spool_log;
mod values;
