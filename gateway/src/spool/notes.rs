//! How far blocks are that are sent in parts, and of which the volume has the only copy.
//!
//! A block whose range is in flight has that in the partition's plan, where the next owner finds it. One that is an only copy has no
//! range in flight any more: whoever has the volume is the only one who sends it, and finds a file beside the segments.
//!
//! | file | content |
//! | --- | --- |
//! | `parts-TOKEN` | a [plan](Plan) whose only range is the block's, in the text of an offset commit |
//! | `parts-TOKEN.new` | one that is being written; it counts for nothing |
//!
//! Owner: the spool thread. Each file is written beside its place, synced and moved there, so that it is whole or absent after a crash.
//! Limits: one block of a process is sent in parts at a time; a file has some hundred bytes.

use sluice_kafka::{
    OffsetRange,
    ranges::{Parted, Parts, Plan, Rule, Token},
};
use sluice_spool::Fatal;
use std::{
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
};

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
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Writes one down durably.
    pub fn write(&self, note: &Note) -> Result<(), Fatal> {
        let Note { token, range, parts } = note;
        let name = format!("parts-{token}");
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
        self.replace(&name, &plan.encode()).map_err(|source| Fatal {
            action: "write",
            file: name.clone(),
            source,
        })
    }

    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = self.0.join(format!("{name}.new"));
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, self.0.join(name))?;
        File::open(&self.0)?.sync_all()
    }

    /// What was written down of the block of this token and range. One that cannot be read is none: the block is sent whole then, and
    /// the server tells its rows from those that it has only as far as it refuses them again.
    pub fn read(&self, token: Token, range: OffsetRange) -> Option<Parts> {
        let text = std::fs::read_to_string(self.0.join(format!("parts-{token}"))).ok()?;
        let plan = Plan::decode(range.first, &text).ok()?;
        plan.parted.into_iter().find(|parted| parted.range == range).map(|parted| parted.parts)
    }

    /// The block has ended. A file that a crash of the machine brings back belongs to a block that is settled.
    pub fn remove(&self, token: Token) -> Result<(), Fatal> {
        let name = format!("parts-{token}");
        match std::fs::remove_file(self.0.join(&name)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Fatal { action: "remove", file: name, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_kafka::{PartitionId, ranges::Content};

    #[test]
    fn a_note_is_read_as_it_was_written_and_goes_with_its_block() {
        let folder = std::env::temp_dir().join(format!("sluice-notes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let notes = Notes::new(folder.clone());
        let range = OffsetRange { first: 7, next: 20 };
        let id = PartitionId { topic: "spans".into(), partition: 1 };
        let token = Token::of("c", &id, range, Content::default());
        let parts = Parts { check: token.check(), rows: 90, height: 2, code: 117, refused: vec![0, 3] };
        assert_eq!(notes.read(token, range), None);
        for height in [2, 1] {
            let parts = Parts { height, ..parts.clone() };
            notes.write(&Note { token, range, parts: parts.clone() }).unwrap();
            assert_eq!(notes.read(token, range), Some(parts));
        }
        assert_eq!(notes.read(token, OffsetRange { first: 8, next: 20 }), None, "another block's");
        std::fs::write(folder.join(format!("parts-{token}")), "sluice-plan/2:AAAA").unwrap();
        assert_eq!(notes.read(token, range), None, "damaged");
        for _ in 0..2 {
            notes.remove(token).unwrap();
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
