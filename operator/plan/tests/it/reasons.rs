//! The words that other programs depend on: types and reasons of conditions. Rules, dashboards, health scripts and `kubectl wait` use them.
//! They are written out here, so that a test fails when one is renamed.

use serde_json::Value;
use sluice_plan::scale::{Hold, Limit};
use std::collections::{BTreeMap, BTreeSet};

/// Types of conditions.
const TYPES: [&str; 13] = [
    "Ready",
    "Reconciling",
    "Stalled",
    "SourceReachable",
    "SinkReachable",
    "SchemaReady",
    "ScalingActive",
    "ScalingLimited",
    "Suspended",
    "ReconciliationPaused",
    "VolumesResized",
    "VolumesDrained",
    "EdgeReady",
];

/// Reasons of conditions.
const REASONS: [&str; 64] = [
    "Active",
    "ApplyFailed",
    "AuthFailed",
    "ClaimDeleted",
    "ColumnMismatch",
    "ConnectionMissing",
    "ConsumerGroupTaken",
    "DatabaseMissing",
    "Deleting",
    "Disabled",
    "DrainFailed",
    "Draining",
    "EdgeNotReady",
    "External",
    "FileSystemResizePending",
    "Idle",
    "InsertsFailing",
    "JobFailed",
    "JobNotStarted",
    "JobRunning",
    "Malformed",
    "Managed",
    "MessagesRejected",
    "MessagesWithoutSpans",
    "NotDeleted",
    "NotExpandable",
    "NotManaged",
    "NotProbed",
    "Ok",
    "PartitionsLost",
    "PartitionsUnread",
    "PodsRefused",
    "Progressing",
    "Replacing",
    "ReplicasNotReady",
    "Resizing",
    "ResizingVolumes",
    "RolledBack",
    "RollingOut",
    "RolloutFailed",
    "RowsRefused",
    "Running",
    "Scaling",
    "ScalingConflict",
    "SchemaDiffers",
    "SecretIncomplete",
    "SecretMissing",
    "ServersNotReached",
    "SinkUnavailable",
    "SourceUnavailable",
    "SpecChanged",
    "SpecInvalid",
    "StorageClassMissing",
    "Suspended",
    "TableMissing",
    "Timeout",
    "TlsFailed",
    "TopicMissing",
    "TransactionHanging",
    "Unmanaged",
    "Unreachable",
    "UpToDate",
    "VolumeOutOfReach",
    "Waiting",
];

/// Reasons of `ScalingActive` and `ScalingLimited` that scaling has.
const OF_SCALING: [&str; 11] = [
    "Budget",
    "MaxReplicas",
    "Memory",
    "MetricsUnavailable",
    "PartitionSkewed",
    "PartitionStuck",
    "Rebalancing",
    "RolloutInProgress",
    "SinkLimited",
    "TooFewPartitions",
    "Unschedulable",
];

/// The texts of the constants of a module of `crds/src/status.rs`.
fn constants(module: &str) -> BTreeSet<&'static str> {
    const SOURCE: &str = include_str!("../../../../crds/src/status.rs");
    let begin = SOURCE.find(&format!("pub mod {module} {{")).unwrap();
    let text = &SOURCE[begin..];
    let text = &text[..text.find("\n}").unwrap()];
    let texts = text.lines().filter_map(|line| {
        let (_, text) = line.trim().strip_prefix("pub const ")?.split_once(": &str = \"")?;
        text.strip_suffix("\";")
    });
    texts.collect()
}

#[test]
fn no_type_or_reason_is_renamed_added_or_lost_without_being_written_here() {
    assert_eq!(constants("condition"), TYPES.into());
    let (always, with_an_edge) = TYPES.split_at(sluice_crds::status::condition::ALL.len());
    assert_eq!(sluice_crds::status::condition::ALL, *always, "in the order in which they are written");
    assert_eq!(with_an_edge, [sluice_crds::status::condition::EDGE_READY]);
    assert_eq!(constants("reason"), REASONS.into());
    let holds = Hold::ALL.iter().map(|hold| hold.word());
    let words: BTreeSet<_> = holds.chain(Limit::ALL.iter().map(|limit| limit.word())).collect();
    assert_eq!(words, OF_SCALING.into());
}

/// What `crds/CONDITIONS.md` has for each type: the reasons in the first column of its table, with the statuses in the second.
fn documented() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    const DOCUMENT: &str = include_str!("../../../../crds/CONDITIONS.md");
    let row = |line: &'static str| {
        let (reason, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((reason, rest.split(" | ").next()?))
    };
    let sections = DOCUMENT.split("\n## ").skip(1).map(|section| {
        let (kind, text) = section.split_once('\n').unwrap();
        let reasons: BTreeMap<_, _> = text.lines().filter_map(row).collect();
        (kind, reasons)
    });
    sections.filter(|(kind, _)| TYPES.contains(kind)).collect()
}

#[test]
fn the_document_has_every_type_and_every_reason() {
    let documented = documented();
    let types: BTreeSet<&str> = documented.keys().copied().collect();
    assert_eq!(types, TYPES.into());
    let reasons: BTreeSet<&str> = documented.values().flat_map(BTreeMap::keys).copied().collect();
    let expected: BTreeSet<&str> = REASONS.into_iter().chain(OF_SCALING).collect();
    assert_eq!(reasons, expected);
}

#[test]
fn the_document_has_what_every_state_says() {
    let documented = documented();
    let folder = format!("{}/../../config/argocd/testdata", env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let state: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for condition in state["status"]["conditions"].as_array().into_iter().flatten() {
            let [kind, reason, status] =
                ["type", "reason", "status"].map(|field| condition[field].as_str().unwrap());
            let statuses = documented[kind].get(reason).copied().unwrap_or_default();
            assert!(statuses.contains(status), "{}: {kind} is {status} with {reason}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn alerts_and_dashboards_ask_for_conditions_that_there_are() {
    let mut asked = 0;
    for file in ["prometheus/rules.yaml", "grafana/operator.json", "grafana/pipelines.json"] {
        let path = format!("{}/../../config/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap().replace("\\\"", "\"");
        for selector in text.split("sluice_operator_pipeline_condition{").skip(1) {
            let selector = selector.split('}').next().unwrap();
            for matcher in selector.split("\",").filter(|matcher| matcher.contains('"')) {
                let (label, values) = matcher.trim_end_matches('"').split_once('"').unwrap();
                let label = label.trim_matches(|c: char| !c.is_ascii_alphabetic());
                for value in values.split('|').filter(|value| !value.starts_with('$')) {
                    asked += 1;
                    let is_known = match label {
                        "type" => TYPES.contains(&value),
                        "reason" => REASONS.contains(&value) || OF_SCALING.contains(&value),
                        "status" => ["True", "False", "Unknown"].contains(&value),
                        "namespace" | "name" => true,
                        _ => false,
                    };
                    assert!(is_known, "{file}: {label} {value:?} in {selector}");
                }
            }
        }
    }
    assert!(asked >= 10, "{asked}");
}
