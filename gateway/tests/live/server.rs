//! A database for a single test, and the gateway's real connection to it.

use crate::native;
use bytes::Bytes;
use clickhouse::Client;
use sluice_clickhouse::{
    body::InsertBody,
    client::InsertClient,
    column::TableColumns,
    expiry::ExpiryRule,
    insert::{InsertError, InsertId},
    row_frames::RowFrames,
};
use sluice_gateway::{
    blocks::{
        block::{OpenBlock, Place},
        buffers::Pool,
    },
    ground::{account::RowAccount, metrics::Metrics},
    reading::{
        encode::{Encoded, Payload, encode},
        reader::Reader,
    },
    rows::{
        carry::{Carry, Carrying},
        origin::Origin,
        span_row::Scratch,
    },
    table::sink::Sink,
};
use sluice_gateway_config::{Attributes, ClickHouse, Insert, Layout, Schema, SchemaManagement, parse};
use sluice_ranges::{Closed, Content, Cut, Fill, Generation, OffsetRange, PartitionId};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the end of a query may take to be noted: the server writes its log once a second.
const LOGGED: Duration = Duration::from_secs(30);

/// A database that is dropped at the end.
pub struct Database {
    pub name: String,
    url: String,
    client: Client,
}

impl Database {
    pub async fn new(test: &str) -> Self {
        Self::named(format!("sluice_live_{test}_{}", std::process::id())).await
    }

    /// The one of this name, which the server's users are defined with. Only one test run at a time can have it.
    pub async fn named(name: String) -> Self {
        let url = std::env::var("SLUICE_CLICKHOUSE").unwrap_or_else(|_| "http://127.0.0.1:8123".to_owned());
        let client = Client::default().with_url(&url).with_user("default");
        let database = Self { name, url, client };
        database.execute(&format!("CREATE DATABASE {}", database.name)).await;
        database
    }

    pub async fn drop(self) {
        self.execute(&format!("DROP DATABASE {}", self.name)).await;
    }

    pub async fn execute(&self, statement: &str) {
        self.client.query_raw(statement).execute().await.unwrap();
    }

    /// Runs a statement as this user.
    pub async fn execute_as(
        &self,
        (user, password): (&str, &str),
        statement: &str,
    ) -> clickhouse::error::Result<()> {
        let client = Client::default().with_url(&self.url).with_user(user).with_password(password);
        client.query_raw(statement).execute().await
    }

    /// Runs a statement under this `query_id`, which must fail.
    pub async fn fails(&self, statement: &str, query_id: &str) -> String {
        let run = self.client.query_raw(statement).with_setting("query_id", query_id);
        run.execute().await.unwrap_err().to_string()
    }

    /// The one text that a question about the table has for an answer.
    pub async fn ask(&self, what: &str) -> String {
        let question = format!("SELECT ifNull({what}, 'NULL') FROM {}.otel_traces", self.name);
        self.client.query_raw(&question).fetch_one::<String>().await.unwrap()
    }

    /// The sink with the table that it makes itself.
    pub async fn with_table(&self) -> (Sink, TableColumns) {
        let sink = self.sink(Layout::Json);
        sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
        let columns = sink.check_table().await.unwrap().columns;
        (sink, columns)
    }

    /// Rows of the table.
    pub async fn count(&self) -> u64 {
        self.count_of("otel_traces").await
    }

    pub async fn count_of(&self, table: &str) -> u64 {
        let question = format!("SELECT count() FROM {}.{table}", self.name);
        self.client.query_raw(&question).fetch_one::<u64>().await.unwrap()
    }

    /// For how long the server has been up.
    pub async fn up_time(&self) -> Duration {
        let seconds = self.client.query_raw("SELECT toUInt64(uptime())").fetch_one::<u64>().await.unwrap();
        Duration::from_secs(seconds)
    }

    /// The server's host and port.
    pub fn authority(&self) -> &str {
        self.url.strip_prefix("http://").unwrap().trim_end_matches('/')
    }

    pub fn sink(&self, layout: Layout) -> Sink {
        self.sink_at(layout, &self.url)
    }

    pub fn sink_at(&self, layout: Layout, url: &str) -> Sink {
        let schema = Schema { layout: Some(layout), ..Schema::default() };
        Sink::new(&ClickHouse { endpoints: vec![url.to_owned()], ..self.config(schema) }).unwrap()
    }

    /// The config of a sink whose table is asked for so.
    pub fn config(&self, schema: Schema) -> ClickHouse {
        ClickHouse {
            endpoints: vec![self.url.clone()],
            shards: Vec::new(),
            database: self.name.clone(),
            table: "otel_traces".to_owned(),
            credentials: None,
            tls: None,
            schema,
            insert: Insert::default(),
        }
    }

    /// The one text that a question has for an answer.
    pub async fn answer(&self, question: &str) -> String {
        self.client.query_raw(question).fetch_one::<String>().await.unwrap()
    }

    /// The lines of an answer, sorted, with `|` between values. Times are in UTC.
    pub async fn lines(&self, question: &str) -> Result<Vec<String>, String> {
        let question = self.client.query_raw(question).with_setting("session_timezone", "UTC");
        let mut answer = question.fetch_bytes("TSV").map_err(|error| error.to_string())?;
        let bytes = answer.collect().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())?;
        let mut lines: Vec<_> = text.lines().map(|line| line.replace('\t', "|")).collect();
        lines.sort_unstable();
        Ok(lines)
    }

    /// The rows of an answer, as JSON: integers are numbers, and numbers that JSON does not have are texts.
    pub async fn rows(&self, question: &str) -> Vec<serde_json::Value> {
        let question = self
            .client
            .query_raw(question)
            .with_setting("output_format_json_quote_64bit_integers", "0")
            .with_setting("output_format_json_quote_denormals", "1");
        let bytes = question.fetch_bytes("JSONEachRow").unwrap().collect().await.unwrap();
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    /// The one text that a question to the log of queries has for an answer. The server answers a query before it notes its end there.
    pub async fn logged(&self, question: &str) -> String {
        let deadline = Instant::now() + LOGGED;
        loop {
            self.execute("SYSTEM FLUSH LOGS query_log").await;
            if let Some(text) = self.client.query_raw(question).fetch_optional::<String>().await.unwrap() {
                return text;
            }
            assert!(Instant::now() < deadline, "nothing in the log of queries after {LOGGED:?}: {question}");
        }
    }

    /// Finds out the table's columns, encodes a message for them, and inserts its rows.
    pub async fn insert(&self, message: &[u8]) -> TableColumns {
        let columns = self.sink(Layout::Json).check_table().await.unwrap().columns;
        self.insert_for(&columns, message).await.unwrap();
        columns
    }

    pub async fn insert_for(&self, columns: &TableColumns, message: &[u8]) -> Result<(), InsertError> {
        let targets = self.sink(Layout::Json).targets(columns).unwrap();
        let body = InsertBody::new(frames(columns, message));
        let query_id = format!("{}-{}", self.name, next_number());
        let id = InsertId { token: None, query_id: &query_id };
        InsertClient::new().insert(targets.at(0), &body, id).await?;
        native::stores_the_same(self, columns, message).await;
        Ok(())
    }

    /// Inserts the rows that a config leaves of a message.
    pub async fn insert_under(
        &self,
        columns: &TableColumns,
        attributes: &Attributes,
        message: &[u8],
    ) -> Result<(), InsertError> {
        let targets = self.sink(Layout::Json).targets(columns).unwrap();
        let carry = Carrying::of(attributes).map(Carry::new);
        let mut scratch = Scratch::new(columns.clone()).carrying(carry);
        let body = InsertBody::new(frames_with(&mut scratch, message, Origin::default()));
        let query_id = format!("{}-{}", self.name, next_number());
        let id = InsertId { token: None, query_id: &query_id };
        InsertClient::new().insert(targets.at(0), &body, id).await.map(|_| ())
    }

    /// A table like `otel_traces` with another name, and the way into it.
    pub async fn twin(&self, table: &str) -> Sink {
        self.execute(&format!("CREATE TABLE {0}.{table} AS {0}.otel_traces", self.name)).await;
        Sink::new(&ClickHouse { table: table.to_owned(), ..self.config(Schema::default()) }).unwrap()
    }

    /// All rows of a table, in the order in which they lie there, with the types of their `JSON` values.
    pub async fn bytes(&self, table: &str) -> Vec<u8> {
        let question = format!("SELECT * FROM {}.{table} SETTINGS max_threads = 1", self.name);
        let mut rows = self.client.query_raw(&question).fetch_bytes("RowBinary").unwrap();
        rows.collect().await.unwrap().to_vec()
    }
}

/// Sends frames under a token, at the sink's own server.
pub async fn send(
    (sink, columns): &(Sink, TableColumns),
    frames: &[Bytes],
    token: &str,
    query_id: &str,
) -> Result<(), InsertError> {
    send_body((sink, columns), &InsertBody::new(frames.to_vec()), token, query_id).await
}

/// Sends a body under a token, at the sink's own server.
pub async fn send_body(
    (sink, columns): (&Sink, &TableColumns),
    body: &InsertBody,
    token: &str,
    query_id: &str,
) -> Result<(), InsertError> {
    let targets = sink.targets(columns).unwrap();
    let id = InsertId { token: Some(token), query_id };
    InsertClient::new().insert(targets.at(0), body, id).await.map(|_| ())
}

/// The frames of one message's rows.
pub fn frames(columns: &TableColumns, message: &[u8]) -> Vec<Bytes> {
    frames_of(columns, message, Origin::default())
}

/// The frames of the rows of a message that comes from there.
pub fn frames_of(columns: &TableColumns, message: &[u8], origin: Origin<'_>) -> Vec<Bytes> {
    frames_with(&mut Scratch::new(columns.clone()), message, origin)
}

fn frames_with(scratch: &mut Scratch, message: &[u8], origin: Origin<'_>) -> Vec<Bytes> {
    let pool = Pool::new(64 << 20, 1, 1);
    let mut block = OpenBlock::new(RowFrames::new(), RowAccount::default().open(), Instant::now());
    let payload = Payload {
        bytes: message,
        timestamp_nanos: 1_600_000_000_000_000_000,
        now_nanos: u64::MAX,
        expiry: ExpiryRule::NEVER,
        origin,
    };
    let encoded = encode(&pool, &mut Reader::OtlpProto, scratch, &mut block, payload);
    assert!(matches!(encoded, Encoded::Whole { .. }), "{encoded:?}");
    let id = PartitionId { topic: "spans".into(), partition: 0 };
    let place = Place { id, generation: Generation(1), cluster: "cluster".into() };
    let closed = Closed {
        range: OffsetRange { first: 0, next: 1 },
        cut: Cut::Time,
        decided: 1,
        fill: Fill { messages: 1, bytes: message.len() as u64 },
        content: Content::of([Some(message)]),
        doubtful: false,
        doubtful_up_to: 0,
        incomplete: false,
        rule: sluice_ranges::Rule::of(&Insert::default()),
    };
    block.seal(&pool, &place, &closed).unwrap().frames
}

/// A number that no other insert of this process has.
pub fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The metrics of a gateway that does not run.
pub fn metrics() -> Arc<Metrics> {
    let config = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                  source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                  sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";
    let checked = parse::from_yaml(config).unwrap().check().unwrap();
    Arc::new(Metrics::new(checked.budget()))
}
