//! What the operator is told on its command line. Every flag has an environment variable, for the chart.

use crate::kafka::clients::{CLIENTS_MAX_DEFAULT, CLIENTS_MAX_MAX};
use clap::{Parser, ValueEnum};
use sluice_gateway_config::{Violations, log_filter};
use sluice_plan::OperatorPods;
use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, path::PathBuf};

/// Keeps gateways in line with TracePipeline objects.
///
/// Give it a cluster (in a pod: the pod's service account; elsewhere: KUBECONFIG or ~/.kube/config) and the image that
/// gateways run. It looks at every TracePipeline of the namespaces it watches, reads the partitions of the topics from
/// Kafka, and applies one StatefulSet of gateways each, with the config, volumes and network objects around it.
///
/// Several may run at the same time: the one that holds the Lease works, the others wait and serve their probes.
/// The process ends with status 1 when it loses the Lease, with 64 when an argument is wrong, and with 0 after SIGTERM.
#[derive(Debug, Clone, Parser)]
#[command(name = "sluice-operator", version, max_term_width = 120)]
#[command(
    after_help = "`sluice-operator plan -f FILE` says what would be done with a pipeline, without a cluster; \
    see `sluice-operator plan --help`.\n\
    Called kubectl-sluice, it is the plugin `kubectl sluice`; see `kubectl-sluice --help`.\n\n\
    Example, outside of the cluster:\n  \
    KUBECONFIG=./kubeconfig sluice-operator --gateway-image registry.example.com/sluice-gateway:0.1.0 --log-format text"
)]
pub struct Args {
    /// Image of the gateways where a TracePipeline names none
    #[arg(long, env = "SLUICE_GATEWAY_IMAGE", value_name = "IMAGE")]
    pub gateway_image: String,

    /// Namespaces to look after, separated by commas; none means all of the cluster
    #[arg(long, env = "SLUICE_WATCH_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE,..")]
    pub watch_namespaces: Vec<String>,

    /// Namespace of the Lease; in a pod, the pod's own
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,

    /// Labels of the pods of operators, and of no others in their namespace: network policies let them, and nobody else, tell gateways
    /// to drain; without labels, everybody
    #[arg(long, env = "SLUICE_POD_LABELS", value_delimiter = ',', value_parser = label, value_name = "KEY=VALUE,..")]
    pub pod_labels: Vec<(String, String)>,

    /// The Lease that decides which of several operators works
    #[arg(long, env = "SLUICE_LEASE_NAME", default_value = "sluice-operator", value_name = "NAME")]
    pub lease_name: String,

    /// Who this process is in the Lease; in a pod, the pod's name
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value_t = host_name())]
    pub identity: String,

    /// Address that serves /metrics, /livez and /readyz; with port 0 on any, which the log names
    #[arg(long, env = "SLUICE_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// Clients with which the operator asks Kafka, at the same time: one for each cluster and each way to connect to it (credentials, TLS,
    /// properties); a client takes half a MiB of memory, more with TLS
    #[arg(
        long,
        env = "SLUICE_KAFKA_CLIENTS_MAX",
        value_name = "N",
        default_value_t = CLIENTS_MAX_DEFAULT,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CLIENTS_MAX_MAX)),
    )]
    pub kafka_clients_max: u16,

    /// How a log line is written
    #[arg(long, env = "SLUICE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// off, error, warn, info, debug, trace, or levels by part of the program, as `warn,sluice_operator=debug`
    #[arg(long, env = "SLUICE_LOG_LEVEL", default_value = "info", value_name = "LEVEL", value_parser = log_filter)]
    pub log_level: String,
}

/// Says what would be done with a TracePipeline in a file: every object as YAML, or every violation with its path.
///
/// Needs no cluster and no Kafka: partitions are as many as you say, and Secrets are taken to be there. What the API server would
/// refuse (types, ranges and rules of the CRD) is refused with its words; rules about a change of what is there are not asked.
/// Ends with status 64 when something is wrong with the pipeline, and 66 when the file cannot be read.
#[derive(Debug, Clone, Parser)]
#[command(name = "sluice-operator plan", version, max_term_width = 120)]
pub struct PlanArgs {
    /// The pipeline, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,

    /// Partitions of each topic
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub partitions: u32,

    /// Print one JSON object instead: replicas, derived, advice and objects; or violations
    #[arg(long)]
    pub json: bool,

    /// Image of the gateways where the pipeline names none
    #[arg(long, env = "SLUICE_GATEWAY_IMAGE", default_value = concat!("sluice-gateway:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub gateway_image: String,

    /// Memory of a ClickHouse server in GiB, for advice
    #[arg(long, value_name = "GIB", requires = "clickhouse_cores", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clickhouse_memory: Option<u32>,

    /// Cores of a ClickHouse server, for advice
    #[arg(long, value_name = "N", requires = "clickhouse_memory", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub clickhouse_cores: Option<u32>,
}

/// What the program is asked to do.
#[derive(Debug, Clone)]
pub enum Invocation {
    /// Look after pipelines.
    Run(Args),
    /// Say what would be done with one.
    Plan(PlanArgs),
}

impl Invocation {
    /// Reads the words of a command line, the program's name first. `plan` must be the first word behind it: everything else is
    /// about running, so that manifests need no word for it.
    pub fn try_parse_from(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        if words.get(1).is_some_and(|word| word == "plan") {
            words.remove(1);
            return PlanArgs::try_parse_from(words).map(Self::Plan);
        }
        Args::try_parse_from(words).map(Self::Run)
    }
}

impl Args {
    /// The namespaces to look after without empty entries, which a chart renders for "all".
    pub fn namespaces(&self) -> Vec<String> {
        self.watch_namespaces.iter().filter(|name| !name.is_empty()).cloned().collect()
    }

    /// The pods of operators; `None` when they have no labels that are known.
    pub fn operator_pods(&self) -> Option<OperatorPods> {
        let labels: BTreeMap<String, String> = self.pod_labels.iter().cloned().collect();
        (!labels.is_empty()).then(|| OperatorPods { namespace: self.namespace.clone(), labels })
    }

    /// The identity in the Lease. The process id keeps apart two operators that run on one machine outside of pods.
    pub fn lease_identity(&self) -> String {
        format!("{}_{}", self.identity, std::process::id())
    }
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line
    Json,
    /// For a person at a terminal
    Text,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or("is not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The kernel's name for this machine or pod.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "sluice-operator".to_owned(), |name| name.trim().to_owned())
}

fn log_filter(text: &str) -> Result<String, String> {
    let mut found = Violations::default();
    log_filter::check(text, "--log-level", &mut found);
    let words =
        |found: Violations| found.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("; ");
    found.or(text.to_owned()).map_err(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_first_word_says_what_to_do() {
        PlanArgs::command().debug_assert();
        let parse = |words: &[&str]| {
            Invocation::try_parse_from(["sluice-operator"].iter().chain(words).map(OsString::from))
        };
        let Ok(Invocation::Plan(args)) = parse(&["plan", "-f", "p.yaml"]) else { panic!() };
        assert_eq!((args.partitions, args.json), (12, false));
        assert!(matches!(parse(&["--gateway-image", "plan"]), Ok(Invocation::Run(_))));
        for wrong in [
            &["plan"][..],
            &["plan", "-f", "p", "--partitions", "0"],
            &["plan", "-f", "p", "--clickhouse-cores", "8"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_image_is_required_and_namespaces_are_split() {
        let parse = |args: &[&str]| Args::try_parse_from([&["sluice-operator"], args].concat());
        assert!(parse(&[]).is_err());
        let args = parse(&["--gateway-image", "gateway:1", "--watch-namespaces", "a,,b"]).unwrap();
        assert_eq!(args.namespaces(), ["a", "b"]);
        assert_eq!((args.listen.port(), args.kafka_clients_max), (8080, 64));
        for (most, is_taken) in [("0", false), ("1", true), ("1024", true), ("1025", false)] {
            let found = parse(&["--gateway-image", "g", "--kafka-clients-max", most]);
            assert_eq!(found.is_ok(), is_taken, "{most}");
        }
        assert!(parse(&["--gateway-image", "g", "--listen", "nowhere"]).is_err());
    }

    #[test]
    fn the_operators_pods_are_known_by_their_labels_or_not_at_all() {
        let parse = |labels: &str| {
            Args::try_parse_from(["o", "--gateway-image", "g", "--namespace", "n", "--pod-labels", labels])
        };
        let pods = parse("a/b=c,d=e").unwrap().operator_pods().unwrap();
        assert_eq!((pods.namespace.as_str(), pods.labels.len(), pods.labels["a/b"].as_str()), ("n", 2, "c"));
        let none = Args::try_parse_from(["o", "--gateway-image", "g"]).unwrap();
        assert_eq!(none.operator_pods(), None);
        assert!(["a", "=b", "a=", ","].iter().all(|wrong| parse(wrong).is_err()));
    }
}
