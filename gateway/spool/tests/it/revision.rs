//! What segments contain since revision 1, and how older ones are read.

use crate::{
    damage::{BODY, FILE, RECORD, at, opened, ordinals, segment},
    model_disk::ModelDisk,
    naive::{Naive, ROWS_ELSEWHERE, open, options},
};
use sluice_spool::{
    BlockId, Options, Queue, Sent,
    format::{RECORD_HEADER_BYTES, RECORDS_AT},
};

/// What the next run finds in a segment of three blocks, of which the second is damaged and the last is torn: whether it is known if the
/// caller relied on them.
fn reliance(relied_on: bool, change: impl Fn(&mut [u8])) -> (Option<bool>, bool, Option<bool>) {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = Queue::open(disk.clone(), Options { relied_on, ..options(4) }).unwrap();
    let mut naive = Naive::default();
    for _ in 0..3 {
        naive.append(&mut queue, 1, BODY - 1).unwrap();
    }
    let ids: Vec<BlockId> = naive.blocks[..2].iter().map(|block| block.id.unwrap()).collect();
    if relied_on {
        queue.keep_blocks(&ids).unwrap();
    } else {
        queue.mark_sent(ids[1], 77).unwrap();
    }
    drop(queue);
    let mut content = disk.content(FILE);
    let second = at(RECORDS_AT) + RECORD - 1;
    content[second + RECORD_HEADER_BYTES] ^= 1;
    change(&mut content);
    let (_, queue, report) = opened(&content[..content.len() - 1], FILE);
    let [cut] = &report.cut[..] else { panic!("{report:?}") };
    let held = queue.held().next().unwrap();
    (report.set_aside[0].lost[0].relied_on, cut.is_reliance_known, held.relied_on)
}

/// The header as older programs wrote it.
fn of_before(content: &mut [u8]) {
    content[12] = 0;
    content[32] = 0;
    let sum = crc32c::crc32c(&content[..60]).to_le_bytes();
    content[60..64].copy_from_slice(&sum);
}

#[test]
fn whether_somebody_relies_on_a_block_is_known_whatever_the_next_run_is_opened_with() {
    for relied_on in [true, false] {
        assert_eq!(reliance(relied_on, |_| ()), (Some(relied_on), true, Some(relied_on)));
    }
    assert_eq!(reliance(true, of_before), (Some(true), true, Some(true)), "a mark says so");
    assert_eq!(reliance(false, of_before), (None, false, None));
    // Only the marks are left as a record of it.
    let no_header = |content: &mut [u8]| content[33] ^= 1;
    assert_eq!(reliance(true, no_header), (Some(true), true, Some(true)));
}

/// As a program of the same version, but of an earlier or later revision, writes it.
#[test]
fn a_segment_of_another_revision_is_read() {
    let (_, content) = segment(true);
    for revision in [0, 1, 9] {
        let mut content = content.clone();
        content[12] = revision;
        let sum = crc32c::crc32c(&content[..60]).to_le_bytes();
        content[60..64].copy_from_slice(&sum);
        let (_, queue, report) = opened(&content, FILE);
        assert_eq!((ordinals(&queue), report.set_aside.len()), ([0, 1, 3].into(), 0), "{revision}");
    }
}

#[test]
fn what_was_found_to_be_an_only_copy_first_stands_until_it_is_settled() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    naive.append(&mut queue, 1, BODY).unwrap();
    naive.mark_only_copy(&mut queue, 0).unwrap();
    let id = naive.blocks[0].id.unwrap();
    queue.mark_only_copy(id, 1).unwrap();
    drop(queue);
    let (mut queue, _) = open(&disk, 4);
    let held = queue.get(id).unwrap();
    // A block whose size is a multiple of five was sent before it was appended.
    assert_eq!((held.only_copy, held.sent), (Some(ROWS_ELSEWHERE), Sent::At(1)));
    queue.settle(id).unwrap();
    queue.mark_only_copy(id, 1).unwrap();
    queue.close().unwrap();
    assert_eq!(disk.file_names(), Vec::<String>::new());
}
