//! The gateways' own account of their rows after all rows are inserted: each row is accounted for, and nothing has happened that may lose
//! or double a row.
//!
//! Job: a second check beside the table. A gateway that sends a block again without its token may be lucky, and the table has each row
//! once. A gateway that reports a wrong guarantee or count may still insert every row. Limits: counters begin at 0 with the process, so a
//! process that has ended reports nothing.

use e2e_fixtures::gateway::metric;

use crate::prelude::*;

/// The gateways of all pipelines of a namespace.
const GATEWAYS: &str = "app.kubernetes.io/name=sluice-gateway,app.kubernetes.io/component=gateway";

/// Counters of events that exactly-once excludes. They never decrease.
const STAY_ZERO: [&str; 4] = [
    "sluice_gateway_possible_duplicate_rows_total",
    "sluice_gateway_messages_lost_total",
    "sluice_gateway_rows_lost_total",
    "sluice_gateway_blocks_lost_unknown_total",
];

/// Rows that were read and are neither inserted, nor a letter, nor on their way: 0 at rest.
const IMBALANCE: &str = "sluice_gateway_ledger_imbalance_rows";

/// 1 for the current guarantee.
const GUARANTEE: &str = "sluice_gateway_delivery_guarantee";

/// The guarantee of the default: commits after the insert, into a `MergeTree` with a deduplication window.
const EXACTLY_ONCE: &str =
    r#"sluice_gateway_delivery_guarantee{guarantee="exactly_once_effect",reason="none"}"#;

/// Waits until there are gateways, and each reports that all rows are accounted for and in the table once. Every 30 s, also after an
/// outage, they ask `ClickHouse` for the settings that the guarantee needs. Fails at once if a gateway reports possibly doubled or lost
/// rows.
pub async fn assert_exactly_once(namespace: &Namespace) -> Result<()> {
    let gateways = Pods::new(namespace.cluster(), namespace.name(), GATEWAYS);
    until("gateways that account for every row", FLOW, async || {
        let running: Vec<String> =
            gateways.list().await?.iter().filter(|pod| runs(pod)).map(Pod::name_any).collect();
        if running.is_empty() {
            return Ok(Seen::NotYet("no gateway runs".to_owned()));
        }
        for name in running {
            match said(&gateways.metrics(&name).await?) {
                Seen::Done(()) => {}
                Seen::NotYet(words) => return Ok(Seen::NotYet(format!("{name}: {words}"))),
                Seen::Failed(broken) => return Ok(Seen::Failed(broken.context(name))),
            }
        }
        Ok(Seen::Done(()))
    })
    .await
}

/// Whether to ask it: a pod that is terminating may be gone before it answers.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// What the metrics of one gateway report.
fn said(text: &str) -> Seen<()> {
    for name in STAY_ZERO {
        match metric_sum(text, name) {
            Some(0.0) => {}
            Some(count) => return Seen::Failed(anyhow!("{name} is {count}")),
            None => return Seen::NotYet(format!("there is no {name}")),
        }
    }
    let imbalance = metric_sum(text, IMBALANCE);
    if imbalance != Some(0.0) {
        return Seen::NotYet(format!("{IMBALANCE} is {imbalance:?}"));
    }
    if metric(text, EXACTLY_ONCE) == Some(1.0) {
        return Seen::Done(());
    }
    let promised = text.lines().filter(|line| line.starts_with(GUARANTEE) && line.ends_with(" 1"));
    Seen::NotYet(format!("it promises {:?}", promised.collect::<Vec<_>>()))
}

/// The metrics of a gateway at rest, with one line in place of another.
fn metrics(from: &str, to: &str) -> String {
    let zeros = STAY_ZERO.map(|name| format!("{name} 0\n")).concat();
    let weaker = r#"sluice_gateway_delivery_guarantee{guarantee="at_least_once",reason="window_off"}"#;
    let text = format!("{zeros}{IMBALANCE} 0\n{EXACTLY_ONCE} 1\n{weaker} 0\n");
    assert!(text.contains(from), "{from} is not in {text}");
    text.replace(from, to)
}

/// The result as text: done, what is missing, or what is broken.
fn words(text: &str) -> String {
    match said(text) {
        Seen::Done(()) => "done".to_owned(),
        Seen::NotYet(words) => format!("not yet: {words}"),
        Seen::Failed(broken) => format!("broken: {broken}"),
    }
}

#[test]
fn at_rest_every_row_is_accounted_for_and_in_once() {
    assert_eq!(words(&metrics("", "")), "done");
}

#[test]
fn a_count_of_what_must_not_happen_is_final() {
    for name in STAY_ZERO {
        let text = metrics(&format!("{name} 0"), &format!("{name} 7"));
        assert_eq!(words(&text), format!("broken: {name} is 7"));
        let text = metrics(&format!("{name} 0\n"), "");
        assert_eq!(words(&text), format!("not yet: there is no {name}"));
    }
}

#[test]
fn rows_on_their_way_and_a_weaker_promise_may_pass() {
    let text = metrics(&format!("{IMBALANCE} 0"), &format!("{IMBALANCE} -3"));
    assert_eq!(words(&text), format!("not yet: {IMBALANCE} is Some(-3.0)"));
    let weaker = metrics(&format!("{EXACTLY_ONCE} 1"), &format!("{EXACTLY_ONCE} 0"));
    let weaker = weaker.replace(r#"reason="window_off"} 0"#, r#"reason="window_off"} 1"#);
    assert!(words(&weaker).starts_with("not yet: it promises ["), "{}", words(&weaker));
    assert!(words(&weaker).contains("window_off"), "{}", words(&weaker));
}
