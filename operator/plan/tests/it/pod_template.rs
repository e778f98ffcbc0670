//! What the spec adds to pods: to all of them, to gateways alone, and to none that asks for nothing.

use crate::{defaults, observed, planned, with};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{Parts, build, drain_job, objects, plan, volumes};

const ZONE: &str = "topology.kubernetes.io/zone";

fn pipeline(template: &Value) -> TracePipeline {
    with("/spec/gateway/podTemplate", template.clone())
}

/// All that there is.
fn everything() -> TracePipeline {
    let term = json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "kafka"}}});
    let mut pipeline = pipeline(&json!({
        "labels": {"team": "a"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/traces"},
        "nodeSelector": {"pool": "ingest"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}],
            }},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
        },
        "topologySpreadConstraints": [
            {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"team": "a"}}},
        ],
        "priorityClassName": "ingest",
        "runtimeClassName": "gvisor",
        "env": [{"name": "TZ", "value": "UTC"}],
        "volumes": [{"name": "extra", "configMap": {"name": "extra"}}],
        "volumeMounts": [{"name": "extra", "mountPath": "/etc/extra", "readOnly": true}],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.1"]},
        "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["kafka-0.kafka"]}],
        "userAndGroup": "Assigned",
        "securityContext": {"supplementalGroups": [7]},
        "containerSecurityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
    }));
    let secret = |name: &str| sluice_crds::SecretRef { name: name.to_owned() };
    pipeline.spec.gateway.image_pull_secrets = vec![secret("one"), secret("two")];
    pipeline
}

fn parts(pipeline: &TracePipeline) -> Parts {
    build(&planned(pipeline, &observed(pipeline, 12))).into_parts()
}

fn gateway(parts: &Parts) -> PodTemplateSpec {
    parts.workload.as_ref().unwrap().spec.as_ref().unwrap().template.clone()
}

/// The pods of the Jobs: that of the schema, and one that drains a volume.
fn of_jobs(pipeline: &TracePipeline) -> [PodTemplateSpec; 2] {
    let drain = volumes::Drain {
        ordinal: 3,
        claim: "queue-a-gateway-3".into(),
        claim_uid: "u".into(),
        workload_version: "1".into(),
    };
    let drain = drain_job(&planned(pipeline, &observed(pipeline, 12)), &drain);
    [parts(pipeline).schema_job.unwrap(), drain].map(|job| job.spec.unwrap().template)
}

#[test]
fn every_pod_has_what_is_added_and_keeps_what_is_ours() {
    let (plain, full) = (with("/spec/replicas", json!(3)), everything());
    let [schema, drain] = of_jobs(&full);
    let [plain_schema, plain_drain] = of_jobs(&plain);
    let pairs =
        [(gateway(&parts(&full)), gateway(&parts(&plain))), (schema, plain_schema), (drain, plain_drain)];
    for (added, plain) in pairs {
        let (metadata, before) = (added.metadata.unwrap(), plain.metadata.unwrap());
        let (mut labels, before_labels) = (metadata.labels.unwrap(), before.labels.unwrap());
        assert_eq!(labels.remove("team").as_deref(), Some("a"));
        assert_eq!(labels, before_labels);
        let mut annotations = metadata.annotations.unwrap();
        assert_eq!(annotations.remove("sidecar.istio.io/inject").as_deref(), Some("false"));
        assert!(annotations.remove("sluice.dev/service-account-version").is_some());
        assert_eq!(annotations, before.annotations.unwrap_or_default());
        let pod = added.spec.unwrap();
        let secrets = pod.image_pull_secrets.as_ref().unwrap().iter().map(|secret| secret.name.as_str());
        assert_eq!(secrets.collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(pod.node_selector.as_ref().unwrap()["pool"], "ingest");
        assert_eq!(pod.tolerations.as_ref().unwrap()[0].key.as_deref(), Some("dedicated"));
        assert_eq!(pod.priority_class_name.as_deref(), Some("ingest"));
        assert_eq!(pod.runtime_class_name.as_deref(), Some("gvisor"));
        assert!(pod.affinity.as_ref().unwrap().node_affinity.is_some());
        // What is set within pods has a test of its own.
        let bare = PodSpec {
            containers: Vec::new(),
            dns_policy: None,
            dns_config: None,
            host_aliases: None,
            security_context: None,
            image_pull_secrets: None,
            node_selector: None,
            tolerations: None,
            priority_class_name: None,
            runtime_class_name: None,
            affinity: None,
            topology_spread_constraints: None,
            // A Job's config is named as the Job is, which is another one.
            volumes: None,
            ..pod
        };
        let plain = plain.spec.unwrap();
        let plain = PodSpec { volumes: None, containers: Vec::new(), security_context: None, ..plain };
        assert_eq!(bare, plain);
    }
}

#[test]
fn every_pod_has_what_is_set_within_it_behind_what_is_ours() {
    let [plain_schema, plain_drain] = of_jobs(&with("/spec/replicas", json!(3)));
    let plain_gateway = gateway(&parts(&with("/spec/replicas", json!(3))));
    let [schema, drain] = of_jobs(&everything());
    let pairs =
        [(gateway(&parts(&everything())), plain_gateway), (schema, plain_schema), (drain, plain_drain)];
    for (added, plain) in pairs {
        let (added, plain) = (added.spec.unwrap(), plain.spec.unwrap());
        let (container, before) = (&added.containers[0], &plain.containers[0]);
        let env = container.env.clone().unwrap();
        assert_eq!(env[..env.len() - 1], before.env.clone().unwrap_or_default());
        assert_eq!(env.last().unwrap().name, "TZ");
        let mounts = container.volume_mounts.clone().unwrap();
        assert_eq!(mounts[..mounts.len() - 1], before.volume_mounts.clone().unwrap());
        assert_eq!(mounts.last().unwrap().mount_path, "/etc/extra");
        let names = |pod: &PodSpec| {
            pod.volumes.iter().flatten().map(|volume| volume.name.clone()).collect::<Vec<_>>()
        };
        assert!(names(&plain).iter().all(|name| names(&added).contains(name)));
        assert!(names(&added).contains(&"extra".to_owned()));
        assert_eq!(added.dns_policy.as_deref(), Some("None"));
        assert_eq!(added.dns_config.unwrap().nameservers, Some(vec!["10.0.0.1".to_owned()]));
        assert_eq!(added.host_aliases.unwrap()[0].ip, "10.0.0.2");
        let capabilities = container.security_context.as_ref().unwrap().capabilities.as_ref().unwrap();
        assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(capabilities.add, Some(vec!["SYS_PTRACE".to_owned()]));
    }
}

/// What an SCC of `OpenShift` that chooses user and groups takes: none in the template, and everything else as it was.
#[test]
fn pods_whose_user_is_assigned_name_none_and_stay_restricted() {
    let pipeline = pipeline(&json!({"userAndGroup": "Assigned"}));
    for template in of_jobs(&pipeline).into_iter().chain([gateway(&parts(&pipeline))]) {
        let pod = template.spec.unwrap();
        let context = json!(pod.security_context.unwrap());
        let expected = json!({
            "runAsNonRoot": true, "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(context, expected);
        let context = json!(pod.containers[0].security_context.as_ref().unwrap());
        let expected = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(context, expected);
    }
}

#[test]
fn gateways_alone_are_placed_among_each_other() {
    let pod = gateway(&parts(&everything())).spec.unwrap();
    let affinity = pod.affinity.unwrap();
    assert!(affinity.pod_affinity.is_some() && affinity.pod_anti_affinity.is_some());
    assert_eq!(pod.topology_spread_constraints.map(|all| all.len()), Some(2));
    for job in of_jobs(&everything()) {
        let pod = job.spec.unwrap();
        let affinity = pod.affinity.unwrap();
        assert!(affinity.pod_affinity.is_none() && affinity.pod_anti_affinity.is_none());
        assert_eq!(pod.topology_spread_constraints, None);
    }
}

#[test]
fn a_spread_without_a_selector_counts_the_pipelines_gateways() {
    let parts = parts(&everything());
    let ours = parts.workload.as_ref().unwrap().spec.as_ref().unwrap().selector.clone();
    let spread = gateway(&parts).spec.unwrap().topology_spread_constraints.unwrap();
    assert_eq!(spread[0].label_selector.as_ref(), Some(&ours));
    let theirs = spread[1].label_selector.as_ref().unwrap().match_labels.as_ref().unwrap();
    assert_eq!(theirs["team"], "a");
}

#[test]
fn annotations_of_the_service_account_are_on_it_alone_and_replace_pods_when_they_change() {
    let with_role = |role: &str| {
        parts(&pipeline(&json!({"serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": role}})))
    };
    let version = |parts: &Parts| {
        let annotations = gateway(parts).metadata.unwrap().annotations.unwrap();
        assert!(!annotations.contains_key("eks.amazonaws.com/role-arn"), "{annotations:?}");
        annotations["sluice.dev/service-account-version"].clone()
    };
    let (one, other) = (with_role("one"), with_role("other"));
    let annotations = one.service_account.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["eks.amazonaws.com/role-arn"], "one");
    assert_ne!(version(&one), version(&other));
    let plain = parts(&pipeline(&Value::Null));
    assert_eq!(plain.service_account.metadata.annotations, None);
    let without = gateway(&plain).metadata.unwrap().annotations.unwrap();
    assert!(!without.contains_key("sluice.dev/service-account-version"), "{without:?}");
}

#[test]
fn an_empty_template_is_none() {
    let plain = with("/spec/replicas", json!(3));
    let mut empty = pipeline(&json!({}));
    empty.spec.replicas = Some(3);
    assert_eq!(parts(&empty), parts(&plain));
}

#[test]
fn each_part_of_it_is_another_revision_but_no_other_object_but_jobs() {
    let plain = with("/spec/gateway/podTemplate", Value::Null);
    let revision = |pipeline: &TracePipeline| objects::revision(&planned(pipeline, &observed(pipeline, 12)));
    let template = serde_json::to_value(everything().spec.gateway.pod_template).unwrap();
    for (field, value) in template.as_object().unwrap() {
        let pipeline = pipeline(&json!({ field: value }));
        assert_ne!(revision(&pipeline), revision(&plain), "{field}");
        let (after, before) = (parts(&pipeline), parts(&plain));
        assert_eq!(after.service, before.service, "{field}");
        assert_eq!(after.network_policy, before.network_policy, "{field}");
        assert_eq!(after.disruption_budget, before.disruption_budget, "{field}");
        assert_eq!(after.config_map, before.config_map, "{field}");
        let selector = |parts: Parts| parts.workload.unwrap().spec.unwrap().selector;
        assert_eq!(selector(after), selector(before), "{field}");
    }
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let mut pipeline = pipeline(&json!({"labels": {"a b": "c"}}));
    pipeline.spec.gateway.resources.cpu_request = Some("much".into());
    let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err().to_string();
    for path in ["spec.gateway.podTemplate.labels: ", "spec.gateway.resources.cpuRequest: "] {
        assert!(found.contains(path), "{found}");
    }
}

#[test]
fn what_a_pod_would_be_refused_for_is_a_violation_with_its_path() {
    let requirement = |operator: &str, values: Value| {
        let terms = json!([{"matchExpressions": [{"key": "disk", "operator": operator, "values": values}]}]);
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
    let term = json!({"topologyKey": ZONE, "labelSelector": selector});
    for (template, path, message) in [
        (json!({"labels": {"a b": "c"}}), "labels", "is not a key"),
        (json!({"labels": {"a": "b c"}}), "labels", "is not the value of a label"),
        (
            json!({"labels": {"app.kubernetes.io/name": "c"}}),
            "labels",
            "every key that begins with app.kubernetes.io/",
        ),
        (json!({"labels": {"job-name": "c"}}), "labels", "Kubernetes sets it"),
        (json!({"labels": {"topology.kubernetes.io/zone": "c"}}), "labels", "Kubernetes sets it"),
        (
            json!({"annotations": {"sluice.dev/a": "c"}}),
            "annotations",
            "every key that begins with sluice.dev/",
        ),
        (json!({"annotations": {"/a": "c"}}), "annotations", "is not a key"),
        (json!({"serviceAccountAnnotations": {"/a": "c"}}), "serviceAccountAnnotations", "is not a key"),
        (json!({"nodeSelector": {"a": "-"}}), "nodeSelector", "is not the value of a label"),
        (json!({"nodeSelector": {"a/": "b"}}), "nodeSelector", "is not a key"),
        (requirement("In", json!([])), "affinity.nodeAffinity", "needs at least one value"),
        (requirement("Exists", json!(["a"])), "affinity.nodeAffinity", "needs no values"),
        (
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}),
            "affinity.nodeAffinity",
            "at least one term",
        ),
        (
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            "affinity.podAffinity",
            "needs at least one value",
        ),
        (
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "podAffinityTerm": term}]}}}),
            "affinity.podAntiAffinity",
            "needs at least one value",
        ),
        (
            json!({"topologySpreadConstraints": [
                {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
            "topologySpreadConstraints.labelSelector",
            "needs at least one value",
        ),
        (json!({"env": [{"name": "a b", "value": "c"}]}), "env", "is not the name of a variable"),
        (json!({"env": [{"name": "a", "valueFrom": {}}]}), "env", "must have exactly one of"),
        (json!({"volumes": [{"name": "A", "emptyDir": {}}]}), "volumes", "is not the name of a volume"),
        (json!({"dnsConfig": {"nameservers": ["dns"]}}), "dnsConfig.nameservers", "is not an IP address"),
        (json!({"hostAliases": [{"ip": "a", "hostnames": ["b"]}]}), "hostAliases", "is not an IP address"),
        (json!({"hostAliases": [{"ip": "::1", "hostnames": ["B"]}]}), "hostAliases", "is not a host name"),
    ] {
        let pipeline = pipeline(&template);
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err().to_string();
        let expected = format!("spec.gateway.podTemplate.{path}: ");
        assert!(found.starts_with(&expected) && found.contains(message), "{template}: {found}");
    }
}
