//! Pipelines with arbitrary edits: each that can be read at all is planned or refused, and gets a status, without a panic. The operator
//! survives a panic (`operator/src/reconcile/outcome.rs`), but it could not manage that pipeline.

use crate::{defaults, observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::{prelude::*, sample::Index, strategy::ValueTree as _, test_runner::TestRunner};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{
    Observed, Planned, ReconcileFailure, WorkloadSeen, build, derived, plan, removing, schema_job_name,
    status, status_of_failure,
};
use std::{fs, sync::LazyLock};

/// Values that stand where others were meant, and some that are only too large, too small or not of this alphabet.
const VALUES: [&str; 34] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "64",
    "4294967295",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "1e300",
    "0.5",
    r#""""#,
    r#"" ""#,
    r#""é""#,
    r#""\u0000""#,
    r#""٣Gi""#,
    r#""-1Gi""#,
    r#""0Mi""#,
    r#""99999999999999Ti""#,
    r#""18446744073709551615Ti""#,
    r#""1e9Gi""#,
    r#""999999999999m""#,
    r#""18446744073709551615h""#,
    r#""9223372036854775807d""#,
    r#""1s""#,
    r#""kafka:0""#,
    r#""../../etc""#,
    "[]",
    r#"[""]"#,
    "{}",
    r#"{"": ""}"#,
    r#"["a", "a", "a"]"#,
];

#[derive(Debug, Clone)]
enum Edit {
    Remove,
    Set(usize),
    /// Sets what stands elsewhere.
    Move(Index),
    /// Sets a text of this many letters.
    Long(usize),
}

fn edits() -> impl Strategy<Value = Vec<(Index, Edit)>> {
    let edit = prop_oneof![
        1 => Just(Edit::Remove),
        4 => (0..VALUES.len()).prop_map(Edit::Set),
        2 => any::<Index>().prop_map(Edit::Move),
        1 => (1_usize..5_000).prop_map(Edit::Long),
    ];
    prop::collection::vec((any::<Index>(), edit), 1..4)
}

/// The samples, and pipelines with a status of every kind.
static ORIGINALS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for folder in ["samples", "argocd/testdata"] {
        let folder = format!("{}/../../config/{folder}", env!("CARGO_MANIFEST_DIR"));
        for file in fs::read_dir(folder).unwrap() {
            let object: Result<Value, _> =
                serde_saphyr::from_str(&fs::read_to_string(file.unwrap().path()).unwrap());
            all.extend(object.ok().filter(|object| object["kind"] == "TracePipeline").map(|mut object| {
                object["metadata"]["namespace"] = "tracing".into();
                object["metadata"]["uid"] = "u".into();
                object
            }));
        }
    }
    all.sort_by_key(|object| object["metadata"]["name"].to_string());
    assert!(all.len() > 20, "{}", all.len());
    all
});

/// The places in an object that an edit may concern.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.replace('/', "~1"), field)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        let place = format!("{at}/{name}");
        places(child, &place, into);
        into.push(place);
    }
}

fn edited(mut object: Value, edits: &[(Index, Edit)]) -> Value {
    for (index, edit) in edits {
        let mut all = Vec::new();
        places(&object, "", &mut all);
        if all.is_empty() {
            break;
        }
        let place = index.get(&all);
        let value = match edit {
            Edit::Remove => {
                let (parent, name) = place.rsplit_once('/').unwrap();
                match object.pointer_mut(parent).unwrap() {
                    Value::Object(fields) => drop(fields.remove(&name.replace("~1", "/"))),
                    Value::Array(items) => drop(items.remove(name.parse().unwrap())),
                    _ => unreachable!("only these have something inside"),
                }
                continue;
            }
            Edit::Set(value) => serde_json::from_str(VALUES[*value]).unwrap_or(Value::Null),
            Edit::Move(from) => object.pointer(from.get(&all).as_str()).unwrap().clone(),
            Edit::Long(letters) => "é".repeat(*letters).into(),
        };
        *object.pointer_mut(place).unwrap() = value;
    }
    object
}

/// Everything that is worked out from a pipeline and these facts.
fn look(pipeline: &TracePipeline, facts: &Observed) {
    let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
    let planned = plan(pipeline, facts, &defaults());
    let said = status(pipeline, facts, planned.as_ref(), &now);
    let of_edge = usize::from(pipeline.spec.edge.is_some());
    assert_eq!(said.conditions.len(), sluice_crds::status::condition::ALL.len() + of_edge);
    let _ = removing(pipeline, facts, &now);
    let _ =
        schema_job_name(pipeline, &facts.secrets, &facts.partitions, facts.workload.as_ref(), &defaults());
    if let Ok(Planned::Ready(plan)) = &planned {
        let _ = (build(plan), derived(plan));
    }
}

proptest! {
    // Of five that are edited one can be read.
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn no_edit_of_a_pipeline_makes_the_operator_panic(
        original in any::<Index>(),
        edits in edits(),
        partitions in prop_oneof![Just(0), Just(1), Just(12), Just(5_000), Just(u32::MAX)],
        wanted in prop_oneof![Just(None), (0_u32..2_000).prop_map(Some)],
    ) {
        let object = edited(original.get(&ORIGINALS).clone(), &edits);
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let failure = ReconcileFailure { reason: "Malformed", message: "m".into(), stays: true };
        let told = status_of_failure(&object["status"], Some(1), &failure, &now);
        prop_assert!(told["conditions"].as_array().is_some_and(|all| all.len() >= 12), "{told}");
        // What cannot be read as a pipeline comes no further.
        if let Ok(pipeline) = serde_json::from_value::<TracePipeline>(object) {
            let workload = wanted.map(|wanted| WorkloadSeen { wanted, replicas: wanted, ..WorkloadSeen::default() });
            look(&pipeline, &Observed { workload, ..observed(&pipeline, partitions) });
            look(&pipeline, &Observed::default());
        }
    }
}

#[test]
fn of_the_edited_pipelines_some_can_be_read_and_some_cannot() {
    let originals = &*ORIGINALS;
    let readable = |value: &str| {
        let mut object = originals[0].clone();
        object["spec"]["queue"] = json!({"size": serde_json::from_str::<Value>(value).unwrap()});
        serde_json::from_value::<TracePipeline>(object).is_ok()
    };
    assert!(readable(r#""99999999999999Ti""#) && !readable("1"), "both kinds are tried");
    let is_read = |object: &Value| serde_json::from_value::<TracePipeline>(object.clone()).is_ok();
    let said_so = |object: &Value| object["status"]["conditions"][0]["reason"] == "Malformed";
    assert!(originals.iter().all(|object| is_read(object) != said_so(object)), "what cannot be read says so");
    let (mut runner, pipelines) = (TestRunner::deterministic(), (any::<Index>(), edits()));
    let mut read = 0;
    for _ in 0..200 {
        let (original, edits) = pipelines.new_tree(&mut runner).unwrap().current();
        read += u32::from(is_read(&edited(original.get(&ORIGINALS).clone(), &edits)));
    }
    assert!((20..180).contains(&read), "{read} of 200 edited pipelines can be read");
}
