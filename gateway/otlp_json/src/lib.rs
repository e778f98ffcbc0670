//! OTLP traces as JSON, rewritten to the protobuf form that the walk reads.
//!
//! **Job.** Converts the text of an `ExportTraceServiceRequest` (or `TracesData`) in OTLP/JSON to the same message in protobuf, in a
//! buffer that is reused for each message. `sluice_otlp::walk` reads it from there. So every value has one meaning and one set of rows,
//! in both encodings.
//!
//! **Place in the flow.** Kafka message → *rewrite* → walk → row bytes → frame → block. It knows neither Kafka nor the
//! table.
//!
//! **Owner.** A worker thread owns one [`JsonRewriter`].
//!
//! **How.** `serde_json` reads the text once, front to back, and calls visitors; there is no tree of values. A field that the walk passes
//! to its sink is written when its value is read. The length of a message precedes it, but is known only at its end: room is reserved for
//! it, and a message that needs more is moved by a byte or two. Outer messages get room for the longest length at once, so that large
//! ones are not moved.
//!
//! **Meaning.** That of the [OTLP specification](https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), and otherwise that of
//! [ProtoJSON](https://protobuf.dev/programming-guides/json/). For texts that both leave open, or forbid writers to write, everything
//! that can be understood is accepted, so that it does not stop a partition:
//!
//! | what | is read as |
//! | --- | --- |
//! | names | lowerCamelCase, and the snake case of the `.proto` files; escapes in them are undone |
//! | unknown names, and fields that no column holds (entities, flags and counts of events and links) | skipped, whatever their value |
//! | `flags` and dropped counts of a span, resource or scope that are no 32-bit number | skipped, too: the rest does not depend on them |
//! | an object without `resourceSpans` (metrics, logs, `batches`, a bare `ResourceSpans`) | malformed: skipping it would silently lose it. `{}` has no spans |
//! | `instrumentationLibrarySpans`, which `scopeSpans` has replaced | malformed, for the same reason; an empty one counts as absent |
//! | a name that repeats | as the field repeats on the wire: the last scalar wins, messages are merged, lists are joined |
//! | several members in one `AnyValue` | the last wins; an array after an array, a list after a list is joined |
//! | `null` | the field is absent; as an element of a list, an empty message, which a span cannot be |
//! | `{}` as `AnyValue` or resource | empty |
//! | `traceId`, `spanId` of a span | hex in either case, 32 and 16 digits; everything else, or none, is malformed |
//! | a span without a start whose name is the data of a gauge in protobuf | malformed: the walk takes it for a metric |
//! | `parentSpanId`, and `traceId` and `spanId` of a link | the same, or `""`, or absent |
//! | `bytesValue` | base64 of the standard or the URL alphabet, with or without padding |
//! | 64-bit integers, times | decimal string or number |
//! | any integer | also with fraction or exponent if it is whole (`1e3`, `"1.0"`): read as a double, so exact to 2^53 |
//! | `intValue` that does not fit 64 bits, or is not whole | a double: SDKs in JavaScript write every whole number so, `1e300` too |
//! | times that do not fit 64 bits, such as `-5` and `1e300` | the nearest that does: 0 or 18446744073709551615. A wrong clock of the producer must not cost a message |
//! | any other integer that does not fit its type, or is not whole | malformed |
//! | `kind`, `code` | number or name (`SPAN_KIND_SERVER`); an unknown name, and a number of more than 32 bits or with a fraction, is the value 0 |
//! | doubles | number, number in a string, `"NaN"`, `"Infinity"`, `"-Infinity"`; beyond the range of a double: malformed |
//! | bools | `true`, `false` |
//! | a surrogate without its other half (`\ud83d`) | U+FFFD: SDKs in JavaScript cut strings between the halves |
//! | bytes that are not UTF-8, anywhere | malformed, since JSON must be UTF-8 |
//! | an unescaped control character in a string | malformed, according to RFC 8259 |
//! | a byte order mark in front | skipped |
//! | no bytes at all | no spans, as in protobuf |
//! | anything behind the object, a second one too | malformed: one message is one document |
//! | a value of another JSON type | malformed |
//! | messages nested deeper than [`sluice_otlp::NESTING_DEPTH_MAX`] | malformed, at the same depth as in protobuf |
//!
//! Skipped parts must be valid JSON, but their nesting does not count for that limit: `serde_json` skips them without recursion.
//!
//! **Limits.** A message has at most the bytes that the rewriter was created for, and [`MESSAGE_BYTES_MAX`]. The protobuf message is
//! never longer than the text (proof in `wire`). So the buffer takes the bytes of the longest message so far and [`RESERVED_BYTES_MAX`],
//! allocated in one piece: it never grows while it is filled. Besides, `serde_json` keeps the longest string with escapes until the
//! message ends. Both together take at most [`SCRATCH_BYTES_PER_MESSAGE_BYTE`] times the message in resident memory.
//!
//! **Cost.** A `rich` span is 918 bytes of text with about 60 strings, which are read one by one. Measured on 21 November 2026 on one of
//! two shared EPYC cores: CPU time per span, the median of 7 rounds of
//! `cargo bench -p sluice-gateway --bench path -- --stage json-wire --stage json --stage encode`.
//!
//! | spans | JSON to the wire | JSON to rows | protobuf to rows |
//! | --- | --- | --- | --- |
//! | `rich` | 1,183 ns | 1,467 ns | 345 ns |
//! | `loadgen` | 419 ns | 534 ns | 114 ns |
//!
//! **Why `serde_json`.** The text comes from outside. Both libraries ran with these same visitors, by turns in one process (the median of
//! 9 rounds): `serde_json` 1.0.154 took 1,149 ns a `rich` span and 417 ns a `loadgen` span, `sonic-rs` 0.5 took 1,179 ns and 439 ns.
//! `serde_json` has less `unsafe` code (16 lines with the word against 250), is fuzzed, and skips unknown fields without recursion.
//! `simd-json` was not measured. It writes into its input, which here belongs to the broker's client, and builds a tape of the whole
//! message, which for a large one exceeds the budget. Two features of `serde_json` are on. Without `float_roundtrip`, some doubles are off
//! by a bit (the property test found one). Without `unbounded_depth`, its own limit of 128 would end a message before that of the walk.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod fields;
mod malformed;
mod number;
mod rewrite;
mod text;
mod value;
mod wire;

pub use malformed::{Malformed, Reason};
pub use rewrite::{JsonRewriter, SCRATCH_BYTES_PER_MESSAGE_BYTE, validate};
pub use wire::{MESSAGE_BYTES_MAX, RESERVED_BYTES_MAX};
