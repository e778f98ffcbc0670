//! The operator of this checkout as a process of its own, with the rights that the chart gives it and nothing more, looking after
//! one namespace.
//!
//! ```text
//! operator (process) -> front, which counts -> API server, with a token of the chart's service account
//! ```
//!
//! Job: what must be counted or measured of the operator alone: requests, memory, CPU time. A pod shares its API server's
//! counters with every other client. Place in the flow: under `operator_scale` and tests. Owner: the run; the process is killed
//! when this is dropped. Limits: an operator that looks after all namespaces must not run beside it, or both write the same
//! objects; whoever starts this one makes sure of that.

mod account;
mod front;
mod node;
mod program;
mod volumes;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster::Namespace;
use crate::stack::images;

pub use account::{ensure_definition, give_back_definition};
pub use front::{Call, Calls, Front, Verb, Write};
pub use node::{Node, POD_CORES};
pub use program::{Program, Usage};
pub use volumes::Volumes;

/// Name of the chart's release in the namespace, and so of its account and Lease.
pub const RELEASE: &str = "sluice";

/// What is started, and where.
#[derive(Clone, Copy)]
pub struct Orders<'a> {
    /// Kubeconfig of an administrator.
    pub kubeconfig: &'a Path,
    /// The namespace that it looks after, and in which its account and its Lease are.
    pub namespace: &'a Namespace,
    /// The operator's program.
    pub program: &'a Path,
    /// Image of the gateways.
    pub gateway_image: &'a str,
    /// Who it is in the Lease, and what its files are called.
    pub identity: &'a str,
}

/// A running operator.
pub struct LocalOperator {
    /// Between it and the API server.
    pub front: Front,
    /// The process.
    pub program: Program,
}

impl LocalOperator {
    /// Makes the account of the chart in the namespace, and starts the program with a token of it. The definition of
    /// `TracePipeline` must be there.
    pub async fn start(orders: Orders<'_>, folder: &Path) -> Result<LocalOperator> {
        let token = admit(orders.namespace).await?;
        LocalOperator::start_with(orders, folder, token, None).await
    }

    /// Starts the program with a token from [`admit`]. It gets at most `works_max` writes of work through ([`Call::works`]): the last
    /// of them is carried out, it never hears of that ([`Front::wait_last`]), and has no API server from then on.
    pub async fn start_with(
        orders: Orders<'_>,
        folder: &Path,
        token: String,
        works_max: Option<usize>,
    ) -> Result<LocalOperator> {
        let front = Front::start(orders.kubeconfig, token, works_max).await?;
        let kubeconfig = folder.join(format!("{}.kubeconfig", orders.identity));
        std::fs::write(&kubeconfig, front.kubeconfig())
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let told = program::Orders {
            program: orders.program,
            kubeconfig: &kubeconfig,
            namespace: orders.namespace.name(),
            lease: RELEASE,
            gateway_image: orders.gateway_image,
            identity: orders.identity,
            log: folder.join(format!("{}.log", orders.identity)),
        };
        Ok(LocalOperator { program: Program::start(&told)?, front })
    }
}

/// Makes the account of the chart in the namespace, and gives a token of it.
pub async fn admit(namespace: &Namespace) -> Result<String> {
    account::apply(namespace, RELEASE).await?;
    account::token(namespace, RELEASE).await
}

/// The operator of this checkout in release form: as it is compiled for its image, since by itself it would be compiled with other
/// features of what it shares with the gateway. Takes minutes the first time.
///
/// # Errors
/// What the compiler says.
pub fn compiled() -> Result<PathBuf> {
    Ok(images::build_programs()?.operator)
}
