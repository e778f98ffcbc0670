//! The committed offset of a log, with the plan of ranges: a file with two places, which are written in turn.
//!
//! A commit overwrites the older place and its copy, and syncs both at once. If it is cut off, the other place has the commit before. The file has
//! its full size from the start: a full disk does not keep a log from being committed, and so from being emptied.
//!
//! The copy tells a commit that was cut off from one that has rotted since. After a sync, place and copy have the same commit: if one rots, or the
//! disk does not give it, the other is used. If a crash cuts a commit off, one of both usually has the commit before the last, or the new one. Only if
//! neither can be read, it is unknown whether there was a later commit: [`OffsetsFound::Doubtful`].
//!
//! An earlier version leaves copies as they are, so a copy may be older than its place. It proves something only if its serial is the one that is
//! expected there, and it stands for a place only if the other place has the commit before.
//!
//! **File** `offsets`: two places of [`PLACE_BYTES`], then a copy of each; the commit with an even serial is in the first. Files of earlier versions
//! have no copies; they get them when there is room. Numbers are little-endian.
//!
//! | at | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `sluiceof` |
//! | 8 | 4 | version, 1. Magic, version and the checksum's place are the same in every version |
//! | 12 | 4 | bytes of the metadata |
//! | 16 | 8 | serial: of two commits, the later one has the higher |
//! | 24 | 8 | identity: of the pipeline |
//! | 32 | 4 | number of the log |
//! | 36 | 4 | zeros |
//! | 40 | 8 | committed offset |
//! | 48 | 8 | end: where the log ended; no message appended later has an offset below it |
//! | 56 | 4,096 | metadata, then zeros |
//! | 4,152 | 4 | checksum of all bytes before |
//!
//! Owner: one thread. Reading is total: a place that cannot be read is none.

use crate::{
    failure::Failure,
    files::{Fatal, FileAt, Files, is_full, is_short},
    format::{Fill, Take},
    whole_file,
};

/// The file's name.
pub(crate) const FILE: &str = "offsets";

/// Maximum bytes of metadata: what brokers take by default, for which plans are made.
pub const METADATA_BYTES_MAX: usize = 4_096;

/// Bytes of a commit.
const COMMIT_BYTES: usize = 56 + METADATA_BYTES_MAX + 4;

/// Bytes of a place: whole pages of a disk.
const PLACE_BYTES: usize = 8_192;

/// Where the copies begin, and bytes of the file.
const COPIES_AT: usize = 2 * PLACE_BYTES;
const FILE_BYTES: usize = 2 * COPIES_AT;

const MAGIC: [u8; 8] = *b"sluiceof";
const VERSION: u32 = 1;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Everything below is done.
    pub offset: i64,
    /// The caller's: the plan of ranges.
    pub metadata: String,
    /// Where the log ended.
    pub end: i64,
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub identity: u64,
    pub number: u32,
}

/// The file of a log.
#[derive(Debug)]
pub struct Offsets<F> {
    file: F,
    owner: Owner,
    /// Of the next commit.
    serial: u64,
    committed: Option<Committed>,
    /// Whether the file has copies.
    has_copies: bool,
    /// Why the file cannot be trusted any more.
    failure: Failure,
}

/// What was read of a place.
enum Place {
    Empty,
    Commit(u64, Committed),
    /// A commit that was cut off, or damage.
    Unreadable,
    /// A newer program wrote it.
    Newer(u32),
}

/// How far the file can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetsFound {
    /// The last commit, or there was none.
    Whole,
    /// The last commit: one of its places cannot be read, and the other can.
    Restored,
    /// A commit, or none yet. If a later one was stored, it cannot be read: it was cut off by a crash, and nothing was done because of it, or it has
    /// rotted.
    Doubtful,
    /// There was a commit, and none can be read.
    Damaged,
}

/// What was found in the file.
#[derive(Debug)]
pub(crate) struct FoundOffsets<F> {
    pub offsets: Offsets<F>,
    pub found: OffsetsFound,
    /// Whether there was no file.
    pub is_new: bool,
}

/// Why the file cannot be opened.
pub(crate) enum OffsetsError {
    Fatal(Fatal),
    Newer(u32),
    /// It is that of another pipeline or log.
    Foreign,
    /// There is no room to create it.
    Full,
}

impl From<Fatal> for OffsetsError {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

impl<F: FileAt> Offsets<F> {
    /// Opens the file in a log's folder, or creates it.
    pub(crate) fn open<D: Files<File = F>>(files: &D, owner: Owner) -> Result<FoundOffsets<F>, OffsetsError> {
        let mut is_new = false;
        let file = match files.open(FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let zeros = vec![0; FILE_BYTES];
                let is_there = whole_file::replace(files, FILE, &zeros).map_err(Fatal::of("create", FILE))?;
                if !is_there {
                    return Err(OffsetsError::Full);
                }
                is_new = true;
                files.open(FILE).map_err(Fatal::of_read("open", FILE))?
            }
            Err(error) => return Err(Fatal::of_read("open", FILE)(error).into()),
        };
        let (committed, failure) = (None, Failure::default());
        let mut offsets = Self { file, owner, serial: 1, committed, has_copies: false, failure };
        let twins = offsets.read_all()?;
        let found = offsets.found(&twins)?;
        offsets.has_copies = offsets.make_copies()?;
        match &offsets.committed {
            // It may be in the system's memory only. If an earlier run's sync of it has failed, another sync does nothing: only what is
            // written again is synced. The other place has the commit before meanwhile.
            Some(committed) => offsets.write(offsets.serial.saturating_sub(1), committed)?,
            None => offsets.file.sync().map_err(Fatal::of("sync", FILE))?,
        }
        Ok(FoundOffsets { offsets, found, is_new })
    }

    /// The last commit in a log's folder. Changes nothing; the log has no owner meanwhile.
    pub(crate) fn look<D: Files<File = F>>(
        files: &D,
        owner: Owner,
    ) -> Result<Option<Committed>, OffsetsError> {
        let file = match files.open(FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Fatal::of_read("open", FILE)(error).into()),
        };
        let (committed, failure) = (None, Failure::default());
        let mut offsets = Self { file, owner, serial: 1, committed, has_copies: false, failure };
        offsets.read_all()?;
        Ok(offsets.committed)
    }

    /// Reads both places and their copies, and finds the last commit.
    fn read_all(&mut self) -> Result<[[Place; 2]; 2], OffsetsError> {
        let twins = [self.read_twin(0)?, self.read_twin(1)?];
        for place in twins.iter().flatten() {
            match place {
                Place::Empty | Place::Unreadable => {}
                Place::Newer(version) => return Err(OffsetsError::Newer(*version)),
                Place::Commit(serial, committed) => {
                    if *serial >= self.serial {
                        self.serial = serial.saturating_add(1);
                        self.committed = Some(committed.clone());
                    }
                }
            }
        }
        if self.is_foreign() { Err(OffsetsError::Foreign) } else { Ok(twins) }
    }

    /// How far the places, each with its copy, can be read.
    fn found(&self, twins: &[[Place; 2]; 2]) -> Result<OffsetsFound, Fatal> {
        let is_unreadable = |place: &Place| matches!(place, Place::Unreadable);
        if self.committed.is_none() {
            return Ok(if !twins.iter().flatten().any(is_unreadable) {
                OffsetsFound::Whole
            } else if self.has_both_written()? {
                OffsetsFound::Damaged
            } else if twins.iter().any(|twin| twin.iter().all(is_unreadable)) {
                // A sync covers both: if the copy was not written, nothing was committed.
                OffsetsFound::Doubtful
            } else {
                OffsetsFound::Whole
            });
        }
        let [even, odd] = twins;
        // The last commit has the serial before the next one.
        let last_serial = self.serial.saturating_sub(1);
        let ([last, last_copy], [other, copy]) = if last_serial & 1 == 0 { (even, odd) } else { (odd, even) };
        let has = |place: &Place, wanted: u64| match place {
            Place::Commit(serial, _) => *serial == wanted,
            // Before the first commit.
            Place::Empty => wanted == 0,
            Place::Unreadable | Place::Newer(_) => false,
        };
        let before = last_serial.saturating_sub(1);
        // If a later commit was cut off, the last one was synced before it.
        let is_synced = has(last, last_serial) && has(last_copy, last_serial);
        let is_last = has(other, before) || is_synced && has(copy, before);
        Ok(if !is_last {
            OffsetsFound::Doubtful
        } else if is_unreadable(last) {
            OffsetsFound::Restored
        } else {
            OffsetsFound::Whole
        })
    }

    /// Gives a file of an earlier version its copies. Returns whether there is room for them.
    fn make_copies(&self) -> Result<bool, Fatal> {
        let size = self.file.size().map_err(Fatal::of_read("read the size of", FILE))?;
        if size >= FILE_BYTES as u64 {
            return Ok(true);
        }
        let zeros = vec![0; FILE_BYTES.saturating_sub(COPIES_AT)];
        let made = self.file.write_all_at(&zeros, COPIES_AT as u64).and_then(|()| self.file.sync());
        match made {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                self.file.truncate(COPIES_AT as u64).map_err(Fatal::of("cut off", FILE))?;
                Ok(false)
            }
            Err(error) => Err(Fatal::of("write", FILE)(error)),
        }
    }

    /// The last commit.
    pub fn committed(&self) -> Option<&Committed> {
        self.committed.as_ref()
    }

    /// Stores a commit durably. After an error the process must end: which of both commits is there is unknown.
    ///
    /// # Panics
    /// If the metadata is too large: plans are not.
    pub fn store(&mut self, committed: Committed) -> Result<(), Fatal> {
        self.failure.check(FILE)?;
        let stored = self.write(self.serial, &committed);
        self.failure.keep(stored)?;
        self.serial = self.serial.saturating_add(1);
        self.committed = Some(committed);
        Ok(())
    }

    fn write(&self, serial: u64, committed: &Committed) -> Result<(), Fatal> {
        let bytes = self.encode(serial, committed);
        self.file.write_all_at(&bytes, place_at(serial)).map_err(Fatal::of("write", FILE))?;
        if self.has_copies {
            self.file.write_all_at(&bytes, copy_at(serial)).map_err(Fatal::of("write", FILE))?;
        }
        self.file.sync().map_err(Fatal::of("sync", FILE))
    }

    fn encode(&self, serial: u64, committed: &Committed) -> [u8; COMMIT_BYTES] {
        let metadata = committed.metadata.as_bytes();
        let len = u32::try_from(metadata.len()).expect("metadata has at most METADATA_BYTES_MAX bytes");
        Fill::new()
            .put(&MAGIC, 8)
            .put(&VERSION.to_le_bytes(), 4)
            .put(&len.to_le_bytes(), 4)
            .put(&serial.to_le_bytes(), 8)
            .put(&self.owner.identity.to_le_bytes(), 8)
            .put(&self.owner.number.to_le_bytes(), 4)
            .put(&[], 4)
            .put(&committed.offset.to_le_bytes(), 8)
            .put(&committed.end.to_le_bytes(), 8)
            .put(metadata, METADATA_BYTES_MAX)
            .sealed()
    }

    /// A place and its copy. If the disk does not give one of both, and the other has a commit, that is enough.
    fn read_twin(&self, number: u64) -> Result<[Place; 2], Fatal> {
        match (self.read(place_at(number)), self.read(copy_at(number))) {
            (Ok(place), Ok(copy)) => Ok([place, copy]),
            (Ok(place @ Place::Commit(..)), Err(fatal)) if fatal.is_unreadable() => {
                Ok([place, Place::Unreadable])
            }
            (Err(fatal), Ok(copy @ Place::Commit(..))) if fatal.is_unreadable() => {
                Ok([Place::Unreadable, copy])
            }
            (Err(fatal), _) | (_, Err(fatal)) => Err(fatal),
        }
    }

    fn read(&self, at: u64) -> Result<Place, Fatal> {
        let mut bytes = [0; COMMIT_BYTES];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(decode(&bytes, self.owner)),
            Err(error) if is_short(&error) => Ok(Place::Unreadable),
            Err(error) => Err(Fatal::of_read("read", FILE)(error)),
        }
    }

    /// Whether a whole commit of another owner is in the file.
    fn is_foreign(&self) -> bool {
        self.committed.is_none()
            && (0..2).any(|number| {
                let mut bytes = [0; COMMIT_BYTES];
                let is_there = self.file.read_exact_at(&mut bytes, place_at(number)).is_ok();
                is_there && Take::checked(&bytes).is_some_and(|mut take| take.bytes(8) == MAGIC)
            })
    }

    /// Whether something was written to both places. The first commit may have been cut off: then nothing was committed.
    fn has_both_written(&self) -> Result<bool, Fatal> {
        for number in 0..2 {
            let mut bytes = [0; COMMIT_BYTES];
            match self.file.read_exact_at(&mut bytes, place_at(number)) {
                Ok(()) if bytes.iter().all(|byte| *byte == 0) => return Ok(false),
                Ok(()) => {}
                Err(error) if is_short(&error) => {}
                Err(error) => return Err(Fatal::of_read("read", FILE)(error)),
            }
        }
        Ok(true)
    }
}

fn place_at(serial: u64) -> u64 {
    if serial & 1 == 0 { 0 } else { PLACE_BYTES as u64 }
}

fn copy_at(serial: u64) -> u64 {
    place_at(serial).saturating_add(COPIES_AT as u64)
}

fn decode(bytes: &[u8; COMMIT_BYTES], owner: Owner) -> Place {
    if bytes.iter().all(|byte| *byte == 0) {
        return Place::Empty;
    }
    let Some(mut take) = Take::checked(bytes) else { return Place::Unreadable };
    let (magic, version, len) = (take.bytes(8).to_vec(), take.u32(), take.u32());
    if magic != MAGIC {
        return Place::Unreadable;
    }
    if version != VERSION {
        return Place::Newer(version);
    }
    let (serial, identity, number, _zeros) = (take.u64(), take.u64(), take.u32(), take.u32());
    let (offset, end) = (take.u64().cast_signed(), take.u64().cast_signed());
    let metadata = take.bytes(METADATA_BYTES_MAX);
    let metadata = usize::try_from(len).ok().and_then(|len| metadata.get(..len));
    let metadata = metadata.and_then(|metadata| std::str::from_utf8(metadata).ok());
    match metadata {
        Some(metadata) if (Owner { identity, number }) == owner && offset >= 0 => {
            Place::Commit(serial, Committed { offset, metadata: metadata.to_owned(), end })
        }
        _ => Place::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { identity: 7, number: 3 };

    fn bytes() -> [u8; COMMIT_BYTES] {
        let committed = Committed { offset: 40, metadata: "plan".to_owned(), end: 60 };
        let (committed_before, failure) = (None, Failure::default());
        let offsets = Offsets {
            file: (),
            owner: OWNER,
            serial: 9,
            committed: committed_before,
            has_copies: false,
            failure,
        };
        offsets.encode_of(&committed)
    }

    impl Offsets<()> {
        fn encode_of(&self, committed: &Committed) -> [u8; COMMIT_BYTES] {
            let metadata = committed.metadata.as_bytes();
            Fill::new()
                .put(b"sluiceof", 8)
                .put(&[1, 0, 0, 0], 4)
                .put(&[4, 0, 0, 0], 4)
                .put(&self.serial.to_le_bytes(), 8)
                .put(&self.owner.identity.to_le_bytes(), 8)
                .put(&self.owner.number.to_le_bytes(), 4)
                .put(&[], 4)
                .put(&committed.offset.to_le_bytes(), 8)
                .put(&committed.end.to_le_bytes(), 8)
                .put(metadata, METADATA_BYTES_MAX)
                .sealed()
        }
    }

    #[test]
    fn a_commit_is_read_as_it_is_drawn_and_with_a_flipped_bit_it_is_none() {
        let bytes = bytes();
        let Place::Commit(9, committed) = decode(&bytes, OWNER) else { panic!("it is a commit") };
        assert_eq!(committed, Committed { offset: 40, metadata: "plan".to_owned(), end: 60 });
        for bit in (0..60 * 8).chain((COMMIT_BYTES - 4) * 8..COMMIT_BYTES * 8) {
            let mut flipped = bytes;
            *flipped.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert!(matches!(decode(&flipped, OWNER), Place::Unreadable), "bit {bit}");
        }
        assert!(matches!(decode(&bytes, Owner { number: 4, ..OWNER }), Place::Unreadable));
        assert!(matches!(decode(&[0; COMMIT_BYTES], OWNER), Place::Empty));
        assert_eq!((place_at(0), place_at(1), place_at(8)), (0, 8_192, 0));
        assert_eq!((copy_at(0), copy_at(1), FILE_BYTES), (16_384, 24_576, 32_768));
    }
}
