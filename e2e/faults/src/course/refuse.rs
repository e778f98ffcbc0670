//! The server refuses inserts, or seems to: a front replaces its answer, before the server gets the rows or after it has stored them.
//!
//! The gateway must send the rows again. If a person must act, it must report who, while the fault lasts. It must send much less often to
//! an overloaded server.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::gate::Rule;
use crate::scene::{Expected, Scene};
use crate::sink_front::{Answer, Leg, Passage, Verdict};

/// How many inserts in a row get this answer: enough that some are tried more than once, within a small part of a second for each.
const TIMES: u32 = 6;

/// What scenarios wait for.
const REFUSED: &str = "refused inserts";

/// Spans before and during the measurement of how often an overloaded server gets requests: two seconds of load before, and five seconds
/// during. If each refused block retried alone, it would be tried a few times in that time.
const SPANS_BEFORE: u64 = 10_000;
const SPANS_REFUSED: u64 = 25_000;

/// Largest ratio of tries during the refusals to inserts before them. Measured on a busy machine: a quarter to a third, since the gateway
/// sends one block at a time and doubles its waits from half a second. If each block retried alone, the ratio would be several times 1.
const TRIES_OF_INSERTS_MAX: f64 = 0.5;

/// The answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `MEMORY_LIMIT_EXCEEDED`.
    Memory,
    /// `TOO_MANY_PARTS` of a partition.
    Parts,
    /// `TOO_MANY_PARTS` of the table.
    PartsInTotal,
    /// `TOO_MANY_PARTS` for too many partitions in one block.
    PartitionsInBlock,
    /// `TOO_MANY_SIMULTANEOUS_QUERIES`.
    Queries,
    /// `TABLE_IS_READ_ONLY`.
    ReadOnly,
    /// `UNKNOWN_STATUS_OF_INSERT`, after the rows were stored.
    UnknownStatus,
    /// `TIMEOUT_EXCEEDED`, before the rows were stored.
    Timeout,
    /// `TIMEOUT_EXCEEDED`, after the rows were stored.
    TimeoutStored,
    /// `KEEPER_EXCEPTION`, before the rows were stored.
    Keeper,
    /// `KEEPER_EXCEPTION`, after the rows were stored.
    KeeperStored,
    /// A proxy's 502, after the rows were stored.
    BadGateway,
    /// Connections are reset before the rows were stored.
    ResetHead,
    ResetMiddle,
    /// Connections are reset after the rows were stored.
    ResetStored,
    /// The server gets half of the body, and the gateway gets a proxy's 502.
    Truncated,
    /// A proxy answers 200 itself, and forwards nothing.
    OkFromProxy,
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
    /// All of them, with a scenario's name and words.
    pub const ALL: [(Refusal, &'static str, &'static str); 17] = [
        (
            Refusal::Memory,
            "refuse-241",
            "inserts are refused with 241, memory limit: the gateway sends less often",
        ),
        (Refusal::Parts, "refuse-252-parts", "six are refused with 252, too many parts in a partition"),
        (
            Refusal::PartsInTotal,
            "refuse-252-total",
            "with 252, too many parts in total, until the gateway reports that blocks wait for the server",
        ),
        (Refusal::PartitionsInBlock, "refuse-252-block", "with 252, too many partitions in one block"),
        (Refusal::Queries, "refuse-202", "with 202, too many queries: the gateway sends less often"),
        (Refusal::ReadOnly, "refuse-242", "with 242, a table that is read-only"),
        (Refusal::UnknownStatus, "refuse-319-stored", "with 319, unknown status; the rows are stored"),
        (Refusal::Timeout, "refuse-159", "with 159, timeout; the rows are not stored"),
        (Refusal::TimeoutStored, "refuse-159-stored", "with 159, timeout; the rows are stored"),
        (Refusal::Keeper, "refuse-999", "with 999, Keeper; the rows are not stored"),
        (Refusal::KeeperStored, "refuse-999-stored", "with 999, Keeper; the rows are stored"),
        (Refusal::BadGateway, "bad-gateway-after-commit", "a proxy answers 502; the rows are stored"),
        (Refusal::ResetHead, "reset-before-send", "connections are reset before the first byte arrives"),
        (Refusal::ResetMiddle, "reset-in-the-middle", "connections are reset when the server has half"),
        (Refusal::ResetStored, "reset-after-commit", "connections are reset when the rows are stored"),
        (Refusal::Truncated, "truncated", "the server gets half of the body, and a proxy answers 502"),
        (
            Refusal::OkFromProxy,
            "ok-from-a-proxy",
            "a proxy answers 200 without forwarding, until the gateway reports that blocks wait for the network",
        ),
    ];

    fn duty(self) -> Duty {
        match self {
            Refusal::PartsInTotal => Duty::Name("server"),
            Refusal::OkFromProxy => Duty::Name("network"),
            Refusal::Memory | Refusal::Queries => Duty::Slow,
            _ => Duty::None,
        }
    }

    /// The step at which the answer is given, and the answer.
    fn verdict(self) -> (Leg, Verdict) {
        let (leg, answer) = match self {
            Refusal::ResetHead => return (Leg::Head, Verdict::Reset),
            Refusal::ResetMiddle => return (Leg::Middle, Verdict::Reset),
            Refusal::ResetStored => return (Leg::Answered, Verdict::Reset),
            Refusal::Truncated => (Leg::Middle, bad_gateway()),
            Refusal::BadGateway => (Leg::Answered, bad_gateway()),
            Refusal::OkFromProxy => (Leg::Head, Answer { status: 200, code: None, text: String::new() }),
            Refusal::UnknownStatus | Refusal::TimeoutStored | Refusal::KeeperStored => {
                (Leg::Answered, self.exception())
            }
            _ => (Leg::Head, self.exception()),
        };
        (leg, Verdict::Answer(answer))
    }

    /// The server's exception. Texts: ClickHouse's sources, unchanged for years.
    fn exception(self) -> Answer {
        let parts = |message: &str| Answer::exception(500, 252, "TOO_MANY_PARTS", message);
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
            Refusal::Queries => Answer::exception(
                500,
                202,
                "TOO_MANY_SIMULTANEOUS_QUERIES",
                "Too many simultaneous queries. Maximum: 100.",
            ),
            Refusal::ReadOnly => {
                Answer::exception(500, 242, "TABLE_IS_READ_ONLY", "Table is in readonly mode.")
            }
            Refusal::UnknownStatus => Answer::exception(
                500,
                319,
                "UNKNOWN_STATUS_OF_INSERT",
                "Unknown status, client must retry. Reason: quorum timeout.",
            ),
            Refusal::Timeout | Refusal::TimeoutStored => {
                Answer::exception(408, 159, "TIMEOUT_EXCEEDED", "Timeout exceeded: elapsed 9.1 seconds.")
            }
            Refusal::Keeper | Refusal::KeeperStored => {
                Answer::exception(500, 999, "KEEPER_EXCEPTION", "Coordination error: Connection loss.")
            }
            _ => Answer::exception(500, 241, "MEMORY_LIMIT_EXCEEDED", "Memory limit (total) exceeded."),
        }
    }
}

fn bad_gateway() -> Answer {
    Answer { status: 502, code: None, text: "<html><h1>502 Bad Gateway</h1></html>".to_owned() }
}

/// Plays it.
///
/// # Errors
/// When too few inserts came to be refused, the gateway does not do its duty, or a process could not be handled.
pub async fn play(scene: &mut Scene<'_>, refusal: Refusal) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let (over, measures) = match refusal.duty() {
        Duty::None => refuse_some(scene, refusal).await?,
        Duty::Name(actor) => refuse_until_named(scene, refusal, actor).await?,
        Duty::Slow => refuse_for_a_while(scene, refusal).await?,
    };
    Ok(Expected { measures, ..scene.recover(over).await? })
}

/// From now on, `times` inserts are refused.
fn refuse<'a>(scene: &Scene<'a>, refusal: Refusal, times: u32) -> Rule<'a, Passage, Verdict> {
    let (leg, verdict) = refusal.verdict();
    scene.stage.servers.sink.gate().rule(times, verdict, move |passage| passage.leg == leg)
}

/// When the refusals ended, and the measurements.
pub(super) type Refused = (Instant, Vec<(&'static str, f64)>);

/// Some inserts are refused.
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
    let blocks = scene.wait_labelled(0, &waiting, |blocks| blocks > 0.0).await?;
    scene.wait_logged(&format!("actor=\"{actor}\"")).await?;
    let inserts = told.borrow().inserts;
    let tries = rule.applied();
    scene.wait_applied(REFUSED, &rule, tries + 1).await?;
    ensure!(told.borrow().inserts == inserts, "inserts went in though all are refused");
    drop(rule);
    let over = Instant::now();
    scene.wait_labelled(0, &waiting, |blocks| blocks == 0.0).await?;
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
