//! Every CEL rule, with values that it takes and values that it refuses.

use crate::cases::{AFTER_ENQUEUE, CHANGES, REPLICAS, value_cases};
use crate::{defaulted, sample, samples, schema, smallest};
use kube_cel::{CompiledSchema, Validator, compile_schema, estimate_rule_cost};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::LazyLock};

/// Hundreds of values are tried, and compiling takes longer than all of them.
static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&schema()));

#[test]
fn the_samples_keep_every_rule() {
    for name in samples() {
        assert_eq!(failures(&sample(&name), None), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn each_rule_takes_what_is_right() {
    for case in value_cases() {
        for value in case.taken {
            let found = failures(&with(case.pointer, value), None);
            assert!(found.is_empty(), "{} {value}: {found:?}", case.pointer);
        }
    }
}

#[test]
fn each_rule_refuses_what_is_wrong_with_its_message() {
    for case in value_cases() {
        for value in case.refused {
            let found = failures(&with(case.pointer, value), None);
            assert!(found.iter().any(|m| m.contains(case.message)), "{} {value}: {found:?}", case.pointer);
        }
    }
}

/// Another rule that reads the same value would fail in the words of a parser.
#[test]
fn a_number_of_cores_that_is_none_is_refused_by_the_rule_of_its_field_alone() {
    for (value, message) in [
        (r#"{"requests": {"cpu": "half"}}"#, "requests.cpu is a number of cores"),
        (r#"{"limits": {"cpu": "half"}}"#, "limits.cpu is a number of cores"),
        (r#"{"requests": {"cpu": 2}, "limits": {"cpu": "many"}}"#, "limits.cpu is a number of cores"),
        (r#"{"requests": {"cpu": ""}, "limits": {"cpu": "100m"}}"#, "requests.cpu is a number of cores"),
        (r#"{"cpuRequest": "half"}"#, "cpuRequest is a number of cores"),
        (r#"{"cpuLimit": "half"}"#, "cpuLimit is a number of cores"),
    ] {
        let found = failures(&with("/spec/gateway/resources", value), None);
        assert!(matches!(found.as_slice(), [only] if only.contains(message)), "{value}: {found:?}");
    }
}

#[test]
fn each_transition_rule_sees_the_change() {
    for (pointer, from, to, taken, message) in CHANGES {
        let found = failures(&with(pointer, to), Some(&with(pointer, from)));
        assert_eq!(found.is_empty(), *taken, "{pointer} {from} -> {to}: {found:?}");
        assert!(*taken || found.iter().any(|m| m.contains(message)), "{pointer} {from} -> {to}: {found:?}");
    }
}

#[test]
fn replicas_belongs_to_whoever_sets_it() {
    for (replicas, mode, message) in REPLICAS {
        let mut object = with("/spec/scaling", &json!({"mode": mode}).to_string());
        if *replicas != "null" {
            object["spec"]["replicas"] = serde_json::from_str(replicas).unwrap();
        }
        let found = failures(&object, None);
        assert_eq!(found.is_empty(), message.is_empty(), "{mode} {replicas}: {found:?}");
        assert!(found.iter().all(|m| m.contains(message)), "{mode} {replicas}: {found:?}");
    }
}

#[test]
fn what_is_committed_before_its_insert_is_on_a_volume_that_is_not_thrown_away() {
    for (mode, on_timeout, message) in AFTER_ENQUEUE {
        for commit in ["AfterInsert", "AfterEnqueue"] {
            let mut object = with("/spec/delivery/commit", &json!(commit).to_string());
            object["spec"]["queue"]["mode"] = (*mode).into();
            object["spec"]["scaling"]["drain"]["onTimeout"] = (*on_timeout).into();
            let found = failures(&object, None);
            let is_taken = commit == "AfterInsert" || message.is_empty();
            assert_eq!(found.is_empty(), is_taken, "{commit} {mode} {on_timeout}: {found:?}");
            assert!(found.iter().all(|m| m.contains(message)), "{commit} {mode} {on_timeout}: {found:?}");
        }
    }
}

#[test]
fn every_rule_compiles_stays_cheap_and_is_tried() {
    let refused: Vec<_> = value_cases()
        .map(|case| case.message)
        .chain(CHANGES.iter().map(|c| c.4))
        .chain(REPLICAS.iter().map(|c| c.2))
        .chain(AFTER_ENQUEUE.iter().map(|c| c.2))
        .collect();
    let taken = taken();
    let mut rules = BTreeSet::new();
    collect(&schema(), &mut rules);
    assert!(rules.len() >= 12, "{rules:?}");
    for (schema, message) in &rules {
        let compiled = compile_schema(&serde_json::from_str(schema).unwrap());
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        for rule in compiled.validations.iter().flatten() {
            let warnings = estimate_rule_cost(&rule.rule.rule, &compiled);
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let tried = refused.iter().any(|part| !part.is_empty() && message.contains(part));
        assert!(tried, "no test is refused by: {message}");
        let is_taken = taken.iter().any(|part| message.contains(part));
        assert!(is_taken, "no test is taken by, where it could be refused: {message}");
    }
}

/// Parts of the messages of rules that take something in a test which stands where they refuse something else.
fn taken() -> BTreeSet<&'static str> {
    let values = value_cases().filter(|case| !case.taken.is_empty()).map(|case| case.message);
    let is_taken_at = |pointer: &str| CHANGES.iter().any(|change| change.0 == pointer && change.3);
    let changes = CHANGES.iter().filter(|change| !change.3 && is_taken_at(change.0)).map(|change| change.4);
    // What is taken with the same mode, and with the same mode or the same end of a drain.
    let replicas =
        REPLICAS.iter().filter(|one| REPLICAS.iter().any(|two| two.1 == one.1 && two.2.is_empty()));
    let drains = AFTER_ENQUEUE
        .iter()
        .filter(|one| AFTER_ENQUEUE.iter().any(|two| two.2.is_empty() && (two.0 == one.0 || two.1 == one.1)));
    let all = values.chain(changes).chain(replicas.map(|one| one.2)).chain(drains.map(|one| one.2));
    all.filter(|message| !message.is_empty()).collect()
}

/// The smallest pipeline with one value in it.
fn with(pointer: &str, value: &str) -> Value {
    let mut object = defaulted(&smallest());
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let mut value: Value = serde_json::from_str(value).unwrap();
    // A null takes a field away, as in a merge patch.
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

/// The messages of the rules that a pipeline breaks.
pub fn failures(object: &Value, old: Option<&Value>) -> Vec<String> {
    let old = old.map(defaulted);
    match Validator::new().validate_compiled(&RULES, &defaulted(object), old.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// Every schema node that has rules, as text, with the message of each rule.
pub fn collect(value: &Value, into: &mut BTreeSet<(String, String)>) {
    if let Some(rules) = value.get("x-kubernetes-validations").and_then(Value::as_array) {
        for rule in rules {
            let message = rule["message"].as_str().expect("each rule has a message");
            assert!(!message.contains('\n'), "{message}");
            into.insert((value.to_string(), message.to_owned()));
        }
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|field| collect(field, into)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

#[test]
fn the_defaults_of_the_test_are_those_of_the_server() {
    let filled_in = defaulted(&json!({"spec": {}}));
    assert_eq!(
        filled_in["spec"]["gateway"]["resources"]["resize"], "None",
        "defaults within defaults are filled in"
    );
}
