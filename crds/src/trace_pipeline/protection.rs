//! What surrounds the gateways: how many of them may be evicted at the same time, and whom they may be reached by.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How many gateways may be evicted at the same time, for instance by a node that is drained.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Whether there is a PodDisruptionBudget. Default true. Without one any number of gateways may be evicted at the same time, unless
    /// another budget has them; two budgets of the same pods let none be evicted.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Gateways that may be unavailable at the same time, 1 to 1000. Default 1. Gateways that are not ready never block the drain of a
    /// node.
    #[serde(default = "max_unavailable")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_unavailable: u32,
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self { enabled: enabled(), max_unavailable: max_unavailable() }
    }
}

/// Which connections to and from the pods are allowed.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRules {
    /// Whether there is a NetworkPolicy. Default true: any client may connect to the admin port, only the operator to the port above it,
    /// and no client to any other port; pods may use DNS and open any TCP connection, which is all that they do. Rules of several policies
    /// add up: with false, only other policies apply, for instance to allow fewer servers, and no rule where there is no other policy.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

impl Default for NetworkRules {
    fn default() -> Self {
        Self { enabled: enabled() }
    }
}

fn enabled() -> bool {
    true
}

fn max_unavailable() -> u32 {
    1
}
