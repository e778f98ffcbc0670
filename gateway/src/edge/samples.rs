//! What tests of the edge split: requests, byte by byte, and small messages to a producer.

use crate::edge::splitting::{Splitting, SplittingDeps};
use sluice_kafka::producer::Producer;
use tokio::runtime::Handle;

/// Two threads that make messages of 1 KB.
pub fn splitting(producer: &Producer) -> Splitting {
    let deps = SplittingDeps {
        producer: producer.clone(),
        target_bytes: 1_000,
        request_bytes_max: 1 << 20,
        io: Handle::current(),
    };
    Splitting::start(2, &deps).unwrap()
}

/// A field of protobuf.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        field.push(u8::try_from(length & 0x7F).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    [field, content.to_vec()].concat()
}

/// A request with a span of each of these traces, with this many bytes in its name.
pub fn request(traces: &[(u8, usize)]) -> Vec<u8> {
    field(1, &scope_spans(traces))
}

/// The same without the resource around it.
pub fn scope_spans(traces: &[(u8, usize)]) -> Vec<u8> {
    let span = |&(trace, name): &(u8, usize)| {
        let ids = [field(1, &[trace; 16]), field(2, &[trace; 8])].concat();
        field(2, &[ids, field(5, &vec![b'n'; name])].concat())
    };
    let spans: Vec<u8> = traces.iter().flat_map(span).collect();
    field(2, &spans)
}
