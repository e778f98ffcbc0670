//! Scenarios that are listed one by one: their faults have no list of their own.
//!
//! Job: names, rounds and descriptions for faults of processes, protocols, brokers, servers and inputs. Place in the flow: [`super::all`]
//! adds them to the others.

use super::{FEW, Fault, MANY, ONE, Scenario, scenario};
use crate::course::{
    broker::Broker, input::Input, process::Process, protocol::Protocol, rule_change::RuleChange,
    server::Server, storm::Storm,
};

pub(super) const PROCESSES: [Scenario; 11] = [
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

pub(super) const PROTOCOLS: [Scenario; 2] = [
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

pub(super) const BROKERS: [Scenario; 14] = [
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

pub(super) const SERVERS: [Scenario; 13] = [
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

pub(super) const INPUTS: [Scenario; 13] = [
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
        "poison-storm-mixed",
        Fault::Storm(Storm::Mixed),
        FEW,
        "12,000 malformed messages among good ones in every partition: no partition restarts, and each has one letter",
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

pub(super) const OUTAGE: Scenario = Scenario {
    is_long: true,
    ..scenario(
        "volume-outage-long",
        Fault::LongOutage,
        ONE,
        "ClickHouse is unreachable for ten minutes (--outage-s) under a continuous load of 20,000 spans a second",
    )
};
