//! The fault scenarios with their names, in the order of a span's path.

mod list;

use super::course::{
    broker::Broker, columns::Columns, damage::Damage, disk, input::Input, kill::Step, leave::Leave,
    only_copy::OnlyCopy, otlp::Otlp, process::Process, protocol::Protocol, refuse::Refusal, rows::Rows,
    rule_change::RuleChange, server::Server, shard::Lost, spooled::Spooled, storm::Storm, trickle::Trickle,
    volume::Volume,
};

use list::{BROKERS, INPUTS, OUTAGE, PROCESSES, PROTOCOLS, SERVERS};

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
    /// Faults of a gateway with `source.otlp`.
    Otlp(Otlp),
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
    let otlp =
        Otlp::ALL.map(|(otlp, name, rounds, describe)| scenario(name, Fault::Otlp(otlp), rounds, describe));
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
        &otlp,
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
