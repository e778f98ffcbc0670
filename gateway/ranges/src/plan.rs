//! The metadata of a commit: the cuts that the next owner of a partition must repeat.
//!
//! Text, because other client libraries read metadata as UTF-8: `sluice-plan/1:` and base64 (RFC 4648, without padding) of
//!
//! | bytes | field |
//! | --- | --- |
//! | varint | the committed offset. If the group's offset differs, a tool has moved it |
//! | 1 | rule: version |
//! | varint | rule: bytes |
//! | varint | rule: messages |
//! | varint | routing epoch; with a last byte of 0 that it does not need if a cluster follows |
//! | varint | horizon − committed offset |
//! | 16 | topic id; zeros if it is unknown |
//! | 3 | [cluster](ClusterNumber), little-endian, if the routing epoch says so; else zeros. Earlier versions wrote a random number |
//! | 2 | [`DESTINATION_MAGIC`]: the destination follows. The first versions wrote a random number of 8 bytes for these three fields, which has these bytes here once in 65,536 |
//! | 3 | [destination](Destination), little-endian; zeros without the magic |
//! | varint | t0: seconds since 1970 |
//! | varint | number of cuts, at most [`CUTS_MAX`] |
//! | varints | cuts, ascending up to the horizon: the first − committed offset, then each − the one before; each at least 1 |
//! | | formats 2 and 3: the ranges in parts, below |
//! | | format 3: the gaps, below |
//! | 4 | xxh3-64 of all bytes before, its lower half, little-endian |
//!
//! A varint is LEB128 of at most 63 bits. Every version also reads one with a last byte that it does not need. So an earlier version reads
//! a plan with a cluster, and takes the cluster for its random number, which decides nothing.
//!
//! The number behind the slash is the format's. It changes whenever an older program could misread the bytes. It is 1 for a plan without
//! ranges in parts, which older programs can read; 2 for a plan with such ranges, which an older program would send whole; and 3 for a
//! plan with [gaps](super::gaps), which an older program would forget. The ranges in parts follow the cuts:
//!
//! | bytes | field |
//! | --- | --- |
//! | varint | number of ranges, at least 1 in format 2, and at most [`PARTED_MAX`]; of each: |
//! | varint | its first offset − the end of the one before, or − the committed offset |
//! | varint | its end − its first offset, at least 1 |
//! | 4 | the beginning of its token, little-endian |
//! | varint | rows of its block |
//! | 1 | height of the refused parts |
//! | varint | a ClickHouse exception code; 0 if there is none |
//! | varint | number of runs of refused parts, at least 1 |
//! | varints | of each run the number of parts since the previous run, and its length |
//!
//! And the gaps follow these:
//!
//! | bytes | field |
//! | --- | --- |
//! | varint | number of gaps, at least 1 and at most [`GAPS_MAX`]; of each: |
//! | varint | its first offset − the end of the one before, or − 0; at least 1 but for the first |
//! | varint | its end − its first offset, at least 1 |
//!
//! If ranges are doubtful ([`Plan::doubtful_up_to`]), the last gap is a mark: it has one offset, [`DOUBT_MARK`] more than that one. An older
//! program keeps it as a gap of offsets that no partition has, and has room for one gap less. With a format of its own, an older program would not read
//! the partition, only because it cannot count.
//!
//! Limits: [`METADATA_BYTES_MAX`]. [`CUTS_MAX`] cuts, [`PARTED_MAX`] ranges in parts and [`GAPS_MAX`] gaps always fit.
//!
//! Reading is total: metadata of other programs or damaged metadata is [`Unread::Foreign`] or [`Unread::Damaged`], which lead to a fresh
//! start. Metadata of a newer program is [`Unread::Newer`]; the partition must then not be read.

use super::{
    cluster::ClusterNumber,
    destination::Destination,
    gaps::GAPS_MAX,
    parts::{self, PARTED_MAX, Parted, REFUSED_BYTES_MAX, REFUSED_MAX, RefusedParts},
    rule::{Rule, Version},
};
use crate::OffsetRange;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use twox_hash::XxHash3_64;

/// Maximum size of metadata at a broker: the default of `offset.metadata.max.bytes`.
pub const METADATA_BYTES_MAX: usize = 4_096;

/// Maximum number of cuts in a plan. Chosen: a cut by time every second leaves 256 s of inserts in flight, and the largest plan stays
/// below [`METADATA_BYTES_MAX`] (2,853 bytes without ranges in parts, tested).
pub const CUTS_MAX: usize = 256;

const MAGIC: &str = "sluice-plan/";
const FORMAT: &str = "1";
/// Plans with ranges in parts.
const FORMAT_PARTED: &str = "2";
/// Plans with gaps, and possibly with ranges in parts.
const FORMAT_GAPS: &str = "3";

/// Lies behind every offset. Chosen: half of what an offset can be.
const DOUBT_MARK: i64 = 1 << 62;

/// Stands in front of a destination. Chosen at random. The first versions read it, and what follows, as part of their random number, which
/// decides nothing.
const DESTINATION_MAGIC: [u8; 2] = [0xd5, 0x7a];

/// A topic's id; `None` if the brokers report none.
pub type TopicId = Option<[u8; 16]>;

/// The plan of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The committed offset: a cut, below which every range is settled.
    pub offset: i64,
    /// The rule by which ranges from there on end by size.
    pub rule: Rule,
    /// Identifies the shard that a message's rows go to.
    pub routing_epoch: u32,
    /// Where that shard was; `None` where it is not written down.
    pub destination: Option<Destination>,
    /// A range that ends by size at or below this offset may have been sent. At least `offset`.
    pub horizon: i64,
    /// The topic's id.
    pub topic_id: TopicId,
    /// The cluster by whose id the tokens of its ranges were made; `None` where it is not written down.
    pub cluster: Option<ClusterNumber>,
    /// Seconds since 1970 before which no range from `offset` on was first sent.
    pub t0: u64,
    /// Ends of ranges that do not end by size: ascending, above `offset`, up to the horizon.
    pub cuts: Vec<i64>,
    /// Ranges whose blocks are sent in parts: ascending, not below `offset`, at most [`PARTED_MAX`].
    pub parted: Vec<Parted>,
    /// Offsets that no owner has read, because Kafka no longer had them: ascending, disjoint, at most [`GAPS_MAX`].
    pub gaps: Vec<OffsetRange>,
    /// Ranges that begin below this offset may have been sent in others, which began with messages that Kafka has deleted, or under tokens
    /// with another id of the cluster. Not above `offset` if there are none.
    pub doubtful_up_to: i64,
}

/// Why metadata is not a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It does not begin like a plan: another program committed it.
    #[error("another program wrote the committed metadata")]
    Foreign,
    /// It begins like a plan, but cannot be read, or belongs to another offset.
    #[error("the committed metadata is damaged, or does not belong to the committed offset")]
    Damaged,
    /// A newer program wrote it, in a format or with a rule that this one does not know.
    #[error("a newer version of the gateway planned ranges of this partition ({0})")]
    Newer(Newer),
}

/// The part of a plan that is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Newer {
    /// The format of the metadata.
    #[error("its metadata has an unknown format")]
    Format,
    /// The version of the rule, with its number.
    #[error("its size rule has the unknown version {0}")]
    Rule(u8),
}

impl Plan {
    /// The cluster and the destination.
    fn place_bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        if let Some(cluster) = self.cluster {
            bytes[..3].copy_from_slice(&cluster.number().to_le_bytes()[..3]);
        }
        if let Some(destination) = self.destination {
            bytes[3..5].copy_from_slice(&DESTINATION_MAGIC);
            bytes[5..].copy_from_slice(&destination.number().to_le_bytes()[..3]);
        }
        bytes
    }

    /// The metadata.
    ///
    /// # Panics
    /// - If there are too many cuts, ranges in parts or gaps.
    /// - If they do not ascend (from the offset, for gaps from 0), or pass the horizon.
    /// - If the offset is negative.
    pub fn encode(&self) -> String {
        assert!(self.cuts.len() <= CUTS_MAX, "the planner lists at most CUTS_MAX cuts");
        let mut body = Vec::with_capacity(64 + 3 * self.cuts.len());
        put_varint(&mut body, self.offset.cast_unsigned());
        body.push(self.rule.version.number());
        put_varint(&mut body, self.rule.bytes);
        put_varint(&mut body, self.rule.messages);
        put_varint(&mut body, u64::from(self.routing_epoch));
        if self.cluster.is_some() {
            pad_varint(&mut body);
        }
        put_varint(&mut body, distance(self.offset, self.horizon));
        body.extend_from_slice(&self.topic_id.unwrap_or_default());
        body.extend_from_slice(&self.place_bytes());
        put_varint(&mut body, self.t0);
        put_varint(&mut body, self.cuts.len() as u64);
        let mut from = self.offset;
        for cut in &self.cuts {
            assert!(*cut > from, "cuts ascend from the offset");
            put_varint(&mut body, distance(from, *cut));
            from = *cut;
        }
        assert!(from <= self.horizon, "what is planned lies below the horizon");
        let format = self.format();
        if format != FORMAT {
            put_parted(&mut body, self.offset, &self.parted);
        }
        if format == FORMAT_GAPS {
            put_gaps(&mut body, &self.gaps_and_mark());
        }
        let check = check(&body);
        body.extend_from_slice(&check);
        format!("{MAGIC}{format}:{}", STANDARD_NO_PAD.encode(body))
    }

    /// The gaps, and the mark for doubtful ranges. If there are too many gaps, the mark is left out: without the mark, rows may be duplicated;
    /// without a gap, rows would be lost.
    fn gaps_and_mark(&self) -> Vec<OffsetRange> {
        let mut all = self.gaps.clone();
        let is_doubtful = self.doubtful_up_to > self.offset && self.doubtful_up_to < DOUBT_MARK - 1;
        if is_doubtful && all.len() < GAPS_MAX {
            let first = DOUBT_MARK + self.doubtful_up_to;
            all.push(OffsetRange { first, next: first + 1 });
        }
        all
    }

    /// The oldest format that can express the plan.
    fn format(&self) -> &'static str {
        match (self.parted.is_empty(), self.gaps_and_mark().is_empty()) {
            (_, false) => FORMAT_GAPS,
            (false, true) => FORMAT_PARTED,
            (true, true) => FORMAT,
        }
    }

    /// Reads the metadata that was committed with `offset`.
    pub fn decode(offset: i64, metadata: &str) -> Result<Self, Unread> {
        let rest = metadata.strip_prefix(MAGIC).ok_or(Unread::Foreign)?;
        let (format, text) = rest.split_once(':').ok_or(Unread::Damaged)?;
        if ![FORMAT, FORMAT_PARTED, FORMAT_GAPS].contains(&format) {
            let newer = !format.is_empty() && format.bytes().all(|b| b.is_ascii_digit());
            return Err(if newer { Unread::Newer(Newer::Format) } else { Unread::Damaged });
        }
        if text.len() > METADATA_BYTES_MAX {
            return Err(Unread::Damaged);
        }
        let body = STANDARD_NO_PAD.decode(text).map_err(|_| Unread::Damaged)?;
        let (fields, sum) = body.split_last_chunk::<4>().ok_or(Unread::Damaged)?;
        if *sum != check(fields) {
            return Err(Unread::Damaged);
        }
        let plan = Fields(fields).plan(format)?;
        if plan.offset == offset { Ok(plan) } else { Err(Unread::Damaged) }
    }
}

/// Where the ranges of a plan come from, and where they are sent.
fn place_of(bytes: [u8; 8], has_cluster: bool) -> (Option<ClusterNumber>, Option<Destination>) {
    let [from_low, from_middle, from_high, magic_first, magic_last, low, middle, high] = bytes;
    let cluster = ClusterNumber::of_number(u32::from_le_bytes([from_low, from_middle, from_high, 0]));
    let destination = Destination::of_number(u32::from_le_bytes([low, middle, high, 0]));
    let has_destination = [magic_first, magic_last] == DESTINATION_MAGIC;
    (cluster.filter(|_| has_cluster), destination.filter(|_| has_destination))
}

fn put_parted(out: &mut Vec<u8>, offset: i64, parted: &[Parted]) {
    assert!(parted.len() <= PARTED_MAX, "the planner lists at most PARTED_MAX ranges in parts");
    put_varint(out, parted.len() as u64);
    let mut from = offset;
    for Parted { range, parts } in parted {
        assert!(parts.is_sound(), "what goes in parts is a block");
        put_varint(out, distance(from, range.first));
        put_varint(out, distance(range.first, range.next));
        out.extend_from_slice(&parts.check.to_le_bytes());
        put_varint(out, parts.rows);
        out.push(parts.height);
        put_varint(out, u64::from(parts.code));
        let runs = parts::runs(&parts.refused);
        put_varint(out, runs.len() as u64);
        for (gap, length) in runs {
            put_varint(out, gap);
            put_varint(out, length);
        }
        from = range.next;
    }
}

fn put_gaps(out: &mut Vec<u8>, gaps: &[OffsetRange]) {
    assert!(gaps.len() <= GAPS_MAX, "the planner lists at most GAPS_MAX gaps");
    put_varint(out, gaps.len() as u64);
    let mut from = 0;
    for gap in gaps {
        assert!(gap.first < gap.next && (from == 0 || gap.first > from), "gaps ascend, and are apart");
        put_varint(out, distance(from, gap.first));
        put_varint(out, distance(gap.first, gap.next));
        from = gap.next;
    }
}

/// `to − from`, which is not negative.
fn distance(from: i64, to: i64) -> u64 {
    let distance = to.checked_sub(from).and_then(|distance| u64::try_from(distance).ok());
    distance.expect("what is planned lies at or above the committed offset")
}

fn check(bytes: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = XxHash3_64::oneshot(bytes).to_le_bytes();
    [a, b, c, d]
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    assert!(value <= i64::MAX.cast_unsigned(), "63 bits hold what is planned");
    while value >= 0x80 {
        out.push(0x80 | value.to_le_bytes()[0]);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Adds a byte that the varint at the end does not need.
fn pad_varint(out: &mut Vec<u8>) {
    if let Some(last) = out.last_mut() {
        *last |= 0x80;
        out.push(0);
    }
}

/// The bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn plan(mut self, format: &str) -> Result<Plan, Unread> {
        let offset = self.offset_above(0)?;
        let [version] = self.bytes()?;
        // A rule of another version may have other fields behind it.
        let version = Version::of_number(version).ok_or(Unread::Newer(Newer::Rule(version)))?;
        let (bytes, messages) = (self.varint()?, self.varint()?);
        if bytes == 0 || messages == 0 {
            return Err(Unread::Damaged);
        }
        let (routing_epoch, has_cluster) = self.padded_varint()?;
        let routing_epoch = u32::try_from(routing_epoch).map_err(|_| Unread::Damaged)?;
        let horizon = self.offset_above(offset)?;
        let topic_id = Some(self.bytes()?).filter(|id| *id != [0; 16]);
        let (cluster, destination) = place_of(self.bytes()?, has_cluster);
        let t0 = self.varint()?;
        let cuts = self.cuts(offset)?;
        let parted = if format == FORMAT { Vec::new() } else { self.parted(offset)? };
        if format == FORMAT_PARTED && parted.is_empty() {
            return Err(Unread::Damaged);
        }
        let mut gaps = if format == FORMAT_GAPS { self.gaps()? } else { Vec::new() };
        let mark = gaps.pop_if(|gap| gap.first > DOUBT_MARK);
        let doubtful_up_to = mark.map_or(0, |mark| mark.first - DOUBT_MARK);
        // A planned cut was read, and the horizon is at least as high; readers rely on that.
        if !self.0.is_empty() || cuts.last().is_some_and(|cut| *cut > horizon) {
            return Err(Unread::Damaged);
        }
        let rule = Rule { version, bytes, messages };
        Ok(Plan {
            offset,
            rule,
            routing_epoch,
            destination,
            horizon,
            topic_id,
            cluster,
            t0,
            cuts,
            parted,
            gaps,
            doubtful_up_to,
        })
    }

    fn cuts(&mut self, offset: i64) -> Result<Vec<i64>, Unread> {
        let count = usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        if count > CUTS_MAX {
            return Err(Unread::Damaged);
        }
        let mut cuts = Vec::with_capacity(count);
        let mut from = offset;
        for _ in 0..count {
            let cut = self.offset_above(from)?;
            if cut == from {
                return Err(Unread::Damaged);
            }
            cuts.push(cut);
            from = cut;
        }
        Ok(cuts)
    }

    fn parted(&mut self, offset: i64) -> Result<Vec<Parted>, Unread> {
        let count = usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        if count > PARTED_MAX {
            return Err(Unread::Damaged);
        }
        let mut parted = Vec::with_capacity(count);
        let mut from = offset;
        for _ in 0..count {
            let first = self.offset_above(from)?;
            let next = self.offset_above(first)?;
            let parts = self.parts()?;
            if next == first || !parts.is_sound() {
                return Err(Unread::Damaged);
            }
            parted.push(Parted { range: OffsetRange { first, next }, parts });
            from = next;
        }
        Ok(parted)
    }

    fn gaps(&mut self) -> Result<Vec<OffsetRange>, Unread> {
        let count = usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        if count == 0 || count > GAPS_MAX {
            return Err(Unread::Damaged);
        }
        let mut gaps = Vec::with_capacity(count);
        let mut from = 0;
        for _ in 0..count {
            let first = self.offset_above(from)?;
            let next = self.offset_above(first)?;
            if next == first || (from > 0 && first == from) {
                return Err(Unread::Damaged);
            }
            gaps.push(OffsetRange { first, next });
            from = next;
        }
        Ok(gaps)
    }

    fn parts(&mut self) -> Result<RefusedParts, Unread> {
        let check = u32::from_le_bytes(self.bytes()?);
        let rows = self.varint()?;
        let [height] = self.bytes()?;
        let code = u32::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        let runs = usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        if runs > REFUSED_BYTES_MAX {
            return Err(Unread::Damaged);
        }
        let mut refused = Vec::new();
        let mut next = 0_u64;
        for _ in 0..runs {
            let first = next.checked_add(self.varint()?).ok_or(Unread::Damaged)?;
            next = first.checked_add(self.varint()?).ok_or(Unread::Damaged)?;
            let room = (REFUSED_MAX - refused.len()) as u64;
            if next == first || next - first > room {
                return Err(Unread::Damaged);
            }
            refused.extend(first..next);
        }
        Ok(RefusedParts { check, rows, height, code, refused })
    }

    fn offset_above(&mut self, from: i64) -> Result<i64, Unread> {
        let distance = i64::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
        from.checked_add(distance).ok_or(Unread::Damaged)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Unread::Damaged)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn varint(&mut self) -> Result<u64, Unread> {
        self.padded_varint().map(|(value, _)| value)
    }

    /// A varint, and whether its last byte is one that it does not need.
    fn padded_varint(&mut self) -> Result<(u64, bool), Unread> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = self.bytes()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value, shift > 0 && byte == 0));
            }
        }
        Err(Unread::Damaged)
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
