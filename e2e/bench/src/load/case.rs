//! The cases: what clients send, and which settings differ from a pipeline's defaults.

use super::otlp_request::Weight;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub weight: Weight,
    pub setting: Setting,
}

/// What differs from the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The second half of the case's name; `None` with defaults.
    suffix: Option<&'static str>,
    /// `insert.maxInterval` of the gateway, the age at which a block closes; `None` for its default.
    pub flush: Option<&'static str>,
    /// `queue.size` of the pipeline, MiB.
    pub volume_mib: u64,
    /// Whether ClickHouse refuses connections until the clients' time is over.
    pub is_away: bool,
    words: &'static str,
}

/// A pipeline with defaults only. 10 GiB is the default of `queue.size`.
const DEFAULTS: Setting =
    Setting { suffix: None, flush: None, volume_mib: 10 << 10, is_away: false, words: "defaults" };

/// All settings. The volumes are chosen: a small one is full within seconds of heavy requests, and a large one never.
const SETTINGS: [Setting; 6] = [
    DEFAULTS,
    Setting { flush: Some("100ms"), ..named("100ms", "a block closes 100 ms after its first message") },
    Setting { flush: Some("1s"), ..named("1s", "a block closes 1 s after its first message, as by default") },
    Setting { volume_mib: 512, ..named("small-volume", "a volume of 512 MiB") },
    Setting { volume_mib: 40 << 10, ..named("large-volume", "a volume of 40 GiB") },
    Setting { is_away: true, ..named("away", "ClickHouse is away until the clients' time is over") },
];

const fn named(suffix: &'static str, words: &'static str) -> Setting {
    Setting { suffix: Some(suffix), words, ..DEFAULTS }
}

impl Case {
    pub fn all() -> Vec<Case> {
        let of_weight = |weight| SETTINGS.map(|setting| Case { weight, setting });
        [Weight::Heavy, Weight::Light].into_iter().flat_map(of_weight).collect()
    }

    pub fn name(&self) -> String {
        match self.setting.suffix {
            None => self.weight.name().to_owned(),
            Some(suffix) => format!("{}-{suffix}", self.weight.name()),
        }
    }

    /// Whether all requests must be accepted at the first try.
    pub fn is_of_defaults(&self) -> bool {
        self.setting.suffix.is_none()
    }

    pub fn describe(&self) -> String {
        format!("{}; {}", self.weight.words(), self.setting.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let names: BTreeSet<String> = Case::all().iter().map(Case::name).collect();
        assert_eq!(names.len(), 12);
        let suffixes = ["", "-100ms", "-1s", "-away", "-large-volume", "-small-volume"];
        let expected = ["heavy", "light"].map(|weight| suffixes.map(|suffix| format!("{weight}{suffix}")));
        assert!(names.iter().eq(expected.iter().flatten()), "{names:?}");
    }

    #[test]
    fn only_the_cases_without_a_setting_are_those_of_defaults() {
        let of_defaults: Vec<String> =
            Case::all().iter().filter(|case| case.is_of_defaults()).map(Case::name).collect();
        assert_eq!(of_defaults, ["heavy", "light"]);
    }
}
