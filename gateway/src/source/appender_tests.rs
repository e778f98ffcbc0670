//! Requests into logs on the real file system: one sync for what waits together, a full volume, and what is there after a restart.

use super::*;
use crate::source::{
    gate::Gate,
    opening::{self, Left, OpenedVolume},
    unreadable::Reader,
};
use sluice_gateway_config::{GatewayConfig, OtlpSource, parse};
use sluice_kafka::{Drain, LogKeeper as _, Message as _};
use sluice_otlp_server::ByteBudget;
use sluice_ranges::{Commit, Plan, Rule, Version};
use std::path::PathBuf;

/// A volume in a folder of its own.
struct Volume(PathBuf);

impl Volume {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-source-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn config(&self, logs: u32) -> GatewayConfig {
        let text = format!(
            "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 2, memory: {{limit: 320MiB}}, \
             source: {{otlp: {{listen: {{grpc: '127.0.0.1:0'}}, logs: {logs}, deadLetterBytesMax: 2MiB}}}}, \
             queue: {{path: {}, maxBytes: 34MiB}}, \
             sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t}}}}}}",
            self.0.display()
        );
        parse::from_yaml(&text).unwrap()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// An appender without its thread, and what it works with.
struct Parts {
    appender: Appender,
    keeper: Arc<Keeper>,
    requests: Requests,
}

/// Makes requests.
struct Requests {
    permits: ByteBudget,
    gate: Gate,
}

struct Opened {
    appends: Sender<Append>,
    thread: thread::JoinHandle<()>,
    keeper: Arc<Keeper>,
    requests: Requests,
}

type Answer = oneshot::Receiver<Result<(), Unstored>>;

fn panics() -> OnFatal {
    Arc::new(|fatal| panic!("{fatal}"))
}

fn parts(volume: &Volume, logs: u32, on_fatal: OnFatal) -> Parts {
    let config = volume.config(logs);
    let otlp: OtlpSource = config.source.otlp.clone().unwrap();
    let OpenedVolume {
        volume_id, logs, writers, accepting, unreadable, unreadable_bytes, log_bytes_max, ..
    } = opening::open(&config, &otlp, 1 << 30).unwrap();
    let checked = config.check().unwrap();
    let permits = ByteBudget::new(1 << 30);
    let numbers = Arc::new(SourceNumbers::new(permits.clone()));
    numbers.log_bytes_max.store(log_bytes_max, Ordering::Relaxed);
    for log in unreadable {
        numbers.unreadable.add(log, Reader::Start);
    }
    let gate = Gate::new(Drain::default());
    let keeper = Keeper::new(volume_id, logs, gate.clone(), numbers.clone(), on_fatal.clone());
    let keeper = Arc::new(keeper);
    let appender = Appender {
        logs: writers,
        accepting,
        unreadable_bytes,
        keeper: keeper.clone(),
        metrics: Arc::new(Metrics::new(checked.budget())),
        numbers,
        volume: ("/queue".to_owned(), 1 << 30),
        on_fatal,
    };
    Parts { appender, keeper, requests: Requests { permits, gate } }
}

fn open(volume: &Volume, logs: u32) -> Opened {
    let Parts { appender, keeper, requests } = parts(volume, logs, panics());
    let (appends, thread) = appender.start().unwrap();
    Opened { appends, thread, keeper, requests }
}

impl Requests {
    fn make(&self, message: Vec<u8>) -> (Append, Answer) {
        let (answer, answered) = oneshot::channel();
        let append = Append {
            permit: self.permits.try_take(message.len()).unwrap(),
            message: message.into(),
            raw_bytes: None,
            spans: 1,
            entered: self.gate.enter().unwrap(),
            begun: Instant::now(),
            answer,
        };
        (append, answered)
    }
}

impl Parts {
    /// Stores requests in one turn.
    fn turn(&mut self, messages: impl Iterator<Item = Vec<u8>>) {
        let (turn, answers): (Vec<_>, Vec<_>) = messages.map(|message| self.requests.make(message)).unzip();
        self.appender.turn(turn).unwrap();
        for mut answer in answers {
            assert_eq!(answer.try_recv(), Ok(Ok(())));
        }
    }

    fn syncs(&self) -> u64 {
        self.appender.metrics.requests.sync_seconds.get_sample_count()
    }

    /// How many logs have messages.
    fn used(&self) -> usize {
        self.keeper.logs().iter().filter(|log| log.end > 0).count()
    }
}

impl Opened {
    fn send(&self, message: Vec<u8>) -> Answer {
        let (append, answered) = self.requests.make(message);
        self.appends.try_send(append).unwrap();
        answered
    }

    fn store(&self, message: Vec<u8>) -> Result<(), Unstored> {
        self.send(message).blocking_recv().unwrap()
    }

    /// All messages of all logs that are not committed.
    fn messages(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for log in self.keeper.logs() {
            let from = log.committed.unwrap_or(log.start);
            for offset in from..log.end {
                let message = self.keeper.message(&log.id, offset).unwrap().expect("it is there");
                found.push(message.payload().unwrap().to_vec());
            }
        }
        found.sort();
        found
    }

    fn close(self) {
        drop(self.appends);
        self.thread.join().unwrap();
    }
}

#[test]
fn what_is_answered_is_there_after_a_restart_whatever_the_number_of_logs() {
    let volume = Volume::new("restart");
    let opened = open(&volume, 3);
    let answers: Vec<_> = (0..50_u8).map(|number| opened.send(vec![number; 100_000])).collect();
    for answer in answers {
        answer.blocking_recv().unwrap().unwrap();
    }
    assert!(opened.keeper.may_append(), "the gate is open");
    let expected: Vec<Vec<u8>> = (0..50_u8).map(|number| vec![number; 100_000]).collect();
    assert_eq!(opened.messages(), expected);
    opened.close();
    // Fewer logs: the others are read, and get no more.
    let opened = open(&volume, 1);
    assert_eq!(opened.messages(), expected);
    let before = opened.keeper.logs();
    opened.store(vec![50; 10]).unwrap();
    let after = opened.keeper.logs();
    assert_eq!(before.len(), 3);
    assert_eq!((after[1].end, after[2].end), (before[1].end, before[2].end));
    assert_eq!(opened.messages().len(), 51);
    opened.close();
}

#[test]
fn requests_that_wait_share_a_sync_and_only_a_large_turn_is_spread_over_the_logs() {
    let volume = Volume::new("turn");
    let mut parts = parts(&volume, 3, panics());
    parts.turn((0..50_u8).map(|number| vec![number; 100]));
    assert_eq!((parts.used(), parts.syncs()), (1, 1), "a small turn is a record of one log");
    parts.turn((0..9_u8).map(|number| vec![number; 600_000]));
    assert_eq!((parts.used(), parts.syncs()), (3, 2));
    assert!(parts.keeper.may_append());
    parts.requests.gate.close();
    assert!(!parts.keeper.may_append(), "every request has left");
    assert_eq!(parts.requests.permits.used_bytes(), 0);
}

#[test]
fn requests_whose_clients_have_another_answer_already_are_not_stored() {
    let volume = Volume::new("closed");
    let parts = parts(&volume, 1, panics());
    let (appends, appends_in) = bounded(4);
    let (first, gone) = parts.requests.make(vec![1; 10]);
    drop(gone);
    let mut waits = Vec::new();
    for number in 2..5_u8 {
        let (append, answer) = parts.requests.make(vec![number; 10]);
        appends.try_send(append).unwrap();
        // The client of the third has gone.
        waits.extend((number != 3).then_some(answer));
    }
    let turn = take_turn(first, &appends_in);
    assert_eq!(turn.iter().map(|append| append.message[0]).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(parts.requests.permits.used_bytes(), 20, "the memory of the others is free");
}

#[test]
fn if_the_volume_fails_no_request_that_waits_gets_a_success_and_the_process_is_told_once() {
    let volume = Volume::new("fails");
    let (fatals_out, fatals) = bounded(4);
    let on_fatal: OnFatal = Arc::new(move |fatal| fatals_out.try_send(fatal).unwrap());
    let Parts { appender, requests, .. } = parts(&volume, 1, on_fatal);
    std::fs::remove_dir_all(volume.0.join("log-00")).unwrap();
    let (appends, appends_in) = bounded(4);
    let mut answers = Vec::new();
    for number in 0..3_u8 {
        let (append, answer) = requests.make(vec![number; 10]);
        appends.try_send(append).unwrap();
        answers.push(answer);
    }
    appender.run(&appends_in);
    drop(appends_in);
    for mut answer in answers {
        assert!(answer.try_recv().is_err(), "its client is told to come again");
    }
    let fatal: Fatal = fatals.try_recv().unwrap();
    assert!(fatal.to_string().contains("segment-"), "{fatal}");
    assert!(fatals.try_recv().is_err());
}

#[test]
fn a_log_begins_at_its_committed_offset_whatever_its_oldest_segment_has() {
    let volume = Volume::new("begins");
    let opened = open(&volume, 1);
    for number in 0..3_u8 {
        opened.store(vec![number; 10]).unwrap();
    }
    let log = opened.keeper.logs().remove(0);
    assert!(opened.keeper.commit(&log.id, &Commit { offset: 2, metadata: String::new() }));
    assert_eq!(opened.keeper.logs()[0].start, 0, "the segment is there");
    // With another volume id, reading begins at the start.
    let begins = opened.keeper.beginning(&log.id).log;
    assert_eq!((begins.start, begins.end), (2, 3));
    opened.close();
}

/// The segment of a log.
fn segment_of(volume: &Volume, log: &str) -> PathBuf {
    let mut files = std::fs::read_dir(volume.0.join(log)).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "spool")).unwrap()
}

/// Makes a file one whose reads fail with an input/output error, and keeps its content beside it.
fn hide(file: &std::path::Path) {
    std::fs::rename(file, file.with_extension("hidden")).unwrap();
    // No memory of a process begins at 0: reading there is this error.
    std::os::unix::fs::symlink("/proc/self/mem", file).unwrap();
}

fn unhide(file: &std::path::Path) {
    std::fs::remove_file(file).unwrap();
    std::fs::rename(file.with_extension("hidden"), file).unwrap();
}

/// A volume with a request of these bytes in each of two logs.
fn one_in_each_of_two_logs(test: &str) -> Volume {
    let volume = Volume::new(test);
    let opened = open(&volume, 2);
    for number in 0..2_u8 {
        opened.store(vec![number; 900_000]).unwrap();
    }
    assert!(opened.keeper.logs().iter().all(|log| log.end == 1));
    opened.close();
    volume
}

#[test]
fn a_log_that_cannot_be_read_at_the_start_is_left_as_it_is_and_the_others_go_on() {
    let volume = one_in_each_of_two_logs("unread-at-start");
    let segment = segment_of(&volume, "log-00");
    hide(&segment);
    let Parts { appender, keeper, requests } = parts(&volume, 2, panics());
    let numbers = appender.numbers.clone();
    assert_eq!(numbers.unreadable.numbers(), [0]);
    assert!((1_800_000..2_200_000).contains(&appender.used()), "its bytes count: {}", appender.used());
    let (appends, thread) = appender.start().unwrap();
    let opened = Opened { appends, thread, keeper, requests };
    let logs = opened.keeper.logs();
    assert_eq!(logs.iter().map(|log| (log.id.partition, log.end)).collect::<Vec<_>>(), [(1, 1)]);
    opened.store(vec![2; 10]).unwrap();
    assert_eq!(opened.messages(), [vec![1; 900_000], vec![2; 10]]);
    opened.close();
    unhide(&segment);
    let opened = open(&volume, 2);
    assert_eq!(opened.messages(), [vec![0; 900_000], vec![1; 900_000], vec![2; 10]]);
    opened.close();
    // Without another log, a new one gets the requests.
    let volume = Volume::new("unread-alone");
    let opened = open(&volume, 1);
    opened.store(vec![1; 10]).unwrap();
    opened.close();
    hide(&segment_of(&volume, "log-00"));
    let opened = open(&volume, 1);
    opened.store(vec![2; 10]).unwrap();
    assert_eq!(opened.keeper.logs()[0].id.partition, 1);
    opened.close();
}

#[test]
fn a_log_that_cannot_be_read_later_gets_no_requests_and_is_not_committed_while_others_go_on() {
    let volume = one_in_each_of_two_logs("unread-later");
    let Parts { appender, keeper, requests } = parts(&volume, 2, panics());
    let numbers = appender.numbers.clone();
    numbers.unreadable.add(0, Reader::Worker);
    let (appends, thread) = appender.start().unwrap();
    let opened = Opened { appends, thread, keeper, requests };
    for _ in 0..4 {
        opened.store(vec![2; 10]).unwrap();
    }
    let logs = opened.keeper.logs();
    assert_eq!(
        logs.iter().map(|log| (log.end, log.is_unreadable)).collect::<Vec<_>>(),
        [(1, true), (5, false)]
    );
    assert_eq!(opened.keeper.messages_left(), 5, "a drain does not wait for the other");
    assert_eq!(opened.keeper.messages_kept(), 6);
    // If none is left, clients are told to come again.
    numbers.unreadable.add(1, Reader::Worker);
    assert!(
        matches!(opened.store(vec![3; 10]), Err(Unstored::Full { why, .. }) if why.contains("can be read"))
    );
    opened.close();
    assert!(volume.0.join("log-00").read_dir().unwrap().count() > 1, "nothing of it is removed");
}

/// A plan that was committed with this offset.
fn plan(offset: i64) -> Plan {
    Plan {
        offset,
        rule: Rule { version: Version::CURRENT, bytes: 1 << 20, messages: 1_000 },
        routing_epoch: 1,
        destination: None,
        horizon: offset,
        topic_id: None,
        cluster: None,
        t0: 1,
        cuts: Vec::new(),
        parted: Vec::new(),
        gaps: Vec::new(),
        doubtful_up_to: 0,
    }
}

#[test]
fn if_the_last_commit_cannot_be_read_ranges_up_to_the_end_of_the_log_are_doubtful() {
    let volume = Volume::new("doubt");
    let opened = open(&volume, 1);
    for number in 0..3_u8 {
        opened.store(vec![number; 10]).unwrap();
    }
    let id = opened.keeper.logs().remove(0).id;
    for offset in [1, 2] {
        assert!(opened.keeper.commit(&id, &Commit { offset, metadata: plan(offset).encode() }));
    }
    opened.close();
    let begins = |volume: &Volume| {
        let opened = open(volume, 1);
        let (offset, metadata) = opened.keeper.beginning(&id).commit.unwrap();
        opened.close();
        Plan::decode(offset, &metadata).unwrap()
    };
    assert_eq!(begins(&volume), plan(2));
    let path = volume.0.join("log-00/offsets");
    let mut content = std::fs::read(&path).unwrap();
    // The second commit is in the first place and its copy.
    content[60] ^= 1;
    std::fs::write(&path, &content).unwrap();
    assert_eq!(begins(&volume), plan(2), "the copy is read, and both are written again");
    for place in [0, 16_384] {
        content[place + 60] = !content[place + 60];
    }
    std::fs::write(&path, &content).unwrap();
    assert_eq!(begins(&volume), Plan { doubtful_up_to: 3, ..plan(1) });
}

#[test]
fn a_file_with_a_message_that_cannot_be_read_stays_and_the_gateway_says_that_it_is_damaged() {
    let volume = Volume::new("damaged");
    let opened = open(&volume, 1);
    for number in 0..2_u8 {
        opened.store(vec![number; 10]).unwrap();
    }
    opened.close();
    let files = || std::fs::read_dir(volume.0.join("log-00")).unwrap().map(|entry| entry.unwrap().path());
    let segment = files().find(|path| path.extension().is_some_and(|kind| kind == "spool")).unwrap();
    let mut content = std::fs::read(&segment).unwrap();
    *content.last_mut().unwrap() ^= 1;
    std::fs::write(&segment, content).unwrap();

    let Parts { appender, keeper, .. } = parts(&volume, 1, panics());
    let numbers = appender.numbers.clone();
    let (appends, thread) = appender.start().unwrap();
    let id = keeper.logs().remove(0).id;
    let mut messages = keeper.messages(&id, 0, Box::new(|| {}));
    assert_eq!(messages.poll().unwrap().map(|message| message.offset()), Ok(0));
    assert!(!numbers.is_damaged.load(Ordering::Relaxed));
    assert!(messages.poll().is_none(), "it is passed");
    assert_eq!(messages.poll().map(|end| end.is_err()), Some(true), "the end");
    assert!(numbers.is_damaged.load(Ordering::Relaxed));
    assert_eq!(messages.position(), 2);
    assert!(keeper.commit(&id, &Commit { offset: 2, metadata: String::new() }));
    drop(appends);
    thread.join().unwrap();
    assert!(files().any(|path| path == segment.with_extension("damaged")), "it has the only copy");
}

#[test]
fn a_volume_of_the_other_source_is_refused_until_it_is_empty() {
    let volume = Volume::new("other");
    let config = volume.config(1);
    let otlp = config.source.otlp.clone().unwrap();
    std::fs::write(volume.0.join("segment-0000000000000001.spool"), b"a block").unwrap();
    let error = opening::open(&config, &otlp, 1 << 30).err().unwrap();
    assert!(error.to_string().contains("source.kafka"), "{error}");
    std::fs::remove_file(volume.0.join("segment-0000000000000001.spool")).unwrap();
    let opened = open(&volume, 1);
    opened.store(vec![1; 10]).unwrap();
    assert_eq!(opening::left(&volume.0).unwrap().of_logs(), Some("requests"));
    let log = opened.keeper.logs().remove(0);
    assert!(opened.keeper.commit(&log.id, &Commit { offset: log.end, metadata: String::new() }));
    opened.close();
    assert_eq!(opening::left(&volume.0).unwrap(), Left::default(), "it is empty");
    let letters = Left { has_letters: true, ..Left::default() };
    for (file, left) in [
        ("dead-letters/segment-0000000000000001.spool", letters),
        ("log-00/segment-0000000000000002.damaged", Left { is_damaged: true, ..letters }),
        ("log-00/segment-0000000000000003.spool", Left { has_messages: true, is_damaged: true, ..letters }),
        (
            "segment-0000000000000004.damaged",
            Left { has_messages: true, is_damaged: true, has_blocks: true, ..letters },
        ),
    ] {
        std::fs::write(volume.0.join(file), b"a record").unwrap();
        assert_eq!(opening::left(&volume.0).unwrap(), left, "{file}");
    }
}

#[test]
fn a_full_volume_says_so_with_its_size_and_takes_requests_again_once_they_are_committed() {
    let volume = Volume::new("full");
    let opened = open(&volume, 2);
    let mut stored = 0;
    let why = loop {
        match opened.store(vec![7; 1 << 20]) {
            Ok(()) => stored += 1,
            Err(Unstored::Full { why, .. }) => break why,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!((28..32).contains(&stored), "{stored} MiB of 32 are stored");
    assert!(why.contains("/queue") && why.contains("1073741824"), "{why}");
    assert!(why.ends_with(&more_room(VolumeLimit::Bytes)), "{why}");
    assert_eq!(opened.messages().len(), stored);
    for log in opened.keeper.logs() {
        let commit = Commit { offset: log.end, metadata: "plan".to_owned() };
        assert!(opened.keeper.commit(&log.id, &commit));
    }
    opened.store(vec![8; 1 << 20]).unwrap();
    assert_eq!(opened.messages(), vec![vec![8; 1 << 20]]);
    opened.close();
    let opened = open(&volume, 2);
    assert_eq!(opened.messages(), vec![vec![8; 1 << 20]]);
    let beginning = opened.keeper.beginning(&opened.keeper.logs()[0].id);
    assert_eq!(beginning.commit.unwrap().1, "plan");
    opened.close();
}
