//! Empties a queue volume whose gateway is gone, with the command's library, a real Kafka that has some of the messages, and a real table.

use crate::{
    broker::Topic,
    messages::{message, span},
    server::{Database, frames, send},
};
use bytes::Bytes;
use sluice_clickhouse::column::TableColumns;
use sluice_gateway::{
    blocks::{message_rows::MessageRows, spool_metadata::SpoolMetadata},
    commands::drain::{self, Error, Fate, Problem, Report, Request, Tally},
    table::sink::Sink,
};
use sluice_gateway_config::{CheckedConfig, parse};
use sluice_kafka::{Patience, TopicReader};
use sluice_ranges::{Content, OffsetRange, PartitionId, Token};
use sluice_spool::{BlockHead, Directory, Identity, Options, Queue, Volume};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use twox_hash::XxHash3_64;

const PATIENCE: Duration = Duration::from_mins(1);

/// Rows of each message.
const ROWS: u64 = 2;

/// A topic whose partition 0 has messages 4 and 5 of six, a group that has committed 2, a table, and a volume.
struct Scene {
    topic: Topic,
    database: Database,
    table: (Sink, TableColumns),
    cluster: String,
    folder: PathBuf,
}

impl Scene {
    async fn open(test: &str) -> Self {
        let topic = Topic::create(test, 1).await;
        let message = message(vec![span(vec![])]);
        (0..6).for_each(|_| topic.produce(0, &message));
        topic.commit(0, 2);
        topic.delete_before(0, 4).await;
        let database = Database::new(test).await;
        let table = database.with_table().await;
        let patience = Patience { answer: PATIENCE, message: PATIENCE };
        let reader = TopicReader::new(&topic.kafka(), "live", patience).unwrap();
        let cluster = reader.cluster(&topic.name).unwrap();
        let folder = std::env::temp_dir().join(format!("sluice-live-{}", topic.name));
        std::fs::create_dir_all(&folder).unwrap();
        Self { topic, database, table, cluster, folder }
    }

    async fn close(self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
        self.topic.delete().await;
        self.database.drop().await;
    }

    fn config(&self, endpoint: Option<&str>) -> CheckedConfig {
        let mut config = parse::from_yaml(&self.topic.config()).unwrap();
        config.sink.clickhouse = self.database.config(sluice_gateway_config::Schema::default());
        if let Some(endpoint) = endpoint {
            config.sink.clickhouse.endpoints = vec![endpoint.to_owned()];
        }
        config.queue.path = self.folder.display().to_string();
        config.check().unwrap()
    }

    /// The same, of another table of the database.
    async fn drain_into(&self, table: &str) -> Report {
        let mut config = self.config(None).config().clone();
        config.sink.clickhouse.table = table.to_owned();
        let config = config.check().unwrap();
        let drained = tokio::task::spawn_blocking(move || drain::drain(&config, REQUEST, |_| {}));
        drained.await.unwrap().unwrap()
    }

    /// Writes down which columns the blocks were encoded for, as a gateway does before it appends one.
    fn write_columns(&self) {
        let number = self.table.0.targets(&self.table.1).unwrap().columns();
        let pairs = self.table.1.names_and_types();
        let lines: Vec<_> = pairs.iter().map(|(name, of)| format!("{name}\t{of}\n")).collect();
        let lines = lines.concat();
        let text = format!("{:016x}\n{lines}", XxHash3_64::oneshot(lines.as_bytes()));
        std::fs::write(self.folder.join(format!("columns-{number:016x}")), text).unwrap();
    }

    async fn alter(&self, change: &str) {
        self.database.execute(&format!("ALTER TABLE {}.otel_traces {change}", self.database.name)).await;
    }

    fn frames(&self) -> Vec<Bytes> {
        frames(&self.table.1, &message(vec![span(vec![])]))
    }

    fn token(&self, offset: i64) -> String {
        let id = PartitionId { topic: self.topic.name.as_str().into(), partition: 0 };
        let range = OffsetRange { first: offset, next: offset + 1 };
        Token::of(&self.cluster, &id, range, Content::default()).to_string()
    }

    /// Leaves blocks of one message each on the volume; `marked` as sent just now.
    fn leave(&self, offsets: &[i64], marked: &[i64]) {
        self.leave_as(offsets, marked, false);
    }

    /// The same, of `delivery.commit: AfterEnqueue` if `is_enqueued`.
    fn leave_as(&self, offsets: &[i64], marked: &[i64], is_enqueued: bool) {
        let (cluster, kept) = (self.cluster.as_str().into(), None);
        self.leave_with(offsets, marked, &SpoolMetadata { cluster, kept, is_doubtful: false, is_enqueued });
    }

    /// The same, with this metadata.
    fn leave_with(&self, offsets: &[i64], marked: &[i64], spool_metadata: &SpoolMetadata) {
        let identity = Identity::of("live", "live");
        let _claimed = Volume::claim(&self.folder, &identity).unwrap();
        let options = Options::new(identity.number(), 1 << 30, spool_metadata.is_enqueued);
        let (mut queue, _) = Queue::open(Directory::open(&self.folder).unwrap(), options).unwrap();
        let columns = self.table.0.targets(&self.table.1).unwrap().columns();
        for offset in offsets {
            let mut messages = MessageRows::default();
            messages.add(*offset, ROWS);
            let metadata = spool_metadata.encode(&messages);
            let head = BlockHead {
                topic: self.topic.name.as_str().into(),
                partition: 0,
                first: *offset,
                next: offset + 1,
                token: self.token(*offset).into_bytes().into(),
                rows: ROWS,
                raw_bytes: 1,
                span_end_nanos_max: 0,
                first_sent_ms: None,
                routing_epoch: None,
                destination: None,
                columns,
                metadata_bytes: u32::try_from(metadata.len()).unwrap(),
            };
            let pieces: Vec<Bytes> = std::iter::once(Bytes::from(metadata)).chain(self.frames()).collect();
            let id = queue.append(&head, &pieces, now_ms()).unwrap();
            if marked.contains(offset) {
                queue.mark_sent(id, now_ms()).unwrap();
            }
            queue.sync().unwrap();
        }
        queue.close().unwrap();
    }

    /// Flips a bit in the last byte of the record that is the n-th of the volume's only segment, all of them being of one size.
    fn damage(&self, nth: usize, of: usize) {
        damage(&self.folder, nth, of);
    }

    async fn drain(&self, endpoint: Option<&str>, request: Request) -> Result<Report, Error> {
        let config = self.config(endpoint);
        let drained = tokio::task::spawn_blocking(move || drain::drain(&config, request, |_| {}));
        drained.await.unwrap()
    }
}

fn damage(folder: &Path, nth: usize, of: usize) {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "spool");
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(is_segment).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let begin = usize::try_from(sluice_spool::format::RECORDS_AT).unwrap();
    let record = (bytes.len() - begin) / of;
    bytes[begin + (nth + 1) * record - 1] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn now_ms() -> u64 {
    u64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

fn blocks(blocks: u64) -> Tally {
    Tally { blocks, rows: blocks * ROWS }
}

const REQUEST: Request = Request { timeout: PATIENCE, give_up_damaged: false };

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_gateway_is_gone_is_emptied() {
    let scene = Scene::open("drain").await;
    // Message 2 is in the table under its token already: the gateway died before it knew.
    send(&scene.table, &scene.frames(), &scene.token(2), &format!("{}-0", scene.token(2))).await.unwrap();
    assert_eq!(scene.database.count().await, ROWS);
    scene.leave(&[1, 2, 3, 4], &[2]);

    let claimed = Volume::claim(&scene.folder, &Identity::of("live", "live")).unwrap();
    let error = scene.drain(None, REQUEST).await.unwrap_err();
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    drop(claimed);

    let short = Request { timeout: Duration::from_millis(1), ..REQUEST };
    let away = scene.drain(Some("http://127.0.0.1:1"), short).await.unwrap();
    assert!(matches!(away.problem, Some(Problem::Unavailable(_))), "{away:?}");
    assert_eq!((away.found, away.settled, away.in_kafka), (blocks(4), blocks(1), blocks(1)));
    assert_eq!((away.left, away.inserted), (blocks(2), blocks(0)));

    let report = scene.drain(None, REQUEST).await.unwrap();
    assert_eq!((report.found, report.inserted, report.left), (blocks(2), blocks(2), blocks(0)));
    assert!(report.is_empty() && report.problem.is_none(), "{report:?}");
    // No gateway has sent message 3, and its block does not say that another owner would end it there.
    assert_eq!(report.possible_duplicate_rows, ROWS);
    assert_eq!(scene.database.count().await, 2 * ROWS, "the server has dropped what it had");
    let again = scene.drain(Some("http://127.0.0.1:1"), REQUEST).await.unwrap();
    assert!(again.is_empty() && again.found == blocks(0), "{again:?}");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_because_it_was_on_the_volume_is_inserted() {
    let scene = Scene::open("drain_enqueued").await;
    // Below the committed offset; gone from Kafka; there to be read again.
    scene.leave_as(&[0, 1, 3, 4], &[1], true);
    let report = scene.drain(None, REQUEST).await.unwrap();
    assert_eq!((report.inserted, report.in_kafka, report.settled), (blocks(3), blocks(1), blocks(0)));
    assert!(report.is_empty() && report.possible_duplicate_rows == 0, "{report:?}");
    assert_eq!(scene.database.count().await, 3 * ROWS);
    scene.close().await;
}

/// Kafka had deleted the beginning of a range that an earlier owner may have sent, and then the rest, which a volume has.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_doubtful_range_count_as_possibly_doubled() {
    let scene = Scene::open("drain_doubtful").await;
    for is_enqueued in [true, false] {
        let (cluster, kept) = (scene.cluster.as_str().into(), None);
        let doubtful = SpoolMetadata { cluster, kept, is_doubtful: true, is_enqueued };
        // It was sent, under a token that no other range has.
        let offset = if is_enqueued { 1 } else { 2 };
        scene.leave_with(&[offset], &[offset], &doubtful);
        let report = scene.drain(None, REQUEST).await.unwrap();
        assert_eq!((report.inserted, report.possible_duplicate_rows), (blocks(1), ROWS), "{report:?}");
    }
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_named_and_stays_until_it_is_given_up() {
    let scene = Scene::open("drain_damaged").await;
    scene.leave(&[1, 2, 3, 4], &[]);
    // What is settled, and what is nowhere else.
    scene.damage(0, 4);
    scene.damage(1, 4);
    for _ in 0..2 {
        let report = scene.drain(None, REQUEST).await.unwrap();
        assert!(matches!(report.problem, Some(Problem::ByHand(_))), "{report:?}");
        let damaged = report.damaged.iter().find(|damaged| damaged.first == Some(2)).unwrap();
        assert_eq!(damaged.partition, Some(format!("{}/0", scene.topic.name)));
        assert_eq!((damaged.next, damaged.rows, damaged.fate), (Some(3), Some(ROWS), Fate::Nowhere));
        assert!(!report.is_empty());
        let settled = report.damaged.iter().find(|damaged| damaged.first == Some(1));
        assert!(settled.is_none_or(|damaged| damaged.fate == Fate::Settled), "{settled:?}");
    }
    assert_eq!(scene.database.count().await, ROWS, "message 3 alone");
    let report = scene.drain(None, Request { give_up_damaged: true, ..REQUEST }).await.unwrap();
    assert!(report.is_empty() && report.problem.is_none(), "{report:?}");
    assert_eq!(report.damaged.iter().map(|damaged| damaged.fate).collect::<Vec<_>>(), [Fate::GivenUp]);
    assert!(scene.drain(None, REQUEST).await.unwrap().damaged.is_empty(), "it is said once more no more");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_break_once_the_volume_is_open_are_lost_and_that_is_no_success() {
    let scene = Scene::open("drain_breaks").await;
    scene.leave(&[1, 2, 3, 4], &[]);
    let (config, folder) = (scene.config(None), scene.folder.clone());
    let mut is_whole = true;
    let drained = tokio::task::spawn_blocking(move || {
        drain::drain(&config, REQUEST, |_| {
            // When it first reports, it has read every record and found it whole.
            if std::mem::take(&mut is_whole) {
                damage(&folder, 1, 4);
            }
        })
    });
    let report = drained.await.unwrap().unwrap();
    let Some(Problem::Lost(text)) = &report.problem else { panic!("{report:?}") };
    assert!(text.starts_with("1 block, 2 rows could not be read any more"), "{text}");
    assert_eq!((report.found, report.lost, report.left), (blocks(4), blocks(1), blocks(0)));
    assert_eq!((report.inserted, scene.database.count().await), (blocks(1), ROWS), "message 3 alone");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_encoded_for_columns_of_before_goes_to_those_while_they_read_the_same() {
    let scene = Scene::open("drain_renamed").await;
    scene.leave_as(&[0, 1], &[], true);
    scene.alter("MODIFY COLUMN StatusMessage LowCardinality(String)").await;
    // New rows go elsewhere, and those places are still there.
    scene.alter("ADD COLUMN Tenant String DEFAULT 'none'").await;
    let report = scene.drain(None, REQUEST).await.unwrap();
    let Some(Problem::ByHand(text)) = &report.problem else { panic!("{report:?}") };
    assert!(text.contains("does not record which"), "{text}");
    assert_eq!((report.inserted, report.left), (blocks(0), blocks(2)));
    scene.write_columns();
    let report = scene.drain(None, REQUEST).await.unwrap();
    assert!(report.is_empty() && report.problem.is_none(), "{report:?}");
    assert_eq!((report.inserted, report.possible_duplicate_rows), (blocks(2), 0));
    assert_eq!(scene.database.count().await, 2 * ROWS);
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_table_has_no_columns_for_stays_with_a_reason_and_goes_to_a_table_that_has_them() {
    let scene = Scene::open("drain_replaced").await;
    scene.leave_as(&[0, 1], &[], true);
    scene.write_columns();
    let database = &scene.database.name;
    scene.database.execute(&format!("CREATE TABLE {database}.before AS {database}.otel_traces")).await;
    scene.alter("MODIFY COLUMN SpanAttributes JSON(max_dynamic_paths=64, `int` Int64)").await;
    for _ in 0..2 {
        let report = scene.drain(None, REQUEST).await.unwrap();
        let Some(Problem::ByHand(text)) = &report.problem else { panic!("{report:?}") };
        let named = "column SpanAttributes has type JSON(max_dynamic_paths=64, int Int64); expected JSON";
        assert!(text.contains(named), "{text}");
        assert_eq!((report.inserted, report.left), (blocks(0), blocks(2)));
    }
    assert_eq!(scene.database.count().await, 0);
    let report = scene.drain_into("before").await;
    assert!(report.is_empty() && report.problem.is_none(), "{report:?}");
    assert_eq!(scene.database.count_of("before").await, 2 * ROWS);
    scene.close().await;
}
