//! What is tried: each fault with its name, in the order of the path of a span.

use super::course::{
    broker::Broker, columns::Columns, damage::Damage, disk, input::Input, kill::Step, leave::Leave,
    only_copy::OnlyCopy, process::Process, protocol::Protocol, refuse::Refusal, rows::Rows,
    rule_change::RuleChange, server::Server, shard::Lost, spooled::Spooled, storm::Storm, trickle::Trickle,
    volume::Volume,
};

/// Rounds of a scenario that takes long or that does not depend on the moment.
pub(super) const FEW: u32 = 3;

/// Rounds of one that depends on the moment, and has a server or a gateway started anew each time.
const MANY: u32 = 20;

/// Rounds of one that takes a minute.
pub(super) const ONE: u32 = 1;

/// What happens in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A gateway is killed at a step.
    Kill(Step),
    /// Gateways are stopped, ended, joined or doubled.
    Process(Process),
    /// The coordinator divides the partitions.
    Protocol(Protocol),
    /// A gateway's wall clock jumps.
    ClockJump,
    /// Gateways of a group make ranges by different rules.
    RuleChange(RuleChange),
    /// A gateway comes back with another format of inserts.
    FormatChange,
    /// Somebody else commits offsets of the group.
    ForeignMetadata,
    /// Gateways are told to leave, and to come back.
    Leave(Leave),
    /// Brokers die, move, fall silent or forget.
    Broker(Broker),
    /// ClickHouse dies, is slow, silent or forgets.
    Server(Server),
    /// Little comes in.
    Trickle(Trickle),
    /// One of two shards is lost, and comes back.
    ShardLost(Lost),
    /// A shard is added while an INSERT is in doubt.
    ShardAdded,
    /// The config names another server while an INSERT is in doubt.
    ServerChanged,
    /// Rows of a shard vanish.
    ShardAudit,
    /// One of a shard's endpoints is lost.
    Failover,
    /// Brokers do not say which cluster they are of.
    UnnamedCluster,
    /// ClickHouse comes back in another time zone.
    ZoneChanged,
    /// It refuses, or seems to.
    Refuse(Refusal),
    /// It does not take a block whole.
    Rows(Rows),
    /// What comes in is bad, or the table changes.
    Input(Input),
    /// Nothing of what comes in can be read.
    Storm(Storm),
    /// ClickHouse is away while the queue volume holds blocks.
    Volume(Volume),
    /// Something happens to the volume, or to what its blocks rely on.
    Spooled(Spooled),
    /// Blocks on it are damaged.
    Damage(Damage),
    /// Its disk fails.
    Disk(disk::Disk),
    /// The table changes while blocks are on it.
    Columns(Columns),
    /// ClickHouse is away for minutes under full load.
    LongOutage,
    /// Gateways die or leave while their volumes hold blocks.
    OnlyCopy(OnlyCopy),
}

/// A fault with its name.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What happens, in words.
    pub describe: &'static str,
    /// What happens.
    pub fault: Fault,
    /// Brokers that it needs.
    pub brokers: u32,
    /// Rounds at the most, whatever is asked for.
    pub rounds_max: u32,
    /// It takes many minutes, and runs only when it is named.
    pub is_long: bool,
}

impl Scenario {
    /// Whether it needs the gateway with the rule of one version ago.
    pub fn needs_former(&self) -> bool {
        self.fault == Fault::RuleChange(RuleChange::Versions)
    }

    /// Its rounds at the most, in words.
    pub fn rounds(&self) -> String {
        let rounds = match self.rounds_max {
            u32::MAX => "any".to_owned(),
            most => most.to_string(),
        };
        if self.is_long { rounds + ", long" } else { rounds }
    }
}

const fn scenario(name: &'static str, fault: Fault, rounds_max: u32, describe: &'static str) -> Scenario {
    Scenario { name, describe, fault, brokers: 1, rounds_max, is_long: false }
}

const PROCESSES: [Scenario; 11] = [
    scenario(
        "stop-shorter",
        Fault::Process(Process::StopShort),
        FEW,
        "SIGSTOP for two seconds, within the session",
    ),
    scenario(
        "stop-longer",
        Fault::Process(Process::StopLong),
        FEW,
        "SIGSTOP until another member has taken over; the INSERT on its way arrives after that",
    ),
    scenario(
        "term-dead-sink",
        Fault::Process(Process::TermDeadSink),
        FEW,
        "SIGTERM while connections to the sink are refused: exit code 1, in time",
    ),
    scenario(
        "rebalance-storm",
        Fault::Process(Process::Storm),
        FEW,
        "three members leave and come back in turn",
    ),
    scenario(
        "partition-added",
        Fault::Process(Process::PartitionAdded),
        ONE,
        "the topic grows from 8 to 12 partitions while spans come",
    ),
    scenario(
        "clock-jump",
        Fault::ClockJump,
        FEW,
        "the wall clock jumps by an hour, ahead and back, also between a SIGKILL and the next start",
    ),
    scenario(
        "rule-change",
        Fault::RuleChange(RuleChange::Settings),
        FEW,
        "two members with 3 and 5 messages a range; SIGKILL of each in turn, once an INSERT of its is stored and not answered",
    ),
    scenario(
        "rule-versions",
        Fault::RuleChange(RuleChange::Versions),
        FEW,
        "the same with two versions of the rule, as while an upgrade is rolled out: 4 and 3 messages a range",
    ),
    scenario(
        "format-change",
        Fault::FormatChange,
        MANY,
        "SIGKILL when the server has stored an INSERT and its answer is on its way; the member comes back with the other insert.format",
    ),
    scenario(
        "foreign-metadata",
        Fault::ForeignMetadata,
        FEW,
        "between two lives of a gateway somebody else commits four partitions: é, no text, half a plan, nothing; each begins anew",
    ),
    scenario(
        "duplicate-member",
        Fault::Process(Process::DuplicateMember),
        FEW,
        "a second process says that it is the same member",
    ),
];

const PROTOCOLS: [Scenario; 2] = [
    scenario(
        "kip-848-storm",
        Fault::Protocol(Protocol::Storm),
        FEW,
        "groupProtocol: Consumer, three members leave and come back in turn",
    ),
    scenario(
        "kip-848-stop",
        Fault::Protocol(Protocol::Stop),
        FEW,
        "groupProtocol: Consumer, SIGSTOP until another member has taken over; the INSERT on its way arrives after that",
    ),
];

const BROKERS: [Scenario; 13] = [
    scenario("broker-kill", Fault::Broker(Broker::Kill), MANY, "SIGKILL of the broker, and a start"),
    Scenario {
        brokers: 3,
        ..scenario(
            "coordinator-move",
            Fault::Broker(Broker::CoordinatorMove),
            MANY,
            "SIGKILL of that one of three brokers that keeps the group",
        )
    },
    scenario(
        "broker-silent",
        Fault::Broker(Broker::SilentShort),
        FEW,
        "nothing passes for three seconds, within the session",
    ),
    scenario(
        "broker-silent-longer",
        Fault::Broker(Broker::SilentLong),
        FEW,
        "nothing passes for nine seconds",
    ),
    scenario(
        "commit-answers-lost",
        Fault::Broker(Broker::CommitAnswersLost),
        FEW,
        "four answers to commits are lost",
    ),
    scenario(
        "fetch-answers-lost",
        Fault::Broker(Broker::FetchAnswersLost),
        FEW,
        "four answers with messages are lost",
    ),
    scenario(
        "join-answers-lost",
        Fault::Broker(Broker::JoinAnswersLost),
        FEW,
        "two answers to joining are lost while a member comes",
    ),
    scenario(
        "heartbeat-lost",
        Fault::Broker(Broker::HeartbeatLost),
        ONE,
        "a heartbeat is lost; the group gives the member up",
    ),
    scenario(
        "group-away",
        Fault::Broker(Broker::GroupAway),
        ONE,
        "what goes to the coordinator ends its connection until the gateway says that it is not ready, and why",
    ),
    scenario(
        "retention-passes",
        Fault::Broker(Broker::RetentionPasses),
        FEW,
        "messages behind the position are deleted: 4,000 spans are lost",
    ),
    scenario(
        "retention-passes-running",
        Fault::Broker(Broker::RetentionPassesRunning),
        FEW,
        "the same under a running gateway, with what it has read and not inserted: 4,000 spans are lost, of what was not read",
    ),
    scenario(
        "topic-recreated",
        Fault::Broker(Broker::TopicRecreated),
        ONE,
        "the topic is deleted and made again, and spans come at once",
    ),
    scenario(
        "topic-recreated-longer",
        Fault::Broker(Broker::TopicRecreatedLonger),
        FEW,
        "the topic is deleted, made again and longer than before while the gateway stands still",
    ),
    scenario(
        "unnamed-cluster",
        Fault::UnnamedCluster,
        FEW,
        "brokers report no cluster id; SIGKILL when the server has stored an INSERT and its answer is on its way",
    ),
];

const SERVERS: [Scenario; 13] = [
    scenario(
        "clickhouse-kill-in-insert",
        Fault::Server(Server::KillInInsert),
        MANY,
        "SIGKILL of ClickHouse when it has half of an INSERT",
    ),
    scenario(
        "clickhouse-kill-after-commit",
        Fault::Server(Server::KillAfterCommit),
        MANY,
        "SIGKILL of ClickHouse when it has stored one and its answer is on its way",
    ),
    scenario(
        "slow",
        Fault::Server(Server::Slow),
        ONE,
        "four answers are 20 s late, within the insert's timeout",
    ),
    scenario(
        "slow-over-timeout",
        Fault::Server(Server::SlowOverTimeout),
        ONE,
        "four answers are 20 s late, over the timeout",
    ),
    scenario(
        "blackhole",
        Fault::Server(Server::Silent),
        FEW,
        "nothing passes to or from ClickHouse, over the insert's timeout",
    ),
    scenario(
        "window-short",
        Fault::Server(Server::WindowShort),
        FEW,
        "the table remembers four tokens, and has forgotten that of a stored INSERT whose answer was lost: the server is asked",
    ),
    scenario(
        "window-short-untold",
        Fault::Server(Server::WindowShortUntold),
        FEW,
        "the same, and the server has lost its logs: nobody can know, so that the rows are doubled, and counted as rows that may be",
    ),
    scenario(
        "past-window",
        Fault::Server(Server::PastWindow),
        FEW,
        "an INSERT is sent again once its token is forgotten, which nobody could know: its rows are doubled",
    ),
    scenario(
        "shard-added",
        Fault::ShardAdded,
        FEW,
        "SIGKILL when the server has stored an INSERT and its answer is on its way; the member comes back with a second shard",
    ),
    scenario(
        "server-changed",
        Fault::ServerChanged,
        FEW,
        "SIGKILL when the server has stored an INSERT; the member comes back with another server: its rows are doubled, and said to be",
    ),
    scenario(
        "shard-rows-vanish",
        Fault::ShardAudit,
        FEW,
        "rows of three messages vanish from one of two shards, others are on both: audit names them; 300 spans are lost, 100 doubled",
    ),
    scenario(
        "replica-fails-over",
        Fault::Failover,
        FEW,
        "one of two ways to the server is gone with an INSERT on it, stored or not: the other has it under the same token",
    ),
    scenario(
        "zone-changed",
        Fault::ZoneChanged,
        FEW,
        "the server comes back in another time zone, on which the table's partitions depend, without its logs: rows are doubled, and counted",
    ),
];

const INPUTS: [Scenario; 12] = [
    scenario(
        "bad-messages-dead-lettered",
        Fault::Input(Input::BadLettered),
        FEW,
        "garbage, truncated, hostile, empty and null messages in every partition; exactly one letter for each bad one",
    ),
    scenario(
        "bad-messages-kill",
        Fault::Input(Input::BadKill),
        u32::MAX,
        "the same, and SIGKILL among their letters: a letter may be there twice, a row may not",
    ),
    scenario(
        "bad-messages-skipped",
        Fault::Input(Input::BadSkipped),
        FEW,
        "the same without a dead-letter topic, onMissing: Skip",
    ),
    scenario(
        "bad-message-stops",
        Fault::Input(Input::BadStops),
        FEW,
        "a message that cannot be read stops its partition alone without a dead-letter topic, onMissing: Stop",
    ),
    scenario(
        "stopped-partition-unready",
        Fault::Input(Input::StopsUnready),
        ONE,
        "the same until the watchdog names it and the gateway is not ready, and until the broker lets the topic be made",
    ),
    scenario(
        "dead-letter-topic-refused",
        Fault::Input(Input::LettersRefused),
        FEW,
        "the same until the broker lets the dead-letter topic be made: the partition goes on by itself",
    ),
    scenario(
        "letter-answers-lost",
        Fault::Input(Input::LetterAnswersLost),
        FEW,
        "answers to dead letters are lost that the broker has: nothing is committed before one arrives, and no letter is there twice",
    ),
    scenario(
        "poison-storm",
        Fault::Storm(Storm::Alone),
        FEW,
        "12,000 messages, none of which can be read: letters a second, each once and in the order of the log",
    ),
    scenario(
        "poison-storm-kill",
        Fault::Storm(Storm::Killed),
        FEW,
        "the same, and SIGKILL in the middle: a letter may be there twice, none is missing",
    ),
    scenario(
        "wrong-encoding",
        Fault::Input(Input::WrongEncoding),
        FEW,
        "16 messages of 100 spans come as JSON among good ones, and are dead letters",
    ),
    scenario(
        "table-changed",
        Fault::Input(Input::TableChanged),
        FEW,
        "a column is renamed under the gateway, and back",
    ),
    scenario("column-added", Fault::Input(Input::ColumnAdded), FEW, "a column is added under the gateway"),
];

const OUTAGE: Scenario = Scenario {
    is_long: true,
    ..scenario(
        "volume-outage-long",
        Fault::LongOutage,
        ONE,
        "ClickHouse is away for ten minutes (--outage-s) under 20,000 spans a second, which go on; runs only when it is named",
    )
};

/// All of them; those that need the same brokers stand together as far as the order allows.
pub fn all() -> Vec<Scenario> {
    let kills =
        Step::ALL.map(|(step, [name, _], describe)| scenario(name, Fault::Kill(step), u32::MAX, describe));
    let kip_848_kills = Step::ALL.map(|(step, [_, name], describe)| {
        scenario(name, Fault::Protocol(Protocol::Kill(step)), u32::MAX, describe)
    });
    let refusals =
        Refusal::ALL.map(|(refusal, name, describe)| scenario(name, Fault::Refuse(refusal), FEW, describe));
    let volumes = Volume::ALL
        .map(|(volume, name, rounds, describe)| scenario(name, Fault::Volume(volume), rounds, describe));
    let spooled = Spooled::ALL
        .map(|(spooled, name, rounds, describe)| scenario(name, Fault::Spooled(spooled), rounds, describe));
    let damages =
        Damage::ALL.map(|(damage, name, describe)| scenario(name, Fault::Damage(damage), u32::MAX, describe));
    let shards =
        Lost::ALL.map(|(lost, name, describe)| scenario(name, Fault::ShardLost(lost), FEW, describe));
    let leaving =
        Leave::ALL.map(|(leave, name, describe)| scenario(name, Fault::Leave(leave), FEW, describe));
    let trickles = Trickle::ALL
        .map(|(trickle, name, rounds, describe)| scenario(name, Fault::Trickle(trickle), rounds, describe));
    let rows =
        Rows::ALL.map(|(rows, name, rounds, describe)| scenario(name, Fault::Rows(rows), rounds, describe));
    let disks = disk::ALL.map(|(disk, name, describe)| scenario(name, Fault::Disk(disk), FEW, describe));
    let columns =
        Columns::ALL.map(|(columns, name, describe)| scenario(name, Fault::Columns(columns), FEW, describe));
    let only_copies = OnlyCopy::ALL.map(|(only_copy, name, rounds, describe)| {
        scenario(name, Fault::OnlyCopy(only_copy), rounds, describe)
    });
    let mut all = [
        &kills[..],
        &PROCESSES,
        &kip_848_kills,
        &PROTOCOLS,
        &leaving,
        &trickles,
        &BROKERS,
        &SERVERS,
        &shards,
        &refusals,
        &rows,
        &INPUTS,
        &volumes,
        &spooled,
        &damages,
        &disks,
        &columns,
        &[OUTAGE],
        &only_copies,
    ]
    .concat();
    // Stable: the order of a path stays, and servers are not started twice.
    all.sort_by_key(|scenario| scenario.brokers);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_scenario_has_a_name_of_its_own() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.is_superset(&["kill-after-server-commit", "kip-848-kill-after-server-commit"].into()));
    }
}
