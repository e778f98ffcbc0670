//! A log on a disk that loses power, or fails, at every call; and random courses of it beside the naive one. Large messages are packed or not.

use crate::{
    log_model::{NaiveLog, Opened},
    model_disk::{Fault, ModelDisk},
};
use proptest::prelude::*;
use sluice_spool::Fatal;

/// Different outcomes of one fault, per call.
const SEEDS: u64 = 6;

/// The course makes fewer calls than this if nothing fails.
const CALLS_MAX: u64 = 1_000;

/// Everything that a log does, several segments long.
fn course(disk: &ModelDisk, naive: &mut NaiveLog) -> Result<(), Fatal> {
    let mut opened = naive.open(disk)?;
    for sizes in [&[100, 0, 5_000][..], &[4_096], &[9_000, 1]] {
        assert!(naive.append(&mut opened, sizes, u64::MAX)?);
    }
    naive.sync(&mut opened)?;
    naive.read(&opened, 0);
    naive.commit(&mut opened, 2)?;
    assert!(naive.append(&mut opened, &[300; 7], u64::MAX)?);
    naive.sync(&mut opened)?;
    naive.commit(&mut opened, 6)?;
    for _ in 0..4 {
        assert!(naive.append(&mut opened, &[7_000, 20], u64::MAX)?);
        naive.sync(&mut opened)?;
    }
    naive.read(&opened, 6);
    naive.commit(&mut opened, 15)?;
    opened.log.sync()?;
    let end = opened.log.next();
    naive.commit(&mut opened, end)?;
    opened.log.compact(end)?;
    opened.log.close(end)
}

/// The number of calls of the course without packed messages.
fn at_every_call(fault: Fault, mut after: impl FnMut(&ModelDisk, &mut NaiveLog)) -> u64 {
    at_every_call_of(true, fault, &mut after);
    at_every_call_of(false, fault, &mut after)
}

fn at_every_call_of(packs: bool, fault: Fault, after: &mut impl FnMut(&ModelDisk, &mut NaiveLog)) -> u64 {
    for call in 1..CALLS_MAX {
        for seed in 1..=SEEDS {
            let disk = ModelDisk::new(seed * CALLS_MAX + call);
            let mut naive = NaiveLog::packing(packs);
            disk.fail_at(call, fault);
            let failed = course(&disk, &mut naive).is_err();
            if !disk.has_failed() {
                assert!(!failed, "without a fault the course ends well");
                assert_eq!(naive.packed > 0, packs, "{} messages are packed", naive.packed);
                assert_eq!(disk.file_names(), ["offsets"], "an emptied log leaves no segment");
                return call - 1;
            }
            after(&disk, &mut naive);
        }
    }
    panic!("the course does not end");
}

/// Goes on after a crash, to the end.
fn goes_on(disk: &ModelDisk, naive: &mut NaiveLog) {
    let mut opened = naive.open(disk).expect("a disk without faults is opened");
    naive.adopt(&opened);
    assert!(naive.append(&mut opened, &[10, 20], u64::MAX).unwrap());
    naive.sync(&mut opened).unwrap();
    let (first, next) = (opened.log.next() - 2, opened.log.next());
    assert_eq!(naive.read(&opened, first), [first, first + 1]);
    naive.commit(&mut opened, next).unwrap();
    drop(opened);
    let again = naive.open(disk).unwrap();
    naive.adopt(&again);
    assert_eq!(again.log.next(), next);
    again.log.close(next).unwrap();
}

#[test]
fn what_was_answered_survives_a_loss_of_power_at_any_call() {
    let calls = at_every_call(Fault::PowerLoss, |disk, naive| {
        disk.lose_power();
        goes_on(disk, naive);
    });
    assert!(calls > 60, "the course makes only {calls} calls");
}

#[test]
fn what_was_answered_survives_an_error_of_the_disk_at_any_call() {
    at_every_call(Fault::Broken, |disk, naive| {
        // The process ends at an error, and so does the machine: what a failed sync lost must not be taken for durable.
        disk.lose_power();
        goes_on(disk, naive);
    });
}

#[test]
fn what_a_failed_sync_has_left_in_memory_is_not_taken_for_durable() {
    at_every_call(Fault::Broken, |disk, naive| {
        // The process starts again, and removes what is committed. What it has read must be durable then.
        disk.restart_process();
        let opened = naive.open(disk).expect("a disk without faults is opened");
        naive.adopt(&opened);
        drop(opened);
        disk.lose_power();
        goes_on(disk, naive);
    });
}

#[test]
fn what_is_committed_after_a_failed_sync_is_removed_and_the_rest_stays() {
    at_every_call(Fault::Broken, |disk, naive| {
        disk.restart_process();
        let mut opened = naive.open(disk).expect("a disk without faults is opened");
        naive.adopt(&opened);
        let offset = i64::midpoint(naive.committed, naive.durable);
        naive.commit(&mut opened, offset).unwrap();
        opened.log.compact(offset).unwrap();
        drop(opened);
        disk.lose_power();
        goes_on(disk, naive);
    });
}

/// The append of the first record of several was not finished, and the disk has the others.
#[test]
fn segments_that_were_begun_in_one_turn_lose_nothing_but_the_newest_ones_tail() {
    for seed in 1..=200 {
        let (disk, mut naive) = (ModelDisk::new(seed), NaiveLog::default());
        let mut opened = naive.open(&disk).unwrap();
        for _ in 0..4 {
            assert!(naive.append(&mut opened, &[5_000, 20], u64::MAX).unwrap());
        }
        drop(opened);
        disk.lose_power();
        goes_on(&disk, &mut naive);
    }
}

#[derive(Debug, Clone)]
enum Action {
    Append(Vec<usize>),
    Sync,
    Commit(usize),
    Read(usize),
    /// From then on large messages are packed, or not: another program was started.
    Restart {
        packs: bool,
    },
    /// The same.
    LosePower {
        packs: bool,
    },
    /// The disk has so much room from now on.
    Room(Option<usize>),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => prop::collection::vec(prop_oneof![0_usize..50, 1_000_usize..6_000], 1..5).prop_map(Action::Append),
        3 => Just(Action::Sync),
        2 => (0_usize..100).prop_map(Action::Commit),
        2 => (0_usize..100).prop_map(Action::Read),
        1 => any::<bool>().prop_map(|packs| Action::Restart { packs }),
        1 => any::<bool>().prop_map(|packs| Action::LosePower { packs }),
        1 => prop::option::of(60_000_usize..200_000).prop_map(Action::Room),
    ]
}

/// An offset between the committed one and the end of what is durable.
fn pick(naive: &NaiveLog, number: usize) -> i64 {
    let span = usize::try_from(naive.durable - naive.committed).unwrap() + 1;
    naive.committed + i64::try_from(number % span).unwrap()
}

fn step(opened: &mut Opened, naive: &mut NaiveLog, action: &Action) -> Result<(), Fatal> {
    match action {
        Action::Append(sizes) => {
            let room = 400_000_u64.saturating_sub(opened.log.file_bytes());
            if !naive.append(opened, sizes, room)? {
                // A full log is emptied by commits, which need no room.
                naive.sync(opened)?;
                let end = naive.durable;
                naive.commit(opened, end)?;
                opened.log.compact(end)?;
                opened.log.sync()?;
            }
            assert!(opened.log.file_bytes() <= 400_000);
        }
        Action::Sync => naive.sync(opened)?,
        Action::Commit(number) => {
            let offset = pick(naive, *number);
            naive.commit(opened, offset)?;
        }
        Action::Read(number) => {
            naive.read(opened, pick(naive, *number));
        }
        Action::Restart { .. } | Action::LosePower { .. } | Action::Room(_) => {}
    }
    Ok(())
}

fn run(actions: &[Action], seed: u64, packs: bool) {
    let disk = ModelDisk::new(seed);
    let mut naive = NaiveLog::packing(packs);
    let mut opened = naive.open(&disk).unwrap();
    for action in actions {
        match action {
            Action::Room(room) => disk.set_room(*room),
            Action::Restart { packs } | Action::LosePower { packs } => {
                drop(opened);
                disk.set_room(None);
                naive.packs = *packs;
                if matches!(action, Action::LosePower { .. }) {
                    disk.lose_power();
                } else {
                    disk.restart_process();
                }
                opened = naive.open(&disk).unwrap();
                naive.adopt(&opened);
            }
            action => step(&mut opened, &mut naive, action).expect("a full disk is no failure"),
        }
    }
    disk.set_room(None);
    naive.sync(&mut opened).unwrap();
    naive.read(&opened, naive.committed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_does_what_the_naive_one_does(
        actions in prop::collection::vec(action(), 1..60),
        seed in any::<u64>(),
        packs in any::<bool>(),
    ) {
        run(&actions, seed, packs);
    }
}
