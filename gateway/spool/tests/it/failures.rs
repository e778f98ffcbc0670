//! A device that is full, and one that fails.

use crate::{
    course,
    crash::{at_every_call, drain},
    model_disk::{Fault, ModelDisk},
    naive::{Naive, open, options},
};
use sluice_spool::{
    AppendError, BodyError, Full, OpenError, Options, Queue, ReadError, Unfit, format::RECORDS_AT,
};

#[test]
fn a_device_without_room_at_any_call_refuses_and_loses_nothing() {
    // The course completes: each refused block is appended by the second try.
    let calls = at_every_call(Fault::NoRoom, open_again_and_drain);
    assert!(calls > 80, "the course makes only {calls} calls");
}

#[test]
fn an_error_of_the_device_is_fatal_and_what_was_synced_before_is_there() {
    let calls = at_every_call(Fault::Broken, open_again_and_drain);
    assert!(calls > 80, "the course makes only {calls} calls");
}

/// Opens the queue again, after a power failure or a process crash by turns, and drains it: synced blocks must be there.
fn open_again_and_drain(disk: &ModelDisk, naive: &mut Naive, seed: u64) {
    if seed.is_multiple_of(2) {
        disk.lose_power();
    } else {
        disk.restart_process();
    }
    let (queue, report) = open(disk, course::SEGMENTS);
    naive.adopt(&queue, &report);
    drain(queue, naive, disk);
}

#[test]
fn after_a_failed_sync_every_call_fails() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    naive.append(&mut queue, 1, 100).unwrap();
    disk.fail_at(1, Fault::Broken);
    let error = queue.sync().unwrap_err();
    assert!(error.to_string().contains("cannot sync segment-"), "{error}");
    // A second sync would succeed, although the disk did not write the data.
    let error = queue.sync().unwrap_err();
    assert!(error.to_string().contains("cannot go on after a failure"), "{error}");
    let (head, body) = naive.make(1, 10, false);
    assert!(matches!(queue.append(&head, &[body], 0), Err(AppendError::Fatal(_))));
    let id = naive.blocks[0].id.unwrap();
    queue.mark_sent(id, 0).unwrap_err();
    queue.settle(id).unwrap_err();
    queue.set_aside(id).unwrap_err();
    queue.close().unwrap_err();
}

#[test]
fn a_queue_that_cannot_be_read_is_not_opened_and_nothing_of_it_is_changed() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    // More than one segment, all of it read when the queue is opened.
    for _ in 0..12 {
        naive.append(&mut queue, 1, 3_000).unwrap();
    }
    naive.sync(&mut queue).unwrap();
    drop(queue);
    let content = |disk: &ModelDisk| {
        let names = disk.file_names();
        names.into_iter().map(|name| (disk.content(&name), name)).collect::<Vec<_>>()
    };
    let before = content(&disk);
    assert!(before.len() > 2, "{}", before.len());
    let mut reads = 0;
    loop {
        disk.break_reads_after(reads);
        let opened = Queue::open(disk.clone(), options(4));
        match opened {
            Err(OpenError::Fatal(fatal)) => {
                assert!(fatal.to_string().starts_with("cannot read segment-"), "{fatal}");
                let said = fatal.to_string();
                assert!(said.ends_with("on the queue volume: Input/output error (os error 5)"), "{said}");
            }
            Err(error) => panic!("{error}"),
            Ok((queue, report)) => {
                disk.mend_reads();
                assert!(reads > 24, "the queue is opened with {reads} reads");
                naive.adopt(&queue, &report);
                assert_eq!((report.set_aside, report.cut), (vec![], vec![]));
                break;
            }
        }
        assert!(disk.mend_reads());
        assert_eq!(content(&disk), before, "after {reads} reads");
        reads += 1;
    }
}

#[test]
fn a_read_that_fails_says_nothing_of_the_block() {
    let disk = ModelDisk::new(1);
    let (mut queue, _) = open(&disk, 4);
    let mut naive = Naive::default();
    naive.append(&mut queue, 1, 100).unwrap();
    let id = naive.blocks[0].id.unwrap();
    disk.break_reads_after(0);
    assert!(matches!(queue.read(id), Err(ReadError::Failed(_))));
    disk.break_reads_after(1);
    let (_, body) = queue.read(id).unwrap();
    assert!(matches!(body.clone().verify(&mut [0; 64]), Err(BodyError::Failed(_))));
    assert!(disk.mend_reads());
    body.verify(&mut [0; 64]).unwrap();
    naive.assert_same(&queue);
}

#[test]
fn a_full_disk_can_be_marked_settled_and_used_again() {
    let disk = ModelDisk::new(7);
    let (mut queue, _) = open(&disk, 100);
    let mut naive = Naive::default();
    disk.set_room(Some(300_000));
    while naive.append(&mut queue, 1, 3_000).unwrap() {}
    naive.assert_same(&queue);
    let full = disk.used();
    assert_eq!(queue.usage().file_bytes, full as u64, "what was refused has given its room back");
    assert!(full > 290_000 || naive.blocks.len() > 8, "{full} bytes used");
    // No new space may be used.
    disk.set_room(Some(full));
    naive.sync(&mut queue).unwrap();
    for at in naive.held() {
        naive.mark_sent(&mut queue, at).unwrap();
    }
    naive.sync(&mut queue).unwrap();
    // A restart on the full disk.
    drop(queue);
    disk.lose_power();
    let (mut queue, report) = open(&disk, 100);
    naive.adopt(&queue, &report);
    assert_eq!(report.sent, report.blocks);
    for at in naive.held() {
        naive.settle(&mut queue, at).unwrap();
    }
    naive.sync(&mut queue).unwrap();
    assert!(naive.append(&mut queue, 1, 3_000).unwrap(), "there is room again");
    naive.assert_same(&queue);
}

#[test]
fn the_queue_stays_below_its_size_and_refuses_before_it_writes() {
    let disk = ModelDisk::new(3);
    let (mut queue, _) = open(&disk, 3);
    let mut naive = Naive::default();
    while naive.append(&mut queue, 1, 2_500).unwrap() {
        assert!(disk.used() as u64 <= options(3).bytes_max);
        assert_eq!(queue.usage().file_bytes, disk.used() as u64);
    }
    let (files, used) = (disk.file_names(), disk.used());
    let (head, body) = naive.make(1, 2_500, false);
    assert!(matches!(queue.append(&head, &[body], 0), Err(AppendError::Full(Full::Bytes))));
    assert_eq!((disk.file_names(), disk.used()), (files, used));
    naive.assert_same(&queue);
    // The oldest segment's blocks are settled, and its bytes are freed.
    for at in naive.held().into_iter().take(4) {
        naive.settle(&mut queue, at).unwrap();
    }
    assert!(disk.used() < used);
    assert!(naive.append(&mut queue, 1, 2_500).unwrap());
}

#[test]
fn settled_blocks_of_the_open_segment_are_not_in_the_way() {
    let disk = ModelDisk::new(3);
    let (mut queue, _) = open(&disk, 1);
    let mut naive = Naive::default();
    for _ in 0..20 {
        assert!(naive.append(&mut queue, 1, 9_000).unwrap(), "a queue without blocks takes one");
        let last = naive.blocks.len() - 1;
        naive.settle(&mut queue, last).unwrap();
        assert!(disk.used() as u64 <= options(1).bytes_max);
    }
}

#[test]
fn the_number_of_blocks_is_bounded() {
    let disk = ModelDisk::new(3);
    let options = Options { bytes_max: u64::MAX, segment_bytes: u64::MAX, ..options(1) };
    let (mut queue, _) = Queue::open(disk, options).unwrap();
    let mut naive = Naive::default();
    let (head, body) = naive.make(1, 0, false);
    let refused = (0..).find_map(|count| match queue.append(&head, &[&body], 0) {
        Ok(_) => None,
        Err(error) => Some((count, error)),
    });
    let (count, error) = refused.unwrap();
    assert_eq!(count, sluice_spool::format::QUEUE_BLOCKS_MAX);
    assert!(matches!(error, AppendError::Full(Full::Blocks)), "{error}");
}

#[test]
fn a_block_that_can_never_fit_is_told_from_one_that_must_wait() {
    let disk = ModelDisk::new(3);
    let (mut queue, _) = open(&disk, 1);
    let mut naive = Naive::default();
    let (head, body) = naive.make(1, 100, false);
    let large = vec![0; usize::try_from(options(1).bytes_max - RECORDS_AT).unwrap()];
    let error = queue.append(&head, &[&large], 0).unwrap_err();
    assert!(matches!(error, AppendError::Unfit(Unfit::Bytes(_))), "{error}");
    let mut wrong = head.clone();
    wrong.topic = "x".repeat(257).into();
    assert!(matches!(queue.append(&wrong, &[&body], 0), Err(AppendError::Unfit(Unfit::Topic))));
    wrong.topic = "".into();
    assert!(matches!(queue.append(&wrong, &[&body], 0), Err(AppendError::Unfit(Unfit::Topic))));
    let mut wrong = head.clone();
    wrong.token = vec![b'x'; 381].into();
    assert!(matches!(queue.append(&wrong, &[&body], 0), Err(AppendError::Unfit(Unfit::Token))));
    assert_eq!(queue.usage().blocks, 0);
    let mut longest = head;
    (longest.topic, longest.token) = ("x".repeat(256).into(), vec![b'y'; 380].into());
    let id = queue.append(&longest, &[&body], 0).unwrap();
    assert_eq!(queue.read(id).unwrap().0, longest);
}
