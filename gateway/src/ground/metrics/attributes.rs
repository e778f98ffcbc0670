//! Metrics of what a config does with attributes.

use super::Maker;
use crate::rows::carry::{Carry, Carrying};
use prometheus::{IntCounter, IntCounterVec};
use sluice_gateway_config::AttributeAction;

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct AttributeMetrics {
    matched: IntCounterVec,
    truncated: IntCounter,
}

/// The counters of a worker, in the order of the rules.
#[derive(Debug)]
pub struct RuleCounters {
    matched: Vec<IntCounter>,
    truncated: IntCounter,
}

impl AttributeMetrics {
    /// Creates and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            matched: make.counters(
                "attribute_rule_matches_total",
                "Attributes for which a rule has decided, by the number of the rule in attributes.rules, from 0, and its action.",
                &["rule", "action"],
            ),
            truncated: make.counter(
                "attribute_values_truncated_total",
                "Values of attributes that were longer than attributes.valueBytesMax.",
            ),
        }
    }

    /// The counters of these rules: 0 for a rule whose keys never occur.
    pub fn rules(&self, carrying: &Carrying) -> RuleCounters {
        let numbered = carrying.actions().enumerate();
        let counter = |(number, action): (usize, AttributeAction)| {
            let action = match action {
                AttributeAction::Keep => "keep",
                AttributeAction::Drop => "drop",
                AttributeAction::Hash => "hash",
            };
            self.matched.with_label_values(&[number.to_string().as_str(), action])
        };
        RuleCounters { matched: numbered.map(counter).collect(), truncated: self.truncated.clone() }
    }
}

impl RuleCounters {
    /// Counts what was done with the attributes of a message.
    pub fn count(&self, carry: &Carry) {
        for (counter, matched) in self.matched.iter().zip(carry.matched()) {
            if matched > 0 {
                counter.inc_by(matched);
            }
        }
        self.truncated.inc_by(carry.truncated());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::metrics::reference;
    use sluice_gateway_config::{AttributeRule, Attributes, AttributesOf};

    #[test]
    fn a_rule_whose_keys_never_occur_is_counted_as_0() {
        let rule = |action, key: &str| AttributeRule {
            action,
            keys: vec![key.to_owned()],
            sets: AttributesOf::ALL.to_vec(),
        };
        let rules = vec![rule(AttributeAction::Drop, "a"), rule(AttributeAction::Hash, "b")];
        let carrying = Carrying::of(&Attributes { rules, ..Attributes::default() }).unwrap();
        let metrics = reference::metrics();
        metrics.attributes.rules(&carrying).count(&Carry::new(carrying.clone()));
        let text = metrics.text().unwrap();
        for line in [
            "sluice_gateway_attribute_rule_matches_total{action=\"drop\",rule=\"0\"} 0",
            "sluice_gateway_attribute_rule_matches_total{action=\"hash\",rule=\"1\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
