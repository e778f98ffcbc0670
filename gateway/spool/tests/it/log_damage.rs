//! Damage in a log: it is reported with its offsets, everything else is read, and no offset is given twice.

use crate::{
    log_model::{NaiveLog, Opened, open},
    model_disk::ModelDisk,
};
use proptest::prelude::*;
use sluice_spool::{
    format::{RECORD_HEADER_BYTES, RECORDS_AT},
    log::{Committed, LogView, LostMessages, OffsetsFound, Read},
};

/// A log with three records of two messages of 100 bytes each, all synced.
pub fn written() -> (ModelDisk, NaiveLog) {
    let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
    let mut opened = open(&disk).unwrap();
    for _ in 0..3 {
        assert!(naive.append(&mut opened, &[100, 100], u64::MAX).unwrap());
        naive.sync(&mut opened).unwrap();
    }
    (disk, naive)
}

/// Bytes of a record with two messages of 100 bytes.
pub const RECORD_BYTES: usize = RECORD_HEADER_BYTES + 16 + 200;

pub fn file(disk: &ModelDisk) -> String {
    disk.file_names().into_iter().find(|name| name.starts_with("segment-")).unwrap()
}

/// Flips a bit of the byte at a position behind the fixed part.
fn flip(disk: &ModelDisk, at: usize) {
    flip_in(disk, &file(disk), at);
}

pub fn flip_in(disk: &ModelDisk, name: &str, at: usize) {
    let mut content = disk.content(name);
    content[usize::try_from(RECORDS_AT).unwrap() + at] ^= 1;
    disk.put(name, &content);
}

/// What is read from an offset on.
pub fn read(opened: &Opened, naive: &NaiveLog, from: i64) -> (Vec<i64>, Vec<LostMessages>) {
    let (mut offsets, mut lost) = (Vec::new(), Vec::new());
    let mut cursor = opened.log.view().read_from(from);
    loop {
        match cursor.read().unwrap() {
            Read::End => return (offsets, lost),
            Read::Lost(gap) => lost.push(gap),
            Read::Message(message) => {
                assert_eq!(message.payload, naive.messages[&message.offset]);
                offsets.push(message.offset);
            }
        }
    }
}

pub fn lost(first: i64, next: i64, is_exact: bool) -> LostMessages {
    LostMessages { first, next, is_exact }
}

#[test]
fn a_log_is_read_beside_its_owner_and_nothing_changes() {
    let (disk, mut naive) = written();
    let mut opened = open(&disk).unwrap();
    assert!(naive.append(&mut opened, &[10, 20], u64::MAX).unwrap());
    naive.sync(&mut opened).unwrap();
    let (before, files) = (disk.content(&file(&disk)), disk.file_names());
    let view = LogView::read_only(disk.clone(), crate::log_model::IDENTITY).unwrap();
    assert_eq!((view.start(), view.end()), (0, 8));
    let mut cursor = view.read_from(0);
    for offset in 0..8 {
        let Read::Message(message) = cursor.read().unwrap() else { panic!("at {offset}") };
        assert_eq!((message.offset, &message.payload), (offset, &naive.messages[&offset]));
    }
    assert_eq!(cursor.read().unwrap(), Read::End);
    assert_eq!((disk.content(&file(&disk)), disk.file_names()), (before, files));
    let other = LogView::read_only(disk, 9).unwrap();
    assert_eq!((other.start(), other.end()), (0, 0), "it is not its log");
}

#[test]
fn a_damaged_message_is_lost_alone() {
    let (disk, naive) = written();
    let opened = open(&disk).unwrap();
    drop(opened);
    // The second message of the second record.
    flip(&disk, RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 150);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.found.lost, [], "messages of sealed segments are compared when they are read");
    assert_eq!(read(&opened, &naive, 0), (vec![0, 1, 2, 4, 5], vec![lost(3, 4, true)]));
    assert_eq!(opened.log.next(), 6);
}

#[test]
fn a_file_in_which_a_reader_finds_damage_stays_after_it_was_committed() {
    let (disk, mut naive) = written();
    drop(open(&disk).unwrap());
    let at = RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 150;
    flip(&disk, at);
    let content = disk.content(&file(&disk));
    let mut opened = open(&disk).unwrap();
    let mut cursor = opened.log.view().read_from(0);
    for _ in 0..3 {
        assert!(matches!(cursor.read().unwrap(), Read::Message(_)));
    }
    assert_eq!(cursor.read().unwrap(), Read::Lost(lost(3, 4, true)));
    // A reader that has the file open reads on, and one that comes later finds it.
    naive.commit(&mut opened, 2).unwrap();
    assert!(matches!(cursor.read().unwrap(), Read::Message(message) if message.offset == 4));
    assert_eq!(read(&opened, &naive, 2).0, [2, 4, 5]);
    naive.commit(&mut opened, 6).unwrap();
    opened.log.close(6).unwrap();
    assert!(file(&disk).ends_with(".damaged"), "it has the only copy: {:?}", disk.file_names());
    assert_eq!(disk.content(&file(&disk)), content);
    disk.lose_power();
    assert!(file(&disk).ends_with(".damaged"));
    assert_eq!(open(&disk).unwrap().log.next(), 6);
}

#[test]
fn damage_that_a_reader_finds_is_on_the_disk_before_anything_behind_it_can_be_committed() {
    let (disk, _) = written();
    drop(open(&disk).unwrap());
    flip(&disk, RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 150);
    let mut opened = open(&disk).unwrap();
    let mut cursor = opened.log.view().read_from(3);
    assert_eq!(cursor.read().unwrap(), Read::Lost(lost(3, 4, true)));
    assert!(file(&disk).ends_with(".damaged"), "{:?}", disk.file_names());
    // Its owner has done nothing since, and is killed after the commit.
    opened.offsets.store(Committed { offset: 6, metadata: "plan".to_owned(), end: 6 }).unwrap();
    drop((cursor, opened));
    disk.lose_power();
    drop(open(&disk).unwrap());
    assert!(file(&disk).ends_with(".damaged"), "it has the only copy: {:?}", disk.file_names());
}

#[test]
fn one_that_only_reads_a_log_leaves_damaged_files_as_they_are() {
    let (disk, _) = written();
    drop(open(&disk).unwrap());
    flip(&disk, RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 150);
    let before = disk.file_names();
    let view = LogView::read_only(disk.clone(), crate::log_model::IDENTITY).unwrap();
    assert_eq!(view.read_from(3).read().unwrap(), Read::Lost(lost(3, 4, true)));
    assert_eq!(disk.file_names(), before);
}

#[test]
fn a_bad_last_record_that_a_commit_proves_is_damage_and_is_not_cut_off() {
    // In a message, whose record has another one, and in the header.
    let of_message = (2 * RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 5, &[1, 2, 3, 5][..]);
    for (at, readable) in [of_message, (2 * RECORD_BYTES + 40, &[1, 2, 3][..])] {
        let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
        let mut opened = open(&disk).unwrap();
        for _ in 0..3 {
            assert!(naive.append(&mut opened, &[100, 100], u64::MAX).unwrap());
            naive.sync(&mut opened).unwrap();
        }
        naive.commit(&mut opened, 1).unwrap();
        drop(opened);
        flip(&disk, at);
        let before = disk.content(&file(&disk));
        let opened = open(&disk).unwrap();
        let [gap] = opened.found.lost[..] else { panic!("{:?}", opened.found) };
        assert!(gap.first == 4 && gap.next >= 6, "{gap:?}");
        assert_eq!(opened.found.recovered.cut, []);
        assert!(file(&disk).ends_with(".damaged"));
        let records = usize::try_from(RECORDS_AT).unwrap();
        assert_eq!(disk.content(&file(&disk))[records..], before[records..]);
        assert_eq!(read(&opened, &naive, 1).0, readable);
        assert!(opened.log.next() >= 6);
    }
}

/// Two segments, with records of two messages each: three and two.
pub fn two_segments() -> (ModelDisk, NaiveLog, [String; 2]) {
    let (disk, mut naive) = written();
    let mut opened = open(&disk).unwrap();
    for _ in 0..2 {
        assert!(naive.append(&mut opened, &[100, 100], u64::MAX).unwrap());
        naive.sync(&mut opened).unwrap();
    }
    drop(opened);
    drop(open(&disk).unwrap());
    let mut names = disk.file_names();
    names.retain(|name| name.starts_with("segment-"));
    (disk, naive, names.try_into().unwrap())
}

#[test]
fn what_is_lost_between_two_segments_ends_where_the_next_message_is() {
    let (disk, naive, [older, newer]) = two_segments();
    flip_in(&disk, &older, 2 * RECORD_BYTES + 40);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.found.lost, [lost(4, 6, false)], "the next segment says how far");
    drop(opened);
    flip_in(&disk, &newer, 40);
    let mut opened = open(&disk).unwrap();
    assert_eq!(opened.found.lost, [lost(4, 8, false)]);
    let (offsets, gaps) = read(&opened, &naive, 0);
    assert_eq!(offsets, [0, 1, 2, 3, 8, 9], "no readable message is passed over");
    assert_eq!(gaps.iter().map(LostMessages::count).sum::<u64>(), 4);
    assert_eq!(opened.log.next(), 10);
    opened.log.remove_below(8).unwrap();
    assert_eq!(opened.log.start(), 8, "the older one is done");
}

#[test]
fn nothing_below_the_committed_offset_is_missed() {
    let (disk, mut naive, [_, newer]) = two_segments();
    let mut opened = open(&disk).unwrap();
    naive.commit(&mut opened, 6).unwrap();
    drop(opened);
    flip_in(&disk, &newer, 40);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.found.lost, [lost(6, 8, true)]);
    assert_eq!(read(&opened, &naive, 6).0, [8, 9]);
}

#[test]
fn a_damaged_header_in_the_middle_loses_its_record_and_says_which() {
    let (disk, naive) = written();
    drop(open(&disk).unwrap());
    flip(&disk, RECORD_BYTES + 40);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.found.lost, [lost(2, 4, true)]);
    assert_eq!(opened.found.recovered.set_aside.len(), 1);
    let (offsets, gaps) = read(&opened, &naive, 0);
    assert_eq!(offsets, [0, 1, 4, 5]);
    assert_eq!(gaps.iter().map(|gap| (gap.first, gap.next)).collect::<Vec<_>>(), [(2, 4)]);
    assert_eq!(opened.log.next(), 6);
    assert!(file(&disk).ends_with(".damaged"), "a user may want to look at it");
    // It stays after it was committed, and counts as space.
    opened.log.close(6).unwrap();
    assert!(file(&disk).ends_with(".damaged"));
    let opened = open(&disk).unwrap();
    assert_eq!(opened.log.next(), 6);
}

#[test]
fn a_damaged_last_record_of_a_sealed_segment_keeps_its_offsets() {
    let (disk, naive) = written();
    drop(open(&disk).unwrap());
    flip(&disk, 2 * RECORD_BYTES + 40);
    let mut opened = open(&disk).unwrap();
    let [gap] = opened.found.lost[..] else { panic!("{:?}", opened.found) };
    assert!(gap.first == 4 && gap.next >= 6 && !gap.is_exact, "{gap:?}");
    assert!(opened.log.next() >= 6, "the offsets of its messages are given to none other");
    let (offsets, gaps) = read(&opened, &naive, 0);
    assert_eq!((offsets.as_slice(), gaps.len()), (&[0, 1, 2, 3][..], 1));
    let appended = opened.log.append(&[b"new"], 1, u64::MAX).unwrap();
    opened.log.sync().unwrap();
    let mut cursor = opened.log.view().read_from(appended.first);
    assert!(matches!(cursor.read().unwrap(), Read::Message(message) if message.payload == b"new"));
    drop(opened);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.log.next(), appended.next);
}

#[test]
fn a_torn_tail_is_cut_away_and_reported() {
    let (disk, naive) = written();
    let name = file(&disk);
    let mut content = disk.content(&name);
    content.truncate(content.len() - 30);
    disk.put(&name, &content);
    let opened = open(&disk).unwrap();
    let [cut] = &opened.found.recovered.cut[..] else { panic!("{:?}", opened.found) };
    assert_eq!(cut.blocks.iter().map(|block| (block.first, block.next)).collect::<Vec<_>>(), [(4, 6)]);
    assert_eq!(read(&opened, &naive, 0), (vec![0, 1, 2, 3], vec![]));
    assert_eq!(opened.log.next(), 4);
}

/// Flips a bit of the committed offset in a place or copy, which begins here.
pub fn flip_commit(disk: &ModelDisk, places: &[usize]) {
    let mut content = disk.content("offsets");
    for place in places {
        content[place + 60] ^= 1;
    }
    disk.put("offsets", &content);
}

/// The places of even and of odd commits, each with its copy.
pub const EVEN: [usize; 2] = [0, 16_384];
pub const ODD: [usize; 2] = [8_192, 24_576];

#[test]
fn a_commit_is_read_from_either_place_and_if_neither_can_be_read_the_one_before_is_doubtful() {
    let (disk, mut naive) = written();
    let mut opened = open(&disk).unwrap();
    for offset in [2, 3] {
        naive.commit(&mut opened, offset).unwrap();
    }
    drop(opened);
    let found = || {
        let opened = open(&disk).unwrap();
        let offset = opened.offsets.committed().map(|committed| committed.offset);
        (offset, opened.found.offsets)
    };
    // The commit with serial 2 is in the first place.
    for (place, expected) in EVEN.into_iter().zip([OffsetsFound::Restored, OffsetsFound::Whole]) {
        flip_commit(&disk, &[place]);
        assert_eq!(found(), (Some(3), expected), "{place}");
    }
    assert_eq!(found(), (Some(3), OffsetsFound::Whole), "opening has written both");
    flip_commit(&disk, &ODD[..1]);
    assert_eq!(found(), (Some(3), OffsetsFound::Whole), "the copy is older: the next commit was cut off");
    flip_commit(&disk, &EVEN);
    let opened = open(&disk).unwrap();
    assert_eq!(
        (opened.offsets.committed().map(|committed| committed.offset), opened.found.offsets),
        (Some(2), OffsetsFound::Doubtful)
    );
    assert_eq!(opened.found.lost, []);
    drop(opened);
    flip_commit(&disk, &ODD);
    let opened = open(&disk).unwrap();
    assert_eq!((opened.offsets.committed(), opened.found.offsets), (None, OffsetsFound::Damaged));
    assert_eq!(read(&opened, &naive, opened.log.view().start()).0, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn offsets_of_an_earlier_version_get_copies_once_there_is_room() {
    let (disk, mut naive) = written();
    let mut opened = open(&disk).unwrap();
    for offset in [2, 3] {
        naive.commit(&mut opened, offset).unwrap();
    }
    drop(opened);
    let two_places = disk.content("offsets")[..16_384].to_vec();
    disk.put("offsets", &two_places);
    disk.set_room(Some(disk.used()));
    let mut opened = open(&disk).unwrap();
    naive.commit(&mut opened, 4).unwrap();
    drop(opened);
    assert_eq!(disk.content("offsets").len(), 16_384, "a full volume can be emptied");
    disk.set_room(None);
    drop(open(&disk).unwrap());
    assert_eq!(disk.content("offsets").len(), 32_768);
    flip_commit(&disk, &ODD[..1]);
    let opened = open(&disk).unwrap();
    assert_eq!(opened.offsets.committed().map(|committed| committed.offset), Some(4));
    assert_eq!(opened.found.offsets, OffsetsFound::Restored);
}

#[test]
fn a_missing_file_of_offsets_is_damage_if_there_are_segments() {
    let (disk, mut naive) = written();
    naive.commit(&mut open(&disk).unwrap(), 2).unwrap();
    sluice_spool::Files::remove(&disk, "offsets").unwrap();
    let opened = open(&disk).unwrap();
    assert!(opened.found.offsets == OffsetsFound::Damaged && opened.offsets.committed().is_none());
    assert_eq!(read(&opened, &naive, opened.log.view().start()).0, [0, 1, 2, 3, 4, 5]);
    assert_eq!(open(&ModelDisk::new(1)).unwrap().found.offsets, OffsetsFound::Whole);
}

#[test]
fn a_log_of_another_pipeline_is_left_alone() {
    let (disk, mut naive) = written();
    naive.commit(&mut open(&disk).unwrap(), 2).unwrap();
    let other = sluice_spool::log::LogOptions { identity: 9, ..crate::log_model::options() };
    let error = sluice_spool::log::Log::open(disk.clone(), other).unwrap_err();
    assert!(error.to_string().contains("another log or pipeline"), "{error}");
    assert_eq!(open(&disk).unwrap().log.next(), 6);
}

/// A change of a file's bytes.
#[derive(Debug, Clone)]
enum Change {
    Flip(usize, u8),
    Cut(usize),
    Zero(usize, usize),
    Grow(Vec<u8>),
    /// A piece of the file in another place.
    Copy(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<usize>(), 1_u8..=255).prop_map(|(at, bits)| Change::Flip(at, bits)),
        1 => any::<usize>().prop_map(Change::Cut),
        1 => (any::<usize>(), 1_usize..2_000).prop_map(|(at, bytes)| Change::Zero(at, bytes)),
        1 => prop::collection::vec(any::<u8>(), 1..900).prop_map(Change::Grow),
        1 => (any::<usize>(), any::<usize>(), 1_usize..1_500).prop_map(|(from, to, bytes)| Change::Copy(from, to, bytes)),
    ]
}

fn changed(mut content: Vec<u8>, change: &Change) -> Vec<u8> {
    let len = content.len().max(1);
    match change {
        // Most changes come to the records.
        Change::Flip(at, bits) => {
            let at = at % len;
            if let Some(byte) = content.get_mut(at) {
                *byte ^= bits;
            }
        }
        Change::Cut(at) => content.truncate(at % len),
        Change::Zero(at, bytes) => {
            let from = at % len;
            let to = (from + bytes).min(content.len());
            content[from..to].fill(0);
        }
        Change::Grow(bytes) => content.extend_from_slice(bytes),
        Change::Copy(from, to, bytes) => {
            let (from, to) = (from % len, to % len);
            let piece: Vec<u8> = content.iter().skip(from).take(*bytes).copied().collect();
            for (byte, new) in content.iter_mut().skip(to).zip(piece) {
                *byte = new;
            }
        }
    }
    content
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is on the disk, a log is opened or refused, and no message is returned that was not appended at its offset.
    #[test]
    fn no_damage_makes_a_message_of_what_was_none(
        of_segment in prop::collection::vec((any::<bool>(), change()), 1..6),
        of_offsets in prop::collection::vec(change(), 0..3),
        is_sealed in any::<bool>(),
    ) {
        let (disk, mut naive) = written();
        if is_sealed {
            naive.commit(&mut open(&disk).unwrap(), 1).unwrap();
        }
        let name = file(&disk);
        let mut content = disk.content(&name);
        let records = usize::try_from(RECORDS_AT).unwrap();
        for (is_of_records, change) in &of_segment {
            content = if *is_of_records && content.len() > records {
                let (fixed, rest) = content.split_at(records);
                [fixed, &changed(rest.to_vec(), change)].concat()
            } else {
                changed(content, change)
            };
        }
        disk.put(&name, &content);
        let offsets = of_offsets.iter().fold(disk.content("offsets"), changed);
        disk.put("offsets", &offsets);
        let options = crate::log_model::options();
        if let Ok((log, offsets, found)) = sluice_spool::log::Log::open(disk.clone(), options) {
            let from = log.view().start().min(offsets.committed().map_or(0, |committed| committed.offset));
            // Each message that is returned is compared.
            read(&Opened { log, offsets, found }, &naive, from.max(0));
        }
    }
}
