//! Log, plan and commit together, with a kill or a loss of power at any step: what was answered with success is in the table once, and nothing is there
//! twice.
//!
//! The disk is the spool's model disk. The table knows tokens. Everything between is the real code: the log, its committed offset, the cursor, and
//! both halves of planned ranges. A process does one thing at a time; a fault comes at a call of the disk that chance has chosen.

use crate::model_disk::{Fault, ModelDisk, ModelFile};
use proptest::prelude::*;
use sluice_ranges::{
    Closed, CommitOutcome, Committed, Cutter, Generation, Log as Bounds, Now, Offer, OffsetRange,
    PartitionId, Ranges, Rule, Settings, Token, Version,
};
use sluice_spool::{
    Fatal, OpenError,
    format::RECORDS_AT,
    log::{self, Cursor, Log, LogError, LogOpenError, LogOptions, Offsets, OffsetsFound, Read},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

const VOLUME: [u8; 16] = [7; 16];

/// Rounds in which everything must be in.
const ROUNDS_MAX: usize = 200;

type Message = Vec<u8>;

/// A table that drops a block whose token it knows.
#[derive(Debug, Default)]
struct Table {
    tokens: BTreeSet<Token>,
    rows: BTreeMap<Message, u32>,
}

impl Table {
    fn insert(&mut self, token: Token, messages: &[Message]) {
        if self.tokens.insert(token) {
            for message in messages {
                *self.rows.entry(message.clone()).or_default() += 1;
            }
        }
    }
}

/// What outlives a process.
struct World {
    disk: ModelDisk,
    table: Table,
    /// Requests that were answered with success.
    answered: BTreeSet<Message>,
    made: u32,
    seconds: u64,
    generations: u64,
    /// Whether the power stays on at the next fault: a failed call ends the process alone.
    has_power: bool,
}

/// A process.
struct Process {
    log: Log<ModelDisk>,
    offsets: Offsets<ModelFile>,
    cursor: Cursor<ModelDisk>,
    generation: Generation,
    ranges: Ranges,
    cutter: Cutter,
    /// Where the log ended at the start.
    end: i64,
    /// Requests that are appended, and have no answer yet.
    unanswered: Vec<Message>,
    /// Messages of the open range.
    open: Vec<Message>,
    blocks: BTreeMap<i64, (Closed, Vec<Message>)>,
    released: VecDeque<OffsetRange>,
    sent: VecDeque<OffsetRange>,
}

fn id() -> PartitionId {
    PartitionId { topic: "otlp".into(), partition: 0 }
}

fn settings() -> Settings {
    let rule = Rule { version: Version::CURRENT, bytes: 60, messages: 4 };
    Settings { rule, routing_epoch: 0, destination: None, topic_id: Some(VOLUME), cluster: None }
}

impl World {
    fn new(seed: u64) -> Self {
        let (table, answered) = (Table::default(), BTreeSet::new());
        let (made, seconds, generations, has_power) = (0, 1, 0, false);
        Self { disk: ModelDisk::new(seed), table, answered, made, seconds, generations, has_power }
    }

    fn now(&self) -> Now {
        Now { steady: Duration::from_secs(self.seconds), unix_seconds: 1_000 + self.seconds }
    }

    fn start(&mut self) -> Result<Process, Fatal> {
        self.generations += 1;
        let options = LogOptions {
            identity: 5,
            number: 0,
            topic: "otlp".into(),
            segment_bytes: RECORDS_AT + (4 << 10),
            takes_packed: false,
        };
        let (log, offsets, found) = match Log::open(self.disk.clone(), options) {
            Ok(opened) => opened,
            Err(LogOpenError::Open(OpenError::Fatal(fatal))) => return Err(fatal),
            Err(error) => panic!("{error}"),
        };
        assert!(
            found.lost.is_empty() && found.offsets != OffsetsFound::Damaged,
            "a crash is no damage: {found:?}"
        );
        let view = log.view();
        let commit = offsets.committed().cloned();
        let start = commit.as_ref().map_or(view.start(), |commit| commit.offset);
        let end = view.end();
        let committed = Committed {
            commit: commit.as_ref().map(|commit| (commit.offset, commit.metadata.as_str())),
            begin: start,
            log: Bounds { start, end },
        };
        let generation = Generation(self.generations);
        let (ranges, cutter, found) = Ranges::assigned(generation, &committed, settings(), self.now())
            .expect("the plan is one of this version");
        assert!(found.overtaken.is_none() && found.cut_off.is_none(), "{found:?}");
        let cursor = view.read_from(cutter.position());
        Ok(Process {
            log,
            offsets,
            cursor,
            generation,
            ranges,
            cutter,
            end,
            unanswered: Vec::new(),
            open: Vec::new(),
            blocks: BTreeMap::new(),
            released: VecDeque::new(),
            sent: VecDeque::new(),
        })
    }

    fn make(&mut self, bytes: usize) -> Message {
        self.made += 1;
        let mut message = self.made.to_le_bytes().to_vec();
        message.resize(4 + bytes, 0x5a);
        message
    }
}

impl Process {
    fn append(&mut self, world: &mut World, sizes: &[usize]) -> Result<(), Fatal> {
        let messages: Vec<Message> = sizes.iter().map(|bytes| world.make(*bytes)).collect();
        let pieces: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        match self.log.append(&pieces, world.seconds, u64::MAX) {
            Ok(_) => self.unanswered.extend(messages),
            Err(LogError::Fatal(fatal)) => return Err(fatal),
            // They get no success.
            Err(LogError::Full(_)) => {}
            Err(error @ LogError::Unfit { .. }) => panic!("{error}"),
        }
        Ok(())
    }

    fn sync(&mut self, world: &mut World) -> Result<(), Fatal> {
        self.log.sync()?;
        world.answered.extend(std::mem::take(&mut self.unanswered));
        Ok(())
    }

    fn read(&mut self, messages: usize) -> Result<(), Fatal> {
        for _ in 0..messages {
            match self.cursor.read()? {
                Read::Message(message) => self.take(message.offset, message.payload),
                Read::Lost(lost) => panic!("{lost:?}"),
                Read::End => {
                    while self.cutter.position() >= self.end
                        && let Some(closed) = self.cutter.caught_up(self.end)
                    {
                        self.close(closed);
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, offset: i64, payload: Message) {
        loop {
            match self.cutter.offer(offset, payload.len() as u64) {
                Offer::Take => break,
                Offer::Seen => return,
                Offer::Close(closed) => self.close(closed),
                Offer::Hold => panic!("the rule does not change"),
            }
        }
        let closed = self.cutter.take(offset, Some(&payload));
        self.open.push(payload);
        if let Some(closed) = closed {
            self.close(closed);
        }
    }

    fn close(&mut self, closed: Closed) {
        let messages = std::mem::take(&mut self.open);
        assert_eq!(closed.fill.messages, messages.len() as u64);
        assert!(!closed.doubtful, "no owner's ranges are in doubt: {closed:?}");
        self.ranges.closed(self.generation, &closed);
        if messages.is_empty() {
            self.ranges.settled(self.generation, closed.range);
        } else {
            self.blocks.insert(closed.range.first, (closed, messages));
        }
    }

    fn commit(&mut self, world: &World) -> Result<(), Fatal> {
        let Some(commit) = self.ranges.commit(world.now()) else { return Ok(()) };
        let end = self.log.view().floor();
        self.offsets.store(log::Committed { offset: commit.offset, metadata: commit.metadata, end })?;
        self.ranges.committed(self.generation, CommitOutcome::Stored);
        Ok(())
    }

    fn send(&mut self, world: &mut World, blocks: usize) {
        let released = self.ranges.release(world.now()).into_iter().map(|release| release.range);
        self.released.extend(released);
        for _ in 0..blocks {
            let Some(range) = self.released.pop_front() else { return };
            let (closed, messages) = &self.blocks[&range.first];
            assert_eq!(closed.range, range);
            world.table.insert(Token::of("volume", &id(), range, closed.content), messages);
            self.sent.push_back(range);
        }
    }

    fn settle(&mut self, blocks: usize) {
        for range in self.sent.drain(..blocks.min(self.sent.len())) {
            self.blocks.remove(&range.first);
            self.ranges.settled(self.generation, range);
        }
    }

    fn remove(&mut self) -> Result<(), Fatal> {
        let committed = self.offsets.committed().map_or(0, |committed| committed.offset);
        self.log.compact(committed)?;
        self.log.sync()
    }
}

#[derive(Debug, Clone)]
enum Action {
    Append(Vec<usize>),
    Sync,
    Read(usize),
    Flush,
    Commit,
    Send(usize),
    Settle(usize),
    Remove,
    /// The process is killed.
    Kill,
    /// The machine stops.
    LosePower,
    /// The power fails, or the disk, at this many calls of it from now.
    FailIn(u64, Fault),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => prop::collection::vec(0_usize..30, 1..5).prop_map(Action::Append),
        4 => Just(Action::Sync),
        6 => (1_usize..6).prop_map(Action::Read),
        2 => Just(Action::Flush),
        5 => Just(Action::Commit),
        4 => (1_usize..4).prop_map(Action::Send),
        4 => (1_usize..4).prop_map(Action::Settle),
        2 => Just(Action::Remove),
        1 => Just(Action::Kill),
        1 => Just(Action::LosePower),
        2 => (1_u64..12).prop_map(|calls| Action::FailIn(calls, Fault::PowerLoss)),
        2 => (1_u64..12).prop_map(|calls| Action::FailIn(calls, Fault::Broken)),
    ]
}

fn step(world: &mut World, process: &mut Process, action: &Action) -> Result<(), Fatal> {
    world.seconds += 1;
    match action {
        Action::Append(sizes) => process.append(world, sizes)?,
        Action::Sync => process.sync(world)?,
        Action::Read(messages) => process.read(*messages)?,
        Action::Flush => {
            if let Some(closed) = process.cutter.flush() {
                process.close(closed);
            }
        }
        Action::Commit => process.commit(world)?,
        Action::Send(blocks) => process.send(world, *blocks),
        Action::Settle(blocks) => process.settle(*blocks),
        Action::Remove => process.remove()?,
        Action::FailIn(calls, fault) => {
            world.disk.fail_at(*calls, *fault);
            world.has_power = *fault != Fault::PowerLoss;
        }
        Action::Kill | Action::LosePower => {}
    }
    Ok(())
}

/// Starts again after the power has failed, however often it fails meanwhile.
fn restarted(world: &mut World) -> Process {
    loop {
        world.disk.lose_power();
        if let Ok(process) = world.start() {
            return process;
        }
    }
}

fn run(actions: &[Action], seed: u64) {
    let mut world = World::new(seed);
    let mut process = world.start().unwrap();
    for action in actions {
        let outcome = step(&mut world, &mut process, action);
        match (&outcome, action) {
            (_, Action::LosePower) => {
                drop(process);
                process = restarted(&mut world);
            }
            (Err(_), _) if !world.has_power => {
                drop(process);
                process = restarted(&mut world);
            }
            (Err(_), _) | (_, Action::Kill) => {
                drop(process);
                world.disk.restart_process();
                process = match world.start() {
                    Ok(process) => process,
                    Err(_) => restarted(&mut world),
                };
            }
            _ => {}
        }
    }
    drop(process);
    finish(world);
}

/// Without faults, everything comes in.
fn finish(mut world: World) {
    let mut process = restarted(&mut world);
    for round in 0.. {
        assert!(round < ROUNDS_MAX, "it does not end: {:?}", process.ranges);
        for action in [
            Action::Sync,
            Action::Read(100),
            Action::Flush,
            Action::Commit,
            Action::Send(100),
            Action::Settle(100),
            Action::Commit,
            Action::Remove,
        ] {
            step(&mut world, &mut process, &action).expect("nothing fails here");
        }
        if process.offsets.committed().is_some_and(|committed| committed.offset == process.log.next()) {
            break;
        }
        if process.log.next() == 0 {
            break;
        }
    }
    let Table { rows, .. } = &world.table;
    let missing: Vec<_> = world.answered.iter().filter(|message| !rows.contains_key(*message)).collect();
    assert!(missing.is_empty(), "{missing:?} were answered, and are not in the table");
    let doubled: Vec<_> = rows.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?} are in the table more than once");
}

/// Makes the last commit unreadable, in its place and in the copy of it.
fn lose_last_commit(disk: &ModelDisk) {
    let mut content = disk.content("offsets");
    let serial = |place: usize| content[place + 16];
    let last = if serial(0) > serial(8_192) { 0 } else { 8_192 };
    for place in [last, last + 16_384] {
        content[place + 60] ^= 1;
    }
    disk.put("offsets", &content);
}

#[test]
fn ranges_of_the_commit_before_keep_their_tokens_if_the_last_one_cannot_be_read() {
    let mut world = World::new(3);
    let mut process = world.start().unwrap();
    let run = |world: &mut World, process: &mut Process, actions: &[Action]| {
        for action in actions {
            step(world, process, action).unwrap();
        }
    };
    // A range that ends by time, and one that ends by size: both are in the plan that is committed before they are sent.
    let append = |count: usize| Action::Append(vec![5; count]);
    let begins =
        [append(3), Action::Sync, Action::Read(3), Action::Flush, append(4), Action::Sync, Action::Read(4)];
    run(&mut world, &mut process, &begins);
    let sends = [Action::Commit, Action::Send(9), Action::Commit, Action::Send(9), Action::Settle(9)];
    run(&mut world, &mut process, &sends);
    let sent = world.table.tokens.len();
    assert!(sent > 0, "the table has rows of the first plan");
    run(&mut world, &mut process, &[Action::Commit]);
    drop(process);
    lose_last_commit(&world.disk);
    world.disk.restart_process();
    let mut process = world.start().unwrap();
    let rest = [Action::Read(100), Action::Commit, Action::Send(9)];
    run(&mut world, &mut process, &rest);
    let doubled: Vec<_> = world.table.rows.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    drop(process);
    finish(world);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_answered_is_in_the_table_once_whatever_happens_between(
        actions in prop::collection::vec(action(), 1..120),
        seed in any::<u64>(),
    ) {
        run(&actions, seed);
    }
}
