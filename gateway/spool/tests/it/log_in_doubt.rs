//! A log whose last commit may have rotted: nothing that it has removed is lost, and none of its offsets is given again.

use crate::{
    log_damage::{EVEN, ODD, file, flip_commit, read, written},
    log_model::{NaiveLog, Opened, open},
    model_disk::ModelDisk,
};
use sluice_spool::{format::RECORDS_AT, log::OffsetsFound};

/// A log whose commits are at 1 with two messages, and at 6 with all, which are removed; the last of both cannot be read.
fn in_doubt() -> (ModelDisk, NaiveLog) {
    let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
    let mut opened = open(&disk).unwrap();
    append(&mut opened, &mut naive, 2);
    naive.commit(&mut opened, 1).unwrap();
    append(&mut opened, &mut naive, 4);
    naive.commit(&mut opened, 6).unwrap();
    opened.log.close(6).unwrap();
    drop(opened.offsets);
    flip_commit(&disk, &EVEN);
    (disk, naive)
}

fn append(opened: &mut Opened, naive: &mut NaiveLog, messages: usize) {
    assert!(naive.append(opened, &vec![100; messages], u64::MAX).unwrap());
    naive.sync(opened).unwrap();
}

fn opened(disk: &ModelDisk, found: OffsetsFound) -> Opened {
    let opened = open(disk).unwrap();
    assert_eq!((opened.found.offsets, opened.found.lost.as_slice()), (found, &[][..]));
    opened
}

#[test]
fn what_a_commit_in_doubt_has_removed_is_not_lost_and_its_offsets_are_not_given_again() {
    let (disk, mut naive) = in_doubt();
    let mut log = opened(&disk, OffsetsFound::Doubtful);
    assert_eq!(log.offsets.committed().map(|committed| committed.offset), Some(1));
    assert_eq!(read(&log, &naive, 1), (vec![], vec![]));
    append(&mut log, &mut naive, 2);
    let first = log.log.next() - 2;
    assert!(first >= 6, "{first}");
    assert_eq!(read(&log, &naive, 1), (vec![first, first + 1], vec![]));
    let view = log.log.view();
    let left = u64::try_from(view.end() - 1).unwrap() - view.absent_between(1, view.end());
    assert_eq!(left, 2, "offsets that were passed over are no messages");
    // Nothing is committed before the end: it is in doubt again.
    drop(log);
    let mut log = opened(&disk, OffsetsFound::Doubtful);
    assert_eq!(read(&log, &naive, 1), (vec![first, first + 1], vec![]));
    append(&mut log, &mut naive, 1);
    let next = log.log.next();
    naive.commit(&mut log, first + 1).unwrap();
    drop(log);
    let log = opened(&disk, OffsetsFound::Whole);
    assert_eq!(log.log.next(), next);
    assert_eq!(read(&log, &naive, first + 1), (vec![first + 1, next - 1], vec![]));
}

#[test]
fn offsets_stay_passed_over_if_a_commit_is_stored_before_the_next_message() {
    let (disk, mut naive) = in_doubt();
    let mut log = opened(&disk, OffsetsFound::Doubtful);
    naive.commit(&mut log, 2).unwrap();
    drop(log);
    for _ in 0..2 {
        let log = opened(&disk, OffsetsFound::Whole);
        assert_eq!((log.log.next(), read(&log, &naive, 2)), (2, (vec![], vec![])));
    }
    let mut log = opened(&disk, OffsetsFound::Whole);
    append(&mut log, &mut naive, 2);
    let next = log.log.next();
    assert!(next > 6 + 2, "{next}");
    drop(log);
    let whole = disk.content(&file(&disk));
    let log = opened(&disk, OffsetsFound::Whole);
    assert_eq!(read(&log, &naive, 2), (vec![next - 2, next - 1], vec![]));
    drop(log);
    // Such a record is torn if it is not complete: the commit proves nothing of it.
    let torn = &whole[..usize::try_from(RECORDS_AT).unwrap() + 100];
    disk.put(&file(&disk), torn);
    let log = opened(&disk, OffsetsFound::Whole);
    assert_eq!((log.found.recovered.cut.len(), log.found.recovered.set_aside.len()), (1, 0));
    assert_eq!((log.log.next(), read(&log, &naive, 2)), (2, (vec![], vec![])));
}

#[test]
fn a_segment_above_the_commit_in_doubt_is_read_and_what_is_below_is_passed() {
    let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
    let mut log = open(&disk).unwrap();
    append(&mut log, &mut naive, 2);
    naive.commit(&mut log, 1).unwrap();
    // The next run has a segment of its own.
    drop(log);
    let mut log = open(&disk).unwrap();
    append(&mut log, &mut naive, 4);
    naive.commit(&mut log, 2).unwrap();
    drop(log);
    flip_commit(&disk, &EVEN);
    let log = opened(&disk, OffsetsFound::Doubtful);
    assert_eq!(log.log.start(), 2, "the last commit has removed the first segment");
    assert_eq!(read(&log, &naive, 1), (vec![2, 3, 4, 5], vec![]));
}

#[test]
fn copies_that_an_earlier_version_has_left_behind_prove_nothing() {
    for (places, offset) in [(&EVEN[..1], 4), (&[EVEN[0], ODD[0]][..], 3)] {
        let (disk, mut naive) = written();
        let mut log = open(&disk).unwrap();
        for offset in [2, 3] {
            naive.commit(&mut log, offset).unwrap();
        }
        let copies = disk.content("offsets")[16_384..].to_vec();
        for offset in [4, 5] {
            naive.commit(&mut log, offset).unwrap();
        }
        drop(log);
        let now = [&disk.content("offsets")[..16_384], &copies].concat();
        disk.put("offsets", &now);
        flip_commit(&disk, places);
        let log = open(&disk).unwrap();
        assert_eq!(log.found.offsets, OffsetsFound::Doubtful);
        assert_eq!(log.offsets.committed().map(|committed| committed.offset), Some(offset));
    }
}

#[test]
fn the_only_commit_is_in_doubt_if_neither_of_its_places_can_be_read() {
    let (disk, mut naive) = written();
    naive.commit(&mut open(&disk).unwrap(), 2).unwrap();
    let content = disk.content("offsets");
    flip_commit(&disk, &ODD);
    let log = open(&disk).unwrap();
    assert_eq!((log.offsets.committed(), log.found.offsets), (None, OffsetsFound::Doubtful));
    assert_eq!(read(&log, &naive, log.log.view().start()).0, [0, 1, 2, 3, 4, 5]);
    drop(log);
    // Nothing was committed: its copy was never written.
    let mut torn = content;
    torn[ODD[0] + 60] ^= 1;
    torn[ODD[1]..].fill(0);
    disk.put("offsets", &torn);
    assert_eq!(open(&disk).unwrap().found.offsets, OffsetsFound::Whole);
}
