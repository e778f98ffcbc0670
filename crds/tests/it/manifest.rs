//! The generated file, and a pipeline with its defaults filled in.

use crate::{defaulted, in_connection_sample, sample, schema, smallest};
use serde_json::{Value, json};
use sluice_crds::{
    DERIVED, NAME_CHARS_MAX, TracePipeline, connection_crd, crd, crd_yaml, reference_markdown,
};

#[test]
fn the_file_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tracepipelines.yaml");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(file == crd_yaml(), "stale: run `cargo run -p sluice-crds > crds/tracepipelines.yaml`");
}

#[test]
fn the_reference_is_what_the_definition_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/REFERENCE.md");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        file == reference_markdown(),
        "stale: run `cargo run -p sluice-crds reference > crds/REFERENCE.md`"
    );
    for section in [
        "\n## spec.source.kafka\n",
        "\n## spec.sink.clickhouse.shards[]\n",
        "\n## status.scaling\n",
        "\n## TraceConnection spec.kafka.sasl\n",
        "\n## TraceConnection status\n",
    ] {
        assert!(file.contains(section), "{section}");
    }
}

#[test]
fn the_yaml_is_read_back_equal() {
    let read: Value = serde_saphyr::from_str(&crd_yaml()).unwrap();
    assert_eq!(read, crd());
}

#[test]
fn nothing_is_written_that_an_api_server_would_drop() {
    each(&crd(), "", &mut |path, value| {
        let default = path.ends_with("/default");
        assert!(!value.is_null() && (default || *value != json!(false)), "{path} is {value}");
        assert!(!value.is_f64(), "{path} is the float {value}");
        let empty = *value == json!({}) || *value == json!([]);
        let meant = default || path.ends_with("/subresources/status");
        assert!(!empty || meant, "{path} is empty");
    });
}

/// A server refuses a `null` that an enum does not list, and drops one where `nullable` does not allow it.
#[test]
fn every_choice_may_be_null_for_not_set_and_every_format_is_known_to_a_server() {
    each(&crd(), "", &mut |path, value| {
        let is_choice = value.get("enum").is_some_and(Value::is_array);
        assert!(!is_choice || value.get("nullable").is_none(), "{path}");
        let format = value.get("format").and_then(Value::as_str);
        assert!(
            format.is_none_or(|format| ["int32", "int64", "date-time", "float", "double"].contains(&format)),
            "{path}: {format:?}"
        );
    });
}

/// The description of a field is all that the definition has of an enum: the descriptions of its values are not in it.
#[test]
fn a_choice_without_a_default_says_what_it_is_when_it_is_not_set() {
    let schema = schema();
    let mut choices = 0;
    each(schema.pointer("/properties/spec").unwrap(), "", &mut |path, value| {
        if value.get("enum").is_some_and(Value::is_array) && value.get("default").is_none() {
            let description = value["description"].as_str().unwrap_or_default();
            choices += 1;
            let says = ["default", "When it is not set", "when it is not set"]
                .iter()
                .any(|words| description.contains(words));
            assert!(
                says || path.ends_with("/items")
                    || path.ends_with("/mechanism")
                    || path.ends_with("/rules/items/properties/action")
                    || path.contains("podTemplate")
                    || path.contains("networkPolicy"),
                "{path}: {description}"
            );
        }
    });
    assert!(choices >= 5, "{choices}");
}

#[test]
fn every_string_and_list_of_the_spec_is_bounded() {
    let schema = schema();
    each(schema.pointer("/properties/spec").unwrap(), "", &mut |path, value| match value
        .get("type")
        .and_then(Value::as_str)
    {
        Some("string") => assert!(value.get("maxLength").or(value.get("enum")).is_some(), "{path}"),
        Some("array") => assert!(value.get("maxItems").is_some(), "{path}"),
        Some("integer") => assert!(value.get("maximum").is_some(), "{path}"),
        _ => {}
    });
}

/// A server answers a text that does not match a pattern with the regular expression alone. A number or a share keeps its pattern: a server
/// cannot bound the length of such a text, so that a rule about it would cost as much as one about the longest text.
#[test]
fn a_text_of_another_form_is_answered_in_words() {
    for crd in [crd(), connection_crd()] {
        each(&crd, "", &mut |path, value| {
            let has_pattern = value.get("pattern").is_some_and(Value::is_string);
            assert!(!has_pattern || path.ends_with("/properties/maxUnavailable"), "{path} has a pattern");
        });
    }
}

/// `kubectl explain` shows the default of a field, and the range of a number.
#[test]
fn every_default_of_the_spec_is_told_and_every_number_has_a_range() {
    let schema = schema();
    let mut defaults = 0;
    each(schema.pointer("/properties/spec").unwrap(), "", &mut |path, value| {
        if matches!(value.get("type").and_then(Value::as_str), Some("integer" | "number")) {
            assert!(value.get("minimum").is_some() && value.get("maximum").is_some(), "{path} has no range");
        }
        let Some(default) =
            value.get("default").filter(|default| !default.is_object() && !default.is_array())
        else {
            return;
        };
        if field(path).is_none() {
            return;
        }
        defaults += 1;
        let told = value["description"].as_str().unwrap_or_default();
        let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        let is_told = told.to_lowercase().contains("default") && told.contains(&text);
        assert!(is_told, "{path} does not tell its default {default}: {told}");
    });
    assert!(defaults > 30, "{defaults}");
}

/// A field that is not set has a default of the schema, or a value that follows from other fields.
#[test]
fn what_counts_while_a_field_is_not_set_is_in_the_schema_or_follows_from_others() {
    let schema = schema();
    for (path, _) in DERIVED {
        let pointer = format!(
            "/properties/spec/properties/{}",
            path.replace("[]", ".items").replace('.', "/properties/")
        );
        let pointer = pointer.replace("/properties/items/properties/", "/items/properties/");
        let field = schema.pointer(&pointer).unwrap_or_else(|| panic!("no {path}"));
        assert!(field.get("default").is_none(), "{path} has a default in the schema");
    }
    // Words such as "(the default)" need a default that the server fills in.
    each(schema.pointer("/properties/spec").unwrap(), "", &mut |path, value| {
        let told = value["description"].as_str().unwrap_or_default();
        let says = told.contains("(the default") || told.contains(" Default ");
        if field(path).is_some() && says && value["type"] != "object" && value["type"] != "array" {
            assert!(
                value.get("default").is_some(),
                "{path} tells of a default that the schema does not have: {told}"
            );
        }
    });
}

#[test]
fn a_pipeline_is_found_by_its_short_name_and_among_what_watches() {
    let names = crd()["spec"]["names"].clone();
    assert_eq!(names["shortNames"], json!(["tp"]));
    assert_eq!(names["categories"], json!(["observability"]));
}

/// What `kubectl apply` without `--server-side` can keep of an object, bytes: it writes the whole of it into an annotation, and all
/// annotations of an object together have at most this size.
const LAST_APPLIED_BYTES_MAX: usize = 256 << 10;

#[test]
fn the_definition_can_be_applied_in_every_way() {
    let bytes = crd().to_string().len();
    // An eighth stays for annotations of others, and for fields to come.
    assert!(bytes < LAST_APPLIED_BYTES_MAX / 8 * 7, "{bytes} bytes");
}

#[test]
fn what_is_kubernetes_own_says_what_a_pod_would_be_refused_for() {
    let schema = schema();
    let of = |field: &str| {
        let pointer =
            format!("/properties/spec/properties/gateway/properties/podTemplate/properties/{field}");
        schema.pointer(&pointer).unwrap_or_else(|| panic!("no {pointer}")).clone()
    };
    let expressions = "properties/requiredDuringSchedulingIgnoredDuringExecution/properties/nodeSelectorTerms/items/properties\
                       /matchExpressions/items/properties/operator/enum";
    let of_nodes = of(&format!("affinity/properties/nodeAffinity/{expressions}"));
    assert_eq!(of_nodes, json!(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]));
    assert_eq!(of("tolerations/items/properties/operator/enum"), json!(["Exists", "Equal"]));
    let spread = of("topologySpreadConstraints/items");
    assert_eq!(spread["required"], json!(["maxSkew", "topologyKey", "whenUnsatisfiable"]));
    assert_eq!(spread["properties"]["maxSkew"]["minimum"], 1);
    let volume = of("volumes/items/properties");
    let kinds: Vec<&str> = volume.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "name",
            "persistentVolumeClaim",
            "projected",
            "secret"
        ],
        "kinds that restricted pod security allows, each of which a rule counts"
    );
    assert_eq!(volume.pointer("/emptyDir/properties/sizeLimit/type"), Some(&json!("string")));
    assert_eq!(of("env/items/properties/value/maxLength"), 1024);
    assert_eq!(of("dnsConfig/properties/nameservers/maxItems"), 3);
    assert_eq!(of("securityContext/properties/runAsUser/minimum"), 1);
    assert_eq!(
        of("securityContext/properties/fsGroupChangePolicy/enum"),
        json!(["Always", "OnRootMismatch"])
    );
    assert_eq!(
        spread
            .pointer("/properties/labelSelector/properties/matchExpressions/items/properties/operator/enum"),
        Some(&json!(["In", "NotIn", "Exists", "DoesNotExist"]))
    );
}

#[test]
fn every_field_is_described() {
    let schema = schema();
    each(&schema, "", &mut |path, value| {
        assert!(field(path).is_none() || value.get("description").is_some(), "{path}");
    });
}

#[test]
fn defaults_of_the_schema_are_the_defaults_of_the_types() {
    let by_schema = defaulted(&smallest());
    let by_types: TracePipeline = serde_json::from_value(smallest()).unwrap();
    assert_eq!(serde_json::to_value(by_types.spec).unwrap(), by_schema["spec"]);
    // Tools that wait do not take a pipeline that no operator has seen for a finished one.
    assert_eq!(by_schema["status"], json!({"observedGeneration": -1}));
    assert_eq!(
        by_schema["spec"]["gateway"]["resources"],
        json!({"limits": {"memory": "256Mi"}, "resize": "None"})
    );
    assert_eq!(by_schema["spec"]["delivery"]["deadLetter"]["onMissing"], "Stop");
}

/// Fields that exclude a field of the full sample, each with a sample that sets it. The first entry that matches counts.
const INSTEAD: [(&str, &str); 15] = [
    ("/spec/source/otlp", "tracepipeline-otlp-secured.yaml"),
    ("/spec/edge/replicas", "tracepipeline-edge.yaml"),
    ("/spec/source/kafka/sasl/oauth/awsMskIam", "tracepipeline-msk-iam-keys.yaml"),
    (
        "/spec/source/kafka/sasl/oauth/clientCredentials/clientAssertion",
        "tracepipeline-event-hubs-workload-identity.yaml",
    ),
    ("/spec/source/kafka/sasl/oauth/serviceAccountToken", "tracepipeline-service-account-token.yaml"),
    ("/spec/source/kafka/sasl/oauth/clientCredentials/clientId", "tracepipeline-confluent-cloud.yaml"),
    ("/spec/source/kafka/sasl/oauth", "tracepipeline-oauth.yaml"),
    ("/spec/sink/clickhouse/shards", "tracepipeline-sharded.yaml"),
    ("/spec/source/kafka/sasl/username", "tracepipeline-strimzi-scram.yaml"),
    ("/spec/sink/clickhouse/credentials/tokenSecretRef", "tracepipeline-clickhouse-token.yaml"),
    ("/spec/sink/clickhouse/credentials/serviceAccountToken", "tracepipeline-clickhouse-pod-token.yaml"),
    ("/spec/sink/clickhouse/credentials/username", "tracepipeline-external-secrets.yaml"),
    ("/spec/scaling/schedules/0/timeZone", "tracepipeline-autoscaled.yaml"),
    ("/spec/scaling/idle", "tracepipeline-idle.yaml"),
    ("/spec/sink/clickhouse/schema/preset", "tracepipeline-clickstack.yaml"),
];

/// Fields that the sample does not teach, since they are only read: objects of an earlier version have them.
const DEPRECATED: [&str; 3] = [
    "/spec/gateway/resources/memory",
    "/spec/gateway/resources/cpuRequest",
    "/spec/gateway/resources/cpuLimit",
];

/// Fields of Kubernetes' own types: the sample shows how they are used, and leaves most of their fields out.
const OF_KUBERNETES: [&str; 15] = [
    "/spec/edge/podTemplate/tolerations/0/",
    "/spec/edge/podTemplate/topologySpreadConstraints/0/",
    "/spec/networkPolicy/otlpFrom/0/",
    "/spec/gateway/podTemplate/tolerations/0/",
    "/spec/gateway/podTemplate/affinity/",
    "/spec/gateway/podTemplate/topologySpreadConstraints/0/",
    "/spec/gateway/podTemplate/env/0/",
    "/spec/gateway/podTemplate/volumes/0/",
    "/spec/gateway/podTemplate/volumeMounts/0/",
    "/spec/gateway/podTemplate/dnsConfig/",
    "/spec/gateway/podTemplate/hostAliases/0/",
    "/spec/gateway/podTemplate/securityContext/",
    "/spec/gateway/podTemplate/containerSecurityContext/",
    "/spec/networkPolicy/metricsFrom/0/",
    "/spec/networkPolicy/egressTo/0/",
];

#[test]
fn the_full_sample_names_every_field_of_the_spec() {
    let full = sample("tracepipeline-full.yaml");
    let mut fields = 0;
    each(schema().pointer("/properties/spec").unwrap(), "", &mut |path, value| {
        if let Some(field) = field(path) {
            fields += 1;
            let pointer = format!("/spec/{field}");
            if OF_KUBERNETES.iter().any(|inside| pointer.starts_with(inside)) {
                return;
            }
            let is_deprecated =
                value["description"].as_str().is_some_and(|told| told.starts_with("Deprecated: use "));
            assert_eq!(is_deprecated, DEPRECATED.contains(&pointer.as_str()), "{pointer}");
            if is_deprecated {
                assert!(full.pointer(&pointer).is_none(), "the sample teaches {pointer}");
                return;
            }
            let instead = INSTEAD.iter().find(|(field, _)| pointer.starts_with(field));
            let other = if pointer.contains("/connectionRef") {
                in_connection_sample("TracePipeline").into_iter().next()
            } else {
                instead.map(|(_, name)| sample(name))
            };
            assert!(other.as_ref().unwrap_or(&full).pointer(&pointer).is_some(), "{pointer}");
        }
    });
    assert!(fields > 100, "{fields} fields were looked for");
    let _: TracePipeline = serde_json::from_value(full).unwrap();
}

#[test]
fn the_smallest_sample_has_a_dozen_lines() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/samples/tracepipeline.yaml");
    assert!(std::fs::read_to_string(path).unwrap().lines().count() <= 12);
}

#[test]
fn the_longest_name_leaves_room_for_the_revision_label() {
    // `controller-revision-hash` is the StatefulSet's name, a dash and a 32-bit number.
    assert!(NAME_CHARS_MAX + "-gateway-".len() + u32::MAX.to_string().len() <= 63);
    assert!(crd_yaml().contains(&format!("size(self.metadata.name) <= {NAME_CHARS_MAX} ")));
}

#[test]
fn the_scale_subresource_reads_and_writes_fields_that_exist() {
    let (definition, schema) = (crd(), schema());
    let scale = definition.pointer("/spec/versions/0/subresources/scale").unwrap();
    for (path, kind) in
        [("specReplicasPath", "integer"), ("statusReplicasPath", "integer"), ("labelSelectorPath", "string")]
    {
        let pointer = scale[path].as_str().unwrap().replace('.', "/properties/");
        assert_eq!(schema.pointer(&pointer).unwrap()["type"], kind, "{path}");
    }
}

#[test]
fn every_printer_column_and_scale_path_is_a_field() {
    let crd = crd();
    let version = &crd["spec"]["versions"][0];
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let names: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["Ready", "Reason", "Partitions", "Lag", "Age"]), "{names:?}");
    // One word each, so that `kubectl get tp | awk` works.
    assert!(names.iter().all(|name| !name.contains(' ')), "{names:?}");
    let scale = version["subresources"]["scale"].as_object().unwrap();
    let paths = columns.iter().map(|column| &column["jsonPath"]).chain(scale.values());
    for path in paths.map(|path| path.as_str().unwrap()).filter(|path| !path.starts_with(".metadata.")) {
        let schema = schema();
        let mut at = &schema;
        for step in path.trim_start_matches('.').split('.').filter(|step| !step.starts_with("type==")) {
            let name = step.split('[').next().unwrap();
            at = &at["properties"][name];
            assert!(at.is_object(), "{path}: no field {name}");
            if step.contains('[') {
                at = &at["items"];
            }
        }
    }
    assert_eq!(version["subresources"]["status"], json!({}));
}

/// The field that a JSON pointer into a schema is about, as a pointer into an object; `None` when it is about something else. A
/// field may itself be called `properties`.
pub fn field(path: &str) -> Option<String> {
    let mut steps = path.split('/').skip(1);
    let mut names = Vec::new();
    while let Some(step) = steps.next() {
        names.push(match step {
            "properties" => steps.next()?,
            "items" => "0",
            _ => return None,
        });
    }
    // The items of a list are part of its field.
    (*names.last()? != "0").then(|| names.join("/"))
}

/// Visits a value and everything in it, with its JSON pointer.
pub fn each(value: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| each(field, &format!("{path}/{name}"), visit));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| each(item, &format!("{path}/{index}"), visit));
        }
        _ => {}
    }
}

/// Each source is one field beside `kafka`. No field of Kafka stands outside `kafka`, and no source is required.
#[test]
fn the_source_has_room_for_another_kind() {
    let source = schema()["properties"]["spec"]["properties"]["source"].clone();
    let kinds: Vec<&String> = source["properties"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["kafka", "otlp"]);
    assert_eq!(source["required"], Value::Null);
    assert_eq!(source["type"], "object");
}
