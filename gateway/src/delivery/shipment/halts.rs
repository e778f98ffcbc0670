//! Log lines and metrics about inserts that fail, and about blocks that wait until someone acts.
//!
//! Owner: the shipment's task. The causes that were logged are shared by the shipments to a shard, and used once per failed try of a
//! waiting block, some seconds apart. Each cause is [logged once in a while](sluice_kafka::Throttle), even if other blocks succeed
//! in between.

use super::Shipment;
use crate::delivery::tries::Replica;
use sluice_clickhouse::{
    insert::InsertError,
    outcome::{self, Actor, Class},
};
use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

/// Why a block waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    actor: Actor,
    /// ClickHouse's exception code, if there was one.
    code: Option<u32>,
}

impl Shipment {
    /// Logs who must act and what to do, unless that was logged recently.
    pub(super) fn say_actor(&self, actor: Actor) {
        let (code, reason) = self.refusal.as_ref().map_or((None, ""), |(code, text)| (*code, text.as_str()));
        // Poisoning is harmless: the list holds plain values.
        let mut halts = self.shard.halts.lock().unwrap_or_else(PoisonError::into_inner);
        if halts.is_due(Cause { actor, code }, Instant::now()) {
            let (partition, who, advice) = (&self.block.id, actor.label(), actor.advice());
            // All servers of a shard have one token. A proxy may check it, too.
            let may_be_token = matches!(actor, Actor::Access | Actor::Network);
            let token = self.targets().at(0).token_failure().filter(|_| may_be_token);
            let token = token.as_ref().map(tracing::field::display);
            tracing::error!(
                %partition,
                actor = who,
                code,
                advice,
                reason,
                token,
                "a block cannot be inserted until the cause is fixed (see advice), and others may wait too; it is tried again automatically"
            );
        }
    }

    /// Waits for someone to act, and counts as waiting meanwhile. The next try goes to another server if there is one, which may not have
    /// the same fault.
    pub(super) async fn wait_for_actor(&mut self, actor: Actor, wait: Duration) {
        let waiting = self.shard.delivery.metrics.refused.blocks_waiting_for(actor);
        waiting.inc();
        self.pause(wait, Replica::Same).await;
        waiting.dec();
        self.last = self.last.map(|(endpoint, _)| (endpoint, Replica::Another));
    }
}

/// What happens after this error, and what to do.
pub(super) fn advice(error: &InsertError) -> &'static str {
    if outcome::is_query_limit(error.code, &error.message) {
        return "blocks need more memory than one query of the gateway's user may use, and are sent in parts, slowly: raise max_memory_usage in its \
                profile, or lower sink.clickhouse.insert.maxBytes";
    }
    match error.class {
        Class::Retry | Class::InDoubt | Class::Done => "they are retried, nothing is lost",
        Class::BackPressure => pressure(error.code),
        Class::RefreshSchema => "the table may have changed; the gateway reads its columns again",
        Class::Poison => {
            "the server refuses rows of this block; the gateway finds them and sends them to the dead-letter topic; more of them are \
             counted, not logged"
        }
        Class::Split => {
            "the server cannot take this block at once; it is sent in parts; more of them are counted, not logged"
        }
        Class::Halt => outcome::who_acts(error.code).advice(),
    }
}

/// The same of a server that takes no more now.
fn pressure(code: Option<u32>) -> &'static str {
    match code {
        Some(241) => {
            "the server, or the gateway's user, has no memory for an INSERT: give it more, or run fewer gateways; they are retried more \
             slowly, nothing is lost"
        }
        Some(252) => {
            "a partition of the table, or of one that a view fills, has too many parts, because merges are behind: check system.merges, \
             system.mutations and the server's disk; they are retried more slowly, nothing is lost"
        }
        _ => {
            "the server takes no more now: it is overloaded, or a quota is used up; they are retried more slowly, nothing is lost"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insert_that_someone_must_help_names_the_help() {
        for (code, help) in [
            (Some(516), "check the gateway's user: name and password, or the token"),
            (Some(60), "check the table"),
            (Some(452), "change the settings of the server"),
            (Some(243), "check the server: its disks"),
            (None, "check the proxy"),
        ] {
            let error = InsertError {
                class: Class::Halt,
                code,
                http_status: Some(500),
                message: "refused".into(),
                endpoint: "http://h:8123".into(),
                table: "`d`.`t`".into(),
            };
            assert!(advice(&error).starts_with(help), "{code:?}: {}", advice(&error));
        }
        for (code, message, help) in [
            (241, "Query memory limit exceeded: would use 17.01 MiB", "raise max_memory_usage"),
            (
                241,
                "(total) memory limit exceeded: would use 22.00 GiB",
                "give it more, or run fewer gateways",
            ),
            (
                252,
                "Too many parts (3001 with average size of 1.00 MiB) in table 'd.t'",
                "check system.merges",
            ),
            (202, "Too many simultaneous queries", "it is overloaded, or a quota is used up"),
        ] {
            let error = InsertError {
                class: Class::BackPressure,
                code: Some(code),
                http_status: Some(500),
                message: message.into(),
                endpoint: "http://h:8123".into(),
                table: "`d`.`t`".into(),
            };
            assert!(advice(&error).contains(help), "{code}: {}", advice(&error));
        }
    }
}
