//! A log on the queue volume is opened, or refused with words, whatever is in its files; what is read of it was appended.
//!
//! The first byte says how the log was left, whether its messages are packed, and whether checksums fit the changes, which few random changes would
//! do. Then each four bytes change a file: what, where (two bytes, the lower one first), and a value.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use lz4_flex::block::{compress_into, get_maximum_output_size};
use sluice_spool::format::{RECORD_HEADER_BYTES, RECORDS_AT, SEGMENT_HEADER_BYTES};
use sluice_spool::log::table::ENTRY_BYTES_PACKED;
use sluice_spool::log::{Committed, Log, LogOptions, LogView, Payload, Read, packed};
use sluice_spool::{FileAt, Files};

const IDENTITY: u64 = 0x51;

/// Records of the log, of [`MESSAGES`] messages each.
const RECORDS: u8 = 3;
const MESSAGES: u8 = 2;
const MESSAGE_BYTES: usize = 40;

/// Bytes of a message that is packed.
const PACKED_MESSAGE_BYTES: usize = 6_000;

/// Where a record has the checksum of its table.
const METADATA_CRC_AT: usize = 120;

/// The largest file: what is larger is a full disk.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Room for all records.
const SEGMENT_BYTES: u64 = RECORDS_AT + (12 << 10);

/// Far above what files of this size have.
const READS_MAX: usize = 10_000;

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct Content(Rc<RefCell<Vec<u8>>>);

impl FileAt for Content {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.borrow().len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let content = self.0.borrow();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let piece = at.checked_add(buffer.len()).and_then(|end| content.get(at..end));
        buffer.copy_from_slice(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let end = at.checked_add(bytes.len()).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(io::ErrorKind::StorageFull)?;
        let mut content = self.0.borrow_mut();
        let length = content.len().max(end);
        content.resize(length, 0);
        content[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.borrow_mut().truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder in memory.
#[derive(Clone, Debug, Default)]
struct Folder(Rc<RefCell<BTreeMap<String, Content>>>);

impl Files for Folder {
    type File = Content;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Content> {
        let content = Content::default();
        self.0.borrow_mut().insert(name.to_owned(), content.clone());
        Ok(content)
    }

    fn open(&self, name: &str) -> io::Result<Content> {
        Ok(self.0.borrow().get(name).cloned().ok_or(io::ErrorKind::NotFound)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.borrow_mut();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes the files of a log, opens it, and reads it in both ways.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let Some((how, changes)) = bytes.split_first() else { return };
    let (is_sealed, is_committed, is_summed) = (how & 1 > 0, how & 2 > 0, how & 4 > 0);
    let is_packed = how & 8 > 0;
    let (folder, segment) = written(is_sealed, is_committed, is_packed);
    let records = usize::try_from(RECORDS_AT).expect("the fixed part fits memory");
    // All are of the same size: a message is one byte, again and again.
    let record_bytes = (segment.0.borrow().len() - records) / usize::from(RECORDS);
    for change in changes.as_chunks::<4>().0 {
        let [what, low, high, value] = *change;
        let at = usize::from(u16::from_le_bytes([low, high]));
        match what % 5 {
            0 => alter(&segment, records + at % (record_bytes * usize::from(RECORDS)), value),
            1 => alter(&segment, at % SEGMENT_HEADER_BYTES, value),
            2 => alter(&segment, at, value),
            3 => segment.0.borrow_mut().truncate(records + at),
            _ => alter(&folder.open("offsets").expect("it was made"), at, value),
        }
    }
    if is_summed {
        let headers = (0..usize::from(RECORDS)).map(|number| records + number * record_bytes);
        sum(&segment, headers, is_packed);
    }
    let message_bytes = message_bytes(is_packed);
    match LogView::read_only(folder.clone(), IDENTITY) {
        Ok(view) => read(&view, view.start(), (message_bytes, is_summed)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match Log::open(folder, options()) {
        Ok((log, offsets, _)) => {
            let view = log.view();
            let committed = offsets.committed().map_or(0, |committed| committed.offset);
            read(&view, view.start().min(committed), (message_bytes, is_summed));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn options() -> LogOptions {
    LogOptions {
        identity: IDENTITY,
        number: 0,
        topic: "otlp".into(),
        segment_bytes: SEGMENT_BYTES,
        takes_packed: true,
    }
}

fn message_bytes(is_packed: bool) -> usize {
    if is_packed { PACKED_MESSAGE_BYTES } else { MESSAGE_BYTES }
}

/// What is stored of the message at an offset, and its bytes before it was packed.
fn stored(offset: u8, is_packed: bool) -> (Vec<u8>, Option<u32>) {
    let mut bytes = vec![offset; message_bytes(is_packed)];
    if !is_packed {
        return (bytes, None);
    }
    let mut block = vec![0; get_maximum_output_size(packed::PIECE_BYTES)];
    let encode = |piece: &[u8], block: &mut [u8]| compress_into(piece, block).expect("it fits");
    let size = packed::pack(&mut bytes, &mut block, encode).expect("it repeats");
    bytes.truncate(size);
    (bytes, u32::try_from(PACKED_MESSAGE_BYTES).ok())
}

/// A log with a few records, and its segment.
fn written(is_sealed: bool, is_committed: bool, is_packed: bool) -> (Folder, Content) {
    let folder = Folder::default();
    let (mut log, mut offsets, _) = Log::open(folder.clone(), options()).expect("an empty folder");
    for first in (0..RECORDS * MESSAGES).step_by(usize::from(MESSAGES)) {
        let messages = [first, first + 1].map(|offset| stored(offset, is_packed));
        let payloads = messages.each_ref().map(|(bytes, raw_bytes)| Payload { bytes, raw_bytes: *raw_bytes });
        log.append_payloads(&payloads, 1, u64::MAX).expect("there is room");
        log.sync().expect("nothing fails");
    }
    if is_committed {
        let end = i64::from(RECORDS * MESSAGES);
        offsets.store(Committed { offset: 1, metadata: String::new(), end }).expect("nothing fails");
    }
    drop((log, offsets));
    if is_sealed {
        // The next start seals what an earlier one has left.
        drop(Log::open(folder.clone(), options()).expect("what was written"));
    }
    let name = folder.names().expect("nothing fails").into_iter().find(|name| name.starts_with("segment-"));
    let segment = folder.open(&name.expect("a segment")).expect("it was listed");
    (folder, segment)
}

fn alter(file: &Content, at: usize, value: u8) {
    if let Some(byte) = file.0.borrow_mut().get_mut(at) {
        *byte ^= value;
    }
}

/// Makes the checksums of headers right, and those of packed messages and of the tables before them.
fn sum(segment: &Content, headers: impl Iterator<Item = usize>, is_packed: bool) {
    let mut content = segment.0.borrow_mut();
    let records: Vec<usize> = headers.collect();
    for at in records.iter().copied().filter(|_| is_packed) {
        // Nothing is changed in a record that was cut off.
        let _is_whole = sum_messages(content.get_mut(at..).unwrap_or_default());
    }
    let headers = records.into_iter().map(|at| (at, RECORD_HEADER_BYTES));
    for (at, bytes) in headers.chain([(0, SEGMENT_HEADER_BYTES)]) {
        let header = content.get_mut(at..at + bytes);
        if let Some((fields, sum)) = header.and_then(|header| header.split_last_chunk_mut::<4>()) {
            *sum = crc32c::crc32c(fields).to_le_bytes();
        }
    }
}

/// Makes the checksums of a record's messages and table right.
fn sum_messages(record: &mut [u8]) -> Option<()> {
    let table = RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + usize::from(MESSAGES) * ENTRY_BYTES_PACKED;
    let mut at = table.end;
    for entry in table.clone().step_by(ENTRY_BYTES_PACKED) {
        let bytes = u32::from_le_bytes(*record.get(entry..)?.first_chunk()?);
        let end = at.checked_add(usize::try_from(bytes).ok()?)?;
        let sum = crc32c::crc32c(record.get(at..end)?).to_le_bytes();
        record.get_mut(entry + 4..entry + 8)?.copy_from_slice(&sum);
        at = end;
    }
    let sum = crc32c::crc32c(record.get(table)?).to_le_bytes();
    record.get_mut(METADATA_CRC_AT..METADATA_CRC_AT + 4)?.copy_from_slice(&sum);
    Some(())
}

/// Reads to the end. With checksums that were made right, a message may be at another offset.
fn read(view: &LogView<Folder>, from: i64, (message_bytes, is_summed): (usize, bool)) {
    let mut cursor = view.read_from(from);
    let mut position = from;
    for _ in 0..READS_MAX {
        match cursor.read() {
            Ok(Read::End) => return,
            Ok(Read::Message(found)) => {
                assert!(found.offset >= position, "offset {} comes after {position}", found.offset);
                let appended = u8::try_from(found.offset).ok().filter(|offset| *offset < RECORDS * MESSAGES);
                let is_appended = appended.is_some_and(|offset| found.payload == vec![offset; message_bytes]);
                assert!(is_summed || is_appended, "{found:?} was not appended");
                let bytes = found.payload.len();
                assert!(bytes <= 255 * FILE_BYTES_MAX, "{bytes} bytes were made of a small file");
            }
            Ok(Read::Lost(lost)) => assert!(lost.first >= position && lost.first < lost.next, "{lost:?}"),
            Err(fatal) => return assert!(!fatal.to_string().is_empty()),
        }
        assert!(cursor.position() > position, "it does not go on at {position}");
        position = cursor.position();
    }
    panic!("it does not end");
}
