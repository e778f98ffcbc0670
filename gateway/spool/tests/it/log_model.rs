//! What a log must do, without files: messages by offset, up to where they are durable, and what is committed.

use crate::model_disk::ModelDisk;
use sluice_spool::{
    Fatal,
    format::RECORDS_AT,
    log::{Committed, Log, LogError, LogFound, LogOpenError, LogOptions, Offsets, OffsetsFound, Read},
};
use std::collections::BTreeMap;

pub const IDENTITY: u64 = 0x51;

pub fn options() -> LogOptions {
    LogOptions {
        identity: IDENTITY,
        number: 3,
        topic: "otlp".into(),
        segment_bytes: RECORDS_AT + (12 << 10),
        takes_packed: false,
    }
}

/// An open log.
pub struct Opened {
    pub log: Log<ModelDisk>,
    pub offsets: Offsets<crate::model_disk::ModelFile>,
    pub found: LogFound,
}

pub fn open(disk: &ModelDisk) -> Result<Opened, Fatal> {
    match Log::open(disk.clone(), options()) {
        Ok((log, offsets, found)) => Ok(Opened { log, offsets, found }),
        Err(LogOpenError::Open(sluice_spool::OpenError::Fatal(fatal))) => Err(fatal),
        Err(error) => panic!("{error}"),
    }
}

#[derive(Debug, Default)]
pub struct NaiveLog {
    /// Every message that may be there.
    pub messages: BTreeMap<i64, Vec<u8>>,
    /// Messages below are there until they are committed.
    pub durable: i64,
    /// A commit at or above this is there, and one of those that were tried.
    pub committed: i64,
    pub tried: i64,
    made: u64,
}

impl NaiveLog {
    fn make(&mut self, bytes: usize) -> Vec<u8> {
        self.made += 1;
        (0..bytes).map(|at| u8::try_from((at as u64 * 31 + self.made) % 251).unwrap()).collect()
    }

    /// Appends messages to both. Returns whether the log took them.
    pub fn append(&mut self, opened: &mut Opened, sizes: &[usize], room: u64) -> Result<bool, Fatal> {
        let messages: Vec<Vec<u8>> = sizes.iter().map(|bytes| self.make(*bytes)).collect();
        let pieces: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let first = opened.log.next();
        // If it fails, they may be there or not.
        match opened.log.append(&pieces, self.made, room) {
            Ok(appended) => {
                // Behind a commit in doubt it is higher.
                assert!(appended.first >= first);
                self.put(appended.first, messages);
                Ok(true)
            }
            Err(LogError::Full(_)) => {
                assert_eq!(opened.log.next(), first, "nothing was written");
                Ok(false)
            }
            Err(LogError::Unfit { .. }) => panic!("it fits"),
            Err(LogError::Fatal(fatal)) => {
                self.put(first, messages);
                Err(fatal)
            }
        }
    }

    fn put(&mut self, first: i64, messages: Vec<Vec<u8>>) {
        self.messages.extend((first..).zip(messages));
    }

    pub fn sync(&mut self, opened: &mut Opened) -> Result<(), Fatal> {
        opened.log.sync()?;
        self.durable = opened.log.next();
        Ok(())
    }

    /// Commits an offset, and removes what is below it.
    pub fn commit(&mut self, opened: &mut Opened, offset: i64) -> Result<(), Fatal> {
        self.tried = offset;
        let end = opened.log.view().floor();
        opened.offsets.store(Committed { offset, metadata: format!("plan {offset}"), end })?;
        self.committed = offset;
        opened.log.remove_below(offset)
    }

    /// After a crash, or none: everything durable that is not committed is there, in order, and nothing is there that was not appended. From then
    /// on the messages are those that were found.
    pub fn adopt(&mut self, opened: &Opened) {
        assert_ne!(opened.found.offsets, OffsetsFound::Damaged);
        assert_eq!(opened.found.lost, [], "a crash is no damage");
        assert_eq!(opened.found.recovered.set_aside, [], "a crash is no damage");
        let committed = opened.offsets.committed().map_or(0, |committed| committed.offset);
        assert!([self.committed, self.tried].contains(&committed), "{committed}: {self:?}");
        (self.committed, self.tried) = (committed, committed);
        let next = opened.log.next();
        assert!(next >= self.durable, "no offset is given twice");
        let read = self.read(opened, committed);
        self.messages.retain(|offset, _| read.contains(offset));
        self.durable = next;
    }

    /// Reads everything from an offset on, compares it, and returns the offsets.
    pub fn read(&self, opened: &Opened, from: i64) -> Vec<i64> {
        let mut cursor = opened.log.view().read_from(from);
        let mut offsets = Vec::new();
        loop {
            match cursor.read().expect("nothing fails here") {
                Read::End => break,
                Read::Lost(lost) => panic!("{lost:?} of {from} to {}", self.durable),
                Read::Message(message) => {
                    let expected = self.messages.get(&message.offset);
                    assert_eq!(Some(&message.payload), expected, "at {}", message.offset);
                    offsets.push(message.offset);
                }
            }
        }
        assert!(offsets.is_sorted());
        let missing = self.messages.range(from..self.durable).find(|(offset, _)| !offsets.contains(offset));
        assert!(missing.is_none(), "{missing:?} of {self:?}");
        offsets
    }
}
