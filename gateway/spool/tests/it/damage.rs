//! Flipped bits, truncated files, and files of other origin.

use crate::{
    model_disk::ModelDisk,
    naive::{IDENTITY, Naive, ROWS_ELSEWHERE, open, options, read_all},
};
use sluice_spool::{
    BlockId, BodyError, Damage, Lost, OpenError, Options, Queue, ReadError, Recovered, Sent,
    format::{MARKS_AT, RECORD_HEADER_BYTES, RECORDS_AT, SEAL_AT, SEGMENT_HEADER_BYTES},
};
use std::collections::BTreeSet;

pub const FILE: &str = "segment-0000000000000001.spool";
const KEPT: &str = "segment-0000000000000001.damaged";

/// Bytes of each block's body, and of its record.
pub const BODY: usize = 40;
pub const RECORD: usize = RECORD_HEADER_BYTES + BODY;

pub fn at(position: u64) -> usize {
    usize::try_from(position).unwrap()
}

/// Four blocks in one segment: 0 is marked `sole` and `only`, 1 was sent, 2 is settled, 3 is held.
pub fn segment(sealed: bool) -> (Naive, Vec<u8>) {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    for _ in 0..4 {
        let (head, body) = naive.make(1, BODY, false);
        let id = queue.append(&head, &[&body], 5).unwrap();
        naive
            .blocks
            .push(crate::naive::Block { durable: true, ..crate::naive::Block::new(head, body, Some(id)) });
        naive.sync(&mut queue).unwrap();
    }
    naive.mark_sent(&mut queue, 1).unwrap();
    naive.settle(&mut queue, 2).unwrap();
    naive.mark_sole(&mut queue, 0).unwrap();
    naive.mark_only_copy(&mut queue, 0).unwrap();
    naive.sync(&mut queue).unwrap();
    if sealed {
        queue.close().unwrap();
    }
    (naive, disk.content(FILE))
}

pub fn opened(content: &[u8], file: &str) -> (ModelDisk, Queue<ModelDisk>, Recovered) {
    let disk = ModelDisk::new(1);
    disk.put(file, content);
    let (queue, report) = open(&disk, 4);
    (disk, queue, report)
}

pub fn ordinals(queue: &Queue<ModelDisk>) -> BTreeSet<u32> {
    queue.held().map(|held| held.id.ordinal).collect()
}

fn lost(report: &Recovered) -> BTreeSet<u32> {
    report.set_aside.iter().flat_map(|aside| &aside.lost).map(|lost| lost.id.ordinal).collect()
}

/// Held blocks are as appended; missing ones are named; only what the flip hit has changed.
fn assert_accounted(
    content: &[u8],
    naive: &Naive,
    queue: &Queue<ModelDisk>,
    report: &Recovered,
    flip: usize,
) {
    let hit = flip.checked_sub(at(RECORDS_AT)).map(|behind| u32::try_from(behind / RECORD).unwrap());
    let (there, told) = (ordinals(queue), lost(report));
    for entry in queue.held() {
        let block = &naive.blocks[usize::try_from(entry.id.ordinal).unwrap()];
        let (head, body) = queue.read(entry.id).unwrap();
        assert_eq!((&head, &read_all(body)), (&block.head, &block.body), "flip at {flip}");
        let never = match entry.id.ordinal {
            0 => Sent::Sole,
            1 => Sent::At(77),
            _ => Sent::Never,
        };
        assert!(
            entry.sent == never || (entry.sent == Sent::Doubtful && report.doubtful_marks == 1),
            "{flip}"
        );
        let only_copy = (entry.id.ordinal == 0).then_some(ROWS_ELSEWHERE);
        let is_doubtful =
            entry.sent == Sent::Doubtful && only_copy.map(|_| block.head.rows) == entry.only_copy;
        assert!(entry.only_copy == only_copy || is_doubtful, "flip at {flip}: {entry:?}");
    }
    for ordinal in [0, 1, 3] {
        if there.contains(&ordinal) {
            continue;
        }
        assert_eq!(hit, Some(ordinal), "flip at {flip}: only what was hit is missing");
        let cut: u64 = report.cut.iter().map(|cut| cut.bytes).sum();
        let torn = cut == RECORD as u64 && ordinal == 3;
        assert!(told.contains(&ordinal) || torn, "flip at {flip}: it is reported");
    }
    assert!(!there.contains(&2) || report.doubtful_marks == 1, "flip at {flip}: settled");
    let silent = report.doubtful_marks + report.damaged_when_settled == 0
        && report.set_aside.is_empty()
        && report.cut.is_empty();
    let checked = flip < SEGMENT_HEADER_BYTES || flip >= at(RECORDS_AT);
    assert!(!(silent && checked), "flip at {flip} of {}: it is seen", content.len());
}

/// Opening once more finds the same, and reports it until it is settled.
fn assert_told_again(disk: &ModelDisk, queue: Queue<ModelDisk>, report: &Recovered) {
    let (held, told) = (ordinals(&queue), lost(report));
    drop(queue);
    let (mut queue, again) = open(disk, 4);
    assert_eq!((ordinals(&queue), lost(&again)), (held, told.clone()));
    assert!(again.set_aside.iter().all(|aside| aside.before), "{again:?}");
    assert_eq!(again.cut, []);
    for ordinal in &told {
        queue.settle(BlockId { segment: 1, ordinal: *ordinal }).unwrap();
    }
    queue.close().unwrap();
    let (queue, settled) = open(disk, 4);
    assert_eq!((lost(&settled), settled.set_aside.len(), queue.usage().lost), (BTreeSet::new(), 0, 0));
}

/// All bytes with a meaning, and some of the space for marks of blocks that do not exist.
fn flips(len: usize) -> impl Iterator<Item = usize> {
    let used = at(MARKS_AT) + 4 * 64;
    (0..used).chain((used..at(RECORDS_AT)).step_by(61)).chain(at(RECORDS_AT)..len)
}

fn flip_every_byte(sealed: bool) {
    let (naive, content) = segment(sealed);
    assert_eq!(content.len(), at(RECORDS_AT) + 4 * RECORD);
    for flip in flips(content.len()) {
        let mut flipped = content.clone();
        flipped[flip] ^= 1 << (flip % 8);
        let (disk, queue, report) = opened(&flipped, FILE);
        assert_accounted(&content, &naive, &queue, &report, flip);
        if flip % 16 == 3 {
            assert_told_again(&disk, queue, &report);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_segment_is_accounted_for() {
    flip_every_byte(true);
}

#[test]
fn a_flipped_bit_anywhere_in_the_open_segment_is_accounted_for() {
    flip_every_byte(false);
}

#[test]
fn a_segment_that_was_cut_off_anywhere_is_accounted_for() {
    let (_, content) = segment(true);
    for len in (0..at(RECORDS_AT)).step_by(509).chain(at(RECORDS_AT)..content.len()) {
        let (_, queue, report) = opened(&content[..len], FILE);
        let whole = len.saturating_sub(at(RECORDS_AT)) / RECORD;
        let held = ordinals(&queue);
        assert_eq!(
            held.iter().filter(|ordinal| **ordinal != 2).count(),
            whole - usize::from(whole == 3),
            "{len}"
        );
        if len >= at(SEAL_AT) + 32 {
            let told: BTreeSet<u32> = held.union(&lost(&report)).copied().collect();
            assert!(told.is_superset(&[0, 1, 3].into()), "{len}: {report:?}");
        }
        assert!(!report.set_aside.is_empty(), "{len}: {report:?}");
    }
}

#[test]
fn a_damaged_file_is_kept_as_it_was_and_its_whole_blocks_are_drained() {
    let (naive, mut content) = segment(true);
    content[at(RECORDS_AT) + 5] ^= 1;
    let (disk, mut queue, report) = opened(&content, FILE);
    let [aside] = &report.set_aside[..] else { panic!("{report:?}") };
    assert_eq!((&*aside.file, aside.before), (KEPT, false));
    let id = BlockId { segment: 1, ordinal: 0 };
    assert_eq!(aside.lost, [Lost { id, coordinates: None, is_only_copy: true, relied_on: Some(false) }]);
    assert_eq!(disk.file_names(), [KEPT]);
    for ordinal in [1, 3] {
        queue.settle(BlockId { segment: 1, ordinal }).unwrap();
    }
    assert_eq!((queue.usage().lost, queue.usage().kept_bytes), (1, 0));
    queue.settle(aside.lost[0].id).unwrap();
    assert_eq!((queue.usage().lost, queue.usage().kept_bytes), (0, content.len() as u64));
    queue.close().unwrap();
    assert_eq!(disk.file_names(), [KEPT]);
    assert_eq!(disk.content(KEPT)[at(RECORDS_AT)..], content[at(RECORDS_AT)..]);
    drop(naive);
}

#[test]
fn damage_that_is_seen_while_draining_sets_the_segment_aside_once() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    for _ in 0..3 {
        naive.append(&mut queue, 1, BODY).unwrap();
    }
    naive.sync(&mut queue).unwrap();
    let id = naive.blocks[1].id.unwrap();
    let file = sluice_spool::Files::open(&disk, FILE).unwrap();
    sluice_spool::FileAt::write_all_at(&file, b"!", RECORDS_AT + RECORD as u64 + 770).unwrap();
    let (_, mut body) = queue.read(id).unwrap();
    // Only the last piece would complete a request.
    let mut buffer = [0; BODY - 1];
    assert_eq!(body.read(&mut buffer).unwrap(), BODY - 1);
    assert!(matches!(body.read(&mut buffer), Err(BodyError::Damaged(Damage::Checksum { .. }))));
    assert_eq!(body.read(&mut buffer).unwrap(), 0);
    let lost = queue.set_aside(id).unwrap().unwrap();
    let coordinates = lost.coordinates.unwrap();
    assert_eq!(
        (coordinates.first, coordinates.next),
        (naive.blocks[1].head.first, naive.blocks[1].head.next)
    );
    assert_eq!(queue.set_aside(id).unwrap(), None);
    assert!(matches!(queue.read(id), Err(ReadError::Absent(_))));
    assert_eq!((queue.usage().blocks, queue.usage().lost), (2, 1));
    // Later blocks go to another segment.
    naive.append(&mut queue, 1, BODY).unwrap();
    assert_eq!(naive.blocks[3].id.unwrap().segment, 2);
    naive.sync(&mut queue).unwrap();
    drop(queue);
    disk.lose_power();
    let (_, report) = open(&disk, 4);
    let [aside] = &report.set_aside[..] else { panic!("{report:?}") };
    assert_eq!((report.blocks, aside.before, aside.lost[0].id), (3, true, id));
}

#[test]
fn a_torn_tail_names_what_it_held() {
    let (naive, content) = segment(false);
    let (disk, queue, report) = opened(&content[..content.len() - 1], FILE);
    let [cut] = &report.cut[..] else { panic!("{report:?}") };
    assert_eq!((&*cut.file, cut.bytes), (FILE, RECORD as u64 - 1));
    assert_eq!((cut.blocks[0].first, cut.headless), (naive.blocks[3].head.first, 0));
    assert_eq!(report.set_aside, []);
    assert_eq!(ordinals(&queue), [0, 1].into());
    assert_eq!(disk.content(FILE).len(), content.len() - RECORD);
}

#[test]
fn a_tail_without_a_header_says_so_unless_it_was_never_written() {
    let (_, content) = segment(false);
    let last = at(RECORDS_AT) + 3 * RECORD;
    for (written, headless) in [(content[last..].to_vec(), 1), (vec![0; RECORD], 0), (vec![1; 5], 1)] {
        let mut tail = [&content[..last], &written].concat();
        tail[last] ^= u8::from(headless == 1);
        let (_, queue, report) = opened(&tail, FILE);
        let [cut] = &report.cut[..] else { panic!("{report:?}") };
        assert_eq!((cut.bytes, cut.blocks.len(), cut.headless), (written.len() as u64, 0, headless));
        assert_eq!(ordinals(&queue), [0, 1].into());
    }
}

#[test]
fn a_segment_of_another_queue_is_kept_and_not_used() {
    let (_, content) = segment(true);
    let disk = ModelDisk::new(1);
    disk.put(FILE, &content);
    let other = Options { identity: IDENTITY + 1, ..options(4) };
    let (mut queue, report) = Queue::open(disk.clone(), other).unwrap();
    assert_eq!(
        (report.blocks, report.set_aside.len(), queue.usage().kept_bytes),
        (0, 1, content.len() as u64)
    );
    let mut naive = Naive::default();
    naive.append(&mut queue, 1, BODY).unwrap();
    assert_eq!(disk.content(KEPT), content);
    // Renaming the file by hand has the same effect.
    let (disk, _, report) = opened(&content, "segment-0000000000000009.spool");
    assert_eq!((report.blocks, report.set_aside.len()), (0, 1));
    assert_eq!(disk.file_names(), ["segment-0000000000000009.damaged"]);
}

#[test]
fn a_segment_of_a_newer_program_is_not_touched() {
    let (_, mut content) = segment(true);
    content[8] = 3;
    let sum = crc32c::crc32c(&content[..60]).to_le_bytes();
    content[60..64].copy_from_slice(&sum);
    let disk = ModelDisk::new(1);
    disk.put(FILE, &content);
    let error = Queue::open(disk.clone(), options(4)).unwrap_err();
    assert!(matches!(&error, OpenError::Newer { version: 3, .. }), "{error}");
    assert_eq!((disk.file_names(), disk.content(FILE)), (vec![FILE.to_owned()], content));
}

#[test]
fn one_number_twice_is_for_someone_to_decide() {
    let (_, content) = segment(true);
    let disk = ModelDisk::new(1);
    disk.put(FILE, &content);
    disk.put(KEPT, &content);
    assert!(matches!(Queue::open(disk, options(4)), Err(OpenError::Twice { .. })));
}

#[test]
fn only_the_newest_segment_can_have_a_torn_tail() {
    let (naive, mut content) = segment(true);
    let last = content.len() - 1;
    content[last] ^= 1;
    content[at(SEAL_AT)] ^= 1;
    let disk = ModelDisk::new(1);
    disk.put(FILE, &content);
    let (queue, report) = open(&disk, 4);
    assert_eq!((report.cut.len(), report.set_aside.len(), queue.usage().lost), (1, 0, 0), "it is the newest");
    let disk = ModelDisk::new(1);
    disk.put(FILE, &content);
    let newer = "segment-0000000000000002.spool";
    disk.put(newer, b"");
    let (queue, report) = open(&disk, 4);
    assert_eq!(report.cut, []);
    let [aside, empty] = &report.set_aside[..] else { panic!("{report:?}") };
    assert_eq!(aside.lost[0].coordinates.as_ref().unwrap().first, naive.blocks[3].head.first);
    assert_eq!((&*empty.file, empty.lost.len()), ("segment-0000000000000002.damaged", 0));
    assert_eq!((ordinals(&queue), queue.usage().lost), ([0, 1].into(), 1));
}

#[test]
fn a_record_of_another_segment_inside_a_body_is_not_taken_for_one() {
    let (mut naive, other) = segment(true);
    let disk = ModelDisk::new(1);
    // Sequence 2, so that the records in the body, of sequence 1, have its ordinals but not its number.
    disk.put(KEPT, &other[..at(RECORDS_AT)]);
    let (mut queue, _) = open(&disk, 4);
    let (head, _) = naive.make(1, 0, false);
    queue.append(&head, &[&other[at(RECORDS_AT)..]], 5).unwrap();
    let (head, body) = naive.make(1, BODY, false);
    queue.append(&head, &[&body], 5).unwrap();
    queue.close().unwrap();
    let file = "segment-0000000000000002.spool";
    let mut content = disk.content(file);
    content[at(RECORDS_AT) + 9] ^= 1;
    let (_, queue, report) = opened(&content, file);
    let [aside] = &report.set_aside[..] else { panic!("{report:?}") };
    let id = BlockId { segment: 2, ordinal: 0 };
    assert_eq!(aside.lost, [Lost { id, coordinates: None, is_only_copy: false, relied_on: Some(false) }]);
    let firsts: Vec<_> = queue.held().map(|held| held.coordinates.first).collect();
    assert_eq!(firsts, [head.first]);
}

#[test]
fn what_was_found_once_is_missed_when_it_is_gone() {
    let (_, content) = segment(false);
    let (disk, queue, report) = opened(&content, FILE);
    assert_eq!((report.blocks, report.set_aside.len()), (3, 0));
    drop(queue);
    // Only the seal that was set when opening proves that there was a fourth block.
    let shorter = disk.content(FILE);
    let (_, _, report) = opened(&shorter[..content.len() - RECORD], FILE);
    assert_eq!((lost(&report), report.cut.len()), ([3].into(), 0));
}

#[test]
fn a_mark_tells_a_lost_block_from_a_torn_tail() {
    let (_, content) = segment(false);
    // Of block 1, which was sent, a few bytes are left; of 2, which is settled, and 3 nothing is left.
    let (disk, queue, report) = opened(&content[..at(RECORDS_AT) + RECORD + 10], FILE);
    assert_eq!((ordinals(&queue), lost(&report)), ([0].into(), [1].into()));
    assert_eq!((&report.cut[..], report.damaged_when_settled), (&[][..], 1));
    assert_eq!(disk.content(KEPT).len(), at(RECORDS_AT) + RECORD + 10, "it is kept as it was");
}

#[test]
fn what_is_kept_is_known_from_a_torn_tail_and_was_sent_no_more_often_for_that() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    // The block of five bytes was sent before it was appended, the others were not.
    for bytes in [5, 1, 1] {
        naive.append(&mut queue, 1, bytes).unwrap();
    }
    naive.keep(&mut queue, 0).unwrap();
    naive.keep(&mut queue, 1).unwrap();
    let content = disk.content(FILE);
    let last = content.len() - RECORD_HEADER_BYTES - 1;
    let (_, queue, report) = opened(&content[..last + 10], FILE);
    assert_eq!((ordinals(&queue), lost(&report)), ([0, 1].into(), BTreeSet::new()));
    let [cut] = &report.cut[..] else { panic!("{report:?}") };
    assert_eq!((cut.bytes, cut.blocks.len(), cut.headless), (10, 0, 1));
    let sent: Vec<Sent> = queue.held().map(|held| held.sent).collect();
    assert_eq!(sent, [Sent::At(1), Sent::Never]);
    let (_, queue, report) = opened(&content[..last - 1], FILE);
    assert_eq!((ordinals(&queue), lost(&report), report.cut.len()), ([0].into(), [1].into(), 0));
}

#[test]
fn a_later_record_tells_damage_from_a_torn_tail() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    for _ in 0..3 {
        naive.append(&mut queue, 1, BODY).unwrap();
        naive.sync(&mut queue).unwrap();
    }
    let mut content = disk.content(FILE);
    content[at(RECORDS_AT) + RECORD_HEADER_BYTES] ^= 1;
    let (_, queue, report) = opened(&content, FILE);
    assert_eq!((ordinals(&queue), lost(&report), report.cut.len()), ([1, 2].into(), [0].into(), 0));
    // Without a sync between them, nothing proves that they were ever durable.
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    for _ in 0..3 {
        naive.append(&mut queue, 1, BODY).unwrap();
    }
    let mut content = disk.content(FILE);
    content[at(RECORDS_AT) + RECORD_HEADER_BYTES] ^= 1;
    let (disk, queue, report) = opened(&content, FILE);
    let [cut] = &report.cut[..] else { panic!("{report:?}") };
    assert_eq!((report.set_aside.len(), cut.bytes, cut.blocks.len(), cut.headless), (0, 0, 1, 0));
    assert_eq!((ordinals(&queue), queue.usage().lost), ([1, 2].into(), 0), "what is whole stays");
    drop(queue);
    let (queue, report) = open(&disk, 4);
    assert_eq!((ordinals(&queue), report.cut.len(), report.set_aside.len()), ([1, 2].into(), 0, 0));
}

#[test]
fn what_is_known_to_have_been_durable_need_not_be_read_before_it_is_sent() {
    const METADATA: usize = 7;
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    for _ in 0..2 {
        let (head, body) = naive.make(1, BODY, false);
        let head = sluice_spool::BlockHead { metadata_bytes: u32::try_from(METADATA).unwrap(), ..head };
        // The boundary between the pieces lies inside the metadata.
        queue.append(&head, &[&body[..METADATA - 2], &body[METADATA - 2..]], 5).unwrap();
    }
    let unsealed = disk.content(FILE);
    queue.close().unwrap();
    let sealed = disk.content(FILE);
    let body_at = at(RECORDS_AT) + RECORD_HEADER_BYTES;
    let damaged = |content: &[u8], place: usize, reads_all: bool| {
        let mut content = content.to_vec();
        content[body_at + place] ^= 1;
        let disk = ModelDisk::new(1);
        disk.put(FILE, &content);
        let (queue, report) = Queue::open(disk, Options { reads_all, ..options(4) }).unwrap();
        let is_whole = |id| queue.read(id).is_ok_and(|(_, body)| body.verify(&mut [0; 100]).is_ok());
        let held = queue.held().map(|held| (held.id.ordinal, is_whole(held.id))).collect::<Vec<_>>();
        (held, report.set_aside.len() + report.cut.len())
    };
    for place in 0..BODY {
        let (found, later) = ((vec![(1, true)], 1), (vec![(0, false), (1, true)], 0));
        assert_eq!(damaged(&unsealed, place, false), found, "it may not have been written to its end");
        assert_eq!(damaged(&sealed, place, true), found, "{place}");
        assert_eq!(damaged(&sealed, place, false), if place < METADATA { found } else { later }, "{place}");
    }
}
