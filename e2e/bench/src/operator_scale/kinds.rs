//! Kinds of pipelines: what a pipeline has beside a topic, depending on its number.
//!
//! Job: every run has all that the operator watches and samples, alone and combined. Pure. Limits: among thirty consecutive numbers, each
//! combination occurs.

use serde::Serialize;
use serde_json::{Value, json};

use e2e_fixtures::pipeline::merged;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Credentials for `ClickHouse` in a Secret of its own, which the operator watches.
    pub secret: bool,
    /// `scaling.mode: Auto`, for which the operator samples the gateways.
    pub scales: bool,
    /// A queue volume for each gateway.
    pub volume: bool,
}

impl Kind {
    /// Every second, third and fifth pipeline has a feature.
    pub fn of(number: u32) -> Kind {
        Kind { secret: number % 2 == 1, scales: number % 3 == 1, volume: number % 5 == 1 }
    }

    /// The change over the spec of a pipeline without features. Its Secret has the pipeline's name.
    pub fn change(self, name: &str, storage_class: &str) -> Value {
        let parts = [
            (self.secret, json!({"sink": {"clickhouse": {"credentials": {"secretRef": {"name": name}}}}})),
            (self.scales, json!({"scaling": {"mode": "Auto"}})),
            (
                self.volume,
                json!({"queue": {"mode": "Spill", "size": "1Gi", "storageClassName": storage_class}}),
            ),
        ];
        parts.iter().filter(|(has, _)| *has).fold(json!({}), |all, (_, part)| merged(&all, part))
    }
}

/// How many pipelines have each feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kinds {
    pub secrets: u32,
    /// `scaling.mode: Auto`.
    pub scaled: u32,
    pub volumes: u32,
}

impl Kinds {
    pub fn of(count: u32) -> Kinds {
        (0..count).map(Kind::of).fold(Kinds::default(), |all, kind| Kinds {
            secrets: all.secrets + u32::from(kind.secret),
            scaled: all.scaled + u32::from(kind.scales),
            volumes: all.volumes + u32::from(kind.volume),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn of_thirty_pipelines_each_combination_is_there() {
        let kinds: BTreeSet<Kind> = (0..30).map(Kind::of).collect();
        assert_eq!(kinds.len(), 8);
        assert_eq!(Kinds::of(30), Kinds { secrets: 15, scaled: 10, volumes: 6 });
    }

    #[test]
    fn one_has_what_its_kind_says_and_nothing_else() {
        assert_eq!(Kind::of(0).change("a", "class"), json!({}));
        let all = Kind::of(1).change("a", "class");
        assert_eq!(all["sink"]["clickhouse"]["credentials"]["secretRef"]["name"], "a");
        assert_eq!(all["scaling"]["mode"], "Auto");
        assert_eq!(all["queue"]["storageClassName"], "class");
    }
}
