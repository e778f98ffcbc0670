//! How far blocks are that are sent in parts, and of which the volume has the only copy.
//!
//! A block whose range is in flight has that in the partition's plan, where the next owner finds it. One that is an only copy has no
//! range in flight any more: whoever has the volume is the only one who sends it, and finds a file beside the segments.
//!
//! | file | content |
//! | --- | --- |
//! | `parts-TOKEN` | a [plan](Plan) whose only range is the block's, in the text of an offset commit |
//! | `parts-TOKEN.new` | one that is being written; it counts for nothing, and one that a crash has left is removed at the start |
//!
//! Owner: the spool thread. Each file is written beside its place, synced and moved there, so that it is whole or absent after a crash.
//! Where there is no room for it the block waits until there is, as one does that is to be appended.
//! Limits: one block of a process is sent in parts at a time; a file has some hundred bytes.

use super::whole_file::{DRAFT_SUFFIX, remove, replace};
use sluice_kafka::{
    OffsetRange,
    ranges::{Parted, Parts, Plan, Rule, Token},
};
use sluice_spool::Fatal;
use std::{io, path::PathBuf};

/// What the name of each file begins with.
const PREFIX: &str = "parts-";

/// How far a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its token.
    pub token: Token,
    /// Its offsets.
    pub range: OffsetRange,
    /// The parts that were refused.
    pub parts: Parts,
}

/// The folder that they are in.
#[derive(Debug, Clone)]
pub(super) struct Notes(PathBuf);

impl Notes {
    /// Opens the folder, and removes what a crash has left half written.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            // A name that is no UTF-8 is not one of ours.
            let is_draft = |name: &str| name.starts_with(PREFIX) && name.ends_with(DRAFT_SUFFIX);
            if entry.file_name().to_str().is_some_and(is_draft) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self(folder))
    }

    /// Writes one down durably. `false` when the device has no room for it: then nothing has changed.
    pub fn write(&self, note: &Note) -> Result<bool, Fatal> {
        let Note { token, range, parts } = note;
        let name = name_of(*token);
        let plan = Plan {
            offset: range.first,
            rule: Rule::of(&sluice_gateway_config::Insert::default()),
            routing_epoch: 0,
            horizon: range.next,
            topic_id: None,
            instance: 0,
            t0: 0,
            cuts: Vec::new(),
            parted: vec![Parted { range: *range, parts: parts.clone() }],
        };
        replace(&self.0, &name, &plan.encode()).map_err(|source| Fatal {
            action: "write",
            file: name.clone(),
            source,
        })
    }

    /// What was written down of the block of this token and range. One that cannot be read is none: the block is sent whole then, and
    /// the server tells its rows from those that it has only as far as it refuses them again.
    pub fn read(&self, token: Token, range: OffsetRange) -> Option<Parts> {
        let text = std::fs::read_to_string(self.0.join(name_of(token))).ok()?;
        let plan = Plan::decode(range.first, &text).ok()?;
        plan.parted.into_iter().find(|parted| parted.range == range).map(|parted| parted.parts)
    }

    /// The block has ended. A file that a crash of the machine brings back belongs to a block that is settled.
    pub fn remove(&self, token: Token) -> Result<(), Fatal> {
        let name = name_of(token);
        remove(&self.0.join(&name)).map_err(|source| Fatal { action: "remove", file: name, source })
    }
}

fn name_of(token: Token) -> String {
    format!("{PREFIX}{token}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::block_frames::tests::Volume;
    use sluice_kafka::{PartitionId, ranges::Content};
    use std::{path::Path, sync::atomic::Ordering, time::Duration};

    const RANGE: OffsetRange = OffsetRange { first: 7, next: 20 };

    fn token() -> Token {
        let id = PartitionId { topic: "spans".into(), partition: 1 };
        Token::of("c", &id, RANGE, Content::default())
    }

    fn parts() -> Parts {
        Parts { check: token().check(), rows: 90, height: 2, code: 117, refused: vec![0, 3] }
    }

    fn note() -> Note {
        Note { token: token(), range: RANGE, parts: parts() }
    }

    /// The next draft finds no room, and the ones after it do.
    fn fill(folder: &Path) {
        let draft = folder.join(format!("parts-{}.new", token()));
        std::os::unix::fs::symlink("/dev/full", draft).unwrap();
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_goes_with_its_block() {
        let folder = std::env::temp_dir().join(format!("sluice-notes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let notes = Notes::open(folder.clone()).unwrap();
        let token = token();
        assert_eq!(notes.read(token, RANGE), None);
        for height in [2, 1] {
            let parts = Parts { height, ..parts() };
            assert!(notes.write(&Note { token, range: RANGE, parts: parts.clone() }).unwrap());
            assert_eq!(notes.read(token, RANGE), Some(parts));
        }
        assert_eq!(notes.read(token, OffsetRange { first: 8, next: 20 }), None, "another block's");
        std::fs::write(folder.join(format!("parts-{token}")), "sluice-plan/2:AAAA").unwrap();
        assert_eq!(notes.read(token, RANGE), None, "damaged");
        for _ in 0..2 {
            notes.remove(token).unwrap();
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_note_that_finds_no_room_leaves_what_was_written_before() {
        let volume = Volume::new("notes-full");
        let notes = Notes::open(volume.path().to_owned()).unwrap();
        assert!(notes.write(&note()).unwrap());
        fill(volume.path());
        let next = Note { parts: Parts { height: 1, ..parts() }, ..note() };
        assert!(!notes.write(&next).unwrap());
        assert_eq!(notes.read(token(), RANGE), Some(parts()));
        assert_eq!(volume.files().len(), 1, "its draft is gone");
        assert!(notes.write(&next).unwrap());
        assert_eq!(notes.read(token(), RANGE), Some(next.parts));
    }

    #[tokio::test]
    async fn a_note_waits_for_room_as_a_block_does() {
        let volume = Volume::new("notes-wait");
        let spool = volume.open(64 << 20);
        fill(volume.path());
        tokio::time::timeout(Duration::from_mins(1), spool.note(note())).await.unwrap();
        assert_eq!(spool.noted(token(), RANGE), Some(parts()));
        assert_eq!(spool.numbers().refused.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn drafts_that_a_crash_has_left_are_removed_and_notes_are_not() {
        let volume = Volume::new("notes-drafts");
        let notes = Notes::open(volume.path().to_owned()).unwrap();
        assert!(notes.write(&note()).unwrap());
        for name in ["parts-a.new", "another.new"] {
            std::fs::write(volume.path().join(name), "half").unwrap();
        }
        Notes::open(volume.path().to_owned()).unwrap();
        let mut names: Vec<_> =
            volume.files().iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
        names.sort();
        assert_eq!(names, ["another.new".to_owned(), format!("parts-{}", token())]);
    }
}
