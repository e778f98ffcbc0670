//! The segments on the queue volume of a gateway that is not running: read, and damaged, from outside.
//!
//! Job: list the blocks that a gateway has left, and break what a scenario wants broken. Place in the flow: between the kill of a gateway
//! and its next start. It uses the layout that `gateway/spool/src/format.rs` documents, not that code, so that both are checked against it.
//! Limits: a file is read as a whole; those of a scenario have tens of MiB.
//!
//! The folder of a log of `source.otlp` has segments of the same layout: a block is a record, its rows are the messages, and no mark
//! settles it. `gateway/spool/src/log/offsets.rs` documents where its committed offset is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Where the marks of blocks begin, and the bytes of both marks of one block; the second is `done`.
const MARKS_AT: usize = 4_096;
const MARKS_BYTES: usize = 64;
const DONE_AT: usize = 32;

/// Where the records begin: behind the marks of 1,024 blocks.
const RECORDS_AT: usize = MARKS_AT + 1_024 * MARKS_BYTES;

const HEADER_BYTES: usize = 768;

/// The file of a log's committed offset, the bytes of one of its two places, and the positions of serial and offset in a place. The place
/// with the higher serial is the commit.
const OFFSETS_FILE: &str = "offsets";
const PLACE_BYTES: usize = 8_192;
const SERIAL_AT: usize = 16;
const OFFSET_AT: usize = 40;

/// A block that is left on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    file: PathBuf,
    /// Where its record begins.
    at: u64,
    /// Its place in the segment.
    pub ordinal: u32,
    pub partition: i32,
    pub first: i64,
    /// One past its last offset.
    pub next: i64,
    pub rows: u64,
    /// Whether it was sent, before it was appended or from there, so that it may be in the table.
    pub was_sent: bool,
    pub body_bytes: u64,
    /// Whether a later record of its segment marks it as durable.
    pub is_synced: bool,
}

/// The part of a block to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The bytes that are sent.
    Body,
    /// The bytes that identify the block.
    Header,
    /// The bytes that say whether it was sent.
    Mark,
}

/// The blocks that are not settled, in the order in which they were appended.
pub fn left(volume: &Path) -> Result<Vec<Left>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(volume).with_context(|| format!("look into {}", volume.display()))? {
        let path = entry.with_context(|| format!("look into {}", volume.display()))?.path();
        files.extend(Some(path).filter(|path| path.extension().is_some_and(|kind| kind == "spool")));
    }
    // The name contains the sequence, with a fixed number of digits.
    files.sort();
    let mut left = Vec::new();
    for file in files {
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        left.extend(of_segment(&file, &bytes));
    }
    Ok(left)
}

fn of_segment(file: &Path, bytes: &[u8]) -> Vec<Left> {
    let (mut found, mut at, mut synced) = (Vec::new(), RECORDS_AT, 0);
    while let Some(header) = bytes.get(at..at + HEADER_BYTES).filter(|header| header.starts_with(b"blok")) {
        let ordinal = u32::from_le_bytes(array(header, 4));
        synced = synced.max(u32::from_le_bytes(array(header, 24)));
        let body_bytes = u64::from_le_bytes(array(header, 96));
        let end = usize::try_from(body_bytes).ok().and_then(|body| (at + HEADER_BYTES).checked_add(body));
        let Some(end) = end.filter(|end| *end <= bytes.len()) else { break };
        let mark_at = MARKS_AT + ordinal as usize * MARKS_BYTES;
        let block = Left {
            file: file.to_owned(),
            at: at as u64,
            ordinal,
            partition: i32::from_le_bytes(array(header, 28)),
            first: i64::from_le_bytes(array(header, 32)),
            next: i64::from_le_bytes(array(header, 40)),
            rows: u64::from_le_bytes(array(header, 48)),
            was_sent: u64::from_le_bytes(array(header, 72)) != 0
                || bytes.get(mark_at..mark_at + 4) == Some(b"sent"),
            body_bytes,
            is_synced: false,
        };
        let done_at = mark_at + DONE_AT;
        if bytes.get(done_at..done_at + 4) != Some(b"done") {
            found.push(block);
        }
        at = end;
    }
    for block in &mut found {
        block.is_synced = block.ordinal < synced;
    }
    found
}

/// The committed offset of a log of `source.otlp`, by its folder.
pub fn committed(log: &Path) -> Result<i64> {
    let file = log.join(OFFSETS_FILE);
    let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let places = bytes.chunks(PLACE_BYTES).filter(|place| place.iter().any(|byte| *byte != 0));
    let last = places.max_by_key(|place| u64::from_le_bytes(array(place, SERIAL_AT)));
    let last = last.with_context(|| format!("{} has no commit", file.display()))?;
    Ok(i64::from_le_bytes(array(last, OFFSET_AT)))
}

/// The bytes of a field of a header, which has all of them.
fn array<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header.get(at..at + N).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; N])
}

impl Left {
    /// Flips a bit in the middle of a part of the block.
    pub fn flip(&self, part: Part) -> Result<()> {
        let at = match part {
            Part::Body => self.at + HEADER_BYTES as u64 + self.body_bytes / 2,
            Part::Header => self.at + 40,
            // The mark is zeros until it is set, so it is now invalid.
            Part::Mark => (MARKS_AT + self.ordinal as usize * MARKS_BYTES + 10) as u64,
        };
        let file = self.open()?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).with_context(|| self.action("read"))?;
        file.write_all_at(&[byte[0] ^ 0x10], at).with_context(|| self.action("write"))
    }

    /// Cuts its file off in the middle of the block.
    pub fn cut(&self) -> Result<()> {
        self.open()?.set_len(self.middle()).with_context(|| self.action("cut"))
    }

    /// Writes zeros from the middle of the block to the end of its file, like pages that a crash kept from the disk.
    pub fn tear(&self) -> Result<()> {
        let file = self.open()?;
        let end = file.metadata().with_context(|| self.action("look at"))?.len();
        ensure!(end > self.middle(), "{} ends before its block", self.file.display());
        file.set_len(self.middle()).with_context(|| self.action("cut"))?;
        file.set_len(end).with_context(|| self.action("lengthen"))
    }

    /// Appends these bytes to its file.
    pub fn follow_with(&self, bytes: &[u8]) -> Result<()> {
        let file = self.open()?;
        let end = file.metadata().with_context(|| self.action("look at"))?.len();
        file.write_all_at(bytes, end).with_context(|| self.action("write"))
    }

    /// Appends the first half of the block to its file once more.
    pub fn repeat_half(&self) -> Result<()> {
        let mut half = vec![0; usize::try_from(self.middle() - self.at)?];
        self.open()?.read_exact_at(&mut half, self.at).with_context(|| self.action("read"))?;
        self.follow_with(&half)
    }

    /// Whether it is in the same file.
    pub fn is_beside(&self, other: &Left) -> bool {
        self.file == other.file
    }

    fn middle(&self) -> u64 {
        self.at + HEADER_BYTES as u64 + self.body_bytes / 2
    }

    fn open(&self) -> Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.file).with_context(|| self.action("open"))
    }

    fn action(&self, action: &str) -> String {
        format!("{action} {}", self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with records of these bodies; the last record marks `synced` of them as durable.
    fn segment(bodies: &[usize], synced: u32) -> Vec<u8> {
        let mut bytes = vec![0; RECORDS_AT];
        for (ordinal, body) in (0_u32..).zip(bodies) {
            let first = i64::from(ordinal) * 10;
            let mut header = vec![0; HEADER_BYTES];
            header[..4].copy_from_slice(b"blok");
            header[4..8].copy_from_slice(&ordinal.to_le_bytes());
            if ordinal as usize + 1 == bodies.len() {
                header[24..28].copy_from_slice(&synced.to_le_bytes());
            }
            header[28..32].copy_from_slice(&3_i32.to_le_bytes());
            header[32..40].copy_from_slice(&first.to_le_bytes());
            header[40..48].copy_from_slice(&(first + 9).to_le_bytes());
            header[48..56].copy_from_slice(&100_u64.to_le_bytes());
            header[96..104].copy_from_slice(&(*body as u64).to_le_bytes());
            bytes.extend(header);
            bytes.extend(vec![0xab; *body]);
        }
        bytes
    }

    #[test]
    fn blocks_are_found_by_the_layout_without_those_that_are_settled_or_torn() {
        let mut bytes = segment(&[5, 700, 3, 9], 2);
        let done = MARKS_AT + MARKS_BYTES + DONE_AT;
        bytes[done..done + 4].copy_from_slice(b"done");
        bytes.truncate(bytes.len() - 1);
        let left = of_segment(Path::new("x"), &bytes);
        let seen: Vec<_> = left.iter().map(|left| (left.ordinal, left.first, left.next)).collect();
        assert_eq!(seen, [(0, 0, 9), (2, 20, 29)]);
        assert_eq!((left[0].partition, left[0].rows, left[0].body_bytes), (3, 100, 5));
        assert!(left[0].is_synced && !left[1].is_synced);
    }

    #[test]
    fn a_log_is_committed_up_to_the_place_that_was_written_last() {
        let log = std::env::temp_dir().join(format!("sluice-offsets-{}", std::process::id()));
        fs::create_dir_all(&log).unwrap();
        let committed_of = |commits: [(u64, i64); 2]| {
            let mut bytes = vec![0; 2 * PLACE_BYTES];
            for (place, (serial, offset)) in bytes.chunks_mut(PLACE_BYTES).zip(commits) {
                place[SERIAL_AT..SERIAL_AT + 8].copy_from_slice(&serial.to_le_bytes());
                place[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&offset.to_le_bytes());
            }
            fs::write(log.join(OFFSETS_FILE), bytes).unwrap();
            committed(&log)
        };
        assert_eq!(committed_of([(2, 40), (1, 7)]).unwrap(), 40);
        assert_eq!(committed_of([(2, 40), (3, 50)]).unwrap(), 50);
        assert_eq!(committed_of([(0, 0), (1, 7)]).unwrap(), 7);
        assert!(committed_of([(0, 0), (0, 0)]).unwrap_err().to_string().contains("has no commit"));
        fs::remove_dir_all(&log).unwrap();
    }

    #[test]
    fn damage_is_where_it_is_said_to_be() {
        let volume = std::env::temp_dir().join(format!("sluice-segments-{}", std::process::id()));
        fs::create_dir_all(&volume).unwrap();
        let file = volume.join("segment-0000000000000001.spool");
        let whole = segment(&[8, 8], 0);
        let damaged = |damage: &dyn Fn(&Left)| {
            fs::write(&file, &whole).unwrap();
            damage(&left(&volume).unwrap()[1]);
            fs::read(&file).unwrap()
        };
        let differ = |bytes: &[u8]| bytes.iter().zip(&whole).position(|(a, b)| a != b);
        let second = RECORDS_AT + HEADER_BYTES + 8;
        assert_eq!(differ(&damaged(&|left| left.flip(Part::Body).unwrap())), Some(second + HEADER_BYTES + 4));
        assert_eq!(differ(&damaged(&|left| left.flip(Part::Header).unwrap())), Some(second + 40));
        let marks = MARKS_AT + MARKS_BYTES..MARKS_AT + 2 * MARKS_BYTES;
        assert!(marks.contains(&differ(&damaged(&|left| left.flip(Part::Mark).unwrap())).unwrap()));
        assert_eq!(damaged(&|left| left.cut().unwrap()).len(), whole.len() - 4);
        let torn = damaged(&|left| left.tear().unwrap());
        assert_eq!((torn.len(), differ(&torn)), (whole.len(), Some(whole.len() - 4)));
        let behind = damaged(&|left| left.follow_with(b"xyz").unwrap());
        assert_eq!(behind, [&whole[..], b"xyz"].concat());
        let repeated = damaged(&|left| left.repeat_half().unwrap());
        assert_eq!(repeated, [&whole[..], &whole[second..whole.len() - 4]].concat());
        fs::remove_dir_all(&volume).unwrap();
    }
}
