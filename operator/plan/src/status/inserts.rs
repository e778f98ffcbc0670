//! Inserts that fail, as the condition `SinkReachable` reports them: what ClickHouse answers a gateway, and what helps.

use super::{
    messages, remedies,
    verdict::{Verdict, with_secret},
};
use crate::{
    facts::Observed,
    names::{GATEWAY, Names},
    observed::inserts::{InsertError, SinkSeen, UNKNOWN_DATABASE, UNKNOWN_TABLE},
    pipeline::connections::where_it_stands,
};
use sluice_crds::{
    SecretUse, TracePipeline,
    status::{condition, reason},
};

/// What helps if no server of ClickHouse answers.
const UNANSWERED: &str = "check that the servers of sink.clickhouse.endpoints run, and DNS, NetworkPolicies and proxies on the way to them";

/// The class of an insert that waits for a person.
const HALT: &str = "Halt";

/// The class of an insert that is sent in parts.
const SPLIT: &str = "Split";

/// `None` while inserts succeed. An operator that has just started has nothing to compare yet, and keeps the former condition, as long as
/// there are gateways.
pub(super) fn failing(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let whose = match observed.sink {
        SinkSeen::Failing { all: true } => "every gateway",
        SinkSeen::Failing { all: false } => "some of the gateways",
        SinkSeen::Well => return None,
        SinkSeen::NotKnown => {
            return messages::said_before(
                pipeline,
                observed,
                condition::SINK_REACHABLE,
                &[reason::INSERTS_FAILING],
            );
        }
    };
    let how = match &observed.insert_error {
        Some(failed) => {
            let gateways = Names::of(pipeline).map(|names| names.gateway()).unwrap_or_default();
            let pod = format!("{gateways}-{}", failed.ordinal);
            format!(". {pod}: {}", with_remedy((pipeline, observed), &pod, &failed.error))
        }
        None => format!("; {} has ClickHouse's answer, and what helps", remedies::logs(pipeline, GATEWAY)),
    };
    Some(Verdict::no(reason::INSERTS_FAILING, format!("the inserts of {whose} fail, and none succeeds{how}")))
}

/// How an insert of this pod failed, and what helps.
fn with_remedy((pipeline, observed): (&TracePipeline, &Observed), pod: &str, error: &InsertError) -> String {
    let words = error.words();
    // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED: as the schema Job's AuthFailed.
    if matches!(error.code, Some(192..=194 | 516)) {
        let place = where_it_stands(pipeline.spec.sink.clickhouse.connection_ref.as_ref());
        return with_secret(pipeline, observed, SecretUse::ClickHouseUser, &words) + &place;
    }
    let remedy = remedy(error).map(str::to_owned);
    let of_table = || error.table_error.and_then(|reason| remedies::of_sink(pipeline, reason));
    // A gateway logs more than a condition has room for.
    let logged = || format!("kubectl logs {pod} has all of it, and what helps");
    format!("{words}; {}", remedy.or_else(of_table).unwrap_or_else(logged))
}

/// What helps, for codes that leave no doubt. The gateways' logs have advice for each code.
fn remedy(error: &InsertError) -> Option<&'static str> {
    let is = |class: &str| error.class == class;
    let Some(code) = error.code else {
        let waits_for_table = error.table_error.is_some() || error.is_of_table();
        return (!waits_for_table).then_some(UNANSWERED);
    };
    match code {
        UNKNOWN_TABLE => Some(
            "create the table, or let the schema Job do it (schema.management: CreateIfMissing); check the target tables of materialized views",
        ),
        UNKNOWN_DATABASE => {
            Some("check that sink.clickhouse.endpoints lead to the right servers, and create the database")
        }
        // READONLY has another class if a replica has lost its Keeper.
        164 if is(HALT) => Some("set readonly to 0 in the profile of the gateways' user"),
        195 => Some("allow the addresses of the gateways for their user in ClickHouse"),
        241 => Some("give the server or the gateways' user more memory, or run fewer gateways"),
        // TOO_MANY_PARTS: for the class Split, it is about the partitions of one block.
        252 if !is(SPLIT) => Some(
            "merges do not keep up: start them if they are stopped, or give ClickHouse more CPU or a faster disk",
        ),
        291 | 497 => Some("grant the gateways' user the right that is missing (gateway/TABLE.md, Grants)"),
        _ => None,
    }
}
