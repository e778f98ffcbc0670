//! A request split by trace: its messages together have the spans of the request, each with what is around it, byte for byte.

use proptest::test_runner::TestCaseError;
use sluice_otlp::{Malformed, Resource, Scope, Span, SpanSink, SplitError, SplitLimits, Splitter};
use sluice_otlp::{extract, validate, walk, walk_in_order};
use std::collections::BTreeMap;

use crate::rng::Rng;

/// More than random messages need.
const INDEX_BYTES_MAX: usize = 1 << 20;

/// As many as the first byte of a trace's id can tell apart.
fn partition_of(trace_id: &[u8; 16]) -> u32 {
    u32::from(trace_id[0] % 3)
}

/// Splits bytes in several sizes, with one splitter.
pub fn parts_join_to_the_whole(bytes: &[u8], rng: &mut Rng) -> Result<(), TestCaseError> {
    let mut splitter = Splitter::default();
    for _ in 0..4 {
        let target_bytes = rng.below(bytes.len() + 64);
        let message_bytes_max = target_bytes + rng.below(bytes.len() + 64);
        let limits = SplitLimits {
            target_bytes,
            message_bytes_max,
            index_bytes_max: INDEX_BYTES_MAX,
            made_bytes_max: usize::MAX,
        };
        join(&mut splitter, bytes, &limits).map_err(|error| {
            TestCaseError::fail(format!("{error}\nlimits: {limits:?}\nbytes: {bytes:02X?}"))
        })?;
    }
    Ok(())
}

fn join(splitter: &mut Splitter, bytes: &[u8], limits: &SplitLimits) -> Result<(), String> {
    let (split, spans) = match (splitter.split(bytes, limits, partition_of), validate(bytes)) {
        (Err(SplitError::Malformed(_)), Err(_)) => return Ok(()),
        (Ok(split), Ok(spans)) => (split, spans),
        (split, validated) => {
            return Err(format!("split: {:?}, validate: {validated:?}", split.map(|split| split.spans())));
        }
    };
    let mut wanted = alone(bytes, spans)?;
    let (mut made, mut message_bytes) = (0, Vec::new());
    for message in split.messages() {
        split.write(message, &mut message_bytes);
        let mut traces = Traces::default();
        let walked = walk_in_order(&message_bytes, &mut traces).map_err(|error| error.to_string())?;
        if walked != Some(message.spans() as u64) || validate(&message_bytes).is_err() {
            return Err(format!("{walked:?} spans of {message:?} are read in one pass"));
        }
        if message_bytes.len() > limits.target_bytes && message.spans() > 1 {
            return Err(format!("a message of {} bytes has {} spans", message_bytes.len(), message.spans()));
        }
        if message_bytes.len() > limits.message_bytes_max {
            return Err(format!("a message has {} bytes", message_bytes.len()));
        }
        if !traces.0.contains_key(&message.trace_id) {
            return Err(format!("no span of {message:?} has its trace id"));
        }
        if traces.0.keys().any(|trace| partition_of(trace) != message.partition) {
            return Err(format!("{message:?} has traces of other partitions"));
        }
        for span in alone(&message_bytes, message.spans() as u64)? {
            let at = wanted.iter().position(|wanted| *wanted == span);
            wanted.swap_remove(at.ok_or_else(|| format!("{span:02X?} is not in the request, or is twice"))?);
        }
        made += message.spans() as u64;
    }
    if made + split.too_large().spans != spans || wanted.len() as u64 != split.too_large().spans {
        return Err(format!("{made} of {spans} spans were made, {:?}", split.too_large()));
    }
    small_traces_are_whole(bytes, limits, &split)
}

/// Every span as a message of its own.
fn alone(bytes: &[u8], spans: u64) -> Result<Vec<Vec<u8>>, String> {
    let span = |span| extract(bytes, span).ok().flatten().ok_or_else(|| format!("no span {span}"));
    (0..spans).map(span).collect()
}

/// A trace that could be a message of its own is in one message.
fn small_traces_are_whole(
    bytes: &[u8],
    limits: &SplitLimits,
    split: &sluice_otlp::Split<'_>,
) -> Result<(), String> {
    let mut messages_of = BTreeMap::<[u8; 16], usize>::new();
    let mut message_bytes = Vec::new();
    for message in split.messages() {
        split.write(message, &mut message_bytes);
        let mut traces = Traces::default();
        walk(&message_bytes, &mut traces).map_err(|error| error.to_string())?;
        for trace in traces.0.keys() {
            *messages_of.entry(*trace).or_default() += 1;
        }
    }
    // Everything around its spans, and the lengths of these: no trace takes more.
    let is_small = |spans: usize| bytes.len() + 12 + 12 * spans <= limits.target_bytes;
    let mut traces = Traces::default();
    walk(bytes, &mut traces).map_err(|error| error.to_string())?;
    match traces.0.into_iter().find(|(trace, spans)| is_small(*spans) && messages_of.get(trace) != Some(&1)) {
        Some((trace, spans)) => Err(format!("{spans} spans of {trace:02X?} are in several messages")),
        None => Ok(()),
    }
}

/// The traces of a message, and how many spans each has.
#[derive(Default)]
struct Traces(BTreeMap<[u8; 16], usize>);

impl SpanSink for Traces {
    type Error = Malformed;

    fn resource(&mut self, _: &Resource<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn scope(&mut self, _: &Scope<'_>) -> Result<(), Malformed> {
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        *self.0.entry(*span.trace_id).or_default() += 1;
        Ok(())
    }
}
