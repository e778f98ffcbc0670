//! Objects that API servers have stored for earlier versions: they are read, keep their meaning, and can be edited.

use crate::{defaulted, rules::failures};
use serde_json::{Value, json};
use sluice_crds::{TracePipeline, TracePipelineStatus};
use std::{collections::BTreeMap, fs};

/// The objects in `crds/tests/stored`, by the name of their file.
fn stored() -> BTreeMap<String, Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stored");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let found: BTreeMap<String, Value> = files
        .map(|file| {
            let text = fs::read_to_string(file.path()).unwrap();
            (file.file_name().into_string().unwrap(), serde_saphyr::from_str(&text).unwrap())
        })
        .collect();
    assert!(found.len() >= 7, "{:?}", found.keys());
    found
}

#[test]
fn every_rule_takes_a_stored_object_and_an_edit_of_it() {
    for (name, object) in stored() {
        assert_eq!(failures(&object, None), Vec::<String>::new(), "{name}");
        let mut edited = object.clone();
        edited["spec"]["partitionsPerReplica"] = json!(7);
        assert_eq!(failures(&edited, Some(&object)), Vec::<String>::new(), "{name}");
    }
}

/// A tool that owns none of the former fields cannot remove what a server filled in, and can still write the new form.
#[test]
fn resources_of_a_stored_object_can_be_written_in_the_new_form() {
    for (name, object) in stored() {
        let before: TracePipeline = serde_json::from_value(object.clone()).unwrap();
        let resources = before.spec.gateway.resources;
        let mut edited = object.clone();
        let fields = edited["spec"]["gateway"]["resources"].as_object_mut().unwrap();
        // The tool that wrote a former field removes it.
        for former in resources.deprecated() {
            fields.remove(former.field.rsplit_once('.').unwrap().1);
        }
        let mut limits = json!({"memory": resources.memory().text});
        if let Some(limit) = resources.cpu_limit() {
            limits["cpu"] = limit.text.into();
        }
        fields.insert("requests".into(), json!({"cpu": resources.cpu_request().text}));
        fields.insert("limits".into(), limits);
        assert_eq!(failures(&edited, Some(&object)), Vec::<String>::new(), "{name}");
        let after: TracePipeline = serde_json::from_value(edited).unwrap();
        let after = after.spec.gateway.resources;
        assert_eq!(after.deprecated(), [], "{name}");
        for (before, after) in [
            (Some(resources.memory()), Some(after.memory())),
            (Some(resources.cpu_request()), Some(after.cpu_request())),
            (resources.cpu_limit(), after.cpu_limit()),
        ] {
            assert_eq!(before.map(|one| one.text), after.map(|one| one.text), "{name}");
        }
    }
}

/// A server fills in what has a default by now, and so do the types; else a stored object is read as it was written.
#[test]
fn a_stored_spec_is_read_as_it_was_written_and_with_later_defaults() {
    for (name, object) in stored() {
        let pipeline: TracePipeline = serde_json::from_value(object.clone()).unwrap();
        let read = serde_json::to_value(&pipeline.spec).unwrap();
        assert_eq!(read, defaulted(&object)["spec"], "{name}");
        let mut without = read;
        for (parent, field) in [
            ("/gateway", "upgradeStrategy"),
            ("/sink/clickhouse/schema", "durability"),
            ("/sink/clickhouse/insert", "format"),
            ("/queue", "onZoneLoss"),
            ("", "podDisruptionBudget"),
            ("", "observability"),
        ] {
            if object["spec"].pointer(&format!("{parent}/{field}")).is_none() {
                without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            }
        }
        assert_eq!(without, object["spec"], "{name}");
    }
}

#[test]
fn a_stored_status_is_read() {
    for (name, object) in stored() {
        let status: TracePipelineStatus = serde_json::from_value(object["status"].clone()).unwrap();
        assert_eq!(status.conditions.len(), 12, "{name}");
        assert!(status.desired_replicas.is_some() && status.rollout.is_some(), "{name}");
    }
}

#[test]
fn a_server_adds_nothing_to_the_former_fields() {
    for (name, object) in stored() {
        assert_eq!(
            defaulted(&object)["spec"]["gateway"]["resources"],
            object["spec"]["gateway"]["resources"],
            "{name}"
        );
    }
}
