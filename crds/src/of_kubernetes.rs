//! Schemas of Kubernetes' own types as they stand in the definition: bounded, and in a few words.
//!
//! Kubernetes publishes them without bounds, since its server checks their values in Go, and with descriptions of up to 2 KB that
//! `kubectl explain pod.spec` gives anyway. Here every text, list and number has a bound, and every choice names its words. So an API
//! server refuses a wrong value with the pipeline, and not with the StatefulSet that is made from it. A description is its first sentence:
//! affinity, which has the same fields of pods four times, would otherwise be larger than the rest of the definition.

use crate::texts;
use k8s_openapi::api::core::v1::EnvVar;
use kube::core::Rule;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Characters of a text: the longest key of a label, 253 of its prefix, a slash and 63. Values, namespaces and topologies are shorter.
const TEXT_CHARS_MAX: u64 = 317;

/// Characters of the name of an object, by Kubernetes' own rules.
const NAME_CHARS_MAX: u64 = 253;

/// Entries of a list, and of a map. Chosen: several times what pods have, in lists that stand in lists.
const ITEMS_MAX: u64 = 32;

/// The largest number: seconds (68 years), skews and counts. Larger ones are no numbers of pods.
const NUMBER_MAX: u64 = 2_147_483_647;

/// The largest weight of a preference, by Kubernetes' own rules.
const WEIGHT_MAX: u64 = 100;

/// The largest mode of a file: nine bits, by Kubernetes' own rules.
const FILE_MODE_MAX: u64 = 0o777;

/// The shortest life of a projected token in seconds, by Kubernetes' own rules.
const TOKEN_SECONDS_MIN: u64 = 600;

/// The largest port.
const PORT_MAX: u64 = 65_535;

/// Name servers of a pod, by Kubernetes' own rules.
const NAME_SERVERS_MAX: u64 = 3;

/// Characters of the value of a variable. 32 of them are also in what the StatefulSet remembers of a pod template, as JSON within JSON: 32
/// KiB beside the annotations' 64 KiB stay below the 256 KiB that Kubernetes allows an object.
const VARIABLE_CHARS_MAX: u64 = 1024;

/// Fields that are a quantity.
const QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];

/// Fields that are not offered, wherever they stand. Most are kinds of volumes that restricted pod security refuses; `ephemeral` would be as
/// large as all other kinds together, and gateways have queue volumes. The others are for Windows, need privileges, or are alpha.
const NOT_OFFERED: [&str; 29] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "ephemeral",
    "fc",
    "fileKeyRef",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "mountPropagation",
    "nfs",
    "photonPersistentDisk",
    "podCertificate",
    "portworxVolume",
    "procMount",
    "quobyte",
    "rbd",
    "recursiveReadOnly",
    "scaleIO",
    "storageos",
    "vsphereVolume",
    "windowsOptions",
];

/// The schema of such a type.
pub(crate) fn bounded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>().to_value();
    bound(&mut schema, &mut Vec::new());
    // A schema is an object or a boolean, and stays what it was.
    Schema::try_from(schema).unwrap_or_default()
}

/// The schema of variables of a container, whose values may be longer than other texts.
pub(crate) fn variables(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = bounded::<Vec<EnvVar>>(generator);
    if let Some(value) = schema.pointer_mut("/items/properties/value") {
        value["maxLength"] = VARIABLE_CHARS_MAX.into();
    }
    schema
}

/// Bounds a schema in place, and all that is in it. `path` has the names of the fields on the way to it.
fn bound(schema: &mut Value, path: &mut Vec<String>) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = first_sentence(description);
    }
    // A quantity may be a number in Kubernetes' own schema; the type that reads it here takes a text.
    if path.last().is_some_and(|name| QUANTITIES.contains(&name.as_str())) {
        fields.remove("x-kubernetes-int-or-string");
        fields.insert("type".into(), "string".into());
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("string") => bound_text(fields, path),
        Some("integer") => bound_number(fields, path),
        Some("array") => {
            let is_of_servers = path.last().is_some_and(|name| name == "nameservers");
            let most = if is_of_servers { NAME_SERVERS_MAX } else { ITEMS_MAX };
            fields.insert("maxItems".into(), most.into());
        }
        _ => {}
    }
    if let Some(items) = fields.get_mut("items") {
        bound(items, path);
    }
    if let Some(values) = fields.get_mut("additionalProperties") {
        bound(values, path);
        fields.insert("maxProperties".into(), ITEMS_MAX.into());
    }
    let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) else { return };
    properties.retain(|name, _| !NOT_OFFERED.contains(&name.as_str()));
    for (name, field) in properties {
        path.push(name.clone());
        bound(field, path);
        path.pop();
    }
}

fn bound_text(fields: &mut Map<String, Value>, path: &[String]) {
    if let Some(words) = words(path) {
        fields.insert("enum".into(), json!(words));
        return;
    }
    if let Some(rule) = object_name(path) {
        fields.insert("minLength".into(), 1.into());
        fields.insert("maxLength".into(), NAME_CHARS_MAX.into());
        fields.insert("x-kubernetes-validations".into(), json!([rule]));
        return;
    }
    fields.insert("maxLength".into(), TEXT_CHARS_MAX.into());
    // A topology without a name is none.
    if path.last().is_some_and(|name| name == "topologyKey") {
        fields.insert("minLength".into(), 1.into());
    }
}

fn bound_number(fields: &mut Map<String, Value>, path: &[String]) {
    let (least, most) = match path.last().map(String::as_str) {
        Some("weight") => (1, WEIGHT_MAX),
        // A user of 0 is root, which no gateway is.
        Some("maxSkew" | "minDomains" | "runAsUser") => (1, NUMBER_MAX),
        Some("defaultMode" | "mode") => (0, FILE_MODE_MAX),
        Some("expirationSeconds") => (TOKEN_SECONDS_MIN, NUMBER_MAX),
        Some("endPort") => (1, PORT_MAX),
        _ => (0, NUMBER_MAX),
    };
    fields.insert("minimum".into(), least.into());
    fields.insert("maximum".into(), most.into());
}

/// The choice that a field is one of.
fn words(path: &[String]) -> Option<&'static [&'static str]> {
    let is_of_nodes = path.iter().any(|name| name == "nodeAffinity");
    Some(match path.last()?.as_str() {
        "effect" => &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        "whenUnsatisfiable" => &["DoNotSchedule", "ScheduleAnyway"],
        "nodeAffinityPolicy" | "nodeTaintsPolicy" => &["Honor", "Ignore"],
        "fsGroupChangePolicy" => &["Always", "OnRootMismatch"],
        "seLinuxChangePolicy" => &["MountOption", "Recursive"],
        "supplementalGroupsPolicy" => &["Merge", "Strict"],
        "protocol" => &["TCP", "UDP", "SCTP"],
        "type" if is_profile(path) => &["RuntimeDefault", "Localhost", "Unconfined"],
        // A toleration stands by itself; everything else that has an operator is a requirement of a selector.
        "operator" if path.len() == 1 => &["Exists", "Equal"],
        "operator" if is_of_nodes => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        "operator" => &["In", "NotIn", "Exists", "DoesNotExist"],
        _ => return None,
    })
}

/// The rule of a field that names a Secret, a `ConfigMap` or a claim.
fn object_name(path: &[String]) -> Option<Rule> {
    Some(match (parent(path), path.last()?.as_str()) {
        (Some("secret" | "secretKeyRef" | "nodePublishSecretRef"), "name") => texts::secret_name(),
        (Some("configMap" | "configMapKeyRef"), "name") => {
            texts::object_name("name is the name of a ConfigMap", "gateway-extra")
        }
        (_, "secretName") => texts::object_name("secretName is the name of a Secret", "extra-ca"),
        (_, "claimName") => {
            texts::object_name("claimName is the name of a PersistentVolumeClaim", "shared-files")
        }
        _ => return None,
    })
}

/// The field that has the last one.
fn parent(path: &[String]) -> Option<&str> {
    path.len().checked_sub(2).and_then(|at| path.get(at)).map(String::as_str)
}

/// Whether the field is one of a profile of seccomp or `AppArmor`.
fn is_profile(path: &[String]) -> bool {
    matches!(parent(path), Some("seccompProfile" | "appArmorProfile"))
}

/// Up to the first full stop behind which another sentence begins.
fn first_sentence(text: &str) -> String {
    let ends = text.match_indices(". ").map(|(at, _)| at);
    // `e.g. co-locate` and `etc. as` go on; a list of choices is another sentence.
    let end =
        ends.into_iter().find(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase() || c == '-'));
    end.map_or(text, |at| &text[..=at]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_its_first_sentence() {
        for (text, expected) in [
            ("One. Two.", "One."),
            ("One. - A does this.", "One."),
            (
                "Rules (e.g. co-locate this pod in the same node, zone, etc. as another).",
                "Rules (e.g. co-locate this pod in the same node, zone, etc. as another).",
            ),
            ("No end", "No end"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), expected);
        }
    }
}
