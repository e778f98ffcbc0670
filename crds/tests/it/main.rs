//! The definition as a user and an API server meet it: the file in the repository, defaults, bounds and CEL rules.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod cases;
mod connections;
mod documents;
mod manifest;
mod policies;
mod rules;
mod stored;

use kube_cel::apply_defaults;
use serde_json::Value;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = sluice_crds::crd();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").expect("the definition has a schema").clone()
});

/// The schema of the served version.
fn schema() -> Value {
    SCHEMA.clone()
}

/// The object with every default filled in, as the API server would: a default of an object is filled in itself, which
/// takes one round for each level.
fn defaulted(object: &Value) -> Value {
    let mut before = object.clone();
    loop {
        let after = apply_defaults(&SCHEMA, &before);
        if after == before {
            return after;
        }
        before = after;
    }
}

/// The demo's pipeline, which leaves out whatever it can.
fn smallest() -> Value {
    sample("tracepipeline.yaml")
}

/// The files of `config/samples` that hold a pipeline and nothing else, by name.
fn samples() -> Vec<String> {
    let folder = format!("{}/../config/samples", env!("CARGO_MANIFEST_DIR"));
    let names =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("tracepipeline")).collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    names
}

fn sample(name: &str) -> Value {
    serde_saphyr::from_str(&text_of(name)).unwrap()
}

fn text_of(name: &str) -> String {
    let path = format!("{}/../config/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The objects of a kind in the sample of a connection.
fn in_connection_sample(kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(&text_of("traceconnection.yaml")).unwrap();
    all.into_iter().filter(|object| object["kind"] == kind).collect()
}
