//! The words that other programs go by: types and reasons of conditions, in which rules, dashboards, health scripts and `kubectl wait` ask.
//! They are written out here, so that whoever renames one is told that it is a promise.

use sluice_plan::scale::{Hold, Limit};
use std::collections::BTreeSet;

/// Types of conditions.
const TYPES: [&str; 12] = [
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
];

/// Reasons of conditions.
const REASONS: [&str; 59] = [
    "Active",
    "ApplyFailed",
    "AuthFailed",
    "ColumnMismatch",
    "ConsumerGroupTaken",
    "DatabaseMissing",
    "Deleting",
    "Disabled",
    "DrainFailed",
    "Draining",
    "External",
    "FileSystemResizePending",
    "InsertsFailing",
    "JobFailed",
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
    assert_eq!(sluice_crds::status::condition::ALL, TYPES, "in the order in which they are written");
    assert_eq!(constants("reason"), REASONS.into());
    let holds = Hold::ALL.iter().map(|hold| hold.word());
    let words: BTreeSet<_> = holds.chain(Limit::ALL.iter().map(|limit| limit.word())).collect();
    assert_eq!(words, OF_SCALING.into());
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
