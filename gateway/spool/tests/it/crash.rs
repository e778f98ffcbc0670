//! A power failure at every call that changes something.

use crate::{
    course,
    model_disk::{Fault, ModelDisk},
    naive::{Naive, open, options},
};
use sluice_spool::Queue;

/// Different outcomes of one power failure, per call.
const SEEDS: u64 = 6;

/// The course makes fewer calls than this if nothing fails.
const CALLS_MAX: u64 = 1_000;

/// Runs the course with a fault at each call in turn; returns the number of calls.
pub fn at_every_call(fault: Fault, mut after: impl FnMut(&ModelDisk, &mut Naive, u64)) -> u64 {
    for call in 1..CALLS_MAX {
        for seed in 1..=SEEDS {
            let disk = ModelDisk::new(seed * CALLS_MAX + call);
            let mut naive = Naive::default();
            disk.fail_at(call, fault);
            let failed = course::run(&disk, &mut naive).is_err();
            if !disk.has_failed() {
                assert!(!failed, "without a fault the course ends well");
                return call - 1;
            }
            after(&disk, &mut naive, seed);
        }
    }
    panic!("the course does not end");
}

/// Drains the queue to the end; the volume is then empty.
pub fn drain(mut queue: Queue<ModelDisk>, naive: &mut Naive, disk: &ModelDisk) {
    for at in naive.held() {
        naive.mark_sent(&mut queue, at).unwrap();
        naive.settle(&mut queue, at).unwrap();
    }
    naive.sync(&mut queue).unwrap();
    naive.assert_same(&queue);
    queue.close().unwrap();
    assert_eq!(disk.file_names(), Vec::<String>::new());
}

#[test]
fn what_was_synced_survives_a_loss_of_power_at_any_call() {
    let calls = at_every_call(Fault::PowerLoss, |disk, naive, _| {
        disk.lose_power();
        let (queue, report) = open(disk, course::SEGMENTS);
        naive.adopt(&queue, &report);
        drain(queue, naive, disk);
    });
    assert!(calls > 80, "the course makes only {calls} calls");
}

/// The power fails again while the queue is opened, at each of its calls. The first report is then lost: only the final one counts.
#[test]
fn a_loss_of_power_while_opening_changes_nothing_of_it() {
    let mut openings = 0;
    at_every_call(Fault::PowerLoss, |disk, naive, seed| {
        disk.lose_power();
        if seed > 2 {
            return;
        }
        for call in 1.. {
            disk.fail_at(call, Fault::PowerLoss);
            let opened = Queue::open(disk.clone(), options(course::SEGMENTS));
            if !disk.has_failed() {
                let (queue, report) = opened.unwrap();
                naive.adopt(&queue, &report);
                break;
            }
            openings += 1;
            disk.lose_power();
        }
    });
    assert!(openings > 200, "only {openings} openings failed");
}

#[test]
fn what_an_opened_queue_holds_survives_a_loss_of_power_at_once() {
    at_every_call(Fault::PowerLoss, |disk, naive, _| {
        disk.lose_power();
        let (queue, report) = open(disk, course::SEGMENTS);
        naive.adopt(&queue, &report);
        drop(queue);
        disk.lose_power();
        let (queue, report) = open(disk, course::SEGMENTS);
        naive.adopt(&queue, &report);
        assert_eq!(report.cut, [], "what was cut is cut");
    });
}
