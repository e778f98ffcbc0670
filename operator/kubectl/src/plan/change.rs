//! The fields in which two specs differ, and those of them that replace pods.
//!
//! No list says which fields do. The planner renders the spec in the cluster with one field of the file. If another pod template follows, the
//! field is a cause. If the planner refuses that spec, it renders the file without the field. If it refuses both, the field counts as a cause.
//!
//! Limits: [`FIELDS_TRIED_MAX`]. A list is one field, and so is an object that only one of the specs has.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};
use sluice_crds::{TracePipeline, TracePipelineSpec};
use sluice_plan::located;
use std::collections::BTreeSet;

/// With more changed fields, all of them are causes. Chosen: the planner renders twice for each, in milliseconds, and a person waits.
const FIELDS_TRIED_MAX: usize = 64;

/// What decides whether pods of a pipeline are replaced.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decides {
    /// The revision of the gateways' pod template.
    pub gateways: String,
    /// The gateways that get a new queue volume, by ordinal.
    pub volumes: BTreeSet<u32>,
    /// The pod template of the edge; `None` without an edge.
    pub edge: Option<PodTemplateSpec>,
}

/// A part of [`Decides`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Gateways,
    Volumes,
    Edge,
}

impl Decides {
    fn differs(&self, other: &Self, part: Part) -> bool {
        match part {
            Part::Gateways => self.gateways != other.gateways,
            Part::Volumes => self.volumes != other.volumes,
            Part::Edge => self.edge != other.edge,
        }
    }
}

/// What a spec decides; `None` if the planner refuses it.
type Render<'a> = &'a dyn Fn(&TracePipeline) -> Option<Decides>;

/// The change from the spec in the cluster to that of the file.
pub(super) struct Change<'a> {
    before: (&'a Decides, Value),
    after: (&'a Decides, Value),
    /// The pipeline with the spec of the file.
    pipeline: &'a TracePipeline,
    render: Render<'a>,
    /// Paths within the spec, in the order of their names.
    fields: Vec<Vec<String>>,
}

impl<'a> Change<'a> {
    /// Finds the fields. Connections stand in both specs already.
    pub fn of(
        (before, old): (&TracePipeline, &'a Decides),
        (after, new): (&'a TracePipeline, &'a Decides),
        render: Render<'a>,
    ) -> Self {
        let (before, pipeline) = (json!(before.spec), after);
        let after = json!(after.spec);
        let mut fields = Vec::new();
        differences(&before, &after, &mut Vec::new(), &mut fields);
        Self { before: (old, before), after: (new, after), pipeline, render, fields }
    }

    /// Whether something of this part is another.
    pub fn changes(&self, part: Part) -> bool {
        self.before.0.differs(self.after.0, part)
    }

    /// The fields that change this part, each with its path as a person has to edit it. If none does alone, all that change.
    pub fn causes(&self, part: Part) -> Vec<String> {
        let is_tried = self.fields.len() <= FIELDS_TRIED_MAX;
        let causes = self.fields.iter().filter(|field| is_tried && self.is_cause(field, part));
        let causes: Vec<String> = causes.map(|field| self.named(field)).collect();
        if causes.is_empty() { self.all() } else { causes }
    }

    /// All fields that change.
    pub fn all(&self) -> Vec<String> {
        self.fields.iter().map(|field| self.named(field)).collect()
    }

    fn is_cause(&self, field: &[String], part: Part) -> bool {
        let ((old, before), (new, after)) = (&self.before, &self.after);
        if let Some(alone) = self.rendered(with(before, field, after)) {
            return alone.differs(old, part);
        }
        self.rendered(with(after, field, before)).is_none_or(|without| without.differs(new, part))
    }

    fn rendered(&self, spec: Option<Value>) -> Option<Decides> {
        let spec: TracePipelineSpec = serde_json::from_value(spec?).ok()?;
        (self.render)(&TracePipeline { spec, ..self.pipeline.clone() })
    }

    fn named(&self, field: &[String]) -> String {
        located(&self.pipeline.spec, &format!("spec.{}", field.join(".")))
    }
}

/// Adds the paths at which two values differ. `path` is where they stand.
fn differences(before: &Value, after: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                path.push(name.clone());
                differences(&before[name.as_str()], &after[name.as_str()], path, found);
                path.pop();
            }
        }
        _ if before != after => found.push(path.clone()),
        _ => {}
    }
}

/// The spec with the value that another spec gives to this field; `None` if the spec has no place for the field.
fn with(spec: &Value, field: &[String], other: &Value) -> Option<Value> {
    let (name, parents) = field.split_last()?;
    let value = field.iter().try_fold(other, |at, name| at.get(name));
    let mut changed = spec.clone();
    let parent = parents.iter().try_fold(&mut changed, |at, name| at.get_mut(name))?;
    let fields = parent.as_object_mut()?;
    match value {
        Some(value) => drop(fields.insert(name.clone(), value.clone())),
        None => drop(fields.remove(name)),
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(before: &Value, after: &Value) -> Vec<String> {
        let mut found = Vec::new();
        differences(before, after, &mut Vec::new(), &mut found);
        found.iter().map(|field| field.join(".")).collect()
    }

    #[test]
    fn a_field_is_a_value_a_list_or_an_object_that_one_side_lacks() {
        let before = json!({"a": {"b": 1, "c": [1, 2], "d": "x"}, "gone": {"e": 1}, "same": {"f": null}});
        let after = json!({"a": {"b": 2, "c": [1], "d": "x"}, "new": {"g": {"h": 1}}, "same": {}});
        assert_eq!(fields(&before, &after), ["a.b", "a.c", "gone", "new"]);
        assert_eq!(fields(&before, &before), [""; 0]);
    }

    #[test]
    fn one_field_is_taken_from_the_other_spec_and_no_other() {
        let before = json!({"a": {"b": 1, "c": 1}, "gone": 1});
        let after = json!({"a": {"b": 2, "c": 2}, "new": {"d": 1}});
        let take = |field: &[&str]| {
            let field: Vec<String> = field.iter().map(|&name| name.to_owned()).collect();
            with(&before, &field, &after)
        };
        assert_eq!(take(&["a", "b"]), Some(json!({"a": {"b": 2, "c": 1}, "gone": 1})));
        assert_eq!(take(&["gone"]), Some(json!({"a": {"b": 1, "c": 1}})));
        assert_eq!(take(&["new"]), Some(json!({"a": {"b": 1, "c": 1}, "gone": 1, "new": {"d": 1}})));
        assert_eq!(take(&["x", "y"]), None);
    }

    /// A pipeline with these fields.
    fn pipeline(partitions_per_replica: u32, replicas: u32, log_level: &str) -> TracePipeline {
        serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "metadata": {"name": "a"},
            "spec": {
                "source": {"kafka": {"bootstrapServers": ["a:9092"], "topics": ["a"]}},
                "sink": {"clickhouse": {"endpoints": ["http://a:8123"]}},
                "partitionsPerReplica": partitions_per_replica, "replicas": replicas,
                "gateway": {"logLevel": log_level},
            },
        }))
        .unwrap()
    }

    /// The causes where a pipeline with these numbers decides this text, or is refused.
    fn causes(decides: impl Fn(u32, u32) -> Option<String>) -> Vec<String> {
        let render = |pipeline: &TracePipeline| {
            let gateways = decides(pipeline.spec.partitions_per_replica, pipeline.spec.replicas?)?;
            Some(Decides { gateways, volumes: BTreeSet::new(), edge: None })
        };
        let (before, after) = (pipeline(4, 1, "info"), pipeline(8, 2, "debug"));
        let (old, new) = (render(&before).unwrap(), render(&after).unwrap());
        let change = Change::of((&before, &old), (&after, &new), &render);
        assert!(change.changes(Part::Gateways) && !change.changes(Part::Edge));
        change.causes(Part::Gateways)
    }

    #[test]
    fn a_field_is_a_cause_if_it_changes_what_decides_and_others_are_not_named() {
        const PER_REPLICA: &str = "spec.partitionsPerReplica";
        assert_eq!(causes(|per_replica, _| Some(per_replica.to_string())), [PER_REPLICA]);
        let found = causes(|per_replica, replicas| Some(format!("{per_replica} {replicas}")));
        assert_eq!(found, [PER_REPLICA, "spec.replicas"]);
        // It is valid only beside the other one, and decides alone.
        let found = causes(|per_replica, replicas| {
            ((per_replica, replicas) != (8, 1)).then(|| per_replica.to_string())
        });
        assert_eq!(found, [PER_REPLICA]);
        // Neither is valid alone.
        let found =
            causes(|per_replica, replicas| (per_replica == 4 * replicas).then(|| per_replica.to_string()));
        assert_eq!(found, [PER_REPLICA, "spec.replicas"]);
        // Only both together change something.
        let found = causes(|per_replica, replicas| Some((per_replica == 8 && replicas == 2).to_string()));
        assert_eq!(found, ["spec.gateway.logLevel", PER_REPLICA, "spec.replicas"]);
    }
}
