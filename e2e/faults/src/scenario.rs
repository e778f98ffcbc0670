//! The fault scenarios with their names, in the order of a span's path.

use serde_json::Value;

use super::course::{
    Family, broker::Broker, columns::Columns, damage::Damage, disk::Disk, input::Input, kill::Step,
    leave::Leave, only_copy::OnlyCopy, otlp::Otlp, outage::LongOutage, process::Process, protocol::Protocol,
    refuse::Refusal, rows::Rows, server::Server, shard::Lost, spooled::Spooled, trickle::Trickle,
    volume::Volume,
};

/// What happens in a scenario: one of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill(Step),
    Process(Process),
    Protocol(Protocol),
    Leave(Leave),
    Trickle(Trickle),
    Broker(Broker),
    Server(Server),
    Shard(Lost),
    Refuse(Refusal),
    Rows(Rows),
    Input(Input),
    Volume(Volume),
    Spooled(Spooled),
    Damage(Damage),
    Disk(Disk),
    Columns(Columns),
    Outage(LongOutage),
    OnlyCopy(OnlyCopy),
    Otlp(Otlp),
}

#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: String,
    /// The description for `--list`.
    pub describe: String,
    pub fault: Fault,
    /// Changes of the usual config of the gateways.
    pub change: Value,
    pub brokers: u32,
    pub rounds_max: u32,
    /// Whether it takes many minutes, and runs only by its whole name.
    pub is_long: bool,
}

impl Scenario {
    /// Whether it needs the gateway with the previous version's rule for ranges.
    pub fn needs_former(&self) -> bool {
        self.fault == Fault::Process(Process::RuleVersions)
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

/// The scenarios of a family, in the order of its variants.
fn family<F: Family>(fault: fn(F) -> Fault) -> Vec<Scenario> {
    let scenario = |one: &F| {
        let value = one.to_possible_value()?;
        let fault = fault(*one);
        Some(Scenario {
            name: format!("{}{}", F::PREFIX, value.get_name()),
            describe: value.get_help().map(ToString::to_string).unwrap_or_default(),
            fault,
            change: one.change(),
            brokers: if fault == Fault::Broker(Broker::CoordinatorMove) { 3 } else { 1 },
            rounds_max: one.rounds(),
            is_long: matches!(fault, Fault::Outage(_)),
        })
    };
    F::value_variants().iter().filter_map(scenario).collect()
}

/// All scenarios, in the order of a span's path.
pub fn all() -> Vec<Scenario> {
    let mut kip_848_kills = family::<Step>(|step| Fault::Protocol(Protocol::Kill(step)));
    for kill in &mut kip_848_kills {
        kill.name.insert_str(0, Protocol::PREFIX);
        kill.change = Protocol::Storm.change();
    }
    [
        family(Fault::Kill),
        family(Fault::Process),
        kip_848_kills,
        family(Fault::Protocol),
        family(Fault::Leave),
        family(Fault::Trickle),
        family(Fault::Broker),
        family(Fault::Server),
        family(Fault::Shard),
        family(Fault::Refuse),
        family(Fault::Rows),
        family(Fault::Input),
        family(Fault::Volume),
        family(Fault::Spooled),
        family(Fault::Damage),
        family(Fault::Disk),
        family(Fault::Columns),
        family(Fault::Outage),
        family(Fault::OnlyCopy),
        family(Fault::Otlp),
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
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|scenario| !scenario.describe.is_empty()), "{all:?}");
        assert!(names.is_superset(&["kill-after-server-commit", "kip-848-kill-after-server-commit"].into()));
    }
}
