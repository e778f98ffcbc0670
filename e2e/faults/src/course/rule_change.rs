//! Two gateways of a group cut ranges by different size rules, as during a rollout of new settings or a new version, and are killed in
//! turn. The other gateway sends the dead one's ranges in flight again. It uses the dead one's rule as far as the dead one may have used
//! it.
//!
//! ```text
//! gateway 0: 3 messages a range  333333X        gateway 1 on its partitions:  333|555555
//! gateway 1: 5 messages a range  5555555555X    gateway 0 on its partitions:  55|3333333    the bar is the horizon
//! ```
//!
//! Ranges end by size here, so no commit names their ends. If a gateway cut a stored but unanswered INSERT in another way, it would send
//! its rows under another token and double them. The committed plans show which rule is in force where.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::leave::wait_share;
use crate::kafka_wire::{Commit, Rule};
use crate::scene::{Expected, INSERTS_BEFORE, PARTITIONS, PATIENCE, SPANS_AFTER, Scene};
use crate::sink_front::{Leg, Passage, Verdict};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::spans::{Generator, Run, Shape};

const GATEWAYS: usize = 2;

/// Messages in a range of each gateway with its own settings. Chosen: neither is a multiple of the other, and both fill within two seconds
/// of load.
const MESSAGES_SET: [u64; GATEWAYS] = [3, 5];

/// Bytes that also end a range of each gateway: several times the bytes of so many messages.
const BYTES_SET: [u64; GATEWAYS] = [16 << 20, 8 << 20];

/// Version of the rule that the program uses.
const VERSION: u8 = 2;

/// Version of each gateway's rule. With the first, a range ends behind the message that reaches its bytes. With the second, it ends before
/// the message that would exceed them.
const VERSIONS: [u8; GATEWAYS] = [1, VERSION];

/// Messages in a range of each gateway with its own version. Messages have about the same size: 3 of them stay below the bytes, the next
/// one does not.
const MESSAGES_BY_BYTES: [u64; GATEWAYS] = [4, 3];

/// Messages that end a range there; no range reaches this number.
const MESSAGES_MANY: u64 = 1_000;

/// Load, spans a second: half of the usual one, because ranges of a few messages make several times as many inserts.
const SPANS_PER_SECOND: u64 = 2_500;

/// Blocks close by age only after more than twice the time that they take to fill.
const INTERVAL: &str = "4s";

/// How often one of them dies: each once.
const DEATHS: usize = GATEWAYS;

/// The gateway's metric of partitions that it has read up to the horizon of the other gateway's rule.
const RULE_CHANGES: &str = "sluice_gateway_rule_changes_total";

/// Metrics that show that a gateway does not know the other one's ranges: partitions started anew, ranges cut elsewhere, partitions that
/// are not read.
const UNKNOWN: [&str; 3] = [
    "sluice_gateway_fresh_starts_total",
    "sluice_gateway_doubtful_ranges_total",
    "sluice_gateway_partitions_halted",
];

/// The difference between the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleChange {
    Settings,
    Versions,
}

impl RuleChange {
    /// Changes to the usual config of gateway `number`.
    pub fn change(self, number: usize) -> Value {
        let Rule { bytes, messages, .. } = self.rule(number);
        json!({"sink": {"clickhouse": {"insert": {
            "maxRows": messages, "maxBytes": format!("{}KiB", bytes >> 10), "maxInterval": INTERVAL,
        }}}})
    }

    fn rule(self, number: usize) -> Rule {
        match self {
            RuleChange::Settings => {
                Rule { version: VERSION, bytes: BYTES_SET[number], messages: MESSAGES_SET[number] }
            }
            RuleChange::Versions => {
                Rule { version: VERSIONS[number], bytes: bytes_of_versions(), messages: MESSAGES_MANY }
            }
        }
    }

    /// Rows of its full ranges.
    fn rows(self, number: usize) -> u64 {
        let messages = match self {
            RuleChange::Settings => MESSAGES_SET,
            RuleChange::Versions => MESSAGES_BY_BYTES,
        };
        messages[number] * Shape::Numbered.message_spans()
    }

    fn start(self, scene: &mut Scene<'_>, number: usize) -> Result<()> {
        scene.reconfigure(&self.change(number))?;
        let program = match self {
            RuleChange::Versions if VERSIONS[number] != VERSION => scene.stage.former_program()?,
            _ => scene.stage.program.clone(),
        };
        scene.start_program(program).map(drop)
    }

    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        for number in 0..GATEWAYS {
            self.start(scene, number)?;
        }
        wait_halves(scene).await?;
        scene.start_load_of(SPANS_PER_SECOND);
        scene.wait_inserts(INSERTS_BEFORE).await?;
        let mut longest = 0.0_f64;
        for death in 0..DEATHS {
            let dying = (scene.round as usize + death) % GATEWAYS;
            longest = longest.max(self.die(scene, dying).await?);
        }
        scene.wait_acked(SPANS_AFTER).await?;
        self.wait_rules(scene, GATEWAYS).await?;
        for number in 0..GATEWAYS {
            for name in UNKNOWN {
                scene.wait_metric(number, name, |count| count == 0.0).await?;
            }
        }
        Ok(Expected { measures: vec![("s until gone on by the other", longest)], ..Expected::default() })
    }

    /// Kills a gateway after the server has stored one of its full ranges and before the gateway gets the answer. Restarts it when the
    /// other gateway has continued with its partitions, behind everything that it may have sent and by the other's own rule. Returns the
    /// seconds until then.
    async fn die(self, scene: &mut Scene<'_>, dying: usize) -> Result<f64> {
        self.wait_rules(scene, GATEWAYS).await?;
        let other = GATEWAYS - 1 - dying;
        let before = scene.wait_metric(other, RULE_CHANGES, |_| true).await?;
        let rows = self.rows(dying);
        // Only a gateway that continues the other one's ranges makes such ranges too, and no gateway does that now.
        let is_full = move |passage: &Passage| passage.leg == Leg::Answered && passage.written_rows == rows;
        let gate = scene.stage.servers.sink.gate();
        let caught = gate.trap("insert of a full range", is_full).caught(PATIENCE).await?;
        scene.gateway(dying).kill().await?;
        scene.retire(dying)?;
        let died = Instant::now();
        caught.decide(Verdict::Reset);
        let ends = scene.topic.watermarks().await?;
        scene
            .wait("commits behind all that the dead one may have sent", PATIENCE, async |scene| {
                let committed = scene.committed().await?;
                let is_behind =
                    |partition: i32, end: i64| committed.get(&partition).is_none_or(|offset| *offset < end);
                let behind = ends.iter().filter(|marks| is_behind(marks.partition, marks.high)).count();
                Ok(Seen::when(behind == 0, || format!("{behind} partitions are in front of it")))
            })
            .await?;
        let seconds = died.elapsed().as_secs_f64();
        let only = self.wait_rules(scene, 1).await?;
        ensure!(only == [self.rule(other)], "{only:?} is in force once gateway {dying} is dead");
        // At least the partition of the range that was in flight.
        scene.wait_metric(other, RULE_CHANGES, |count| count > before).await?;
        scene.start_again(dying, None)?;
        wait_halves(scene).await?;
        scene.wait_inserts(INSERTS_BEFORE).await?;
        Ok(seconds)
    }

    /// Waits until the committed plans show that each of `gateways` gateways uses its rule in its partitions. Returns these rules.
    async fn wait_rules(self, scene: &mut Scene<'_>, gateways: usize) -> Result<Vec<Rule>> {
        let share = usize::try_from(PARTITIONS)? / gateways;
        scene
            .wait("the rules in force", PATIENCE, async |scene| {
                let mut partitions: BTreeMap<Rule, usize> = BTreeMap::new();
                let plans = scene.plans().await?;
                for rule in plans.iter().filter_map(Commit::rule) {
                    *partitions.entry(rule).or_default() += 1;
                }
                let is_shared =
                    partitions.len() == gateways && partitions.values().all(|count| *count == share);
                let is_known = (0..GATEWAYS).filter(|number| partitions.contains_key(&self.rule(*number)));
                let rules = || -> Vec<Rule> { partitions.keys().copied().collect() };
                let found = (is_shared && is_known.count() == gateways).then(rules);
                Ok(Seen::of(found, || format!("partitions by rule: {partitions:?}")))
            })
            .await
    }
}

/// Three and a half messages, in whole KiB: the numbers of the load make messages larger by less than a tenth.
fn bytes_of_versions() -> u64 {
    let message =
        Generator::new(Shape::Numbered, Run::fresh()).message(0..Shape::Numbered.message_spans()).len();
    (message as u64 * 7 / 2) >> 10 << 10
}

/// Waits until each gateway has half of the partitions.
async fn wait_halves(scene: &mut Scene<'_>) -> Result<()> {
    for number in 0..GATEWAYS {
        wait_share(scene, number, f64::from(PARTITIONS) / 2.0).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_messages_stay_below_the_bytes_of_a_range_and_the_fourth_passes_them() {
        let mut generator = Generator::new(Shape::Numbered, Run::fresh());
        for first in [0, 100, 10_000, 1_000_000, 100_000_000] {
            let message = generator.message(first..first + Shape::Numbered.message_spans()).len() as u64;
            let bytes = bytes_of_versions();
            assert!(3 * message < bytes && bytes < 4 * message, "{message} bytes, and {bytes} in a range");
        }
    }
}
