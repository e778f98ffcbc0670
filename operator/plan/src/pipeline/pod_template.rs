//! What the spec adds to pods, checked and divided: what every pod of the pipeline gets, and what only gateways get.
//!
//! The CRD has bounds and enums. What it cannot express (the syntax of keys, which operator takes values) is checked here. So the
//! pipeline is refused with the path of the field, before the API server would refuse the StatefulSet.

use crate::{
    ground::{
        hash,
        labels::{is_key, is_name, is_value, not_key, not_value},
    },
    names::{EDGE, GATEWAY, Names, SERVICE_ACCOUNT_VERSION},
    pipeline::pod_settings::PodSettings,
};
use k8s_openapi::{
    api::core::v1::{
        Affinity, LocalObjectReference, NodeAffinity, NodeSelectorRequirement, PodAffinityTerm, PodSpec,
        Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use sluice_crds::{AnnotationValue, Edge, EdgePodTemplate, Gateway, LabelValue, PodTemplate};
use sluice_gateway_config::Violations;
use std::collections::BTreeMap;

/// Prefixes of labels and annotations that the operator sets.
const OURS: [&str; 2] = ["app.kubernetes.io/", "sluice.dev/"];

/// Labels that controllers of Kubernetes set, and prefixes of such: a Job with another value is refused, a gateway reads its zone there.
const OF_KUBERNETES: [&str; 7] = [
    "apps.kubernetes.io/",
    "batch.kubernetes.io/",
    "statefulset.kubernetes.io/",
    "topology.kubernetes.io/",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
];

/// What is added to pods; by default nothing, which leaves a pod as it would be without.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Added {
    /// Labels of every pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of every pod.
    pub annotations: BTreeMap<String, String>,
    /// Annotations of the pods' ServiceAccount.
    pub service_account_annotations: BTreeMap<String, String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Toleration>,
    affinity: Option<Affinity>,
    spread: Vec<TopologySpreadConstraint>,
    priority_class: Option<String>,
    runtime_class: Option<String>,
    image_pull_secrets: Vec<String>,
    /// What is set within every pod.
    pub settings: PodSettings,
}

impl Added {
    /// Reads what the spec says, or adds what is wrong with it.
    pub fn of(gateway: &Gateway, names: &Names, found: &mut Violations) -> Self {
        let image_pull_secrets =
            gateway.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect();
        let Some(template) = &gateway.pod_template else {
            return Self { image_pull_secrets, ..Self::default() };
        };
        let at = "spec.gateway.podTemplate";
        if let Some(affinity) = &template.affinity {
            check_affinity(affinity, &format!("{at}.affinity"), found);
        }
        Self {
            affinity: template.affinity.clone(),
            runtime_class: template.runtime_class_name.clone(),
            image_pull_secrets,
            settings: PodSettings::of(template, found),
            ..Place::of_gateway(template).added((at, GATEWAY), names, found)
        }
    }

    /// What pods of the edge get: labels, annotations and a place of their own, and within them what gateways have.
    pub fn of_edge(edge: &Edge, gateway: &Gateway, names: &Names, found: &mut Violations) -> Self {
        // What is wrong with it is said of gateways.
        let of_gateways = Self::of(gateway, names, &mut Violations::default());
        let own = edge.pod_template.as_deref().map_or_else(Self::default, |template| {
            Place::of_edge(template).added(("spec.edge.podTemplate", EDGE), names, found)
        });
        Self {
            runtime_class: of_gateways.runtime_class,
            image_pull_secrets: of_gateways.image_pull_secrets,
            settings: of_gateways.settings,
            ..own
        }
    }

    /// A pod of a Job, with what every pod gets. What places gateways among each other is not for it: they wait for it, and it may
    /// find no node that is far enough from all of them.
    pub fn place(&self, pod: PodSpec) -> PodSpec {
        let of_nodes = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
        let secrets = self.image_pull_secrets.iter();
        let secrets = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect::<Vec<_>>();
        PodSpec {
            node_selector: some(self.node_selector.clone(), BTreeMap::is_empty),
            tolerations: some(self.tolerations.clone(), Vec::is_empty),
            affinity: of_nodes
                .map(|of_nodes| Affinity { node_affinity: Some(of_nodes), ..Affinity::default() }),
            priority_class_name: self.priority_class.clone(),
            runtime_class_name: self.runtime_class.clone(),
            image_pull_secrets: some(secrets, Vec::is_empty),
            ..pod
        }
    }

    /// A gateway's pod: with that, and with its place among the other gateways.
    pub fn place_gateway(&self, pod: PodSpec) -> PodSpec {
        PodSpec {
            affinity: self.affinity.clone(),
            topology_spread_constraints: some(self.spread.clone(), Vec::is_empty),
            ..self.place(pod)
        }
    }
}

/// Names for others and a place, as both templates have them.
struct Place<'a> {
    labels: &'a BTreeMap<String, LabelValue>,
    annotations: &'a BTreeMap<String, AnnotationValue>,
    service_account_annotations: &'a BTreeMap<String, AnnotationValue>,
    node_selector: &'a BTreeMap<String, LabelValue>,
    tolerations: &'a [Toleration],
    spread: &'a [TopologySpreadConstraint],
    priority_class: Option<&'a String>,
}

impl<'a> Place<'a> {
    fn of_gateway(template: &'a PodTemplate) -> Self {
        Self {
            labels: &template.labels,
            annotations: &template.annotations,
            service_account_annotations: &template.service_account_annotations,
            node_selector: &template.node_selector,
            tolerations: &template.tolerations,
            spread: &template.topology_spread_constraints,
            priority_class: template.priority_class_name.as_ref(),
        }
    }

    fn of_edge(template: &'a EdgePodTemplate) -> Self {
        Self {
            labels: &template.labels,
            annotations: &template.annotations,
            service_account_annotations: &template.service_account_annotations,
            node_selector: &template.node_selector,
            tolerations: &template.tolerations,
            spread: &template.topology_spread_constraints,
            priority_class: template.priority_class_name.as_ref(),
        }
    }

    /// What the template adds to pods of this component. What is wrong with it goes into `found`. `at` is where the template stands.
    fn added(&self, (at, component): (&str, &str), names: &Names, found: &mut Violations) -> Added {
        self.check(at, found);
        let texts = |labels: &BTreeMap<String, LabelValue>| {
            labels.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect()
        };
        let values = |annotations: &BTreeMap<String, AnnotationValue>| -> BTreeMap<String, String> {
            annotations.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect()
        };
        let service_account_annotations = values(self.service_account_annotations);
        // A webhook of the cloud reads them when it admits a pod: pods that exist keep the identity that they have.
        let version = (!service_account_annotations.is_empty())
            .then(|| (SERVICE_ACCOUNT_VERSION.to_owned(), hash::of_object(&service_account_annotations)));
        Added {
            labels: texts(self.labels),
            annotations: values(self.annotations).into_iter().chain(version).collect(),
            service_account_annotations,
            node_selector: texts(self.node_selector),
            tolerations: self.tolerations.iter().cloned().map(without_nothing).collect(),
            spread: self.spread.iter().map(|constraint| of_component(constraint, names, component)).collect(),
            priority_class: self.priority_class.cloned(),
            ..Added::default()
        }
    }

    fn check(&self, at: &str, found: &mut Violations) {
        let at = |field: &str| format!("{at}.{field}");
        check_labels(self.labels, &at("labels"), found);
        check_keys(self.annotations.keys(), &at("annotations"), found);
        check_keys(self.service_account_annotations.keys(), &at("serviceAccountAnnotations"), found);
        for key in self.labels.keys() {
            let is_one = |name: &&str| key == *name || (name.ends_with('/') && key.starts_with(*name));
            found.add_if(OF_KUBERNETES.iter().any(is_one), &at("labels"), || {
                format!("{key:?} cannot be set here, because Kubernetes sets it")
            });
        }
        for key in self.node_selector.keys().filter(|key| !is_key(key)) {
            found.add(at("nodeSelector"), not_key(key));
        }
        check_values(self.node_selector, &at("nodeSelector"), found);
        for toleration in self.tolerations.iter().cloned().map(without_nothing) {
            check_toleration(&toleration, &at("tolerations"), found);
        }
        for constraint in self.spread {
            let at = at("topologySpreadConstraints.labelSelector");
            check_selector(constraint.label_selector.as_ref(), &at, found);
        }
    }
}

fn check_toleration(toleration: &Toleration, at: &str, found: &mut Violations) {
    let (key, value) = (toleration.key.as_ref(), toleration.value.as_ref());
    if let Some(key) = key.filter(|key| !is_key(key)) {
        found.add(at, not_key(key));
    }
    found.add_if(value.is_some_and(|value| !is_name(value)), at, || {
        format!(
            "{:?} is not a valid value of a taint: it has the syntax of a label value",
            value.map_or("", String::as_str)
        )
    });
}

/// Nothing is left out, as it was before there was a field for it: else every gateway would be replaced.
fn some<T>(value: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    (!is_empty(&value)).then_some(value)
}

/// Without a selector a constraint counts no pod at all, so ours is added.
fn of_component(
    constraint: &TopologySpreadConstraint,
    names: &Names,
    component: &str,
) -> TopologySpreadConstraint {
    let ours = || LabelSelector { match_labels: Some(names.selector(component)), ..LabelSelector::default() };
    TopologySpreadConstraint {
        label_selector: Some(constraint.label_selector.clone().unwrap_or_else(ours)),
        ..constraint.clone()
    }
}

/// Empty texts are left out: the API server does, and what it stored would never be what is wanted.
fn without_nothing(toleration: Toleration) -> Toleration {
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
    let (key, operator, value, effect) = (said(key), said(operator), said(value), said(effect));
    Toleration { key, operator, value, effect, toleration_seconds }
}

/// Labels as Kubernetes takes them, and none that the operator sets.
pub(crate) fn check_labels(labels: &BTreeMap<String, LabelValue>, at: &str, found: &mut Violations) {
    check_keys(labels.keys(), at, found);
    check_values(labels, at, found);
}

/// Annotations are spelt as labels are.
pub(crate) fn check_keys<'a>(keys: impl Iterator<Item = &'a String>, at: &str, found: &mut Violations) {
    for key in keys {
        found.add_if(!is_key(key), at, || not_key(key));
        let of_ours = OURS.iter().find(|prefix| key.starts_with(**prefix));
        if let Some(prefix) = of_ours {
            found.add(at, format!("{key:?} cannot be set here, because the operator sets every key that begins with {prefix}"));
        }
    }
}

fn check_values(labels: &BTreeMap<String, LabelValue>, at: &str, found: &mut Violations) {
    for (key, LabelValue(value)) in labels {
        found.add_if(!is_value(value), at, || not_value(key, value));
    }
}

fn check_affinity(affinity: &Affinity, at: &str, found: &mut Violations) {
    if let Some(of_nodes) = &affinity.node_affinity {
        check_node_affinity(of_nodes, &format!("{at}.nodeAffinity"), found);
    }
    if let Some(near) = &affinity.pod_affinity {
        let required = near.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = near.preferred_during_scheduling_ignored_during_execution.as_deref();
        check_terms(required, preferred, &format!("{at}.podAffinity"), found);
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        let required = far.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = far.preferred_during_scheduling_ignored_during_execution.as_deref();
        check_terms(required, preferred, &format!("{at}.podAntiAffinity"), found);
    }
}

fn check_node_affinity(affinity: &NodeAffinity, at: &str, found: &mut Violations) {
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
    let is_empty = required.is_some_and(|required| required.node_selector_terms.is_empty());
    found.add_if(is_empty, at, || "nodeSelectorTerms must name at least one term".to_owned());
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    let terms = required.iter().flat_map(|required| &required.node_selector_terms);
    for term in terms.chain(preferred.map(|weighed| &weighed.preference)) {
        let of_fields = term.match_fields.iter().flatten();
        for NodeSelectorRequirement { key, operator, values } in
            term.match_expressions.iter().flatten().chain(of_fields)
        {
            check_requirement(key, operator, values.as_deref().unwrap_or_default(), at, found);
        }
    }
}

fn check_terms(
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    at: &str,
    found: &mut Violations,
) {
    let preferred = preferred.into_iter().flatten().map(|weighed| &weighed.pod_affinity_term);
    for term in required.into_iter().flatten().chain(preferred) {
        check_selector(term.label_selector.as_ref(), at, found);
        check_selector(term.namespace_selector.as_ref(), at, found);
    }
}

/// A selector as Kubernetes takes it.
pub(crate) fn check_selector(selector: Option<&LabelSelector>, at: &str, found: &mut Violations) {
    let Some(selector) = selector else { return };
    for (key, value) in selector.match_labels.iter().flatten() {
        let is_label = is_key(key) && is_value(value);
        found.add_if(!is_label, at, || format!("{key}={value} is not a label"));
    }
    for requirement in selector.match_expressions.iter().flatten() {
        let values = requirement.values.as_deref().unwrap_or_default();
        check_requirement(&requirement.key, &requirement.operator, values, at, found);
    }
}

/// A requirement of a selector, of labels or of nodes.
fn check_requirement(key: &str, operator: &str, values: &[String], at: &str, found: &mut Violations) {
    found.add_if(!is_key(key), at, || not_key(key));
    let (does, needs) = match operator {
        "In" | "NotIn" => (!values.is_empty(), "at least one value"),
        "Exists" | "DoesNotExist" => (values.is_empty(), "no values"),
        "Gt" | "Lt" => (matches!(values, [one] if one.parse::<i64>().is_ok()), "one value, a whole number"),
        _ => (false, "to be In, NotIn, Exists or DoesNotExist"),
    };
    found.add_if(!does, at, || format!("the operator {operator} of {key:?} needs {needs}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_spelt_as_taints_and_have_no_empty_texts() {
        let text = |text: &str| Some(text.to_owned());
        let toleration = Toleration {
            key: text("a b"),
            operator: text("Exists"),
            value: text(""),
            effect: text(""),
            ..Toleration::default()
        };
        let template = PodTemplate { tolerations: vec![toleration.clone()], ..PodTemplate::default() };
        let mut found = Violations::default();
        Place::of_gateway(&template).check("spec.gateway.podTemplate", &mut found);
        assert!(found.to_string().contains("spec.gateway.podTemplate.tolerations"), "{found}");
        let Toleration { value, effect, operator, .. } = without_nothing(toleration);
        assert_eq!((value, effect, operator), (None, None, text("Exists")));
    }

    #[test]
    fn each_operator_has_the_values_that_it_needs() {
        let is_taken = |operator: &str, values: &[&str]| {
            let mut found = Violations::default();
            let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
            check_requirement("a", operator, &values, "at", &mut found);
            found.is_empty()
        };
        for (operator, values, taken) in [
            ("In", &["a"][..], true),
            ("In", &[], false),
            ("NotIn", &["a", "b"], true),
            ("NotIn", &[], false),
            ("Exists", &[], true),
            ("Exists", &["a"], false),
            ("DoesNotExist", &[], true),
            ("DoesNotExist", &["a"], false),
            ("Gt", &["4"], true),
            ("Gt", &["many"], false),
            ("Lt", &["4", "5"], false),
            ("Near", &[], false),
        ] {
            assert_eq!(is_taken(operator, values), taken, "{operator} {values:?}");
        }
    }
}
