//! The progress of only copies that are sent in parts.
//!
//! The progress of a block whose range is in flight is in the partition's plan, where the next owner finds it. An only copy has no range in
//! flight any more. Only the process with the volume sends it, and finds its progress in a file beside the segments.
//!
//! | file | content |
//! | --- | --- |
//! | `parts-TOKEN` | a [plan](Plan) whose only range is the block's, in the text of an offset commit |
//! | `parts-TOKEN.new` | an incomplete file; ignored, and removed at the start |
//!
//! Owner: the spool thread. Each file is written under another name, synced and renamed, so that it is complete or absent after a crash.
//! Without room for it, the block waits, like one that is to be appended.
//!
//! Limits: one block of a process is sent in parts at a time; a file has some hundred bytes.

use super::Written;
use sluice_ranges::{METADATA_BYTES_MAX, OffsetRange, Parted, Plan, RefusedParts, Rule, Token};
use sluice_spool::{
    Directory, Fatal, Files as _,
    whole_file::{self, DRAFT_SUFFIX},
};
use std::{io, path::Path};

/// The prefix of each file name.
const PREFIX: &str = "parts-";

/// The longest text of a note. Chosen: twice that of a plan, which the offset commit limits; a larger file is damaged.
const NOTE_BYTES_MAX: usize = 2 * METADATA_BYTES_MAX;

/// The progress of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub token: Token,
    /// Its offsets.
    pub range: OffsetRange,
    /// The parts that were refused.
    pub parts: RefusedParts,
}

/// The folder of the files.
#[derive(Debug)]
pub(super) struct PartsFile(Directory);

impl PartsFile {
    /// Opens the folder, and removes incomplete files.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let files = Directory::open(folder)?;
        for name in files.names()? {
            if name.starts_with(PREFIX) && name.ends_with(DRAFT_SUFFIX) {
                whole_file::remove(&files, &name)?;
            }
        }
        Ok(Self(files))
    }

    /// Writes a file durably. `false` if the device has no room for it; then nothing has changed.
    pub fn write(&self, note: &Note) -> Result<bool, Fatal> {
        let Note { token, range, parts } = note;
        let name = name_of(*token);
        let plan = Plan {
            offset: range.first,
            rule: Rule::of(&sluice_gateway_config::Insert::default()),
            routing_epoch: 0,
            destination: None,
            horizon: range.next,
            topic_id: None,
            cluster: None,
            t0: 0,
            cuts: Vec::new(),
            parted: vec![Parted { range: *range, parts: parts.clone() }],
            gaps: Vec::new(),
            doubtful_up_to: 0,
        };
        let replaced = whole_file::replace(&self.0, &name, plan.encode().as_bytes());
        replaced.map_err(|source| Fatal { action: "write", file: name, source, is_read: false })
    }

    /// The recorded progress of the block of this token and range. If the file is damaged, it is unknown which parts are stored: the
    /// block is sent as if none were. The server recognises stored parts only if it refuses the same rows again, so that the same parts
    /// are sent.
    pub fn read(&self, token: Token, range: OffsetRange) -> Result<Written<RefusedParts>, Fatal> {
        Written::read(&self.0, &name_of(token), NOTE_BYTES_MAX, |text| {
            let plan = Plan::decode(range.first, text).ok()?;
            plan.parted.into_iter().find(|parted| parted.range == range).map(|parted| parted.parts)
        })
    }

    /// Removes the file of a block that has ended. If a crash of the machine restores it, it belongs to a settled block.
    pub fn remove(&self, token: Token) -> Result<(), Fatal> {
        let name = name_of(token);
        whole_file::remove(&self.0, &name).map_err(|source| Fatal {
            action: "remove",
            file: name,
            source,
            is_read: false,
        })
    }
}

fn name_of(token: Token) -> String {
    format!("{PREFIX}{token}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::test_volume::Volume;
    use sluice_ranges::{Content, PartitionId};
    use sluice_spool::Options;
    use std::{path::Path, sync::atomic::Ordering, time::Duration};

    const RANGE: OffsetRange = OffsetRange { first: 7, next: 20 };

    fn token() -> Token {
        let id = PartitionId { topic: "spans".into(), partition: 1 };
        Token::of("c", &id, RANGE, Content::default())
    }

    fn parts() -> RefusedParts {
        RefusedParts { check: token().check(), rows: 90, height: 2, code: 117, refused: vec![0, 3] }
    }

    fn note() -> Note {
        Note { token: token(), range: RANGE, parts: parts() }
    }

    /// There is no room for the next draft; there is room for the ones after it.
    fn fill(folder: &Path) {
        let draft = folder.join(format!("parts-{}.new", token()));
        std::os::unix::fs::symlink("/dev/full", draft).unwrap();
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_goes_with_its_block() {
        let folder = std::env::temp_dir().join(format!("sluice-notes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let notes = PartsFile::open(&folder).unwrap();
        let token = token();
        assert_eq!(notes.read(token, RANGE).unwrap(), Written::Nothing);
        for height in [2, 1] {
            let parts = RefusedParts { height, ..parts() };
            assert!(notes.write(&Note { token, range: RANGE, parts: parts.clone() }).unwrap());
            assert_eq!(notes.read(token, RANGE).unwrap(), Written::Whole(parts));
        }
        let other = OffsetRange { first: 8, next: 20 };
        assert_eq!(notes.read(token, other).unwrap(), Written::Damaged, "another block's");
        let file = folder.join(name_of(token));
        let text = std::fs::read(&file).unwrap();
        let newer = b"sluice-plan/9:AAAA".to_vec();
        for damaged in [
            b"".to_vec(),
            b"sluice-plan/2:AAAA".to_vec(),
            newer,
            vec![0xff; 9],
            [text, vec![0; 9_000]].concat(),
        ] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(notes.read(token, RANGE).unwrap(), Written::Damaged);
        }
        for _ in 0..2 {
            notes.remove(token).unwrap();
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_note_that_finds_no_room_leaves_what_was_written_before() {
        let volume = Volume::new("notes-full");
        let notes = PartsFile::open(volume.path()).unwrap();
        assert!(notes.write(&note()).unwrap());
        fill(volume.path());
        let next = Note { parts: RefusedParts { height: 1, ..parts() }, ..note() };
        assert!(!notes.write(&next).unwrap());
        assert_eq!(notes.read(token(), RANGE).unwrap(), Written::Whole(parts()));
        assert_eq!(volume.files().len(), 1, "its draft is gone");
        assert!(notes.write(&next).unwrap());
        assert_eq!(notes.read(token(), RANGE).unwrap(), Written::Whole(next.parts));
    }

    #[tokio::test]
    async fn a_note_waits_for_room_as_a_block_does() {
        let volume = Volume::new("notes-wait");
        let spool = volume.open(64 << 20);
        fill(volume.path());
        tokio::time::timeout(Duration::from_mins(1), spool.note(note())).await.unwrap();
        assert_eq!(spool.noted(token(), RANGE).await, Written::Whole(parts()));
        assert_eq!(spool.numbers().refused.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn drafts_that_a_crash_has_left_are_removed_and_notes_are_not() {
        let volume = Volume::new("notes-drafts");
        let notes = PartsFile::open(volume.path()).unwrap();
        assert!(notes.write(&note()).unwrap());
        for name in ["parts-a.new", "another.new"] {
            std::fs::write(volume.path().join(name), "half").unwrap();
        }
        PartsFile::open(volume.path()).unwrap();
        let mut names: Vec<_> =
            volume.files().iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
        names.sort();
        assert_eq!(names, ["another.new".to_owned(), format!("parts-{}", token())]);
    }

    #[test]
    fn a_note_that_cannot_be_read_is_neither_none_nor_damaged() {
        let volume = Volume::new("notes-unread");
        let notes = PartsFile::open(volume.path()).unwrap();
        std::fs::create_dir(volume.path().join(name_of(token()))).unwrap();
        let fatal = notes.read(token(), RANGE).unwrap_err();
        assert_eq!((fatal.action, fatal.file), ("read", name_of(token())));
    }

    #[tokio::test]
    async fn a_note_that_cannot_be_read_ends_the_process_and_not_the_wait_of_who_asks() {
        let volume = Volume::new("notes-fatal");
        std::fs::create_dir(volume.path().join(name_of(token()))).unwrap();
        let (failed, failed_in) = crossbeam_channel::bounded(1);
        let spool =
            volume.open_with(Options::new(1, 64 << 20, false), move |fatal| failed.try_send(fatal).unwrap());
        let asked = tokio::time::timeout(Duration::from_millis(200), spool.noted(token(), RANGE)).await;
        assert!(asked.is_err(), "nothing is sent on the strength of it");
        let fatal = failed_in.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(fatal.file, name_of(token()));
    }
}
