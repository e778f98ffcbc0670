//! Memory and CPU of one gateway: in the form of a container, and in the former one, which is read for one release.
//!
//! No quantity has a default in the schema while both forms are read. A server would fill in the default of one form beside the value of the
//! other, and the object would say both. For the same reason an object that an earlier version stored has 512Mi and 500m in the former
//! fields although no person wrote them: beside the new form these two values do not count.

use crate::repeated::repeated_at;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Memory of a gateway whose spec names none. The former field had it as its default.
const MEMORY: &str = "512Mi";

/// CPU that is reserved for a gateway whose spec names none. The former field had it as its default.
const CPU_REQUEST: &str = "500m";

/// Memory and CPU of one gateway.
// The former fields stand first: operators remember a spec by the hash of its text.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(&["requests.memory"], Rule::new(
        "!has(self.requests) || !has(self.requests.memory) || (has(self.limits) && has(self.limits.memory) \
         && (!isQuantity(self.requests.memory) || !isQuantity(self.limits.memory) \
         || quantity(self.requests.memory).compareTo(quantity(self.limits.memory)) == 0))")
        .message("requests.memory must equal limits.memory, since a gateway divides its limit among fixed buffers when it starts: set both \
                  to the same quantity, or remove requests.memory")),
    // An int has another text than itself; CEL in an API server cannot bound the text of one, so each is compared as a number. A text that is
    // no quantity is refused by the rule of its field: here it would be an error in the words of the server's parser.
    validation = repeated_at(&["limits.cpu"], Rule::new(
        "(has(self.limits) && has(self.limits.cpu) ? (string(self.limits.cpu) != self.limits.cpu ? double(self.limits.cpu) \
         : isQuantity(self.limits.cpu) ? quantity(self.limits.cpu).asApproximateFloat() : 1000.0) \
         : has(self.cpuLimit) && isQuantity(self.cpuLimit) ? quantity(self.cpuLimit).asApproximateFloat() : 1000.0) + 0.0001 \
         >= (has(self.requests) && has(self.requests.cpu) ? (string(self.requests.cpu) != self.requests.cpu ? double(self.requests.cpu) \
         : isQuantity(self.requests.cpu) ? quantity(self.requests.cpu).asApproximateFloat() : 0.0) \
         : has(self.cpuRequest) && isQuantity(self.cpuRequest) ? quantity(self.cpuRequest).asApproximateFloat() : 0.5)")
        .message("limits.cpu must not be less than requests.cpu, which is 500m where it is not set: increase limits.cpu, or lower \
                  requests.cpu")),
    validation = Rule::new(
        "!has(self.memory) || self.memory == '512Mi' || !has(self.limits) || !has(self.limits.memory) \
         || self.memory == self.limits.memory")
        .message("memory is the former name of limits.memory, and they differ: remove memory"),
    validation = Rule::new(
        "!has(self.cpuRequest) || self.cpuRequest == '500m' || !has(self.requests) || !has(self.requests.cpu) \
         || self.cpuRequest == self.requests.cpu")
        .message("cpuRequest is the former name of requests.cpu, and they differ: remove cpuRequest"),
    validation = Rule::new(
        "!has(self.cpuLimit) || !has(self.limits) || !has(self.limits.cpu) || self.cpuLimit == self.limits.cpu")
        .message("cpuLimit is the former name of limits.cpu, and they differ: remove cpuLimit")
)]
pub struct Resources {
    /// Deprecated: use limits.memory. This field is read in this release, and removed in the next one. 512Mi, which an earlier version
    /// filled in, does not count beside limits.memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Mi|Gi)$') && quantity(self).compareTo(quantity('128Mi')) >= 0")
        .message("memory is a whole number of Mi or Gi, at least 128Mi, such as 512Mi"))]
    pub memory: Option<String>,

    /// Deprecated: use requests.cpu. This field is read in this release, and removed in the next one. 500m, which an earlier version filled
    /// in, does not count beside requests.cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^([1-9][0-9]*m|[0-9]+([.][0-9]{1,3})?)$') && quantity(self).compareTo(quantity('10m')) >= 0 \
         && quantity(self).compareTo(quantity('64')) <= 0")
        .message("cpuRequest is a number of cores from 10m to 64, such as 500m, \"0.5\" or 2"))]
    pub cpu_request: Option<String>,

    /// Deprecated: use limits.cpu. This field is read in this release, and removed in the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^([1-9][0-9]*m|[0-9]+([.][0-9]{1,3})?)$') && quantity(self).compareTo(quantity('10m')) >= 0 \
         && quantity(self).compareTo(quantity('256')) <= 0")
        .message("cpuLimit is a number of cores from 10m to 256, such as 500m, \"0.5\" or 2"))]
    pub cpu_limit: Option<String>,

    /// What happens to a gateway that was OOM-killed. None (the default): it restarts with the same limit, and the status recommends a
    /// limit. InPlace: its pod also gets more memory, request and limit, without being replaced: a third more at each kill, and at most
    /// twice limits.memory. That is room for memory outside the gateway's own budget, and it counts against quotas. A recreated pod begins
    /// with limits.memory. InPlace requires Kubernetes 1.33 or later.
    #[serde(default)]
    pub resize: MemoryResizing,

    /// What is reserved. Memory is reserved up to its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceRequests>,

    /// The limits. Memory always has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceLimits>,
}

/// What is reserved for one gateway.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequests {
    /// CPU that is reserved: cores or thousandths of one, 10m to 64, as a text such as 500m, or a whole number. When it is not set, 500m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cpu::<64>")]
    #[x_kube(validation = Rule::new(
        "string(self) != self || (self.matches('^([1-9][0-9]*m|[0-9]+([.][0-9]{1,3})?)$') \
         && quantity(self).compareTo(quantity('10m')) >= 0 && quantity(self).compareTo(quantity('64')) <= 0)")
        .message("requests.cpu is a number of cores from 10m to 64, such as 500m, \"0.5\" or 2"))]
    pub cpu: Option<Cpu>,

    /// Memory that is reserved: the same as limits.memory, which is also what it is when it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Mi|Gi)$') && quantity(self).compareTo(quantity('128Mi')) >= 0")
        .message("requests.memory is a whole number of Mi or Gi, at least 128Mi, such as 512Mi"))]
    pub memory: Option<String>,
}

/// Limits of one gateway.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLimits {
    /// CPU limit: cores or thousandths of one, 10m to 256, as a text such as 500m, or a whole number. When it is not set, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cpu::<256>")]
    #[x_kube(validation = Rule::new(
        "string(self) != self || (self.matches('^([1-9][0-9]*m|[0-9]+([.][0-9]{1,3})?)$') \
         && quantity(self).compareTo(quantity('10m')) >= 0 && quantity(self).compareTo(quantity('256')) <= 0)")
        .message("limits.cpu is a number of cores from 10m to 256, such as 500m, \"0.5\" or 2"))]
    pub cpu: Option<Cpu>,

    /// Memory, request and limit: a whole number of Mi or Gi, at least 128Mi. When it is not set, 512Mi. The gateway divides it among fixed
    /// buffers when it starts, so another limit replaces gateways (see rollout). Memory that a pod gets in place (see resize) does not
    /// enlarge those buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Mi|Gi)$') && quantity(self).compareTo(quantity('128Mi')) >= 0")
        .message("limits.memory is a whole number of Mi or Gi, at least 128Mi, such as 512Mi"))]
    pub memory: Option<String>,
}

/// A number of cores, as in a container: a whole number, or a text such as 500m.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cpu {
    /// Whole cores.
    Cores(u32),
    /// As text.
    Text(String),
}

impl Cpu {
    /// As it stands in a pod.
    pub fn text(&self) -> String {
        match self {
            Self::Cores(cores) => cores.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The range bounds whole numbers; a rule bounds texts.
pub(super) fn cpu<const CORES_MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": CORES_MAX,
        "maxLength": 16,
    })
}

/// What is done for a gateway that was killed for its memory.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryResizing {
    /// The status recommends a limit.
    #[default]
    None,
    /// Its pod gets more memory in place.
    InPlace,
}

/// A field that this release still reads, and the field to use instead of it; both by their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeprecatedField {
    /// What the spec has.
    pub field: &'static str,
    /// What it should have.
    pub instead: &'static str,
}

const FORMER_MEMORY: DeprecatedField = DeprecatedField {
    field: "spec.gateway.resources.memory",
    instead: "spec.gateway.resources.limits.memory",
};
const FORMER_CPU_REQUEST: DeprecatedField = DeprecatedField {
    field: "spec.gateway.resources.cpuRequest",
    instead: "spec.gateway.resources.requests.cpu",
};
const FORMER_CPU_LIMIT: DeprecatedField = DeprecatedField {
    field: "spec.gateway.resources.cpuLimit",
    instead: "spec.gateway.resources.limits.cpu",
};

/// A quantity, and where the spec says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceQuantity {
    /// As it stands in a pod.
    pub text: String,
    /// The path of the field that sets it, or of the field to set if none does.
    pub field: &'static str,
}

impl ResourceQuantity {
    /// The new field's, else the former one's.
    fn of(new: Option<String>, former: Option<&String>, names: DeprecatedField) -> Option<Self> {
        let of_new = new.map(|text| Self { text, field: names.instead });
        of_new.or_else(|| former.map(|text| Self { text: text.clone(), field: names.field }))
    }

    fn default_of(text: &str, names: DeprecatedField) -> Self {
        Self { text: text.to_owned(), field: names.instead }
    }
}

impl Resources {
    /// Memory, request and limit.
    pub fn memory(&self) -> ResourceQuantity {
        let new = self.limits.as_ref().and_then(|limits| limits.memory.clone());
        let former = self.memory.as_ref().filter(|text| *text != MEMORY);
        ResourceQuantity::of(new, former, FORMER_MEMORY)
            .unwrap_or_else(|| ResourceQuantity::default_of(MEMORY, FORMER_MEMORY))
    }

    /// CPU that is reserved.
    pub fn cpu_request(&self) -> ResourceQuantity {
        let new = self.requests.as_ref().and_then(|requests| requests.cpu.as_ref()).map(Cpu::text);
        let former = self.cpu_request.as_ref().filter(|text| *text != CPU_REQUEST);
        ResourceQuantity::of(new, former, FORMER_CPU_REQUEST)
            .unwrap_or_else(|| ResourceQuantity::default_of(CPU_REQUEST, FORMER_CPU_REQUEST))
    }

    /// The CPU limit, if there is one.
    pub fn cpu_limit(&self) -> Option<ResourceQuantity> {
        let new = self.limits.as_ref().and_then(|limits| limits.cpu.as_ref()).map(Cpu::text);
        ResourceQuantity::of(new, self.cpu_limit.as_ref(), FORMER_CPU_LIMIT)
    }

    /// The former fields that decide something. One that only has what an earlier version filled in decides nothing: the value stays the
    /// same without it.
    pub fn deprecated(&self) -> Vec<DeprecatedField> {
        let quantities = [Some(self.memory()), Some(self.cpu_request()), self.cpu_limit()];
        let former = [FORMER_MEMORY, FORMER_CPU_REQUEST, FORMER_CPU_LIMIT];
        let found = quantities.into_iter().flatten();
        found
            .filter_map(|quantity| former.into_iter().find(|former| former.field == quantity.field))
            .collect()
    }

    /// The same with this memory, in the new form.
    #[must_use]
    pub fn with_memory(mut self, memory: impl Into<String>) -> Self {
        self.limits.get_or_insert_default().memory = Some(memory.into());
        if let Some(requests) = &mut self.requests {
            requests.memory = None;
        }
        self.memory = None;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Resources {
        serde_json::from_value(value).unwrap()
    }

    fn found(resources: &Resources) -> [Option<String>; 3] {
        let text = |quantity: ResourceQuantity| quantity.text;
        [Some(text(resources.memory())), Some(text(resources.cpu_request())), resources.cpu_limit().map(text)]
    }

    #[test]
    fn both_forms_give_the_same_quantities() {
        let former = read(json!({"memory": "1Gi", "cpuRequest": "2", "cpuLimit": "4"}));
        let expected = [Some("1Gi".into()), Some("2".into()), Some("4".into())];
        assert_eq!(found(&former), expected);
        for new in [
            json!({"requests": {"cpu": 2}, "limits": {"cpu": 4, "memory": "1Gi"}}),
            json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}),
            // As an earlier version stored it, with a part of the new form written into it.
            json!({"memory": "512Mi", "cpuRequest": "500m", "resize": "None", "cpuLimit": "4", "requests": {"cpu": 2},
                "limits": {"memory": "1Gi"}}),
        ] {
            assert_eq!(found(&read(new.clone())), expected, "{new}");
        }
        let nothing = [Some("512Mi".into()), Some("500m".into()), None];
        assert_eq!(found(&Resources::default()), nothing);
    }

    #[test]
    fn a_value_that_a_server_filled_in_is_not_deprecated() {
        let stored = read(json!({"memory": "512Mi", "cpuRequest": "500m", "resize": "None"}));
        assert_eq!(stored.deprecated(), []);
        assert_eq!(stored.memory().field, "spec.gateway.resources.limits.memory");
        let written = read(json!({"memory": "1Gi", "cpuRequest": "2", "cpuLimit": "4"}));
        assert_eq!(written.deprecated(), [FORMER_MEMORY, FORMER_CPU_REQUEST, FORMER_CPU_LIMIT]);
        assert_eq!(written.memory().field, "spec.gateway.resources.memory");
        let beside = read(json!({"memory": "1Gi", "limits": {"memory": "1Gi"}}));
        assert_eq!(beside.deprecated(), [], "the new field decides");
    }

    #[test]
    fn what_is_not_set_is_not_written() {
        assert_eq!(serde_json::to_value(Resources::default()).unwrap(), json!({"resize": "None"}));
        // The text of a stored object stays the same, and with it its hash.
        let stored = r#"{"memory":"512Mi","cpuRequest":"500m","cpuLimit":"2","resize":"None"}"#;
        assert_eq!(
            serde_json::to_string(&serde_json::from_str::<Resources>(stored).unwrap()).unwrap(),
            stored
        );
    }
}
