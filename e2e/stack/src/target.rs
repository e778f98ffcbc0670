//! The target of tests and demo: the local stack, or a cluster and servers that the user names.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::images::ImageStore;
use crate::kubernetes::Kubernetes;
use crate::paths::Paths;
use crate::process::{command, output};
use crate::{clickhouse, kafka};

/// Arguments that select where to run. Each can also be given as an environment variable: `verify` passes them to the test program in this
/// way.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetArgs {
    /// Kubeconfig of a cluster to use instead of the local stack
    #[arg(long, value_name = "FILE", env = "SLUICE_KUBECONFIG", conflicts_with = "kind")]
    pub kubeconfig: Option<PathBuf>,

    /// Name of a kind cluster to use instead of the local stack
    #[arg(long, value_name = "NAME", env = "SLUICE_KIND")]
    pub kind: Option<String>,

    /// Kafka to use instead of the local stack's; this machine and pods must reach it at this address
    #[arg(long, value_name = "HOST:PORT", env = "SLUICE_KAFKA")]
    pub kafka: Option<String>,

    /// Address of that Kafka for pods, if it differs
    #[arg(long, value_name = "HOST:PORT", env = "SLUICE_KAFKA_PODS", requires = "kafka")]
    pub kafka_pods: Option<String>,

    /// ClickHouse to use instead of the local stack's; the URL may have user and password
    #[arg(long, value_name = "URL", env = "SLUICE_CLICKHOUSE", hide_env_values = true)]
    pub clickhouse: Option<String>,

    /// URL of that ClickHouse for pods, if it differs
    #[arg(long, value_name = "URL", env = "SLUICE_CLICKHOUSE_PODS", requires = "clickhouse")]
    pub clickhouse_pods: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    Local,
    /// A cluster named by a kubeconfig. Its images must already be in a registry that it can pull from.
    Kubeconfig(PathBuf),
    Kind(String),
}

/// An address as this machine and as pods see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub pods: String,
}

/// Where to run; every value is free of contradictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub cluster: Cluster,
    /// A given Kafka; else the local stack's.
    pub kafka: Option<Address>,
    /// A given ClickHouse; else the local stack's.
    pub clickhouse: Option<Address>,
}

/// The addresses and files of a target.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Administrator's kubeconfig of the cluster.
    pub kubeconfig: PathBuf,
    /// Kafka's `host:port`.
    pub kafka: Address,
    /// `ClickHouse`'s base URL.
    pub clickhouse: Address,
    /// Where to load images; `None` if the cluster must pull them.
    pub images: Option<ImageStore>,
}

impl TargetArgs {
    pub fn target(&self) -> anyhow::Result<Target> {
        let cluster = match (&self.kubeconfig, &self.kind) {
            (Some(file), _) => Cluster::Kubeconfig(file.clone()),
            (None, Some(name)) => Cluster::Kind(name.clone()),
            (None, None) => Cluster::Local,
        };
        let target = Target {
            cluster,
            kafka: address(self.kafka.as_ref(), self.kafka_pods.as_ref()),
            clickhouse: address(self.clickhouse.as_ref(), self.clickhouse_pods.as_ref()),
        };
        if target.cluster != Cluster::Local && (target.kafka.is_none() || target.clickhouse.is_none()) {
            bail!(
                "pods of another cluster cannot reach the local Kafka and ClickHouse: use --kafka HOST:PORT and --clickhouse URL"
            );
        }
        Ok(target)
    }

    /// The same arguments as environment variables, for a program that this one starts.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let values = [
            ("SLUICE_KUBECONFIG", self.kubeconfig.as_ref().map(|file| file.display().to_string())),
            ("SLUICE_KIND", self.kind.clone()),
            ("SLUICE_KAFKA", self.kafka.clone()),
            ("SLUICE_KAFKA_PODS", self.kafka_pods.clone()),
            ("SLUICE_CLICKHOUSE", self.clickhouse.clone()),
            ("SLUICE_CLICKHOUSE_PODS", self.clickhouse_pods.clone()),
        ];
        values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The arguments from the environment variables: for a test program, whose command line has no such arguments.
    pub fn from_environment() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            kubeconfig: given("SLUICE_KUBECONFIG").map(PathBuf::from),
            kind: given("SLUICE_KIND"),
            kafka: given("SLUICE_KAFKA"),
            kafka_pods: given("SLUICE_KAFKA_PODS"),
            clickhouse: given("SLUICE_CLICKHOUSE"),
            clickhouse_pods: given("SLUICE_CLICKHOUSE_PODS"),
        }
    }
}

fn address(host: Option<&String>, pods: Option<&String>) -> Option<Address> {
    host.map(|host| Address { host: host.clone(), pods: pods.unwrap_or(host).clone() })
}

impl Target {
    /// Whether anything of the local stack is needed.
    pub fn needs_stack(&self) -> bool {
        self.cluster == Cluster::Local || self.kafka.is_none() || self.clickhouse.is_none()
    }

    /// Addresses and files of the target. The local stack need not be up.
    pub fn resolve(&self) -> anyhow::Result<Resolved> {
        let local = |host: &str, pods: &str| Address { host: host.into(), pods: pods.into() };
        let (kubeconfig, images) = match &self.cluster {
            Cluster::Local => {
                let kubernetes = Kubernetes::local()?;
                (kubernetes.kubeconfig(), Some(ImageStore::Containerd(kubernetes.containerd_socket())))
            }
            Cluster::Kubeconfig(file) => (file.clone(), None),
            Cluster::Kind(name) => (kind_kubeconfig(name)?, Some(ImageStore::Kind(name.clone()))),
        };
        Ok(Resolved {
            kubeconfig,
            images,
            kafka: self.kafka.clone().unwrap_or_else(|| local(kafka::HOST_ADDRESS, kafka::PODS_ADDRESS)),
            clickhouse: self
                .clickhouse
                .clone()
                .unwrap_or_else(|| local(clickhouse::HOST_URL, clickhouse::PODS_URL)),
        })
    }
}

fn kind_kubeconfig(name: &str) -> anyhow::Result<PathBuf> {
    let text = output(command("kind").args(["get", "kubeconfig", "--name", name]))
        .with_context(|| format!("ask kind for the kubeconfig of its cluster {name}"))?;
    let file = Paths::from_environment()?.cache.join("kind").join(format!("{name}.kubeconfig"));
    crate::paths::put(&file, &text)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_given_means_the_local_stack() {
        let target = TargetArgs::default().target().unwrap();
        assert_eq!(target.cluster, Cluster::Local);
        let resolved = target.resolve().unwrap();
        assert!(resolved.images.is_some());
        assert_eq!(resolved.kafka.pods, "kafka.sluice-stack.svc.cluster.local:9092");
        assert_eq!(resolved.clickhouse.host, "http://127.0.0.1:8123");
    }

    #[test]
    fn another_cluster_needs_servers_that_its_pods_reach() {
        let args =
            TargetArgs { kubeconfig: Some("/k".into()), kafka: Some("k:1".into()), ..TargetArgs::default() };
        assert!(args.target().unwrap_err().to_string().contains("--clickhouse URL"));
        let args = TargetArgs {
            clickhouse: Some("http://c:1".into()),
            clickhouse_pods: Some("http://p:1".into()),
            ..args
        };
        let resolved = args.target().unwrap().resolve().unwrap();
        assert!(resolved.images.is_none());
        assert_eq!(resolved.kafka, Address { host: "k:1".into(), pods: "k:1".into() });
        assert_eq!(resolved.clickhouse, Address { host: "http://c:1".into(), pods: "http://p:1".into() });
    }

    #[test]
    fn arguments_pass_through_the_environment() {
        let args =
            TargetArgs { kind: Some("dev".into()), kafka: Some("k:1".into()), ..TargetArgs::default() };
        assert_eq!(
            args.environment(),
            [("SLUICE_KIND", "dev".to_owned()), ("SLUICE_KAFKA", "k:1".to_owned())]
        );
    }
}
