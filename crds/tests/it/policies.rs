//! The admission policies in `config/samples`, by their own expressions: what they refuse, and what they let through.

use crate::sample;
use kube_cel::{
    KubeCelExt,
    cel::{Context, Program, Value as CelValue},
};
use serde_json::{Value, json};

const KEEP: &str = "sluice-keep-volumes";
const AFTER_ENQUEUE: &str = "sluice-after-enqueue";

/// The policies, each with its binding.
fn documents() -> Vec<Value> {
    let path = format!("{}/../config/samples/keep-volumes.yaml", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn policy(name: &str) -> Value {
    let found = documents().into_iter().find(|document| {
        document["kind"] == "ValidatingAdmissionPolicy" && document["metadata"]["name"] == name
    });
    found.unwrap_or_else(|| panic!("no policy {name}"))
}

/// Whether the API server would refuse a request with these variables: all conditions hold, and a validation does not.
fn refuses(policy: &Value, variables: &Value) -> bool {
    let is_true = |expression: &Value| {
        let mut context = Context::default().with_all();
        for (name, value) in variables.as_object().unwrap() {
            context.add_variable(name.as_str(), value.clone()).unwrap();
        }
        let program = Program::compile(expression["expression"].as_str().unwrap()).unwrap();
        match program.execute(&context) {
            Ok(CelValue::Bool(is_true)) => is_true,
            other => panic!("{expression}: {other:?} with {variables}"),
        }
    };
    let all = |list: &Value| list.as_array().into_iter().flatten().all(is_true);
    all(&policy["spec"]["matchConditions"]) && !all(&policy["spec"]["validations"])
}

/// A namespace with labels, or without any.
fn namespace(labels: &Value) -> Value {
    let mut namespace = json!({"metadata": {"name": "tracing"}});
    if !labels.is_null() {
        namespace["metadata"]["labels"] = labels.clone();
    }
    namespace
}

const LABELS: [(&str, bool); 5] = [
    ("null", false),
    ("{}", false),
    (r#"{"kubernetes.io/metadata.name": "tracing"}"#, false),
    (r#"{"sluice.dev/keep-volumes": "false"}"#, false),
    (r#"{"sluice.dev/keep-volumes": "true"}"#, true),
];

#[test]
fn a_namespace_with_the_label_is_not_deleted_and_any_other_is() {
    for (labels, is_kept) in LABELS {
        let labels: Value = serde_json::from_str(labels).unwrap();
        let request = json!({"oldObject": namespace(&labels), "object": null});
        assert_eq!(refuses(&policy(KEEP), &request), is_kept, "{labels}");
    }
}

#[test]
fn a_pipeline_comes_to_commit_after_the_enqueue_in_a_namespace_with_the_label_alone() {
    let pipeline = |delivery: &str| {
        let delivery: Value = serde_json::from_str(delivery).unwrap();
        let mut pipeline = sample("tracepipeline.yaml");
        if !delivery.is_null() {
            pipeline["spec"]["delivery"] = delivery;
        }
        pipeline
    };
    let (after_enqueue, after_insert) = (r#"{"commit": "AfterEnqueue"}"#, r#"{"commit": "AfterInsert"}"#);
    for (before, after, is_checked) in [
        (None, after_enqueue, true),
        (None, after_insert, false),
        (None, "{}", false),
        (None, "null", false),
        (Some("null"), after_enqueue, true),
        (Some("{}"), after_enqueue, true),
        (Some(after_insert), after_enqueue, true),
        // Its finalizer is written by the operator, and its spec by the user who repairs it.
        (Some(after_enqueue), after_enqueue, false),
        (Some(after_enqueue), after_insert, false),
    ] {
        for (labels, is_kept) in LABELS {
            let labels: Value = serde_json::from_str(labels).unwrap();
            let request = json!({
                "request": {"operation": if before.is_some() { "UPDATE" } else { "CREATE" }},
                "object": pipeline(after), "oldObject": before.map(pipeline),
                "namespaceObject": namespace(&labels),
            });
            let expected = is_checked && !is_kept;
            assert_eq!(refuses(&policy(AFTER_ENQUEUE), &request), expected, "{before:?} {after} {labels}");
        }
    }
}

#[test]
fn each_policy_is_bound_and_asked_about_what_it_is_for() {
    let documents = documents();
    assert_eq!(documents.len(), 4);
    for (name, group, resource, operations) in [
        (KEEP, "", "namespaces", json!(["DELETE"])),
        (AFTER_ENQUEUE, "sluice.dev", "tracepipelines", json!(["CREATE", "UPDATE"])),
    ] {
        let spec = policy(name)["spec"].clone();
        let rule = &spec["matchConstraints"]["resourceRules"][0];
        assert_eq!(
            (&rule["apiGroups"], &rule["resources"], &rule["operations"]),
            (&json!([group]), &json!([resource]), &operations)
        );
        assert_eq!(spec["failurePolicy"], "Fail");
        let bound = documents.iter().filter(|document| document["spec"]["policyName"] == name);
        let actions: Vec<&Value> = bound.map(|binding| &binding["spec"]["validationActions"]).collect();
        assert_eq!(actions, [&json!(["Deny"])]);
    }
}
