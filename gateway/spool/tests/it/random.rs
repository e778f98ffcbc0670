//! Random lists of actions, beside the naive queue.

use crate::{
    model_disk::ModelDisk,
    naive::{Naive, open},
};
use proptest::prelude::*;
use sluice_spool::Queue;

#[derive(Debug, Clone)]
enum Action {
    Append {
        partition: i32,
        bytes: usize,
    },
    Sync,
    MarkSent(usize),
    MarkSole(usize),
    Keep(usize),
    MarkOnlyCopy(usize),
    Settle(usize),
    SettleOldest,
    SettlePartition(i32),
    /// The process ends normally and starts again.
    Restart,
    /// The process is killed and starts again.
    Kill,
    LosePower,
    /// Only this much fits from now on, beside the existing data.
    Room(Option<usize>),
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![0..200_usize, 200..5_000_usize, Just(4_096 - 768), Just(11_000)];
    prop_oneof![
        8 => (0..4, bytes).prop_map(|(partition, bytes)| Action::Append { partition, bytes }),
        3 => Just(Action::Sync),
        3 => any::<usize>().prop_map(Action::MarkSent),
        3 => any::<usize>().prop_map(Action::MarkSole),
        3 => any::<usize>().prop_map(Action::Keep),
        3 => any::<usize>().prop_map(Action::MarkOnlyCopy),
        2 => any::<usize>().prop_map(Action::Settle),
        4 => Just(Action::SettleOldest),
        1 => (0..4).prop_map(Action::SettlePartition),
        1 => Just(Action::Restart),
        1 => Just(Action::Kill),
        1 => Just(Action::LosePower),
        1 => prop_oneof![Just(None), (0..100_000_usize).prop_map(Some)].prop_map(Action::Room),
    ]
}

const SEGMENTS: u64 = 4;

fn act(action: &Action, queue: &mut Queue<ModelDisk>, naive: &mut Naive, disk: &ModelDisk) {
    match *action {
        Action::Append { partition, bytes } => {
            naive.append(queue, partition, bytes).unwrap();
        }
        Action::Sync => naive.sync(queue).unwrap(),
        Action::MarkSent(number) => {
            naive.pick(number).map_or(Ok(()), |at| naive.mark_sent(queue, at)).unwrap();
        }
        Action::MarkSole(number) => {
            naive.pick(number).map_or(Ok(()), |at| naive.mark_sole(queue, at)).unwrap();
        }
        Action::Keep(number) => naive.pick(number).map_or(Ok(()), |at| naive.keep(queue, at)).unwrap(),
        Action::MarkOnlyCopy(number) => {
            naive.pick(number).map_or(Ok(()), |at| naive.mark_only_copy(queue, at)).unwrap();
        }
        Action::Settle(number) => naive.pick(number).map_or(Ok(()), |at| naive.settle(queue, at)).unwrap(),
        Action::SettleOldest => naive.pick(0).map_or(Ok(()), |at| naive.settle(queue, at)).unwrap(),
        Action::SettlePartition(partition) => naive.settle_partition(queue, partition).unwrap(),
        Action::Room(room) => disk.set_room(room.map(|bytes| disk.used() + bytes)),
        Action::Restart | Action::Kill | Action::LosePower => unreachable!("the caller restarts"),
    }
}

fn run(actions: &[Action], seed: u64) {
    let disk = ModelDisk::new(seed);
    let (mut queue, _) = open(&disk, SEGMENTS);
    let mut naive = Naive::default();
    for action in actions {
        match action {
            Action::Restart => {
                queue.close().unwrap();
                naive.synced();
            }
            Action::Kill => drop(queue),
            Action::LosePower => {
                drop(queue);
                disk.lose_power();
            }
            other => {
                act(other, &mut queue, &mut naive, &disk);
                naive.assert_same(&queue);
                assert!(queue.usage().file_bytes <= crate::naive::options(SEGMENTS).bytes_max);
                continue;
            }
        }
        let (opened, report) = open(&disk, SEGMENTS);
        queue = opened;
        if !matches!(action, Action::LosePower) {
            assert_eq!(report.blocks, naive.held().len() as u64, "what was written is there");
            assert_eq!(report.cut, []);
        }
        naive.adopt(&queue, &report);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_naive_one_does(
        actions in prop::collection::vec(action(), 1..80),
        seed in any::<u64>(),
    ) {
        run(&actions, seed);
    }
}
