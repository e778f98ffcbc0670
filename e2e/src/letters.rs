//! The letters of a topic's dead-letter topic, as `sluice-gateway dead-letter list` reads them.
//!
//! Job: say which messages are there, by partition and offset, and how many messages the topic holds, so that a letter that is
//! missing, wrong or there twice shows. Place in the flow: after a gateway; the brokers answer. Owner: the test. Limits: those of the
//! program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::produce::Topic;

/// Where a message is: partition and offset.
pub type Place = (i32, i64);

/// What is in a dead-letter topic.
#[derive(Clone, Debug)]
pub struct Letters {
    /// The letters, each once, as the program prints them.
    pub letters: Vec<Value>,
    /// Messages in the topic: more than letters where some are there again.
    pub messages: i64,
}

impl Letters {
    /// Reads those of `topic` with the config of its gateway.
    ///
    /// # Errors
    /// When the program fails, or the brokers do not answer.
    pub async fn of(topic: &Topic, program: &Path, config: &Path) -> Result<Letters> {
        let mut command = tokio::process::Command::new(program);
        command.args(["dead-letter", "list", "--json", "--config"]).arg(config);
        let output = command.kill_on_drop(true).output().await.context("list the dead letters")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "listing the dead letters ended with {}: {told}", output.status);
        let lines = String::from_utf8_lossy(&output.stdout);
        let letters = lines.lines().map(|line| serde_json::from_str(line).context("understand a letter"));
        let letters: Vec<Value> = letters.collect::<Result<_>>()?;
        let messages = if letters.is_empty() {
            0
        } else {
            let ends = topic.dead_letters()?.watermarks().await?;
            ends.iter().map(|end| end.high - end.low).sum()
        };
        Ok(Letters { letters, messages })
    }

    /// Where the originals are.
    ///
    /// # Errors
    /// When a letter does not say.
    pub fn places(&self) -> Result<BTreeSet<Place>> {
        Ok(self.all_places()?.into_iter().collect())
    }

    /// The same, in the order of the letters.
    fn all_places(&self) -> Result<Vec<Place>> {
        let place = |letter: &Value| {
            let partition = letter["partition"].as_i64().and_then(|number| i32::try_from(number).ok());
            Some((partition?, letter["offset"].as_i64()?))
        };
        self.letters.iter().map(|letter| place(letter).with_context(|| format!("{letter}"))).collect()
    }

    /// Fails unless there is exactly a letter for each of these messages of `topic`, with this reason.
    ///
    /// # Errors
    /// When one is missing or too many.
    pub fn ensure_exactly(&self, topic: &Topic, reason: &str, places: &BTreeSet<Place>) -> Result<()> {
        self.ensure_reasons(topic, &places.iter().map(|place| (*place, reason)).collect())
    }

    /// Fails unless there is exactly a letter for each of these messages of `topic`, with its reason.
    ///
    /// # Errors
    /// When one is missing or too many.
    pub fn ensure_reasons(&self, topic: &Topic, reasons: &BTreeMap<Place, &str>) -> Result<()> {
        let found = self.all_places()?;
        let there: BTreeSet<&Place> = found.iter().collect();
        let missing: Vec<&Place> = reasons.keys().filter(|place| !there.contains(place)).take(10).collect();
        let foreign: Vec<&&Place> =
            there.iter().filter(|place| !reasons.contains_key(**place)).take(10).collect();
        ensure!(
            missing.is_empty() && foreign.is_empty(),
            "{} letters for {} messages; missing {missing:?}, too many {foreign:?}",
            there.len(),
            reasons.len()
        );
        for (letter, place) in self.letters.iter().zip(&found) {
            let reason = reasons.get(place).copied();
            ensure!(
                letter["topic"] == topic.name() && letter["reason"].as_str() == reason,
                "a wrong letter, its reason is {reason:?}: {letter}"
            );
        }
        Ok(())
    }

    /// Fails unless the letters of a partition stand in the order of its messages.
    ///
    /// # Errors
    /// When one stands behind a later message's.
    pub fn ensure_in_order(&self) -> Result<()> {
        let mut letters = BTreeMap::new();
        for (letter, (partition, offset)) in self.letters.iter().zip(self.all_places()?) {
            let at = letter["letter"]["offset"].as_i64().with_context(|| format!("{letter}"))?;
            letters.insert((partition, offset), at);
        }
        for (((partition, offset), at), ((next_partition, next), next_at)) in
            letters.iter().zip(letters.iter().skip(1))
        {
            ensure!(
                partition != next_partition || at < next_at,
                "partition {partition}: the letter of {offset} is at {at}, that of {next} at {next_at}"
            );
        }
        Ok(())
    }

    /// Messages that are letters of what has one already.
    pub fn doubled(&self) -> i64 {
        self.messages - i64::try_from(self.letters.len()).unwrap_or(i64::MAX)
    }
}
