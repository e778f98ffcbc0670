//! Where the spans of a request are, and what is around them.
//!
//! Every field is checked here, as [`crate::validate`] does. Positions are 32 bits: a request is at most 4 GiB.
//!
//! A span takes [`SPAN_BYTES`], and has at least 28 bytes on the wire. Resources and scopes are noted only if they have spans. Fields that
//! are not spans are noted as ranges; neighbours are one range.

use super::SplitError;
use crate::fields::{OtlpMessage, resource_spans, scope_spans, traces_data};
use crate::malformed::Malformed;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::span::Span;
use crate::walk::not_traces;
use crate::wire::Reader;

/// A part of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    start: u32,
    length: u32,
}

impl Piece {
    pub(super) const fn len(self) -> usize {
        self.length as usize
    }

    /// Its bytes; empty if the request is another one than that of the index.
    pub(super) fn of(self, request: &[u8]) -> &[u8] {
        let start = self.start as usize;
        request.get(start..start.saturating_add(self.len())).unwrap_or_default()
    }

    /// The bytes from `from` to `to`.
    fn between(from: &Reader<'_>, to: &Reader<'_>) -> Self {
        Self::at(from.position(), to.position().saturating_sub(from.position()))
    }

    fn at(start: usize, length: usize) -> Self {
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { start: narrow(start), length: narrow(length) }
    }
}

/// A span. Their order is that of packing: by partition, trace and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpanAt {
    pub(super) partition: u32,
    pub(super) trace_id: [u8; 16],
    /// Its scope's place in the index.
    pub(super) scope: u32,
    /// Its content.
    pub(super) content: Piece,
}

/// A resource or scope with spans: the fields around them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    /// A scope's resource: its place in the index. Unused for a resource.
    pub(super) resource: u32,
    /// The first of its pieces.
    first_piece: u32,
    pieces: u32,
    /// Bytes of all its pieces.
    pub(super) bytes: u32,
    /// The number of the last message with this resource or scope.
    pub(super) in_message: u32,
}

/// The fields around spans, while they are noted.
struct Around {
    holder: Holder,
    /// Whether the next field follows its last piece.
    is_open: bool,
}

impl Around {
    fn new(first_piece: usize, resource: u32) -> Self {
        let first_piece = narrow(first_piece);
        Self { holder: Holder { resource, first_piece, pieces: 0, bytes: 0, in_message: 0 }, is_open: false }
    }
}

const SPAN_BYTES: usize = size_of::<SpanAt>();
const HOLDER_BYTES: usize = size_of::<Holder>();
const PIECE_BYTES: usize = size_of::<Piece>();

/// The index of one request.
#[derive(Debug, Default)]
pub(super) struct Index {
    spans: Vec<SpanAt>,
    pub(super) scopes: Vec<Holder>,
    pub(super) resources: Vec<Holder>,
    pieces: Vec<Piece>,
    /// The fields of the request itself that are no spans: its pieces are the last.
    pub(super) around: Option<Holder>,
    bytes_max: usize,
}

impl Index {
    /// Reads a request, and sorts its spans for packing.
    pub(super) fn read(
        &mut self,
        request: &[u8],
        bytes_max: usize,
        partition_of: impl Fn(&[u8; 16]) -> u32,
    ) -> Result<(), SplitError> {
        self.spans.clear();
        self.scopes.clear();
        self.resources.clear();
        self.pieces.clear();
        (self.around, self.bytes_max) = (None, bytes_max);
        self.read_request(request, partition_of)?;
        self.spans.sort_unstable();
        Ok(())
    }

    pub(super) fn spans(&self) -> &[SpanAt] {
        &self.spans
    }

    /// Some spans, to be put into another order.
    pub(super) fn spans_mut(&mut self, first: usize, end: usize) -> &mut [SpanAt] {
        self.spans.get_mut(first..end).unwrap_or_default()
    }

    /// The pieces of a holder, in the order of the request.
    pub(super) fn pieces(&self, holder: &Holder) -> &[Piece] {
        let first = holder.first_piece as usize;
        self.pieces.get(first..first.saturating_add(holder.pieces as usize)).unwrap_or_default()
    }

    fn read_request(
        &mut self,
        request: &[u8],
        partition_of: impl Fn(&[u8; 16]) -> u32,
    ) -> Result<(), SplitError> {
        let mut reader = Reader::new(request);
        let mut is_traces = request.is_empty();
        while !reader.is_empty() {
            let key = reader.key()?;
            if key == traces_data::RESOURCE_SPANS {
                is_traces = true;
                self.read_resource(reader.message(key, OtlpMessage::ResourceSpans)?, &partition_of)?;
            } else {
                reader.pass(key)?;
            }
        }
        if !is_traces {
            return Err(not_traces().into());
        }
        // Only now, so that its pieces follow each other.
        self.around = Some(self.note_around(Reader::new(request), traces_data::RESOURCE_SPANS)?);
        Ok(())
    }

    /// Notes a `ResourceSpans` that has spans.
    fn read_resource(
        &mut self,
        reader: Reader<'_>,
        partition_of: &impl Fn(&[u8; 16]) -> u32,
    ) -> Result<(), SplitError> {
        Resource::find(reader)?.attributes.check()?;
        let (spans_before, number) = (self.spans.len(), self.resources.len());
        let mut rest = reader;
        while !rest.is_empty() {
            let key = rest.key()?;
            if key == resource_spans::SCOPE_SPANS {
                let scope_spans = rest.message(key, OtlpMessage::ScopeSpans)?;
                self.read_scope(scope_spans, narrow(number), partition_of)?;
            } else {
                rest.pass(key)?;
            }
        }
        if self.spans.len() > spans_before {
            let holder = self.note_around(reader, resource_spans::SCOPE_SPANS)?;
            self.resources.push(holder);
        }
        Ok(())
    }

    /// Notes a `ScopeSpans` that has spans, and these. One pass: looking for the scope first would wait for memory once a span.
    fn read_scope(
        &mut self,
        mut reader: Reader<'_>,
        resource: u32,
        partition_of: &impl Fn(&[u8; 16]) -> u32,
    ) -> Result<(), SplitError> {
        let (spans_before, scope) = (self.spans.len(), narrow(self.scopes.len()));
        let mut around = Around::new(self.pieces.len(), resource);
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            if key != scope_spans::SPANS {
                if key == scope_spans::SCOPE {
                    // Attributes of a scope in pieces are those of its pieces.
                    Scope::of_piece(reader.message(key, OtlpMessage::InstrumentationScope)?, from)?
                        .attributes
                        .check()?;
                } else {
                    reader.pass(key)?;
                }
                self.note(&mut around, Piece::between(&from, &reader))?;
                continue;
            }
            let content = reader.message(key, OtlpMessage::Span)?;
            let trace_id = *checked(content)?.trace_id;
            let piece = Piece::at(content.position(), content.rest().len());
            self.has_room(SPAN_BYTES)?;
            self.spans.push(SpanAt { partition: partition_of(&trace_id), trace_id, scope, content: piece });
            around.is_open = false;
        }
        if self.spans.len() > spans_before {
            self.has_room(HOLDER_BYTES)?;
            self.scopes.push(around.holder);
        } else {
            self.pieces.truncate(around.holder.first_piece as usize);
        }
        Ok(())
    }

    /// Notes all fields of a message but these. The message was read before.
    fn note_around(&mut self, mut reader: Reader<'_>, but: u32) -> Result<Holder, SplitError> {
        self.has_room(HOLDER_BYTES)?;
        let mut around = Around::new(self.pieces.len(), 0);
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            reader.pass(key)?;
            if key == but {
                around.is_open = false;
            } else {
                self.note(&mut around, Piece::between(&from, &reader))?;
            }
        }
        Ok(around.holder)
    }

    /// Notes a field, which is part of the last piece if that ends in front of it.
    fn note(&mut self, around: &mut Around, piece: Piece) -> Result<(), SplitError> {
        let Around { holder, is_open } = around;
        holder.bytes = holder.bytes.saturating_add(piece.length);
        if let Some(open) = self.pieces.last_mut().filter(|_| *is_open) {
            open.length = open.length.saturating_add(piece.length);
            return Ok(());
        }
        self.has_room(PIECE_BYTES)?;
        self.pieces.push(piece);
        holder.pieces = holder.pieces.saturating_add(1);
        *is_open = true;
        Ok(())
    }

    /// Whether this many bytes more are within the limit.
    fn has_room(&self, more: usize) -> Result<(), SplitError> {
        let holders = self.scopes.len().saturating_add(self.resources.len());
        let bytes =
            [(self.spans.len(), SPAN_BYTES), (holders, HOLDER_BYTES), (self.pieces.len(), PIECE_BYTES)]
                .into_iter()
                .fold(more, |sum, (count, bytes)| sum.saturating_add(count.saturating_mul(bytes)));
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(SplitError::TooManySpans { spans: self.spans.len(), index_bytes_max: self.bytes_max })
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A span after every field was read.
fn checked(reader: Reader<'_>) -> Result<Span<'_>, Malformed> {
    let mut span = Span::default();
    span.read(reader)?;
    span.attributes.check()?;
    span.events.iter().try_for_each(|event| event?.attributes.check())?;
    span.links.iter().try_for_each(|link| link?.attributes.check())?;
    Ok(span)
}
