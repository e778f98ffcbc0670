//! A body that is decompressed, in steps that are bounded and permitted.
//!
//! | bound | is |
//! | --- | --- |
//! | [`crate::Limits::decompressed_bytes_max`] | bytes of the whole |
//! | [`crate::Limits::decompression_ratio_max`] | times the size as received, beyond [`RATIO_FREE_BYTES`] |
//! | [`PARTS_MAX`] | members of gzip, frames of zstd |
//! | `zstd::WINDOW_BYTES_MAX` | the window of a frame of zstd |
//!
//! A permit is taken for the memory of the output before it is allocated, for both while it moves to a larger one, and for the window of
//! zstd. A part that says how large it will be is believed only after it passed the bounds. So a bomb costs at most its permits, for the
//! time that its bytes take.
//!
//! A body that does not say how large it becomes grows in steps. If the whole budget has no room for a step, old and new, the body is
//! decompressed twice: first only counted ([`Room::Counting`]), then into room for exactly that. So every body within the limits fits a
//! budget that has room for it before and after, however it was written; no other body is answered that it should come again.
//!
//! Small bodies are decompressed on the I/O thread, up to [`INLINE_BYTES`]; all others on a blocking thread.

mod gzip;
mod zstd;

use crate::{
    body::buffer::{Buffer, Full},
    byte_budget::{ByteBudget, BytePermit, NoRoom},
    failure::Failure,
    limits::Limits,
};
use bytes::Bytes;
use std::time::Duration;

/// Bytes, before and after, up to which a body is decompressed on an I/O thread. Chosen: about 100 µs.
pub(crate) const INLINE_BYTES: usize = 64 << 10;

/// Decompressed bytes below which the ratio is not looked at: small requests with equal spans may have any. Chosen: what one may cost.
const RATIO_FREE_BYTES: usize = 1 << 20;

/// Members of gzip, or frames of zstd, of one body. Each costs a new decoder, and may be empty. Chosen: clients write one; those that
/// compress in parallel write one for each MiB or so.
const PARTS_MAX: u32 = 1_024;

/// Bytes that are decompressed at a time when they are only counted. Chosen: a fraction of any budget.
const COUNTED_BYTES: usize = 64 << 10;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// What answers list as accepted.
    pub const ACCEPTED: &'static str = "gzip, zstd";

    /// Of a name in `content-encoding` or `grpc-encoding`; `None` is no compression.
    pub fn of(name: &str) -> Result<Option<Self>, Unknown> {
        let is = |other| name.trim().eq_ignore_ascii_case(other);
        match () {
            () if is("") || is("identity") => Ok(None),
            () if is("gzip") || is("x-gzip") => Ok(Some(Self::Gzip)),
            () if is("zstd") => Ok(Some(Self::Zstd)),
            () => Err(Unknown),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// A compression that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown;

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    More,
}

/// The decoder of a part.
enum Decoder {
    Gzip(gzip::Gzip),
    Zstd(zstd::Zstd),
}

/// What the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// It grows.
    Growing,
    /// The output is discarded; only its bytes are counted: this many so far.
    Counting(usize),
    /// It has room for all.
    Exact,
}

/// What a decoder did in one call.
struct Turn {
    /// Bytes of the input that it took.
    taken: usize,
    /// Whether its part has ended.
    is_ended: bool,
}

/// What a decoder cannot read, in its own words.
struct Unreadable(String);

/// A body on its way from compressed to decompressed.
pub(crate) struct Decompression {
    compression: Compression,
    input: Buffer,
    taken: usize,
    output: Buffer,
    room: Room,
    /// Memory of the decoder beside input and output.
    scratch: BytePermit,
    decoder: Option<Decoder>,
    parts: u32,
    budget: ByteBudget,
    bytes_max: usize,
    ratio_max: usize,
    retry_after: Duration,
}

impl Decompression {
    /// Begins; takes a permit for the first step, and waits for it up to [`Limits::permit_wait`].
    pub async fn begin(
        compression: Compression,
        input: Buffer,
        budget: &ByteBudget,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        let first = Self::first_bytes(compression, &input, budget, limits);
        let taken = budget.take_more_within(first, limits.permit_wait).await;
        let held = input.held();
        let no_room = |no_room| Failure::no_room(no_room, held, budget, limits.retry_after);
        // One byte more, so that a larger body is seen as such.
        let output = Buffer::of(taken.map_err(no_room)?, bytes_max(limits).saturating_add(1));
        let scratch = budget.try_take(0).map_err(no_room)?;
        Ok(Self {
            compression,
            input,
            taken: 0,
            output,
            room: Room::Growing,
            scratch,
            decoder: None,
            parts: 0,
            budget: budget.clone(),
            bytes_max: bytes_max(limits),
            ratio_max: usize::try_from(limits.decompression_ratio_max).unwrap_or(usize::MAX),
            retry_after: limits.retry_after,
        })
    }

    /// The first step: all of the output where the body says how large that is, and where the budget has room for both.
    fn first_bytes(compression: Compression, input: &Buffer, budget: &ByteBudget, limits: &Limits) -> usize {
        let hint = match compression {
            Compression::Gzip => gzip::size_hint(input.bytes()),
            // A frame says it itself.
            Compression::Zstd => 0,
        };
        let hint = hint.min(bytes_max(limits).saturating_add(1));
        let needed = u64::try_from(input.held().saturating_add(hint)).unwrap_or(u64::MAX);
        if needed <= budget.total_bytes() { hint } else { 0 }
    }

    /// Whether an I/O thread may begin with it.
    pub fn is_small(&self) -> bool {
        self.input.len() <= INLINE_BYTES && self.output.spare() <= INLINE_BYTES
    }

    /// Decompresses until it is done, or a step is due and there are this many bytes more than before.
    pub fn run(&mut self, bytes: usize) -> Result<Progress, Failure> {
        let stop = self.output.len().saturating_add(bytes);
        loop {
            if self.decoder.is_none() {
                if self.taken == self.input.len() && self.parts > 0 {
                    let Room::Counting(counted) = self.room else { return Ok(Progress::Done) };
                    self.begin_exact(counted)?;
                    return Ok(Progress::More);
                }
                let expected = self.begin_part()?;
                self.check(self.made().saturating_add(expected))?;
                if self.skip(expected) {
                    continue;
                }
                if !self.reserve(expected)? || expected > bytes {
                    // Another room, or a frame whose size is known, which is one step.
                    return Ok(Progress::More);
                }
            }
            if self.output.len() >= stop || !self.step()? {
                return Ok(Progress::More);
            }
        }
    }

    /// The decompressed bytes, and their permit.
    pub fn finish(self) -> (Bytes, BytePermit) {
        self.output.into_parts()
    }

    /// Makes a decoder for what comes next, and returns how many bytes it says that it will write; 0 if it does not say.
    fn begin_part(&mut self) -> Result<usize, Failure> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(Failure::too_large(format!(
                "the body has more than {PARTS_MAX} members of gzip or frames of zstd; compress it as one"
            )));
        }
        let rest = self.input.bytes().get(self.taken..).unwrap_or_default();
        let (decoder, expected) = match self.compression {
            Compression::Gzip => (Decoder::Gzip(gzip::Gzip::new()), 0),
            Compression::Zstd => {
                let head = zstd::head(rest).map_err(|why| self.unreadable(&why))?;
                let scratch = zstd::scratch_bytes(&head).ok_or_else(|| zstd::window_too_large(&head))?;
                self.take_scratch(scratch)?;
                let expected = head.content_bytes.unwrap_or_default();
                let decoder = zstd::Zstd::new().map_err(|why| self.unreadable(&why))?;
                (Decoder::Zstd(decoder), usize::try_from(expected).unwrap_or(usize::MAX))
            }
        };
        self.decoder = Some(decoder);
        Ok(expected)
    }

    fn take_scratch(&mut self, bytes: usize) -> Result<(), Failure> {
        // The decoder before has gone, and its memory with it.
        self.scratch.shrink_to(0);
        self.scratch = self.budget.try_take(bytes).map_err(|no_room| self.no_room(no_room))?;
        Ok(())
    }

    /// One call of the decoder, which fills what room there is. Returns whether there was room, or another one began.
    fn step(&mut self) -> Result<bool, Failure> {
        if self.output.spare() == 0 && !self.reserve(1)? {
            return Ok(false);
        }
        let before = self.output.len();
        let rest = self.input.bytes().get(self.taken..).unwrap_or_default();
        let output = self.output.bytes_mut();
        let turn = match &mut self.decoder {
            Some(Decoder::Gzip(gzip)) => gzip.decompress(rest, output),
            Some(Decoder::Zstd(zstd)) => zstd.decompress(rest, output),
            None => return Ok(true),
        };
        let Turn { taken, is_ended } = turn.map_err(|why| self.unreadable(&why))?;
        self.taken += taken;
        let made = self.output.len() - before;
        if let Room::Counting(counted) = &mut self.room {
            *counted = counted.saturating_add(made);
            self.output.bytes_mut().clear();
        }
        self.check(self.made())?;
        if is_ended {
            self.decoder = None;
        } else if taken == 0 && made == 0 {
            return Err(self.unreadable(&Unreadable("it ends in the middle".to_owned())));
        }
        Ok(true)
    }

    /// Decompressed bytes so far, or counted ones.
    fn made(&self) -> usize {
        match self.room {
            Room::Counting(counted) => counted,
            Room::Growing | Room::Exact => self.output.len(),
        }
    }

    /// Makes room for this many bytes. Returns whether there is: if there never can be, it begins to count instead.
    fn reserve(&mut self, bytes: usize) -> Result<bool, Failure> {
        match self.output.reserve(bytes) {
            Ok(()) => Ok(true),
            Err(Full::Limit) => Err(self.too_large()),
            Err(Full::Budget(no_room)) => {
                let failure = self.no_room(no_room);
                if failure.after.is_some() || self.room != Room::Growing {
                    return Err(failure);
                }
                self.begin_counting()?;
                Ok(false)
            }
        }
    }

    /// Begins again, to count.
    fn begin_counting(&mut self) -> Result<(), Failure> {
        self.begin_again();
        self.replace_output(COUNTED_BYTES)?;
        self.room = Room::Counting(0);
        Ok(())
    }

    /// Begins again, with room for this many bytes.
    fn begin_exact(&mut self, counted: usize) -> Result<(), Failure> {
        self.begin_again();
        // One byte more, so that a decoder at its end finds room and says so.
        self.replace_output(counted.saturating_add(1))?;
        self.room = Room::Exact;
        Ok(())
    }

    fn begin_again(&mut self) {
        self.decoder = None;
        self.scratch.shrink_to(0);
        (self.taken, self.parts) = (0, 0);
    }

    /// Another output; the former one is free before the permit for the other is taken.
    fn replace_output(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes_max = self.bytes_max.saturating_add(1);
        self.output.clear();
        self.output = Buffer::now(&self.budget, bytes, bytes_max).map_err(|no_room| self.no_room(no_room))?;
        Ok(())
    }

    /// Counts a frame of zstd that says how large its content is, without decompressing it: that would need a window. Returns whether it did.
    fn skip(&mut self, expected: usize) -> bool {
        let (Room::Counting(counted), true) = (&mut self.room, expected > 0) else { return false };
        *counted = counted.saturating_add(expected);
        let rest = self.input.bytes().get(self.taken..).unwrap_or_default();
        // It was found whole when it began.
        self.taken = self.taken.saturating_add(zstd::frame_bytes(rest).unwrap_or(rest.len()));
        self.decoder = None;
        true
    }

    /// There is no permit beside what is held.
    fn no_room(&self, no_room: NoRoom) -> Failure {
        let held = self.input.held().saturating_add(self.output.held()).saturating_add(self.scratch.bytes());
        Failure::no_room(no_room, held, &self.budget, self.retry_after)
    }

    /// Checks a size that the output has, or will have.
    fn check(&self, bytes: usize) -> Result<(), Failure> {
        if bytes > self.bytes_max {
            return Err(self.too_large());
        }
        if bytes > RATIO_FREE_BYTES.max(self.input.len().saturating_mul(self.ratio_max)) {
            return Err(Failure::too_large(format!(
                "the body becomes more than {} times as large when it is decompressed; send fewer equal spans in a request",
                self.ratio_max
            )));
        }
        Ok(())
    }

    fn too_large(&self) -> Failure {
        Failure::too_large(format!(
            "the body is larger than {} bytes when it is decompressed; send smaller requests",
            self.bytes_max
        ))
    }

    fn unreadable(&self, Unreadable(why): &Unreadable) -> Failure {
        Failure::malformed(format!("the body cannot be decompressed as {}: {why}", self.compression.name()))
    }
}

fn bytes_max(limits: &Limits) -> usize {
    usize::try_from(limits.decompressed_bytes_max).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "decompression_tests.rs"]
mod tests;
