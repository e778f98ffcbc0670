//! What a log must do, without files: messages by offset, up to where they are durable, and what is committed.

use crate::model_disk::ModelDisk;
use lz4_flex::block::{compress_into, get_maximum_output_size};
use sluice_spool::{
    Fatal,
    format::RECORDS_AT,
    log::{
        Committed, Log, LogError, LogFound, LogOpenError, LogOptions, Offsets, OffsetsFound, Payload, Read,
        packed,
    },
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
    open_with(disk, options())
}

fn open_with(disk: &ModelDisk, options: LogOptions) -> Result<Opened, Fatal> {
    match Log::open(disk.clone(), options) {
        Ok((log, offsets, found)) => Ok(Opened { log, offsets, found }),
        Err(LogOpenError::Open(sluice_spool::OpenError::Fatal(fatal))) => Err(fatal),
        Err(error) => panic!("{error}"),
    }
}

/// What is stored of a message, and the bytes that it had before if it is packed.
pub fn pack(message: &[u8]) -> (Vec<u8>, Option<u32>) {
    let mut bytes = message.to_vec();
    let mut block = vec![0; get_maximum_output_size(packed::PIECE_BYTES)];
    let size = packed::pack(&mut bytes, &mut block, |piece, block| compress_into(piece, block).unwrap());
    bytes.truncate(size.unwrap_or(bytes.len()));
    (bytes, size.map(|_| u32::try_from(message.len()).unwrap()))
}

#[derive(Debug, Default)]
pub struct NaiveLog {
    /// Whether large messages are packed, if the log is opened by [`NaiveLog::open`].
    pub packs: bool,
    /// Messages that were packed.
    pub packed: usize,
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
    /// An empty log that packs large messages, or not.
    pub fn packing(packs: bool) -> Self {
        Self { packs, ..Self::default() }
    }

    /// Opens the log, which takes packed messages if this one packs them.
    pub fn open(&self, disk: &ModelDisk) -> Result<Opened, Fatal> {
        open_with(disk, LogOptions { takes_packed: self.packs, ..options() })
    }

    fn make(&mut self, bytes: usize) -> Vec<u8> {
        self.made += 1;
        let mut message: Vec<u8> =
            (0..bytes).map(|at| u8::try_from((at as u64 * 31 + self.made) % 251).unwrap()).collect();
        if self.packs {
            // One half does not compress, so that a course fills several segments all the same.
            let mut state = self.made;
            for byte in &mut message[..bytes / 2] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = u8::try_from(state >> 56).unwrap();
            }
        }
        message
    }

    /// What is stored of the messages.
    fn stored(&mut self, messages: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<u32>)> {
        let packs = self.packs;
        let stored =
            messages.iter().map(|message| if packs { pack(message) } else { (message.clone(), None) });
        let stored: Vec<_> = stored.collect();
        self.packed += stored.iter().filter(|(_, raw_bytes)| raw_bytes.is_some()).count();
        stored
    }

    /// Appends messages to both. Returns whether the log took them.
    pub fn append(&mut self, opened: &mut Opened, sizes: &[usize], room: u64) -> Result<bool, Fatal> {
        let messages: Vec<Vec<u8>> = sizes.iter().map(|bytes| self.make(*bytes)).collect();
        let stored = self.stored(&messages);
        let payloads = stored.iter().map(|(bytes, raw_bytes)| Payload { bytes, raw_bytes: *raw_bytes });
        let payloads: Vec<Payload<'_>> = payloads.collect();
        let first = opened.log.next();
        // If it fails, they may be there or not.
        match opened.log.append_payloads(&payloads, self.made, room) {
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
