//! Rows that the server refuses: found in a block with the server's help, and kept as messages that can be replayed.

use crate::{
    messages::{message, span},
    server::{Database, frames},
};
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};
use prost::Message as _;
use sluice_clickhouse::{
    block_rows::{self, Header},
    client::InsertClient,
    column::TableColumns,
    insert::InsertId,
    outcome::Class,
    row_ends::RowShape,
};
use sluice_gateway::{
    delivery::bisect::{self, Bisection, Fault, Outcome, Refusal, RefusedRow, Step, Window},
    table::sink::Targets,
};
use sluice_gateway_config::{Layout, SchemaManagement};
use sluice_ranges::{Content, OffsetRange, PartitionId, Token};

/// Spans of a block: enough for several frames.
const SPANS: usize = 3_000;

/// Numbers of the spans that the table refuses.
const BAD: [usize; 3] = [0, 1_234, 1_235];

fn spans() -> Vec<Span> {
    let name = |number| if BAD.contains(&number) { "bad".to_owned() } else { format!("good {number}") };
    (0..SPANS).map(|number| Span { name: name(number), ..span(vec![]) }).collect()
}

struct Sent<'a> {
    targets: &'a Targets,
    client: InsertClient,
    frames: Vec<bytes::Bytes>,
    shape: RowShape,
    tries: u32,
}

impl Sent<'_> {
    async fn send(&mut self, window: &Window) -> Outcome {
        let body = bisect::body(&self.shape, &self.frames, Header::None, window).unwrap();
        self.tries += 1;
        let query_id = format!("{}-{}-{}", window.token, std::process::id(), self.tries);
        let id = InsertId { token: Some(&window.token), query_id: &query_id };
        match self.client.insert(self.targets.at(0), &body, id).await {
            Ok(_) => Outcome::Stored,
            Err(error) => {
                assert_eq!(error.class, Class::Poison, "{error}");
                Outcome::Refused(Refusal { fault: Fault::Rows, code: error.code, text: error.message })
            }
        }
    }
}

/// Bisects a block of a table that refuses some names; gives what is refused, and how many inserts it took.
async fn bisected(database: &Database, columns: &TableColumns, message: &[u8]) -> (Vec<RefusedRow>, u32) {
    let targets = database.sink(Layout::Json).targets(columns).unwrap();
    let frames = frames(columns, message);
    let shape = RowShape::of(columns);
    let rows = block_rows::count(&shape, &frames, Header::None).unwrap();
    let mut sent = Sent { targets: &targets, client: InsertClient::new(), frames, shape, tries: 0 };
    let id = PartitionId { topic: database.name.as_str().into(), partition: 0 };
    let token = Token::of("cluster", &id, OffsetRange { first: 0, next: 1 }, Content::default());
    let whole = Window { rows: 0..rows, token: token.to_string() };
    let Outcome::Refused(refusal) = sent.send(&whole).await else { panic!("the block was taken") };
    let mut bisection = Bisection::new(token, rows, refusal);
    loop {
        match bisection.step() {
            Step::Send(window) => {
                let outcome = sent.send(&window).await;
                bisection.take(outcome);
            }
            Step::Note(_) => bisection.noted(),
            Step::Done(refused) => return (refused, sent.tries),
            Step::Halt(excess) => panic!("{excess}"),
        }
    }
}

/// How a table refuses rows, and with which code.
const REFUSALS: [(&str, &str, u32); 2] = [
    ("constraint", "ADD CONSTRAINT c CHECK NOT startsWith(SpanName, 'bad')", 469),
    // A column of a type into which not every row's value can be converted.
    ("column", "ADD COLUMN Number Int64 DEFAULT toInt64(concat('0', replaceOne(SpanName, 'good ', '')))", 6),
];

async fn refused_rows_are_found(layout: Layout, (name, change, code): (&str, &str, u32)) {
    let database = Database::new(&format!("poison_{name}_{layout:?}").to_lowercase()).await;
    database.sink(layout).apply(SchemaManagement::CreateIfMissing).await.unwrap();
    database.execute(&format!("ALTER TABLE {}.otel_traces {change}", database.name)).await;
    let columns = database.sink(layout).check_table().await.unwrap().columns;
    let message = message(spans());
    let (refused, tries) = bisected(&database, &columns, &message).await;
    let rows: Vec<u64> = refused.iter().map(|refused| refused.row).collect();
    assert_eq!(rows, BAD.map(|row| row as u64));
    assert!(refused.iter().all(|row| row.refusal.code == Some(code)), "{refused:?}");
    assert!(tries < 90, "{tries} inserts");
    // The message has one span more, with a name of its own.
    let stored = SPANS + 1 - BAD.len();
    assert_eq!(database.ask("toString(count())").await, stored.to_string());
    assert_eq!(database.ask("toString(uniqExact(SpanName))").await, stored.to_string());
    for row in rows {
        let alone = sluice_otlp::extract(&message, row).unwrap().unwrap();
        let alone = TracesData::decode(&alone[..]).unwrap();
        let resource_spans = &alone.resource_spans[0];
        assert_eq!(resource_spans.scope_spans[0].spans[0].name, "bad");
        assert!(resource_spans.resource.is_some());
    }
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_rows_are_found_and_all_others_stored_once() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        refused_rows_are_found(layout, REFUSALS[0]).await;
    }
    refused_rows_are_found(Layout::Json, REFUSALS[1]).await;
}
