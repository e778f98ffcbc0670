//! Whether the cluster can run pods at all.
//!
//! Job: one question before each test, so that a full disk fails it at once and by its name, instead of after minutes as
//! a pod that never came. Place in the flow: under the tests' environment. Limits: tells what the node says of itself; a node
//! that says nothing for a while is not noticed before the API server calls it not ready.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::Cluster;

/// Conditions that keep pods away, or drive them off, while they are true.
const PRESSURES: [&str; 3] = ["DiskPressure", "MemoryPressure", "PIDPressure"];

impl Cluster {
    /// An error with what each node says when none of them takes pods.
    pub async fn ensure_takes_pods(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        let nodes = nodes.list(&ListParams::default()).await.context("list nodes")?.items;
        let troubles: Vec<String> = nodes.iter().filter_map(trouble).collect();
        ensure!(
            troubles.len() < nodes.len(),
            "no node takes pods ({}); free disk space or memory, and wait until the kubelet has seen it",
            troubles.join("; ")
        );
        Ok(())
    }
}

/// Why a node takes no pods, in the kubelet's words.
fn trouble(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let bad = conditions.iter().find(|condition| match condition.type_.as_str() {
        "Ready" => condition.status != "True",
        pressure => PRESSURES.contains(&pressure) && condition.status == "True",
    })?;
    let message = bad.message.as_deref().unwrap_or("without a message");
    Some(format!("{}: {}={}, {message}", node.name_any(), bad.type_, bad.status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(conditions: &serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    #[test]
    fn a_node_under_pressure_is_named_with_the_reason() {
        let ready = json!({"type": "Ready", "status": "True", "message": "kubelet is posting ready status"});
        let full = json!({"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"});
        let calm = json!({"type": "DiskPressure", "status": "False", "message": "no disk pressure"});
        assert_eq!(trouble(&node(&json!([calm, ready]))), None);
        assert_eq!(
            trouble(&node(&json!([full, ready]))).as_deref(),
            Some("n: DiskPressure=True, kubelet has disk pressure")
        );
        let gone = json!({"type": "Ready", "status": "Unknown", "message": "kubelet stopped posting"});
        assert_eq!(
            trouble(&node(&json!([gone]))).as_deref(),
            Some("n: Ready=Unknown, kubelet stopped posting")
        );
    }
}
