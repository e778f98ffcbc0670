//! What the pod of an audit looks like: a gateway's pod without its queue volume, running `sluice-gateway audit`. Pure.

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Affinity, Container, Pod, PodSpec, ResourceRequirements},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::Resource as _;
use sluice_crds::TracePipeline;
use sluice_plan::names::{COMPONENT, GATEWAY_CONTAINER, MANAGED_BY, QUEUE_CLAIM};
use std::collections::BTreeMap;

/// The pod's container, and the value of its label [`COMPONENT`].
pub(crate) const AUDIT: &str = "audit";

/// Value of the label [`MANAGED_BY`]. The operator watches pods by this label, and must not see this one.
const PLUGIN: &str = "kubectl-sluice";

/// Prefix of annotations by which the operator recognises what a gateway's pod was made from.
const OF_THE_OPERATOR: &str = "sluice.dev/";

/// Memory of the pod. An audit takes 250 MB for any range (`sluice-gateway audit --help`); the rest is for the kernel and buffers.
pub(super) const MEMORY: &str = "384Mi";

/// CPU that is reserved unless CPU is limited. Chosen: what the operator's Jobs reserve; most of an audit is waiting for ClickHouse.
const CPU_REQUEST: &str = "50m";

/// Time between SIGTERM and SIGKILL. Chosen: the shortest there is, because an audit changes nothing that it would have to finish.
const GRACE_SECONDS: i64 = 1;

/// Which audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// Tells two audits of a pipeline apart: the end of the pod's name.
    pub suffix: String,
    /// Options for `sluice-gateway audit`.
    pub options: Vec<String>,
    /// The kubelet ends the pod after this many seconds.
    pub seconds_max: u32,
}

/// The pod, from the template that the pipeline's gateways are made from. `None` if the template has no gateway.
///
/// Image, config, Secrets, service account, security context, node selection and tolerations are those of a gateway. Labels are too, so
/// that the pipeline's NetworkPolicy lets the pod reach Kafka and ClickHouse. What places gateways among each other is left out: the pod
/// would find no node that is far enough from all of them. The pod goes with the pipeline, if nothing deletes it before.
pub(super) fn audit_pod(pipeline: &TracePipeline, workload: &StatefulSet, order: &Order) -> Option<Pod> {
    let template = &workload.spec.as_ref()?.template;
    let of_gateway = template.spec.as_ref()?;
    let gateway = of_gateway.containers.iter().find(|container| container.name == GATEWAY_CONTAINER)?;
    let metadata = template.metadata.clone().unwrap_or_default();
    let of_nodes = of_gateway.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    let volumes = of_gateway.volumes.clone().unwrap_or_default();
    Some(Pod {
        metadata: ObjectMeta {
            name: Some(format!("{}-{AUDIT}-{}", pipeline.metadata.name.as_deref()?, order.suffix)),
            namespace: pipeline.metadata.namespace.clone(),
            labels: Some(labels(metadata.labels)),
            annotations: Some(annotations(metadata.annotations)),
            owner_references: pipeline.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            restart_policy: Some("Never".into()),
            active_deadline_seconds: Some(order.seconds_max.into()),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            containers: vec![container(gateway, &order.options)],
            init_containers: None,
            volumes: Some(volumes.into_iter().filter(|volume| volume.name != QUEUE_CLAIM).collect()),
            affinity: of_nodes
                .map(|of_nodes| Affinity { node_affinity: Some(of_nodes), ..Affinity::default() }),
            topology_spread_constraints: None,
            ..of_gateway.clone()
        }),
        ..Pod::default()
    })
}

fn labels(of_gateway: Option<BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut labels = of_gateway.unwrap_or_default();
    labels.insert(COMPONENT.into(), AUDIT.into());
    labels.insert(MANAGED_BY.into(), PLUGIN.into());
    labels
}

/// Those of the spec: a service mesh reads them.
fn annotations(of_gateway: Option<BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut annotations = of_gateway.unwrap_or_default();
    annotations.retain(|key, _| !key.starts_with(OF_THE_OPERATOR));
    annotations
}

fn container(gateway: &Container, options: &[String]) -> Container {
    let mounts = gateway.volume_mounts.iter().flatten().filter(|mount| mount.name != QUEUE_CLAIM);
    // The gateway's are `run --config FILE`.
    let config = gateway.args.iter().flatten().skip(1).cloned();
    Container {
        name: AUDIT.into(),
        args: Some([AUDIT.to_owned()].into_iter().chain(config).chain(options.iter().cloned()).collect()),
        ports: None,
        startup_probe: None,
        liveness_probe: None,
        readiness_probe: None,
        lifecycle: None,
        resources: Some(resources(gateway.resources.as_ref())),
        volume_mounts: Some(mounts.cloned().collect()),
        ..gateway.clone()
    }
}

/// If the CPU of gateways is limited, limit and request are theirs: a quota may ask for both, and this request is at most that limit.
fn resources(of_gateway: Option<&ResourceRequirements>) -> ResourceRequirements {
    let cpu = |of: Option<&BTreeMap<String, Quantity>>| of.and_then(|amounts| amounts.get("cpu")).cloned();
    let limit = cpu(of_gateway.and_then(|resources| resources.limits.as_ref()));
    let request = limit.as_ref().and_then(|_| cpu(of_gateway.and_then(|all| all.requests.as_ref())));
    let request = request.unwrap_or_else(|| Quantity(CPU_REQUEST.into()));
    let memory = ("memory".to_owned(), Quantity(MEMORY.into()));
    let limit = limit.map(|limit| ("cpu".to_owned(), limit));
    ResourceRequirements {
        requests: Some([("cpu".to_owned(), request), memory.clone()].into()),
        limits: Some(limit.into_iter().chain([memory]).collect()),
        ..ResourceRequirements::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SMALLEST: &str = include_str!("../../../plan/tests/golden/tracepipeline.yaml");
    const FULL: &str = include_str!("../../../plan/tests/golden/tracepipeline-full.yaml");

    /// The StatefulSet that the operator applies for a sample.
    fn workload(golden: &str) -> StatefulSet {
        let objects: Vec<Value> = serde_saphyr::from_multiple(golden).unwrap();
        let found = objects.into_iter().find(|object| object["kind"] == "StatefulSet").unwrap();
        serde_json::from_value(found).unwrap()
    }

    fn pipeline() -> TracePipeline {
        let text = include_str!("../../../../config/samples/tracepipeline.yaml");
        let mut pipeline: TracePipeline = serde_saphyr::from_str(text).unwrap();
        pipeline.metadata.name = Some("demo".into());
        pipeline.metadata.namespace = Some("tracing".into());
        pipeline.metadata.uid = Some("u".into());
        pipeline
    }

    fn made(workload: &StatefulSet) -> Value {
        let options = ["--since".to_owned(), "2h".to_owned()].to_vec();
        let order = Order { suffix: "0a1b2".into(), options, seconds_max: 900 };
        serde_json::to_value(audit_pod(&pipeline(), workload, &order).unwrap()).unwrap()
    }

    #[test]
    fn the_pod_is_a_gateways_without_its_queue_volume() {
        let template = serde_json::to_value(workload(SMALLEST).spec.unwrap().template).unwrap();
        let pod = made(&workload(SMALLEST));
        let (spec, of_gateway) = (&pod["spec"], &template["spec"]);
        for field in [
            "serviceAccountName",
            "automountServiceAccountToken",
            "securityContext",
            "volumes",
            "enableServiceLinks",
        ] {
            assert!(!of_gateway[field].is_null(), "{field}");
            assert_eq!(spec[field], of_gateway[field], "{field}");
        }
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        let (container, gateway) = (&spec["containers"][0], &of_gateway["containers"][0]);
        for field in ["image", "imagePullPolicy", "securityContext", "terminationMessagePolicy"] {
            assert!(!gateway[field].is_null(), "{field}");
            assert_eq!(container[field], gateway[field], "{field}");
        }
        assert_eq!(
            container["args"],
            json!(["audit", "--config", "/etc/sluice/gateway.yaml", "--since", "2h"])
        );
        let mounts: Vec<_> =
            container["volumeMounts"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(mounts, ["config", "clickhouse-user"]);
        for field in ["ports", "startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(!gateway[field].is_null() && container[field].is_null(), "{field}");
        }
        assert_eq!((&spec["restartPolicy"], &spec["activeDeadlineSeconds"]), (&json!("Never"), &json!(900)));
    }

    #[test]
    fn the_networkpolicy_selects_the_pod_and_neither_statefulset_nor_operator_do() {
        let workload = workload(SMALLEST);
        let pod = made(&workload);
        let labels = &pod["metadata"]["labels"];
        for (label, expected) in [
            ("app.kubernetes.io/name", "sluice-gateway"),
            ("app.kubernetes.io/instance", "demo"),
            (COMPONENT, "audit"),
            (MANAGED_BY, "kubectl-sluice"),
        ] {
            assert_eq!(labels[label], expected, "{label}");
        }
        let selector = workload.spec.unwrap().selector.match_labels.unwrap();
        assert!(selector.iter().any(|(key, value)| labels[key] != **value), "{labels}");
        assert_eq!(
            pod["metadata"]["annotations"],
            json!({}),
            "nothing says which config the pod was made for"
        );
    }

    #[test]
    fn the_pod_has_a_name_of_its_own_and_goes_with_its_pipeline() {
        let metadata = &made(&workload(SMALLEST))["metadata"];
        assert_eq!(
            (&metadata["name"], &metadata["namespace"]),
            (&json!("demo-audit-0a1b2"), &json!("tracing"))
        );
        let owner = &metadata["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"], &owner["uid"]),
            (&json!("TracePipeline"), &json!("demo"), &json!("u"))
        );
        // It is neither adopted nor does it keep the pipeline.
        assert!(owner["controller"].is_null() && owner["blockOwnerDeletion"].is_null(), "{owner}");
    }

    #[test]
    fn the_pod_runs_where_gateways_may_and_not_beside_them() {
        let template = serde_json::to_value(workload(FULL).spec.unwrap().template).unwrap();
        let pod = made(&workload(FULL));
        for field in ["nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets"] {
            assert!(!template["spec"][field].is_null(), "{field}");
            assert_eq!(pod["spec"][field], template["spec"][field], "{field}");
        }
        let mut spread = workload(FULL);
        let of_gateway = spread.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        let near = json!({"nodeAffinity": {}, "podAntiAffinity": {}});
        of_gateway.affinity = Some(serde_json::from_value(near).unwrap());
        let constraint = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
        of_gateway.topology_spread_constraints = Some(serde_json::from_value(constraint).unwrap());
        let pod = made(&spread);
        assert_eq!(pod["spec"]["affinity"], json!({"nodeAffinity": {}}));
        assert!(pod["spec"]["topologySpreadConstraints"].is_null());
    }

    #[test]
    fn memory_is_an_audits_and_cpu_is_limited_as_a_gateways() {
        let mut workload = workload(SMALLEST);
        let of_container =
            |workload: &StatefulSet| made(workload)["spec"]["containers"][0]["resources"].clone();
        assert_eq!(
            of_container(&workload),
            json!({"requests": {"cpu": "50m", "memory": "384Mi"}, "limits": {"memory": "384Mi"}})
        );
        let limited =
            json!({"requests": {"cpu": "20m", "memory": "1Gi"}, "limits": {"cpu": "40m", "memory": "1Gi"}});
        let of_gateway = workload.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        of_gateway.containers[0].resources = Some(serde_json::from_value(limited).unwrap());
        assert_eq!(
            of_container(&workload),
            json!({"requests": {"cpu": "20m", "memory": "384Mi"}, "limits": {"cpu": "40m", "memory": "384Mi"}})
        );
    }

    #[test]
    fn a_template_without_a_gateway_makes_no_pod() {
        let mut workload = workload(SMALLEST);
        workload.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers.clear();
        let order = Order { suffix: "a".into(), options: Vec::new(), seconds_max: 1 };
        assert_eq!(audit_pod(&pipeline(), &workload, &order), None);
    }
}
