//! The server refuses inserts, or seems to: an answer is replaced, before the server has seen the rows or after it has stored them.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::faults::scene::{Expected, Scene};
use crate::faults::sink_front::{Answer, Leg, Verdict};

/// How many inserts in a row are answered like that: enough that some are tried more than once, and little of a second each.
const TIMES: u32 = 6;

/// What is answered, and where.
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
    /// `TIMEOUT_EXCEEDED`, before.
    Timeout,
    /// `TIMEOUT_EXCEEDED`, after.
    TimeoutStored,
    /// `KEEPER_EXCEPTION`, before.
    Keeper,
    /// `KEEPER_EXCEPTION`, after.
    KeeperStored,
    /// A proxy's 502, after.
    BadGateway,
    /// Connections are reset, before.
    ResetHead,
    /// In the middle.
    ResetMiddle,
    /// After.
    ResetStored,
    /// The server gets half of the body, and the gateway a proxy's 502.
    Truncated,
}

impl Refusal {
    /// All of them, with a scenario's name and words.
    pub const ALL: [(Refusal, &'static str, &'static str); 16] = [
        (Refusal::Memory, "refuse-241", "six inserts are refused with 241, memory limit"),
        (Refusal::Parts, "refuse-252-parts", "with 252, too many parts in a partition"),
        (Refusal::PartsInTotal, "refuse-252-total", "with 252, too many parts in total"),
        (Refusal::PartitionsInBlock, "refuse-252-block", "with 252, too many partitions in one block"),
        (Refusal::Queries, "refuse-202", "with 202, too many queries"),
        (Refusal::ReadOnly, "refuse-242", "with 242, a table that is read-only"),
        (Refusal::UnknownStatus, "refuse-319-stored", "with 319, unknown status; the rows are stored"),
        (Refusal::Timeout, "refuse-159", "with 159, timeout; the rows are not stored"),
        (Refusal::TimeoutStored, "refuse-159-stored", "with 159, timeout; the rows are stored"),
        (Refusal::Keeper, "refuse-999", "with 999, Keeper; the rows are not stored"),
        (Refusal::KeeperStored, "refuse-999-stored", "with 999, Keeper; the rows are stored"),
        (Refusal::BadGateway, "bad-gateway-after-commit", "a proxy says 502; the rows are stored"),
        (Refusal::ResetHead, "reset-before-send", "connections are reset before the first byte arrives"),
        (Refusal::ResetMiddle, "reset-in-the-middle", "connections are reset when the server has half"),
        (Refusal::ResetStored, "reset-after-commit", "connections are reset when the rows are stored"),
        (Refusal::Truncated, "truncated", "the server gets half of the body, and a proxy says 502"),
    ];

    /// Where it is said, and what.
    fn verdict(self) -> (Leg, Verdict) {
        let (leg, answer) = match self {
            Refusal::ResetHead => return (Leg::Head, Verdict::Reset),
            Refusal::ResetMiddle => return (Leg::Middle, Verdict::Reset),
            Refusal::ResetStored => return (Leg::Answered, Verdict::Reset),
            Refusal::Truncated => (Leg::Middle, bad_gateway()),
            Refusal::BadGateway => (Leg::Answered, bad_gateway()),
            Refusal::UnknownStatus | Refusal::TimeoutStored | Refusal::KeeperStored => {
                (Leg::Answered, self.exception())
            }
            _ => (Leg::Head, self.exception()),
        };
        (leg, Verdict::Answer(answer))
    }

    /// As the server says it. Texts: ClickHouse's sources, unchanged for years.
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
/// When too few inserts came to be refused, or a process could not be handled.
pub async fn play(scene: &mut Scene<'_>, refusal: Refusal) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let servers = &scene.stage.servers;
    let (leg, verdict) = refusal.verdict();
    let rule = servers.sink.gate().rule(TIMES, verdict, move |passage| passage.leg == leg);
    scene
        .wait("refused inserts", crate::faults::scene::PATIENCE, async |_| {
            let applied = rule.applied();
            Ok(if applied >= TIMES {
                crate::cluster::Seen::Done(())
            } else {
                crate::cluster::Seen::NotYet(format!("{applied} of {TIMES}"))
            })
        })
        .await?;
    let over = Instant::now();
    ensure!(rule.applied() == TIMES, "{} inserts were refused instead of {TIMES}", rule.applied());
    let recovery = scene.recovered(over).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
