//! One whole run of the gateway's program: from Kafka's messages to answered INSERTs, commit and exit.
//!
//! ```text
//!  this program                          valgrind sluice-gateway run
//!  librdkafka's mock cluster      <----  fetches, joins, commits, through the front
//!  sink                           <----  INSERTs
//!    `-- every row is in: SIGTERM ---->  commits, leaves the group, exits
//! ```
//!
//! All instructions of the process count: start and exit, librdkafka's threads, the poll thread, the worker, inserts. Each run does the
//! same work: there is one worker, and every block closes by its number of messages, never by its age. Messages are not compressed,
//! because C compilers make different code of the decompressor. One function is not counted: librdkafka writes its statistics every 5 s,
//! with 3.7 million instructions each time, so a slow machine would count more.

use crate::broker_front;
use crate::callgrind::Callgrind;
use crate::load::Load;
use crate::shape::Shape;
use crate::sink;
use crate::stage_run::ratio;
use anyhow::{Context as _, Result, bail, ensure};
use crossbeam_channel::{Receiver, bounded};
use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_gateway_config::CONTRACT_VERSION;
use std::{
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::ExitStatus,
    time::Duration,
};

/// Partitions of the topic.
const PARTITIONS: usize = 8;

/// Messages in each, which are one block. The mock keeps 5 MiB of a partition: ten messages of 468 KB.
const MESSAGES: usize = 10;

/// Longest time for producing to the mock, and for the gateway's run. Chosen.
const PATIENCE: Duration = Duration::from_mins(10);

/// The gateway's memory. Chosen: little above the 134 MiB that it needs. Some runs free the pool's buffers at exit and others exit first;
/// with 512 MiB that is 1.3 % of all instructions (26 November 2026).
const MEMORY_LIMIT: &str = "160MiB";

/// Counts from the start, and stops counting inside of librdkafka's timer for statistics. In this order: the function alone would turn
/// counting off at the start.
const OPTIONS: [&str; 2] = ["--toggle-collect=rd_kafka_stats_emit_tmr_cb", "--collect-atstart=yes"];

/// Topic and group.
const NAME: &str = "spans";

/// What the run waits for.
enum Event {
    /// Every row is in.
    AllIn,
    /// The process has ended.
    Ended(io::Result<ExitStatus>),
}

/// Instructions of a whole run, per span.
pub fn count(callgrind: &Callgrind, folder: &Path) -> Result<f64> {
    let shape = Shape::Rich.of_generator();
    let load = Load::new(shape, shape.message_spans() * (PARTITIONS * MESSAGES) as u64, false);
    let mock = filled(&load.messages)?;
    let (events_out, events) = bounded(2);
    let all_in = events_out.clone();
    let sink = sink::start(load.rows.len() as u64, move || {
        all_in.try_send(Event::AllIn).ok();
    })?;
    let config = folder.join("gateway.yaml");
    let broker = broker_front::start(mock.bootstrap_servers().parse().context("read the mock's address")?)?;
    let text = config_of(broker, sink)?;
    fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let log = folder.join("gateway.log");
    let mut command = callgrind.command(&OPTIONS, Path::new(env!("CARGO_BIN_EXE_sluice-gateway")))?;
    command.args(["run", "--config"]).arg(&config);
    command.stderr(File::create(&log).with_context(|| format!("make {}", log.display()))?);
    let mut child = command.spawn().context("start valgrind")?;
    let process = Pid::from_child(&child);
    std::thread::spawn(move || events_out.try_send(Event::Ended(child.wait())).ok());
    let outcome = stop_when_delivered(process, &events);
    let status =
        outcome.with_context(|| format!("the gateway under valgrind, which logs to {}", log.display()))?;
    ensure!(status.success(), "the gateway under valgrind: {status}; see {}", log.display());
    match callgrind.counts()?[..] {
        [count] => Ok(ratio(count, load.spans)),
        _ => bail!("callgrind wrote more than one count of the gateway"),
    }
}

/// A cluster with all messages, one block in each partition.
fn filled(messages: &[Vec<u8>]) -> Result<MockCluster<'static, DefaultProducerContext>> {
    let mock = MockCluster::new(1).context("start the mock of Kafka")?;
    let partitions = i32::try_from(PARTITIONS)?;
    mock.create_topic(NAME, partitions, 1).context("make the topic")?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", mock.bootstrap_servers());
    // One message a batch: fetches then return the same messages in each run.
    config.set("batch.num.messages", "1").set("max.in.flight", "1");
    let producer: BaseProducer = config.create().context("start a producer")?;
    for (partition, messages) in (0..partitions).zip(messages.chunks(MESSAGES)) {
        for message in messages {
            let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(NAME).partition(partition).payload(message);
            producer.send(record).map_err(|(error, _)| error).context("produce a message")?;
        }
    }
    producer.flush(PATIENCE).context("produce all messages")?;
    Ok(mock)
}

/// The gateway's config, as JSON, which is YAML too.
fn config_of(broker: SocketAddr, sink: SocketAddr) -> Result<String> {
    // If another program takes the port first, the run fails and names the port.
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("find a free port")?;
    let config = json!({
        "contractVersion": CONTRACT_VERSION,
        "pipeline": {"namespace": "bench", "name": "instructions"},
        "source": {"kafka": {
            "bootstrapServers": [broker],
            "topics": [NAME],
            "consumerGroup": NAME,
            "initialOffset": "Earliest",
            "partitionsActiveMax": PARTITIONS,
        }},
        "sink": {"clickhouse": {
            "endpoints": [format!("http://{sink}")],
            "database": "d",
            "table": "t",
            "insert": {"maxRows": MESSAGES, "maxInterval": "5m"},
        }},
        "queue": {"mode": "Disabled"},
        "workers": 1,
        "memory": {"limit": MEMORY_LIMIT},
        "admin": {"listen": free.to_string()},
        "log": {"level": "info", "format": "Text"},
    });
    Ok(config.to_string())
}

/// Stops the gateway when every row is in.
fn stop_when_delivered(process: Pid, events: &Receiver<Event>) -> Result<ExitStatus> {
    let event = match events.recv_timeout(PATIENCE) {
        Ok(Event::AllIn) => {
            kill_process(process, Signal::TERM).context("send SIGTERM")?;
            events.recv_timeout(PATIENCE)
        }
        early => early,
    };
    match event {
        Ok(Event::Ended(status)) => status.context("wait for the process"),
        Ok(Event::AllIn) => bail!("rows arrived twice"),
        Err(_) => {
            kill_process(process, Signal::KILL).context("send SIGKILL")?;
            bail!("it did not exit within {PATIENCE:?}")
        }
    }
}
