//! Packed messages: they are read as they were, beside others and beside those of earlier programs, and damage in them is found.

use crate::{
    log_damage::lost,
    log_model::{IDENTITY, options, pack},
    model_disk::ModelDisk,
};
use sluice_spool::{
    format::{RECORD_HEADER_BYTES, RECORDS_AT, VERSION, VERSION_PACKED},
    log::{Log, LogFound, LogOptions, LogView, LostMessages, Payload, Read, table::ENTRY_BYTES_PACKED},
};
use std::collections::BTreeMap;

/// Bytes of a message that is packed.
const LARGE: usize = 6_000;

/// The table of a record of two messages. The first one is packed.
const TABLE: usize = 2 * ENTRY_BYTES_PACKED;

type Messages = BTreeMap<i64, Vec<u8>>;

fn open(disk: &ModelDisk, takes_packed: bool) -> (Log<ModelDisk>, LogFound) {
    let (log, _, found) = Log::open(disk.clone(), LogOptions { takes_packed, ..options() }).unwrap();
    (log, found)
}

/// The message at an offset: every second one is large.
fn message(offset: i64) -> Vec<u8> {
    let seed = usize::try_from(offset).unwrap();
    let bytes = if seed.is_multiple_of(2) { LARGE } else { 10 };
    (0..bytes).map(|at| u8::try_from((at * at + seed) % 11).unwrap()).collect()
}

/// Appends a record of a large and a small message, and syncs.
fn append(log: &mut Log<ModelDisk>) {
    let made = [0, 1].map(|more| pack(&message(log.next() + more)));
    assert_eq!([made[0].1, made[1].1], [Some(6_000), None]);
    let payloads = made.each_ref().map(|(bytes, raw_bytes)| Payload { bytes, raw_bytes: *raw_bytes });
    log.append_payloads(&payloads, 1, u64::MAX).unwrap();
    log.sync().unwrap();
}

fn append_as_before(log: &mut Log<ModelDisk>) {
    let made = [0, 1].map(|more| message(log.next() + more));
    log.append(&made.each_ref().map(Vec::as_slice), 1, u64::MAX).unwrap();
    log.sync().unwrap();
}

fn read(view: &LogView<ModelDisk>) -> (Messages, Vec<LostMessages>) {
    let (mut messages, mut gaps) = (Messages::new(), Vec::new());
    let mut cursor = view.read_from(0);
    loop {
        match cursor.read().unwrap() {
            Read::End => return (messages, gaps),
            Read::Lost(gap) => gaps.push(gap),
            Read::Message(message) => {
                messages.insert(message.offset, message.payload);
            }
        }
    }
}

fn expected(offsets: impl IntoIterator<Item = i64>) -> Messages {
    offsets.into_iter().map(|offset| (offset, message(offset))).collect()
}

fn segments(disk: &ModelDisk) -> Vec<String> {
    disk.file_names().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

/// The version of a segment.
fn version(disk: &ModelDisk, name: &str) -> u32 {
    u32::from_le_bytes(*disk.content(name)[8..].first_chunk().unwrap())
}

/// Three records, sealed by a later start.
fn sealed() -> (ModelDisk, String) {
    let disk = ModelDisk::new(1);
    let (mut log, _) = open(&disk, true);
    (0..3).for_each(|_| append(&mut log));
    drop(log);
    drop(open(&disk, true));
    let name = segments(&disk).remove(0);
    (disk, name)
}

/// Where the first record begins.
fn at(place: usize) -> usize {
    usize::try_from(RECORDS_AT).unwrap() + place
}

/// Changes the first record, and makes the checksums of its table and its header right.
fn change(disk: &ModelDisk, name: &str, change: impl Fn(&mut [u8])) {
    let mut content = disk.content(name);
    change(&mut content[at(0)..]);
    let table = crc32c::crc32c(&content[at(RECORD_HEADER_BYTES)..][..TABLE]).to_le_bytes();
    content[at(120)..][..4].copy_from_slice(&table);
    let header = crc32c::crc32c(&content[at(0)..][..RECORD_HEADER_BYTES - 4]).to_le_bytes();
    content[at(RECORD_HEADER_BYTES - 4)..][..4].copy_from_slice(&header);
    disk.put(name, &content);
}

#[test]
fn packed_messages_are_read_as_they_were_also_by_the_next_run_and_take_less() {
    let (disk, name) = sealed();
    assert_eq!(version(&disk, &name), VERSION_PACKED);
    assert!(disk.content(&name).len() < at(3 * LARGE / 2), "{}", disk.content(&name).len());
    let (log, found) = open(&disk, true);
    assert_eq!((found.lost.len(), found.recovered.set_aside.len()), (0, 0));
    assert_eq!(read(&log.view()), (expected(0..6), Vec::new()));
    let beside = LogView::read_only(disk, IDENTITY).unwrap();
    assert_eq!(read(&beside).0, expected(0..6));
}

#[test]
fn a_log_of_an_earlier_program_is_read_and_grows_in_new_segments() {
    let disk = ModelDisk::new(1);
    let (mut log, _) = open(&disk, false);
    (0..2).for_each(|_| append_as_before(&mut log));
    drop(log);
    let (mut log, found) = open(&disk, true);
    assert_eq!((found.lost.len(), log.next()), (0, 4));
    append(&mut log);
    append_as_before(&mut log);
    assert_eq!(read(&log.view()), (expected(0..8), Vec::new()));
    let versions: Vec<u32> = segments(&disk).iter().map(|name| version(&disk, name)).collect();
    assert!(versions.is_sorted() && versions.first() == Some(&VERSION), "{versions:?}");
    assert_eq!(versions.last(), Some(&VERSION_PACKED));
    drop(log);
    assert_eq!(read(&open(&disk, false).0.view()).0, expected(0..8), "whatever it takes itself");
}

#[test]
fn a_damaged_packed_message_is_lost_alone() {
    let (disk, name) = sealed();
    let mut content = disk.content(&name);
    content[at(RECORD_HEADER_BYTES + TABLE + 10)] ^= 1;
    disk.put(&name, &content);
    let (log, _) = open(&disk, true);
    assert_eq!(read(&log.view()), (expected(1..6), vec![lost(0, 1, true)]));
    assert!(segments(&disk)[0].ends_with(".damaged"));
}

#[test]
fn a_wrong_length_of_a_packed_message_loses_it_alone() {
    for raw_bytes in [1_u32, 4_095, 5_999, 6_001, 1 << 20, 1 << 28, u32::MAX] {
        let (disk, name) = sealed();
        change(&disk, &name, |record| {
            record[RECORD_HEADER_BYTES + 8..][..4].copy_from_slice(&raw_bytes.to_le_bytes());
        });
        let (log, _) = open(&disk, true);
        assert_eq!(read(&log.view()), (expected(1..6), vec![lost(0, 1, true)]), "{raw_bytes}");
    }
}

#[test]
fn a_record_whose_header_says_another_kind_of_table_loses_its_messages() {
    let (disk, name) = sealed();
    change(&disk, &name, |record| record[88..96].copy_from_slice(b"slucelog"));
    let (log, _) = open(&disk, true);
    assert_eq!(read(&log.view()), (expected(2..6), vec![lost(0, 2, true)]));
}

#[test]
fn a_torn_record_of_packed_messages_is_cut_off() {
    let disk = ModelDisk::new(1);
    let (mut log, _) = open(&disk, true);
    (0..2).for_each(|_| append(&mut log));
    drop(log);
    let name = segments(&disk).remove(0);
    let content = disk.content(&name);
    // Within the last message, and within the packed one before it.
    for missing in [5, 40] {
        let disk = ModelDisk::new(1);
        disk.put(&name, &content[..content.len() - missing]);
        let (log, found) = open(&disk, true);
        assert_eq!((found.recovered.cut.len(), found.recovered.set_aside.len()), (1, 0), "{missing}");
        assert_eq!((read(&log.view()), log.next()), ((expected(0..2), Vec::new()), 2), "{missing}");
    }
}
