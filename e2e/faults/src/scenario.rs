//! The fault scenarios with their names, in the order of a span's path.

use super::course::{
    broker::Broker, columns::Columns, damage::Damage, disk, input::Input, kill::Step, leave::Leave,
    only_copy::OnlyCopy, process::Process, protocol::Protocol, refuse::Refusal, rows::Rows,
    rule_change::RuleChange, server::Server, shard::Lost, spooled::Spooled, storm::Storm, trickle::Trickle,
    volume::Volume,
};

/// Largest number of rounds of a scenario that is slow or does not depend on timing.
pub(super) const FEW: u32 = 3;

/// Largest number of rounds of a scenario that depends on timing, and restarts a server or a gateway in each.
const MANY: u32 = 20;

/// Largest number of rounds of a scenario that takes a minute.
pub(super) const ONE: u32 = 1;

/// What happens in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A gateway is killed at a step.
    Kill(Step),
    /// Gateways are stopped, ended or added, or two have the same name.
    Process(Process),
    /// The coordinator divides the partitions.
    Protocol(Protocol),
    /// A gateway's wall clock jumps.
    ClockJump,
    /// Gateways of a group make ranges by different rules.
    RuleChange(RuleChange),
    /// A gateway comes back with another format of inserts.
    FormatChange,
    /// Another client commits offsets of the group.
    ForeignMetadata,
    /// Gateways drain and resume.
    Leave(Leave),
    /// Brokers die, move, stop answering or delete messages.
    Broker(Broker),
    /// ClickHouse dies, is slow, stops answering or forgets tokens.
    Server(Server),
    /// Low traffic.
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
    /// Brokers report no cluster id.
    UnnamedCluster,
    /// ClickHouse comes back in another time zone.
    ZoneChanged,
    /// ClickHouse, or a proxy in front of it, answers with an error.
    Refuse(Refusal),
    /// ClickHouse refuses single rows, or blocks that are too large.
    Rows(Rows),
    /// Messages are malformed, or the table changes.
    Input(Input),
    /// All messages are malformed.
    Storm(Storm),
    /// ClickHouse is unreachable while the queue volume holds blocks.
    Volume(Volume),
    /// The queue volume is lost or full, or Kafka or ClickHouse forget what its blocks need.
    Spooled(Spooled),
    /// Blocks on the queue volume are damaged.
    Damage(Damage),
    /// The disk of the queue volume fails.
    Disk(disk::Disk),
    /// The table changes while blocks are on the queue volume.
    Columns(Columns),
    /// ClickHouse is unreachable for minutes under full load.
    LongOutage,
    /// Gateways die or leave while their volumes hold blocks.
    OnlyCopy(OnlyCopy),
}

/// A fault with its name.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// The description for `--list`.
    pub describe: &'static str,
    pub fault: Fault,
    /// Brokers that it needs.
    pub brokers: u32,
    /// Largest number of rounds.
    pub rounds_max: u32,
    /// Whether it takes many minutes, and runs only by its whole name.
    pub is_long: bool,
}

impl Scenario {
    /// Whether it needs the gateway with the previous version's rule for ranges.
    pub fn needs_former(&self) -> bool {
        self.fault == Fault::RuleChange(RuleChange::Versions)
    }

    /// Its largest number of rounds, for `--list`.
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
        "SIGSTOP for two seconds, shorter than the session timeout",
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
        "the topic grows from 8 to 12 partitions under load",
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
        "two members with 3 and 5 messages a range; SIGKILL of each in turn, once its INSERT is stored but not answered",
    ),
    scenario(
        "rule-versions",
        Fault::RuleChange(RuleChange::Versions),
        FEW,
        "the same with two versions of the rule, as during a rolling upgrade: 4 and 3 messages a range",
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
        "while a gateway is down, another client commits four partitions with foreign metadata: é, no text, half a plan, nothing; the gateway plans each anew",
    ),
    scenario(
        "duplicate-member",
        Fault::Process(Process::DuplicateMember),
        FEW,
        "a second process joins with the same group.instance.id",
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

const BROKERS: [Scenario; 14] = [
    scenario("broker-kill", Fault::Broker(Broker::Kill), MANY, "SIGKILL of the broker, and a start"),
    Scenario {
        brokers: 3,
        ..scenario(
            "coordinator-move",
            Fault::Broker(Broker::CoordinatorMove),
            MANY,
            "SIGKILL of the group's coordinator, one of three brokers",
        )
    },
    scenario(
        "broker-silent",
        Fault::Broker(Broker::SilentShort),
        FEW,
        "no traffic for three seconds, shorter than the session timeout",
    ),
    scenario("broker-silent-longer", Fault::Broker(Broker::SilentLong), FEW, "no traffic for nine seconds"),
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
        "two answers to join requests are lost while a member joins",
    ),
    scenario(
        "heartbeat-lost",
        Fault::Broker(Broker::HeartbeatLost),
        ONE,
        "a heartbeat is lost; the group removes the member",
    ),
    scenario(
        "group-away",
        Fault::Broker(Broker::GroupAway),
        ONE,
        "each request to the coordinator ends its connection, until the gateway reports that it is not ready, and why",
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
        "the same under a running gateway, also messages that it has read but not inserted: 4,000 spans that were not read are lost",
    ),
    scenario(
        "topic-recreated",
        Fault::Broker(Broker::TopicRecreated),
        ONE,
        "the topic is deleted and recreated, and spans arrive at once",
    ),
    scenario(
        "topic-recreated-longer",
        Fault::Broker(Broker::TopicRecreatedLonger),
        FEW,
        "the topic is deleted, recreated and longer than before while the gateway is stopped",
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
        "SIGKILL of ClickHouse when it has stored an INSERT and its answer is on its way",
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
        "four answers are 20 s late, over the insert's timeout",
    ),
    scenario(
        "blackhole",
        Fault::Server(Server::Silent),
        FEW,
        "no traffic to or from ClickHouse for longer than the insert's timeout",
    ),
    scenario(
        "window-short",
        Fault::Server(Server::WindowShort),
        FEW,
        "the table remembers four tokens, and has forgotten that of a stored INSERT whose answer was lost: the gateway asks the server's log",
    ),
    scenario(
        "window-short-untold",
        Fault::Server(Server::WindowShortUntold),
        FEW,
        "the same, but the server has lost its logs: the rows are doubled, and counted as possible duplicates",
    ),
    scenario(
        "past-window",
        Fault::Server(Server::PastWindow),
        FEW,
        "an INSERT is sent again after its token was forgotten, which the gateway cannot know: its rows are doubled",
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
        "rows of three messages vanish from one of two shards, others are on both: audit reports them; 300 spans are lost, 100 doubled",
    ),
    scenario(
        "replica-fails-over",
        Fault::Failover,
        FEW,
        "one of two endpoints fails during an INSERT, stored or not: the gateway sends it to the other with the same token",
    ),
    scenario(
        "zone-changed",
        Fault::ZoneChanged,
        FEW,
        "the server comes back without its logs in another time zone, on which the table's partitions depend: rows are doubled, and counted",
    ),
];

const INPUTS: [Scenario; 12] = [
    scenario(
        "bad-messages-dead-lettered",
        Fault::Input(Input::BadLettered),
        FEW,
        "garbage, truncated, hostile, empty and null messages in every partition; exactly one dead letter for each",
    ),
    scenario(
        "bad-messages-kill",
        Fault::Input(Input::BadKill),
        u32::MAX,
        "the same, and SIGKILL while their dead letters are sent: a letter may be doubled, a row may not",
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
        "a malformed message stops only its partition without a dead-letter topic, onMissing: Stop",
    ),
    scenario(
        "stopped-partition-unready",
        Fault::Input(Input::StopsUnready),
        ONE,
        "the same until the watchdog reports the partition and the gateway is not ready, and until the broker allows to create the topic",
    ),
    scenario(
        "dead-letter-topic-refused",
        Fault::Input(Input::LettersRefused),
        FEW,
        "the same until the broker allows to create the dead-letter topic: the partition continues without a restart",
    ),
    scenario(
        "letter-answers-lost",
        Fault::Input(Input::LetterAnswersLost),
        FEW,
        "answers to stored dead letters are lost: nothing is committed before an answer arrives, and no letter is doubled",
    ),
    scenario(
        "poison-storm",
        Fault::Storm(Storm::Alone),
        FEW,
        "12,000 malformed messages: dead letters per second, each once and in the order of the log",
    ),
    scenario(
        "poison-storm-kill",
        Fault::Storm(Storm::Killed),
        FEW,
        "the same, and SIGKILL in the middle: a letter may be doubled, none is missing",
    ),
    scenario(
        "wrong-encoding",
        Fault::Input(Input::WrongEncoding),
        FEW,
        "16 messages of 100 spans arrive as JSON among valid ones, and become dead letters",
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
        "ClickHouse is unreachable for ten minutes (--outage-s) under a continuous load of 20,000 spans a second",
    )
};

/// All scenarios, in the order of a span's path.
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
    [
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
    .concat()
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
