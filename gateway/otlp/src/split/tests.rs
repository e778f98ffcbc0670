//! Requests of a few spans, byte by byte. Random requests: `tests/it/parted.rs`.

use super::*;

const LIMITS: SplitLimits = SplitLimits {
    target_bytes: 1_000,
    message_bytes_max: 1_000,
    index_bytes_max: 1 << 20,
    made_bytes_max: 1 << 20,
};

/// A field with a content of up to 127 bytes.
fn field(key: u8, content: &[u8]) -> Vec<u8> {
    [&[key, u8::try_from(content.len()).unwrap()][..], content].concat()
}

/// A span of a trace, with this many bytes in its name.
fn span(trace: u8, name: usize) -> Vec<u8> {
    let ids = [field(0x0A, &[trace; 16]), field(0x12, &[7; 8])].concat();
    field(0x12, &[ids, field(0x2A, &vec![b'n'; name])].concat())
}

/// The partition of a trace: its first byte divided by ten.
fn partition_of(trace_id: &[u8; 16]) -> u32 {
    u32::from(trace_id[0] / 10)
}

/// The messages of a request: partition, trace, bytes.
fn split(request: &[u8], limits: &SplitLimits) -> Result<Vec<(u32, u8, Vec<u8>)>, SplitError> {
    let mut splitter = Splitter::default();
    let split = splitter.split(request, limits, partition_of)?;
    let message = |message: &SplitMessage| {
        let mut bytes = vec![1, 2, 3];
        split.write(message, &mut bytes);
        assert_eq!(bytes.len(), message.bytes);
        (message.partition, message.trace_id[0], bytes)
    };
    Ok(split.messages().iter().map(message).collect())
}

/// Two resources, with a scope each, a schema URL behind the spans, and unknown fields (number 100) at every level.
fn request() -> Vec<u8> {
    let one = [
        field(0x0A, &[0x10, 5]), // Resource: dropped_attributes_count
        field(0x12, &[field(0x0A, &field(0x0A, b"a")), span(1, 1), span(11, 2), field(0x1A, b"u")].concat()),
        vec![0xA0, 0x06, 0x02],
    ];
    let two = [field(0x12, &[span(2, 3), span(1, 4)].concat()), field(0x0A, &[0x10, 6])];
    let empty = [0x0A, 4, 0x0A, 2, 0x10, 7]; // a resource without spans
    [vec![0xA0, 0x06, 0x01], field(0x0A, &one.concat()), field(0x0A, &two.concat()), empty.into()].concat()
}

#[test]
fn spans_of_a_partition_share_a_message_that_has_what_is_around_them() {
    let around_one = [field(0x0A, &[0x10, 5]), vec![0xA0, 0x06, 0x02]].concat();
    let scope = [field(0x0A, &field(0x0A, b"a")), field(0x1A, b"u")].concat();
    let of_scope = |span: Vec<u8>| field(0x12, &[scope.clone(), span].concat());
    let two = [field(0x0A, &[0x10, 6]), field(0x12, &[span(2, 3), span(1, 4)].concat())].concat();
    let first = [
        vec![0xA0, 0x06, 0x01],
        field(0x0A, &[around_one.clone(), of_scope(span(1, 1))].concat()),
        field(0x0A, &two),
    ];
    let second = [vec![0xA0, 0x06, 0x01], field(0x0A, &[around_one.clone(), of_scope(span(11, 2))].concat())];
    assert_eq!(split(&request(), &LIMITS).unwrap(), [(0, 1, first.concat()), (1, 11, second.concat())]);
}

#[test]
fn a_trace_that_does_not_fit_begins_the_next_message_and_a_large_one_is_cut_between_spans() {
    let request = field(0x0A, &field(0x12, &[span(1, 1), span(2, 1), span(1, 1)].concat()));
    let of = |spans: &[Vec<u8>]| field(0x0A, &field(0x12, &spans.concat()));
    let [one, two] = [span(1, 1), span(2, 1)];
    let with_target = |target_bytes| split(&request, &SplitLimits { target_bytes, ..LIMITS }).unwrap();
    let all = (0, 1, of(&[one.clone(), two.clone(), one.clone()]));
    // 12 bytes for resource and scope, at most, and 33 for each span.
    assert_eq!(with_target(12 + 3 * 33), [all]);
    let whole = (0, 1, of(&[one.clone(), one.clone()]));
    assert_eq!(with_target(12 + 3 * 33 - 1), [whole, (0, 2, of(std::slice::from_ref(&two)))]);
    let single = |trace: u8, span: &Vec<u8>| (0, trace, of(std::slice::from_ref(span)));
    assert_eq!(with_target(12 + 33), [single(1, &one), single(1, &one), single(2, &two)]);
    assert_eq!(with_target(0), [single(1, &one), single(1, &one), single(2, &two)]);
}

#[test]
fn a_span_that_no_message_holds_is_counted_and_its_siblings_are_made() {
    let of = |spans: [Vec<u8>; 2]| field(0x0A, &field(0x12, &spans.concat()));
    let request = [of([span(1, 1), span(1, 2)]), of([span(2, 2), span(3, 1)])].concat();
    let mut splitter = Splitter::default();
    let limits = SplitLimits { target_bytes: 45, message_bytes_max: 45, ..LIMITS };
    let split = splitter.split(&request, &limits, partition_of).unwrap();
    assert_eq!((split.spans(), split.too_large()), (4, TooLarge { spans: 2, largest_bytes: 46 }));
    let made: Vec<_> =
        split.messages().iter().map(|message| (message.trace_id[0], message.spans())).collect();
    assert_eq!(made, [(1, 1), (3, 1)]);
}

#[test]
fn a_request_beyond_a_limit_is_refused_as_a_whole() {
    let request = request();
    for index_bytes_max in [0, 40, 200] {
        let refused = split(&request, &SplitLimits { index_bytes_max, ..LIMITS }).unwrap_err();
        assert!(matches!(refused, SplitError::TooManySpans { .. }), "{refused}");
        assert!(refused.to_string().contains("send fewer spans in a request"), "{refused}");
    }
    let made: usize = split(&request, &LIMITS).unwrap().iter().map(|(_, _, bytes)| bytes.len()).sum();
    let with = |made_bytes_max| split(&request, &SplitLimits { made_bytes_max, ..LIMITS });
    assert!(with(made).is_ok());
    assert_eq!(with(made - 1).unwrap_err(), SplitError::TooManyBytes { made_bytes_max: made - 1 });
}

#[test]
fn a_request_without_spans_becomes_nothing_and_a_malformed_one_is_refused() {
    for empty in [&[][..], &[0x0A, 0], &[0x0A, 2, 0x12, 0], &[0x0A, 4, 0x0A, 2, 0x10, 7]] {
        assert_eq!(split(empty, &LIMITS), Ok(vec![]), "{empty:02X?}");
    }
    let (_, cut_short) = request().split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    let no_traces = [0xA0, 0x06, 0x01];
    let attribute_cut_short = field(0x0A, &field(0x12, &field(0x0A, &[0x1A, 3, 0x0A, 5, b'k'])));
    let resource_cut_short = field(0x0A, &field(0x0A, &[0x0A, 3, 0x0A, 5, b'k']));
    for malformed in [&cut_short[..], &no_traces, &attribute_cut_short, &resource_cut_short] {
        let refused = split(malformed, &LIMITS).unwrap_err();
        assert_eq!(Some(refused), crate::validate(malformed).err().map(SplitError::from));
    }
}
