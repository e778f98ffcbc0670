//! What the gateways of a pipeline report for its status, all together. It is remembered for [`FRESH_MS`], since a rollout causes many reconciles.
//! One small entry for each pipeline.

use super::gateways::{
    Gateway,
    looks::Look,
    sample::{
        delivery::{Told, together},
        report::Report,
    },
};
use sluice_plan::{
    Moment,
    observed::{
        MessagesSeen, OpenTransaction, OpenTransactions,
        inserts::{self, FailedInsert, InsertError, SinkSeen, Watched},
        message_window::{self, MessageWindow},
    },
};
use std::collections::BTreeMap;

/// A report is replaced after this many milliseconds: less than the time between two reconciles of a running pipeline.
const FRESH_MS: u64 = 20_000;
/// The same while inserts are in doubt: less than [`inserts::DOUBT_SECONDS`].
const DOUBT_FRESH_MS: u64 = 14_000;

/// What the gateways of a pipeline report.
#[derive(Debug, Clone, Default)]
pub struct GatewayReport {
    /// The sum of all gateways.
    pub told: Told,
    /// Messages that each gateway has counted as lost, by its number. A gateway that does not report this is not in the map.
    pub messages_lost: BTreeMap<u32, i64>,
    /// The messages that they counted lately; `None` when no gateway reports them.
    pub messages: Option<MessagesSeen>,
    /// Open transactions that keep them from reading partitions; `None` when no gateway answered.
    pub open_transactions: Option<Vec<OpenTransaction>>,
    /// Whether their inserts succeed.
    pub sink: SinkSeen,
    /// Whether inserts of one have failed lately, and it is not known yet whether others come through.
    pub inserts_in_doubt: bool,
    /// The error of the last insert of the first gateway whose inserts fail, or of one that misses the database; `None` while all
    /// succeed, and when it does not report the error.
    pub insert_error: Option<FailedInsert>,
}

/// The last report, by which gateways, and when.
#[derive(Debug)]
pub struct ReportMemory {
    at: Moment,
    by: Vec<Gateway>,
    /// Whether all of them had been asked by then. One that has just become ready may not have been.
    is_of_all: bool,
    said: GatewayReport,
    /// What is known of the inserts of each process, by its number: also of one that is not ready at the moment.
    inserts: BTreeMap<u32, (Gateway, Watched)>,
    /// What each has counted of messages, by its number.
    windows: BTreeMap<u32, MessageWindow>,
    /// What is known of open transactions.
    open_transactions: OpenTransactions,
}

/// What all ready gateways report together at this look. During a rollout, the last report of other gateways holds for the status. What is
/// queued is known only of the gateways that reported it. `reads_kafka` says whether they could use the table before they were ready.
pub fn hear(
    memory: &mut Option<ReportMemory>,
    look: Option<&Look>,
    (gateways, reads_kafka): (&[Gateway], bool),
    Moment(now): Moment,
) -> GatewayReport {
    let mut ready: Vec<Gateway> = gateways.iter().filter(|gateway| gateway.is_ready).cloned().collect();
    ready.sort_by_key(|gateway| gateway.ordinal);
    if let Some(before) = memory.as_ref() {
        let is_fresh = before.is_fresh(Moment(now)) && !before.has_replaced(&ready);
        // They were asked and have not answered yet: their last report holds, except for what may have ended since.
        if is_fresh || look.map_or(!ready.is_empty(), |look| look.at == before.at) {
            let mut said = before.said_of(&ready, reads_kafka);
            let is_by_them = before.by == ready;
            said.told.queue = said.told.queue.filter(|_| is_by_them);
            said.told.has_empty_queue &= is_fresh && is_by_them;
            return said;
        }
    }
    let Some(look) = look else { return GatewayReport::default() };
    let Moment(now) = look.at;
    // One that gives no answer may promise less than the others.
    let answers: Vec<(u32, Option<&Report>)> = ready
        .iter()
        .map(|gateway| (gateway.ordinal, look.of(gateway).and_then(|said| said.report.as_ref().ok())))
        .collect();
    let reports = || answers.iter().filter_map(|(ordinal, report)| Some((*ordinal, (*report)?)));
    let told: Vec<Told> = answers
        .iter()
        .map(|(_, report)| report.map(|report| report.told.clone()).unwrap_or_default())
        .collect();
    let messages_lost =
        reports().filter_map(|(ordinal, report)| Some((ordinal, report.messages_lost?))).collect();
    let (mut inserts, mut windows) = watched(memory.as_ref(), &ready, reads_kafka);
    let mut lately = BTreeMap::new();
    for (ordinal, report) in reports() {
        if let (Some(watched), Some(now)) = (inserts.get_mut(&ordinal), report.inserts) {
            *watched = watched.look(now);
        }
        if let (Some(window), Some(counted)) = (windows.get_mut(&ordinal), report.messages.clone()) {
            let counted_lately;
            (*window, counted_lately) = window.look(Moment(now), counted);
            lately.insert(ordinal, counted_lately);
        }
    }
    let answered = windows.iter().filter_map(|(ordinal, window)| Some((window, lately.remove(ordinal)?)));
    let messages = message_window::together(answered);
    let sink = inserts::together(inserts.values());
    let said_before = memory.as_ref().and_then(|memory| memory.said.insert_error.as_ref());
    let insert_error = insert_error(&inserts, reports(), said_before);
    let reports: Vec<&Report> = reports().map(|(_, report)| report).collect();
    let (open_transactions, open) = reported_transactions(memory.as_ref(), Moment(now), &reports);
    let said = GatewayReport {
        told: together(&told),
        messages_lost,
        messages,
        open_transactions: open,
        sink,
        inserts_in_doubt: inserts.values().any(Watched::is_in_doubt),
        insert_error,
    };
    if !answers.is_empty() {
        let at = Moment(now);
        let inserts = with_processes(memory.take(), &ready, &inserts);
        let is_of_all = ready.iter().all(|gateway| look.of(gateway).is_some());
        let (by, said) = (ready, said.clone());
        *memory = Some(ReportMemory { at, by, is_of_all, said, inserts, windows, open_transactions });
    }
    said
}

impl ReportMemory {
    /// Whether it still holds. One that lacks a gateway only because it was not asked does not. A clock that went back by far must not keep it for ever.
    fn is_fresh(&self, now: Moment) -> bool {
        let fresh_ms = if self.said.inserts_in_doubt { DOUBT_FRESH_MS } else { FRESH_MS };
        self.is_of_all && now.0.abs_diff(self.at.0) < fresh_ms
    }

    /// What was said, without what failed in a process that another one has replaced.
    fn said_of(&self, ready: &[Gateway], reads_kafka: bool) -> GatewayReport {
        let mut said = self.said.clone();
        if self.has_replaced(ready) {
            let (inserts, _) = watched(Some(self), ready, reads_kafka);
            let is_failing =
                |failed: &FailedInsert| inserts.get(&failed.ordinal).is_some_and(Watched::is_failing);
            said.sink = inserts::together(inserts.values());
            said.insert_error = said.insert_error.filter(is_failing);
        }
        said
    }

    /// Whether one of these is another process than the one that was heard under its number.
    fn has_replaced(&self, ready: &[Gateway]) -> bool {
        let known = |gateway: &Gateway| self.inserts.get(&gateway.ordinal);
        ready
            .iter()
            .any(|gateway| known(gateway).is_some_and(|(process, _)| !process.is_same_process(gateway)))
    }
}

/// What is known of those that are ready: of their inserts and of their messages. Of one that is new, nothing.
fn watched(
    before: Option<&ReportMemory>,
    ready: &[Gateway],
    reads_kafka: bool,
) -> (BTreeMap<u32, Watched>, BTreeMap<u32, MessageWindow>) {
    let of = |gateway: &Gateway| {
        let ordinal = gateway.ordinal;
        let inserts = before.and_then(|before| before.inserts.get(&ordinal)).map(|(process, watched)| {
            if process.is_same_process(gateway) { *watched } else { Watched::of_new_process(reads_kafka) }
        });
        let window = before.and_then(|before| before.windows.get(&ordinal)).copied();
        ((ordinal, inserts.unwrap_or_default()), (ordinal, window.unwrap_or_default()))
    };
    ready.iter().map(of).unzip()
}

/// What is known of inserts, with the processes that it is known of.
fn with_processes(
    before: Option<ReportMemory>,
    ready: &[Gateway],
    inserts: &BTreeMap<u32, Watched>,
) -> BTreeMap<u32, (Gateway, Watched)> {
    let mut known = before.map(|before| before.inserts).unwrap_or_default();
    for gateway in ready {
        if let Some(watched) = inserts.get(&gateway.ordinal) {
            known.insert(gateway.ordinal, (gateway.clone(), *watched));
        }
    }
    known
}

/// How the last insert failed of the first gateway whose inserts fail. One that misses the database comes before others: the server that it asks may be
/// a foreign one, where no table may be made for the others. As long as the cause is the same, so is the text.
fn insert_error<'a>(
    inserts: &BTreeMap<u32, Watched>,
    reports: impl Iterator<Item = (u32, &'a Report)>,
    before: Option<&FailedInsert>,
) -> Option<FailedInsert> {
    let is_failing = |ordinal: &u32| inserts.get(ordinal).is_some_and(Watched::is_failing);
    let failing = reports.filter(|(ordinal, _)| is_failing(ordinal));
    let failed: Vec<(u32, InsertError)> =
        failing.filter_map(|(ordinal, report)| Some((ordinal, report.insert_error.clone()?))).collect();
    let foreign = failed.iter().position(|(_, error)| error.is_database_missing());
    let (ordinal, now) = failed.into_iter().nth(foreign.unwrap_or_default())?;
    let before = before.map(|before| &before.error).filter(|before| before.is_same_cause(&now)).cloned();
    Some(FailedInsert { ordinal, error: before.unwrap_or(now) })
}

/// What is known of open transactions with these answers, and which are open now.
fn reported_transactions(
    before: Option<&ReportMemory>,
    now: Moment,
    reports: &[&Report],
) -> (OpenTransactions, Option<Vec<OpenTransaction>>) {
    let mut known = before.map(|before| before.open_transactions.clone()).unwrap_or_default();
    let open = known.look(now, reports.iter().flat_map(|report| report.open_transactions.iter().cloned()));
    (known, (!reports.is_empty()).then_some(open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::gateways::{Absence, looks::Said};
    use serde_json::json;
    use sluice_gateway_config::GatewaySample;
    use sluice_plan::drain::undrain::Says;
    use std::time::Duration;

    fn gateway(uid: &str) -> Gateway {
        let pod = json!({"metadata": {"namespace": "tracing", "name": "prod-gateway-0", "uid": uid}, "status": {
            "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}]}});
        Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn look(seconds: u64, uid: &str, insert_failures: u64) -> Look {
        let sample = GatewaySample { blocks_inserted: Some(0), insert_failures, ..GatewaySample::default() };
        let (absence, says, report) = (Absence::None, Says::TakesPart, Ok(Report::of(&sample)));
        let said = Said { gateway: gateway(uid), after: Duration::ZERO, absence, says, report };
        Look { at: Moment(seconds * 1_000), said: vec![said] }
    }

    /// The report of a moment at which the new gateway had not been asked is replaced at the next look.
    #[test]
    fn a_gateway_that_has_replaced_one_is_judged_by_its_own_inserts_as_soon_as_it_is_asked() {
        for (reads_kafka, expected) in [(true, SinkSeen::Well), (false, SinkSeen::NotKnown)] {
            let mut memory = None;
            let mut hear_at = |seconds: u64, look: &Look, uid: &str| {
                let all = [gateway(uid)];
                let said = hear(&mut memory, Some(look), (&all[..], reads_kafka), Moment(seconds * 1_000));
                (said.sink, said.inserts_in_doubt)
            };
            for failed in 1..=3 {
                hear_at(30 * failed, &look(30 * failed, "one", failed), "one");
            }
            let before = look(91, "one", 3);
            assert_eq!(hear_at(91, &before, "one"), (SinkSeen::Failing { all: true }, false));
            assert_eq!(
                hear_at(93, &look(90, "one", 3), "two"),
                (expected, false),
                "they were not asked since"
            );
            assert_eq!(hear_at(95, &look(94, "one", 3), "two"), (expected, false));
            assert_eq!(hear_at(97, &look(96, "two", 0), "two"), (expected, true), "{reads_kafka}");
        }
    }
}
