//! One case from its start to its end.
//!
//! ```text
//! gateway accepts -> clients send for their time -> their last requests are accepted -> ClickHouse is fast -> drained -> SIGTERM -> rows counted
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::case::Case;
use super::clients::Clients;
use super::config::{LIMIT_MIB, config};
use super::otlp_request::OtlpRequests;
use super::report::{Outcome, Seen};
use super::tally::Tally;
use crate::memory::{Behaviour, Front, Gateway};
use crate::throughput::{Engine, Sink};
use crate::waiting::{LOOK, STALL, until_none_is_left};
use e2e_fixtures::gateway;
use e2e_fixtures::oracle::Count;
use e2e_fixtures::spans::Run;
use e2e_stack::clickhouse::HOST_URL;
use e2e_stack::paths::{create_folder, remove_folder};
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// How long ClickHouse takes to answer an INSERT, as in the published benchmark.
const INSERT_TAKES: Duration = Duration::from_secs(3);

/// How long the gateway may take until it accepts requests.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// The program of the runs, and their duration.
pub struct Course {
    pub program: PathBuf,
    /// A folder for configs, logs and volumes.
    pub folder: PathBuf,
    pub clients: u32,
    /// How long the clients begin requests.
    pub time: Duration,
}

/// A gateway and the ClickHouse that it writes to.
struct Scene<'a> {
    case: &'a Case,
    run: Run,
    gateway: Gateway,
    front: Front,
    sink: &'a Sink,
}

impl Course {
    /// Runs a case, in its own database, which is removed. If the gateway ends, that is an outcome and no error.
    pub async fn run(&self, case: &Case) -> Result<Outcome> {
        let name = case.name();
        let (run, folder) = (Run::fresh(), self.folder.join(&name));
        let queue = create_folder(folder.join("queue"))?;
        let front = Front::start(HOST_URL.to_owned())?;
        let database = format!("sluice_load_{:x}", run.id);
        let file = folder.join("gateway.yaml");
        gateway::write_config(&config(case, &front.url(), &database, &queue), &file)?;
        let statements = gateway::table_statements(&self.program, &file)?;
        let sink = Sink::create(&database, &statements, Engine::MergeTree).await?;
        say::progress(&name, &case.describe());
        front.behave(if case.setting.is_away { Behaviour::Refused } else { Behaviour::Slow(INSERT_TAKES) });
        let outcome = match Gateway::start(&self.program, &file, LIMIT_MIB, &folder) {
            Ok(gateway) => self.drive(Scene { case, run, gateway, front, sink: &sink }).await,
            Err(error) => Err(error),
        };
        sink.delete().await;
        // It has gigabytes if ClickHouse was away.
        remove_folder(&queue)?;
        outcome
    }

    async fn drive(&self, mut scene: Scene<'_>) -> Result<Outcome> {
        let address = scene.until_it_accepts().await?;
        let requests = OtlpRequests::new(scene.case.weight, scene.run);
        let clients = Clients::start(requests, &address, (self.clients, self.time))?;
        let (tally, ended) = scene.until_clients_end(clients).await?;
        scene.front.behave(Behaviour::Normal);
        let drained = match ended {
            None => scene.until_drained().await,
            Some(error) => Err(error),
        };
        interrupt::check()?;
        let Scene { case, run, gateway, sink, .. } = scene;
        let usage = gateway.end().await?;
        let counted = match drained {
            Ok(()) => counted(sink, run, &tally).await,
            Err(error) => Err(error),
        };
        let counted = counted.map_err(|error| format!("{error:#}"));
        Ok(Outcome::new(case, &Seen { time: self.time, tally, usage, counted }))
    }
}

impl Scene<'_> {
    /// Waits until it accepts OTLP; returns the address.
    async fn until_it_accepts(&mut self) -> Result<String> {
        let began = Instant::now();
        loop {
            interrupt::check()?;
            self.gateway.check()?;
            if let Some(address) = self.gateway.otlp_http() {
                return Ok(address);
            }
            ensure!(began.elapsed() < START_PATIENCE, "it accepts no requests after {START_PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for the clients. Returns the outcomes of the requests, and the gateway's error if it ended. When the clients' time is over,
    /// ClickHouse is reachable again.
    async fn until_clients_end(&mut self, mut clients: Clients) -> Result<(Tally, Option<anyhow::Error>)> {
        let (mut is_away, mut ended) = (self.case.setting.is_away, None);
        while !clients.end_within(LOOK).await? {
            interrupt::check()?;
            if is_away && clients.time_is_over() {
                say::progress(&self.case.name(), "ClickHouse is back");
                self.front.behave(Behaviour::Normal);
                is_away = false;
            }
            if ended.is_none()
                && let Err(error) = self.gateway.check()
            {
                clients.give_up();
                ended = Some(error);
            }
        }
        Ok((clients.tally(), ended))
    }

    /// Waits until it has inserted everything that it accepted.
    async fn until_drained(&mut self) -> Result<()> {
        self.gateway.drain().await.context("the gateway did not answer POST /drain")?;
        say::progress(&self.case.name(), "the clients have ended, and the gateway is drained");
        let mut last = u64::MAX;
        let left = async || {
            self.gateway.check()?;
            // Without an answer, nothing is known to have moved.
            if let Some(left) = self.gateway.remaining().await {
                last = left.uncommitted.max(left.blocks);
            }
            anyhow::Ok(last)
        };
        let stalled = |left: u64| format!("{left} requests are not inserted, and none was for {STALL:?}");
        until_none_is_left(STALL, left, stalled).await
    }
}

async fn counted(sink: &Sink, run: Run, tally: &Tally) -> Result<Count> {
    sink.oracle(run).count(&tally.sent()).await.context("count the rows")
}
