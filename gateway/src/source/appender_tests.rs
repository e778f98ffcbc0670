//! Requests into logs on the real file system: one sync for what waits together, a full volume, and what is there after a restart.

use super::*;
use crate::source::{
    gate::Gate,
    opening::{self, Left, OpenedVolume},
};
use sluice_gateway_config::{GatewayConfig, OtlpSource, parse};
use sluice_kafka::{Drain, LogKeeper as _};
use sluice_otlp_server::ByteBudget;
use sluice_ranges::Commit;
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
            "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 2, memory: {{limit: 256MiB}}, \
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

struct Opened {
    appends: Sender<Append>,
    thread: thread::JoinHandle<()>,
    keeper: Arc<Keeper>,
    permits: ByteBudget,
    gate: Gate,
}

fn open(volume: &Volume, logs: u32) -> Opened {
    let config = volume.config(logs);
    let otlp: OtlpSource = config.source.otlp.clone().unwrap();
    let OpenedVolume { volume_id, logs, writers, accepting, log_bytes_max, .. } =
        opening::open(&config, &otlp, 1 << 30).unwrap();
    let checked = config.check().unwrap();
    let permits = ByteBudget::new(1 << 30);
    let numbers = Arc::new(SourceNumbers::new(permits.clone()));
    numbers.log_bytes_max.store(log_bytes_max, Ordering::Relaxed);
    let on_fatal: OnFatal = Arc::new(|fatal| panic!("{fatal}"));
    let gate = Gate::new(Drain::default());
    let keeper = Arc::new(Keeper::new(volume_id, logs, gate.clone(), on_fatal.clone()));
    let appender = Appender {
        logs: writers,
        accepting,
        keeper: keeper.clone(),
        metrics: Arc::new(Metrics::new(checked.budget())),
        numbers,
        volume: ("/queue".to_owned(), 1 << 30),
        on_fatal,
    };
    let (appends, thread) = appender.start().unwrap();
    Opened { appends, thread, keeper, permits, gate }
}

impl Opened {
    fn send(&self, message: Vec<u8>) -> oneshot::Receiver<Result<(), Unstored>> {
        let (answer, answered) = oneshot::channel();
        let append = Append {
            permit: self.permits.try_take(message.len()).unwrap(),
            message: message.into(),
            spans: 1,
            entered: self.gate.enter().unwrap(),
            begun: Instant::now(),
            answer,
        };
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
                found.push(sluice_kafka::Message::payload(&message).unwrap().to_vec());
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
    assert!(!opened.keeper.may_append() || opened.gate.may_append(), "the gate is open");
    let expected: Vec<Vec<u8>> = (0..50_u8).map(|number| vec![number; 100_000]).collect();
    assert_eq!(opened.messages(), expected);
    let used = opened.keeper.logs().iter().filter(|log| log.end > 0).count();
    assert_eq!(used, 3, "a large turn is spread over the logs");
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
    assert!(opening::has_messages(&volume.0).unwrap());
    let log = opened.keeper.logs().remove(0);
    assert!(opened.keeper.commit(&log.id, &Commit { offset: log.end, metadata: String::new() }));
    opened.close();
    assert_eq!(opening::left(&volume.0).unwrap(), Left::default(), "it is empty");
    let letters = Left { has_letters: true, ..Left::default() };
    for (file, left) in [
        ("dead-letters/segment-0000000000000001.spool", letters),
        ("log-00/segment-0000000000000002.damaged", Left { is_damaged: true, ..letters }),
        (
            "log-00/segment-0000000000000003.spool",
            Left { has_messages: true, is_damaged: true, has_letters: true },
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
            Err(Unstored::Full(why)) => break why,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!((28..32).contains(&stored), "{stored} MiB of 32 are stored");
    assert!(why.contains("/queue") && why.contains("1073741824"), "{why}");
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
