//! Which pods restart when a file is applied: numbers for programs, and a sentence for people.
//!
//! The names of the fields, outcomes and orders are stable: scripts read them.

use serde::Serialize;
use sluice_plan::words::{form, plural};
use std::{cmp::Ordering, fmt::Write as _};

/// Fields that the sentence names. Chosen: with more of them it would not be read. The JSON has all.
const FIELDS_NAMED_MAX: usize = 6;

/// Which pods restart when the file is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// What came of the comparison.
    pub outcome: Outcome,
    /// The pipeline in the cluster and the URL of the API server; `None` if no cluster answered.
    pub compared_with: Option<String>,
    /// What restarts and why, in one sentence.
    pub message: String,
    /// The gateways; `None` unless the outcome is `New` or `Compared`.
    pub gateways: Option<PodChange>,
    /// Gateways that get a new queue volume; `None` if there are none.
    pub volumes: Option<VolumeChange>,
    /// The pods of the edge; `None` without one, and unless the outcome is `New` or `Compared`.
    pub edge: Option<PodChange>,
    /// What could not be found out, and may restart pods, too.
    pub not_known: Vec<String>,
}

/// What came of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The cluster has no such pipeline.
    New,
    /// The file was compared with the pipeline in the cluster.
    Compared,
    /// The operator would refuse the file or wait with it, and keep what runs.
    Refused,
    /// The operator would change nothing (`managementState: Unmanaged`).
    Unmanaged,
    /// Nothing could be compared.
    NotKnown,
}

/// What happens to the gateways, or to the pods of the edge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodChange {
    /// Pods that run now and are replaced; `None` if they are replaced and their number is not known.
    pub restarts: Option<u32>,
    /// Number of pods now; `None` if it is not known.
    pub replicas_before: Option<u32>,
    /// Number of pods with the file; `None` if it is not known.
    pub replicas_after: Option<u32>,
    /// In which order pods are replaced; `None` if none is.
    pub order: Option<Order>,
    /// Pods that may be away at the same time, once one has the change; `None` if none is replaced.
    pub at_a_time: Option<u32>,
    /// The changed fields that replace pods. If no field does alone, all that change.
    pub because: Vec<String>,
    /// Whether pods are replaced because the operator tries again what it rolled back.
    pub is_retry: bool,
}

/// In which order pods are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Order {
    /// One first; the others once it was healthy for `rollout.canary.duration`.
    Canary,
    /// One after the other, or several at a time once one is ready.
    Rolling,
    /// Each once a new pod is ready.
    Surge,
}

/// Gateways that are replaced together with their queue volume, after all others of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeChange {
    /// How many.
    pub restarts: u32,
    /// The changed fields that replace volumes.
    pub because: Vec<String>,
}

/// Whose pods a [`PodChange`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pods {
    Gateways,
    Edge,
}

impl Restarts {
    /// Nothing could be compared, for this reason.
    pub fn not_known(why: &str) -> Self {
        Self::without_pods(Outcome::NotKnown, format!("not known: {}", in_one_line(why)))
    }

    /// The operator would keep what runs, for this reason.
    pub(super) fn refused(why: &str) -> Self {
        let why = in_one_line(why);
        Self::without_pods(
            Outcome::Refused,
            format!("none (the operator does not carry out the file and keeps what runs: {why})"),
        )
    }

    /// The operator would change nothing.
    pub(super) fn unmanaged() -> Self {
        let message = "none (managementState Unmanaged: the operator changes nothing)";
        Self::without_pods(Outcome::Unmanaged, message.to_owned())
    }

    fn without_pods(outcome: Outcome, message: String) -> Self {
        let not_known = Vec::new();
        Self { outcome, compared_with: None, message, gateways: None, volumes: None, edge: None, not_known }
    }

    /// The cluster has no such pipeline.
    pub(super) fn of_new(gateways: PodChange, edge: Option<PodChange>) -> Self {
        let starts = |pods: Pods, change: &PodChange| pods.count(change.replicas_after.unwrap_or(0));
        let all = [Some(starts(Pods::Gateways, &gateways)), edge.as_ref().map(|it| starts(Pods::Edge, it))];
        let all: Vec<String> = all.into_iter().flatten().collect();
        let message = format!("none (the pipeline is new: it starts {})", all.join(" and "));
        Self { gateways: Some(gateways), edge, ..Self::without_pods(Outcome::New, message) }
    }

    /// The file was compared with the pipeline in the cluster.
    pub(super) fn of_both(
        gateways: PodChange,
        volumes: Option<VolumeChange>,
        edge: Option<PodChange>,
    ) -> Self {
        let replaced = [
            gateways.replaced(Pods::Gateways),
            volumes.as_ref().map(VolumeChange::words),
            edge.as_ref().and_then(|edge| edge.replaced(Pods::Edge)),
        ];
        let scaled =
            [gateways.scaled(Pods::Gateways), edge.as_ref().and_then(|edge| edge.scaled(Pods::Edge))];
        let [replaced, scaled] =
            [joined(replaced.into_iter().flatten()), joined(scaled.into_iter().flatten())];
        let mut message = replaced.unwrap_or_else(|| "none".to_owned());
        if let Some(scaled) = scaled {
            // Writing to a String cannot fail.
            write!(message, " ({scaled})").ok();
        }
        let found = Self::without_pods(Outcome::Compared, message);
        Self { gateways: Some(gateways), volumes, edge, ..found }
    }

    /// The same as lines of a YAML comment.
    pub(super) fn comment(&self) -> String {
        let mut text = format!("# restarts: {}\n", self.message);
        for line in &self.not_known {
            // As above.
            writeln!(text, "# not known: {line}").ok();
        }
        if let Some(compared_with) = &self.compared_with {
            writeln!(text, "# compared with: {compared_with}").ok();
        }
        text
    }
}

impl PodChange {
    /// What is replaced; `None` if nothing is.
    fn replaced(&self, pods: Pods) -> Option<String> {
        if self.restarts == Some(0) {
            return None;
        }
        let count = self.restarts.map_or_else(|| pods.all(), |count| pods.count(count));
        let why = match (self.is_retry, self.because.is_empty()) {
            (false, _) => because(&self.because),
            (true, true) => "because the operator tries again what it rolled back".to_owned(),
            (true, false) => {
                format!("{}, and the operator tries again what it rolled back", because(&self.because))
            }
        };
        Some(format!("{count}{}, {why}", self.order_words()))
    }

    fn order_words(&self) -> String {
        let most = self.at_a_time.unwrap_or(1);
        match self.order {
            Some(Order::Surge) => ", each after a new one is ready".to_owned(),
            _ if self.restarts == Some(1) => String::new(),
            Some(Order::Canary) if most > 1 => format!(", one first (canary), then up to {most} at a time"),
            Some(Order::Canary) => ", one after the other (canary first)".to_owned(),
            Some(Order::Rolling) if most > 1 => format!(", one first, then up to {most} at a time"),
            Some(Order::Rolling) | None => ", one after the other".to_owned(),
        }
    }

    /// What is added or removed; `None` if the number stays.
    fn scaled(&self, pods: Pods) -> Option<String> {
        let (before, after) = (self.replicas_before?, self.replicas_after?);
        let change = match before.cmp(&after) {
            Ordering::Equal => return None,
            Ordering::Less => format!("adds {}", pods.count(after.abs_diff(before))),
            Ordering::Greater => format!("removes {}", pods.count(after.abs_diff(before))),
        };
        Some(format!("replicas {before} -> {after} {change}"))
    }
}

impl VolumeChange {
    fn words(&self) -> String {
        let count = plural(self.restarts, "gateway");
        format!("{count}, one after the other, each with a new queue volume, {}", because(&self.because))
    }
}

impl Pods {
    fn count(self, count: u32) -> String {
        match self {
            Self::Gateways => plural(count, "gateway"),
            Self::Edge => format!("{} of the edge", plural(count, "pod")),
        }
    }

    fn all(self) -> String {
        match self {
            Self::Gateways => "all gateways".to_owned(),
            Self::Edge => "all pods of the edge".to_owned(),
        }
    }
}

fn because(fields: &[String]) -> String {
    let named: Vec<&str> = fields.iter().take(FIELDS_NAMED_MAX).map(String::as_str).collect();
    let more = match fields.len().saturating_sub(FIELDS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {}", plural(more, "other field")),
    };
    format!("because {}{more} {}", named.join(", "), form(fields.len(), "changes", "change"))
}

fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A reason that may have several lines: those of a comment begin with `#`.
fn in_one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}
