//! What a sink leaves behind, and what it says of freshness.

use super::*;

#[test]
fn a_huge_row_leaves_no_scratch_behind() {
    let mut scratch = Scratch::default();
    scratch.shared.resize(8 << 20, 0);
    scratch.event_names.resize(8 << 20, 0);
    let mut rows = RowFrames::new();
    drop(SpanRows::new(&mut scratch, &mut rows, Vec::new(), 0, RawLimit::of_message(0)));
    assert!(scratch.shared.capacity() + scratch.event_names.capacity() <= 1 << 20);
}

#[test]
fn an_end_in_the_future_says_nothing_of_freshness() {
    let (mut scratch, mut rows) = (Scratch::default(), RowFrames::new());
    let limit = RawLimit::of_message(0);
    let mut sink = SpanRows::new(&mut scratch, &mut rows, Vec::new(), 0, limit).read_at(100);
    // TracesData { resource_spans { scope_spans { spans { trace_id span_id end_time_unix_nano } } } }, the end a fixed64.
    for end in [99, 101, u64::MAX, 40] {
        let ids = [&[0x0A, 16][..], &[1; 16], &[0x12, 8], &[2; 8]].concat();
        let span = [&ids[..], &[0x41], &u64::to_le_bytes(end)].concat();
        let message = [&[0x0A, 41, 0x12, 39, 0x12, 37][..], &span].concat();
        assert_eq!(sluice_otlp::walk(&message, &mut sink), Ok(1));
    }
    assert_eq!(sink.end_nanos_max(), 99);
}
