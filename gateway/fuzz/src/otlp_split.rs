//! A request is split into messages that have its spans, or is malformed for the walk, too.

use std::cell::RefCell;

use sluice_otlp::{
    Malformed, Resource, Scope, Span, SpanSink, SplitError, SplitLimits, Splitter, validate, walk_in_order,
};

/// Far above the index of any input.
const INDEX_BYTES_MAX: usize = 64 << 20;

thread_local! {
    static SPLITTER: RefCell<Splitter> = RefCell::default();
}

/// Splits any bytes in several sizes, with one splitter.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let length = bytes.len();
    for (target_bytes, message_bytes_max) in
        [(0, 0), (length / 8, length / 2), (length / 2, length / 2), (length, 2 * length + 64)]
    {
        let made_bytes_max = usize::MAX;
        let limits =
            SplitLimits { target_bytes, message_bytes_max, index_bytes_max: INDEX_BYTES_MAX, made_bytes_max };
        SPLITTER.with_borrow_mut(|splitter| split(splitter, bytes, &limits));
    }
}

/// As many partitions as the first byte of a trace's id can tell apart.
fn partition_of(trace_id: &[u8; 16]) -> u32 {
    u32::from(trace_id[0] % 3)
}

fn split(splitter: &mut Splitter, bytes: &[u8], limits: &SplitLimits) {
    let split = match (splitter.split(bytes, limits, partition_of), validate(bytes)) {
        (Ok(split), Ok(spans)) => {
            assert_eq!(split.spans(), spans);
            split
        }
        (Err(SplitError::Malformed(malformed)), Err(_)) => {
            assert!(malformed.position() <= bytes.len() && !malformed.to_string().is_empty());
            return;
        }
        (split, validated) => {
            panic!("split: {:?}, validate: {validated:?}", split.map(|split| split.spans()))
        }
    };
    let (mut made, mut message_bytes) = (split.too_large().spans, Vec::new());
    for message in split.messages() {
        split.write(message, &mut message_bytes);
        let spans = message.spans() as u64;
        let mut traces = Traces { partition: message.partition, trace_id: message.trace_id, has_it: false };
        assert_eq!(walk_in_order(&message_bytes, &mut traces), Ok(Some(spans)), "resources are in front");
        assert_eq!(validate(&message_bytes), Ok(spans), "{message:?}");
        assert!(traces.has_it, "no span of {message:?} has its trace id");
        assert!(message_bytes.len() <= limits.message_bytes_max, "{message:?} above {limits:?}");
        assert!(message_bytes.len() <= limits.target_bytes || spans == 1, "{message:?} above {limits:?}");
        made += spans;
    }
    assert_eq!(made, split.spans(), "each span is in one message, or too large");
}

/// The traces of a message; one of them gives the key.
struct Traces {
    partition: u32,
    trace_id: [u8; 16],
    has_it: bool,
}

impl SpanSink for Traces {
    type Error = Malformed;

    fn resource(&mut self, _: &Resource<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn scope(&mut self, _: &Scope<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        assert_eq!(partition_of(span.trace_id), self.partition);
        self.has_it |= *span.trace_id == self.trace_id;
        Ok(())
    }
}
