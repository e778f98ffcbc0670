//! The server refuses inserts, or seems to: a front replaces its answer, before the server gets the rows or after it has stored them.
//!
//! The gateway must send the rows again. If a person must act, it must report who, while the fault lasts. It must send much less often to
//! an overloaded server.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::Family;
use crate::gate::Rule;
use crate::scene::{Expected, Scene};
use crate::sink_front::{Answer, Leg, Passage, Verdict};

/// How many inserts in a row get this answer: enough that some are tried more than once, within a small part of a second for each.
const TIMES: u32 = 6;

const REFUSED: &str = "refused inserts";

/// Spans before and during the measurement of how often an overloaded server gets requests: two seconds of load before, and five seconds
/// during. If each refused block retried alone, it would be tried a few times in that time.
const SPANS_BEFORE: u64 = 10_000;
const SPANS_REFUSED: u64 = 25_000;

/// Largest ratio of tries during the refusals to inserts before them. Measured on a busy machine: a quarter to a third, since the gateway
/// sends one block at a time and doubles its waits from half a second. If each block retried alone, the ratio would be several times 1.
const TRIES_OF_INSERTS_MAX: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Refusal {
    /// inserts are refused with 241, memory limit: the gateway sends less often
    #[value(name = "refuse-241")]
    Memory,
    /// six are refused with 252, too many parts in a partition
    #[value(name = "refuse-252-parts")]
    Parts,
    /// with 252, too many parts in total, until the gateway reports that blocks wait for the server
    #[value(name = "refuse-252-total")]
    PartsInTotal,
    /// with 252, too many partitions in one block
    #[value(name = "refuse-252-block")]
    PartitionsInBlock,
    /// with 202, too many queries: the gateway sends less often
    #[value(name = "refuse-202")]
    Queries,
    /// with 242, a table that is read-only
    #[value(name = "refuse-242")]
    ReadOnly,
    /// with 319, unknown status; the rows are stored
    #[value(name = "refuse-319-stored")]
    UnknownStatus,
    /// with 159, timeout; the rows are not stored
    #[value(name = "refuse-159")]
    Timeout,
    /// with 159, timeout; the rows are stored
    #[value(name = "refuse-159-stored")]
    TimeoutStored,
    /// with 999, Keeper; the rows are not stored
    #[value(name = "refuse-999")]
    Keeper,
    /// with 999, Keeper; the rows are stored
    #[value(name = "refuse-999-stored")]
    KeeperStored,
    /// a proxy answers 502; the rows are stored
    BadGatewayAfterCommit,
    /// connections are reset before the first byte arrives
    ResetBeforeSend,
    /// connections are reset when the server has half
    ResetInTheMiddle,
    /// connections are reset when the rows are stored
    ResetAfterCommit,
    /// the server gets half of the body, and a proxy answers 502
    Truncated,
    /// a proxy answers 200 without forwarding, until the gateway reports that blocks wait for the network
    OkFromAProxy,
}

/// What a gateway must do while the fault lasts, beside sending again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Nothing: the fault ends after [`TIMES`].
    None,
    /// Count blocks as waiting for this actor.
    Name(&'static str),
    /// Send less often to the server.
    Slow,
}

impl Refusal {
    fn duty(self) -> Duty {
        match self {
            Refusal::PartsInTotal => Duty::Name("server"),
            Refusal::OkFromAProxy => Duty::Name("network"),
            Refusal::Memory | Refusal::Queries => Duty::Slow,
            _ => Duty::None,
        }
    }

    /// The step at which the answer is given, and the answer.
    fn verdict(self) -> (Leg, Verdict) {
        let (leg, answer) = match self {
            Refusal::ResetBeforeSend => return (Leg::Head, Verdict::Reset),
            Refusal::ResetInTheMiddle => return (Leg::Middle, Verdict::Reset),
            Refusal::ResetAfterCommit => return (Leg::Answered, Verdict::Reset),
            Refusal::Truncated => (Leg::Middle, bad_gateway()),
            Refusal::BadGatewayAfterCommit => (Leg::Answered, bad_gateway()),
            Refusal::OkFromAProxy => (Leg::Head, Answer { status: 200, code: None, text: String::new() }),
            Refusal::UnknownStatus | Refusal::TimeoutStored | Refusal::KeeperStored => {
                (Leg::Answered, self.exception())
            }
            _ => (Leg::Head, self.exception()),
        };
        (leg, Verdict::Answer(answer))
    }

    /// The server's exception. Texts: ClickHouse's sources, unchanged for years.
    fn exception(self) -> Answer {
        let of = |code, name: &str, message: &str| Answer::exception(500, code, name, message);
        let parts = |message: &str| of(252, "TOO_MANY_PARTS", message);
        match self {
            Refusal::Parts => parts(
                "Too many parts (3001 with average size of 1.00 MiB) in table 'a.b' in partition '20261121'. \
                 Merges are processing significantly slower than inserts.",
            ),
            Refusal::PartsInTotal => {
                parts("Too many parts (100001) in all partitions in total in table 'a.b'.")
            }
            Refusal::PartitionsInBlock => {
                parts("Too many partitions for single INSERT block (more than 100).")
            }
            Refusal::Queries => {
                of(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries. Maximum: 100.")
            }
            Refusal::ReadOnly => of(242, "TABLE_IS_READ_ONLY", "Table is in readonly mode."),
            Refusal::UnknownStatus => of(
                319,
                "UNKNOWN_STATUS_OF_INSERT",
                "Unknown status, client must retry. Reason: quorum timeout.",
            ),
            Refusal::Timeout | Refusal::TimeoutStored => {
                Answer::exception(408, 159, "TIMEOUT_EXCEEDED", "Timeout exceeded: elapsed 9.1 seconds.")
            }
            Refusal::Keeper | Refusal::KeeperStored => {
                of(999, "KEEPER_EXCEPTION", "Coordination error: Connection loss.")
            }
            _ => of(241, "MEMORY_LIMIT_EXCEEDED", "Memory limit (total) exceeded."),
        }
    }
}

fn bad_gateway() -> Answer {
    Answer { status: 502, code: None, text: "<html><h1>502 Bad Gateway</h1></html>".to_owned() }
}

impl Family for Refusal {
    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_under_load(Some("gateway-0")).await?;
        let (over, measures) = match self.duty() {
            Duty::None => refuse_some(scene, self).await?,
            Duty::Name(actor) => refuse_until_named(scene, self, actor).await?,
            Duty::Slow => refuse_for_a_while(scene, self).await?,
        };
        Ok(Expected { measures, ..scene.recover(over).await? })
    }
}

/// From now on, `times` inserts are refused.
fn refuse<'a>(scene: &Scene<'a>, refusal: Refusal, times: u32) -> Rule<'a, Passage, Verdict> {
    let (leg, verdict) = refusal.verdict();
    scene.stage.servers.sink.gate().rule(times, verdict, move |passage| passage.leg == leg)
}

/// When the refusals ended, and the measurements.
pub(super) type Refused = (Instant, Vec<(&'static str, f64)>);

pub(super) async fn refuse_some(scene: &mut Scene<'_>, refusal: Refusal) -> Result<Refused> {
    let rule = refuse(scene, refusal, TIMES);
    scene.wait_applied(REFUSED, &rule, TIMES).await?;
    ensure!(rule.applied() == TIMES, "{} inserts were refused instead of {TIMES}", rule.applied());
    Ok((Instant::now(), Vec::new()))
}

/// Waits until the gateway reports who must act, and then ends the fault.
async fn refuse_until_named(scene: &mut Scene<'_>, refusal: Refusal, actor: &str) -> Result<Refused> {
    let waiting = format!("sluice_gateway_blocks_waiting_for_action{{actor=\"{actor}\"}}");
    let told = scene.stage.servers.sink.stored();
    let rule = refuse(scene, refusal, u32::MAX);
    scene.wait_applied(REFUSED, &rule, TIMES).await?;
    let blocks = scene.wait_metric(0, &waiting, |blocks| blocks > 0.0).await?;
    scene.wait_logged(&format!("actor=\"{actor}\"")).await?;
    let inserts = told.borrow().inserts;
    let tries = rule.applied();
    scene.wait_applied(REFUSED, &rule, tries + 1).await?;
    ensure!(told.borrow().inserts == inserts, "inserts went in though all are refused");
    drop(rule);
    let over = Instant::now();
    scene.wait_metric(0, &waiting, |blocks| blocks == 0.0).await?;
    Ok((over, vec![("blocks that wait for someone", blocks)]))
}

/// Refuses inserts for long enough to see that the gateway sends less often.
async fn refuse_for_a_while(scene: &mut Scene<'_>, refusal: Refusal) -> Result<Refused> {
    let told = scene.stage.servers.sink.stored();
    let (since, before) = (Instant::now(), told.borrow().inserts);
    scene.wait_acked(SPANS_BEFORE).await?;
    let inserts = f64::from(u32::try_from(told.borrow().inserts - before)?) / since.elapsed().as_secs_f64();
    let rule = refuse(scene, refusal, u32::MAX);
    scene.wait_applied(REFUSED, &rule, 1).await?;
    let (since, before) = (Instant::now(), rule.applied());
    scene.wait_acked(SPANS_REFUSED).await?;
    let tries = f64::from(rule.applied() - before) / since.elapsed().as_secs_f64();
    ensure!(rule.applied() > before, "the server is asked no more: nothing would go on by itself");
    ensure!(
        tries <= inserts * TRIES_OF_INSERTS_MAX,
        "it was asked {tries:.1} times a second while it refused, and told rows {inserts:.1} times a second before"
    );
    drop(rule);
    Ok((Instant::now(), vec![("inserts/s before", inserts), ("tries/s while refused", tries)]))
}
