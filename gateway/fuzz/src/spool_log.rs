//! A log on the queue volume is opened, or refused with words, whatever is in its files; what is read of it was appended.
//!
//! The first byte says how the log was left, and whether checksums fit the changes, which few random changes would do. Then each four bytes
//! change a file: what, where (two bytes, the lower one first), and a value.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use sluice_spool::format::{RECORD_HEADER_BYTES, RECORDS_AT, SEGMENT_HEADER_BYTES};
use sluice_spool::log::{Committed, Log, LogOptions, LogView, Read};
use sluice_spool::{FileAt, Files};

const IDENTITY: u64 = 0x51;

/// Records of the log, of [`MESSAGES`] messages each.
const RECORDS: u8 = 3;
const MESSAGES: u8 = 2;
const MESSAGE_BYTES: usize = 40;

/// Header, table, and messages.
const RECORD_BYTES: usize = RECORD_HEADER_BYTES + MESSAGES as usize * (8 + MESSAGE_BYTES);

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
    let (folder, segment) = written(is_sealed, is_committed);
    for change in changes.as_chunks::<4>().0 {
        let [what, low, high, value] = *change;
        let at = usize::from(u16::from_le_bytes([low, high]));
        let records = usize::try_from(RECORDS_AT).expect("the fixed part fits memory");
        match what % 5 {
            0 => alter(&segment, records + at % (RECORD_BYTES * usize::from(RECORDS)), value),
            1 => alter(&segment, at % SEGMENT_HEADER_BYTES, value),
            2 => alter(&segment, at, value),
            3 => segment.0.borrow_mut().truncate(records + at),
            _ => alter(&folder.open("offsets").expect("it was made"), at, value),
        }
    }
    if is_summed {
        sum(&segment);
    }
    match LogView::read_only(folder.clone(), IDENTITY) {
        Ok(view) => read(&view, view.start(), is_summed),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match Log::open(folder, options()) {
        Ok((log, offsets, _)) => {
            let view = log.view();
            let committed = offsets.committed().map_or(0, |committed| committed.offset);
            read(&view, view.start().min(committed), is_summed);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn options() -> LogOptions {
    LogOptions { identity: IDENTITY, number: 0, topic: "otlp".into(), segment_bytes: SEGMENT_BYTES }
}

/// The message at an offset.
fn message(offset: u8) -> [u8; MESSAGE_BYTES] {
    [offset; MESSAGE_BYTES]
}

/// A log with a few records, and its segment.
fn written(is_sealed: bool, is_committed: bool) -> (Folder, Content) {
    let folder = Folder::default();
    let (mut log, mut offsets, _) = Log::open(folder.clone(), options()).expect("an empty folder");
    for first in (0..RECORDS * MESSAGES).step_by(usize::from(MESSAGES)) {
        let messages = [message(first), message(first + 1)];
        log.append(&messages.each_ref().map(<[u8; MESSAGE_BYTES]>::as_slice), 1, u64::MAX)
            .expect("there is room");
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

/// Makes the checksums of headers right.
fn sum(segment: &Content) {
    let mut content = segment.0.borrow_mut();
    let records = usize::try_from(RECORDS_AT).expect("the fixed part fits memory");
    let headers =
        (0..usize::from(RECORDS)).map(|number| (records + number * RECORD_BYTES, RECORD_HEADER_BYTES));
    for (at, bytes) in headers.chain([(0, SEGMENT_HEADER_BYTES)]) {
        let header = content.get_mut(at..at + bytes);
        if let Some((fields, sum)) = header.and_then(|header| header.split_last_chunk_mut::<4>()) {
            *sum = crc32c::crc32c(fields).to_le_bytes();
        }
    }
}

/// Reads to the end. With checksums that were made right, a message may be at another offset.
fn read(view: &LogView<Folder>, from: i64, is_summed: bool) {
    let mut cursor = view.read_from(from);
    let mut position = from;
    for _ in 0..READS_MAX {
        match cursor.read() {
            Ok(Read::End) => return,
            Ok(Read::Message(found)) => {
                assert!(found.offset >= position, "offset {} comes after {position}", found.offset);
                let appended = u8::try_from(found.offset).ok().filter(|offset| *offset < RECORDS * MESSAGES);
                let is_appended = appended.is_some_and(|offset| found.payload == message(offset));
                assert!(is_summed || is_appended, "{found:?} was not appended");
            }
            Ok(Read::Lost(lost)) => assert!(lost.first >= position && lost.first < lost.next, "{lost:?}"),
            Err(fatal) => return assert!(!fatal.to_string().is_empty()),
        }
        assert!(cursor.position() > position, "it does not go on at {position}");
        position = cursor.position();
    }
    panic!("it does not end");
}
