//! The operator's command line. Each flag of the operator also has an environment variable, which the chart sets.

use crate::read::kafka::{
    clients::{CLIENTS_MAX_DEFAULT, CLIENTS_MAX_MAX},
    own_logins::{BoundFile, OwnLogins, bound_file},
};
use clap::{Parser, ValueEnum, builder::NonEmptyStringValueParser};
use sluice_gateway_config::{Violations, log_filter};
use sluice_plan::{OperatorPods, Responsible, Selector};
use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr};

const AFTER_HELP: &str = "\
Another command:
  sluice-operator ready          wait until an operator says that it is ready; `helm test` of the chart runs it

Examples:
  KUBECONFIG=./kubeconfig sluice-operator --gateway-image registry.example.com/sluice-gateway:0.1.0 --log-format text

Exit codes:
  0   stopped by SIGTERM or SIGINT
  1   the Lease was lost, or the operator could not start; the last log line has the reason
  64  an argument is wrong";

const READY_AFTER_HELP: &str = "\
Exit codes:
  0   the operator is ready
  1   it was not ready in time; standard error has its last answer
  64  an argument is wrong";

/// Runs the gateways of TracePipeline objects.
///
/// In a pod, the operator uses the pod's service account; elsewhere KUBECONFIG or ~/.kube/config. It watches every TracePipeline
/// of its namespaces and asks Kafka for the partitions of its topics. For each pipeline it applies a StatefulSet of gateways, with its
/// config, Service, NetworkPolicy, PodDisruptionBudget and schema Job.
///
/// Several replicas may run. The one that holds the Lease reconciles; the others wait and serve their probes.
#[derive(Debug, Clone, Parser)]
#[command(name = "sluice-operator", version, max_term_width = 120)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Image of the gateways of pipelines without spec.gateway.image
    #[arg(long, env = "SLUICE_GATEWAY_IMAGE", value_name = "IMAGE")]
    pub gateway_image: String,

    /// Secrets for pulling images, by name, separated by commas. The ServiceAccount of each pipeline gets them: Kubernetes gives them to new
    /// pods of pipelines without spec.gateway.imagePullSecrets. They must exist in the namespace of each pipeline
    #[arg(
        long,
        env = "SLUICE_GATEWAY_IMAGE_PULL_SECRETS",
        value_delimiter = ',',
        value_name = "SECRET,..",
        value_parser = NonEmptyStringValueParser::new(),
    )]
    pub gateway_image_pull_secrets: Vec<String>,

    /// Namespaces to watch, separated by commas; empty for all namespaces
    #[arg(long, env = "SLUICE_WATCH_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE,..")]
    pub watch_namespaces: Vec<String>,

    /// Labels of the pipelines to look after, such as `team=a` or `team notin (a, b)`; without it all pipelines. Several operators may divide
    /// the pipelines of a cluster: their selectors must be disjoint, and their Leases must have different names or namespaces
    #[arg(long, env = "SLUICE_PIPELINE_SELECTOR", value_name = "SELECTOR")]
    pub pipeline_selector: Option<Selector>,

    /// Namespace of the Lease; the chart sets the namespace of the operator's pod
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,

    /// Labels that select the operator's pods, and no other pods of its namespace. The NetworkPolicy of a pipeline allows drain and
    /// resume requests only from these pods; without labels, from every pod
    #[arg(long, env = "SLUICE_POD_LABELS", value_delimiter = ',', value_parser = label, value_name = "KEY=VALUE,..")]
    pub pod_labels: Vec<(String, String)>,

    /// Lease for leader election: the replica that holds it reconciles
    #[arg(long, env = "SLUICE_LEASE_NAME", default_value = "sluice-operator", value_name = "NAME")]
    pub lease_name: String,

    /// Holder name of this process in the Lease; the chart sets the name of the operator's pod
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value_t = host_name())]
    pub identity: String,

    /// Address that serves /metrics, /livez and /readyz; with port 0 the kernel chooses a port, and the log shows it
    #[arg(long, env = "SLUICE_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// Kafka clients that are open at the same time. Pipelines share a client if cluster, credentials, TLS and properties are the same. A
    /// client takes 0.5 MiB of memory, more with TLS
    #[arg(
        long,
        env = "SLUICE_KAFKA_CLIENTS_MAX",
        value_name = "N",
        default_value_t = CLIENTS_MAX_DEFAULT,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CLIENTS_MAX_MAX)),
    )]
    pub kafka_clients_max: u16,

    /// Files with tokens to log in to Kafka with, such as a projected token of the operator's own ServiceAccount. Each stands with its
    /// audience and the only brokers that it is sent to: bootstrapServers as the pipelines name them, with tls. For pipelines with
    /// sasl.oauth.serviceAccountToken: their own token is only in their pods. Read again every 30 s
    #[arg(
        long = "kafka-token",
        env = "SLUICE_KAFKA_TOKENS",
        value_delimiter = ',',
        value_parser = token_file,
        value_name = "AUDIENCE=FILE@BROKER+BROKER,.."
    )]
    pub kafka_tokens: Vec<(String, BoundFile)>,

    /// Files with tokens that a token endpoint takes instead of a client's secret, such as a projected token of the operator's own
    /// ServiceAccount. Each stands with the URL of the endpoint as the pipelines name it, and with the only brokers that get the granted token:
    /// bootstrapServers as the pipelines name them, with tls. For pipelines with sasl.oauth.clientCredentials.clientAssertion. Read again for
    /// each request
    #[arg(
        long = "kafka-assertion",
        env = "SLUICE_KAFKA_ASSERTIONS",
        value_delimiter = ',',
        value_parser = assertion_file,
        value_name = "TOKEN_ENDPOINT=FILE@BROKER+BROKER,.."
    )]
    pub kafka_assertions: Vec<(String, BoundFile)>,

    /// The only brokers of Amazon MSK that the operator logs in to with the role of its own ServiceAccount (IRSA or EKS Pod Identity):
    /// bootstrapServers as the pipelines name them, with tls. For pipelines with sasl.oauth.awsMskIam without secretRef
    #[arg(
        long = "kafka-aws",
        env = "SLUICE_KAFKA_AWS_BROKERS",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new(),
        value_name = "BROKER,.."
    )]
    pub kafka_aws_brokers: Vec<String>,

    /// Format of the log lines on standard error
    #[arg(long, env = "SLUICE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Log level: off, error, warn, info, debug or trace; or levels by module, such as `warn,sluice_operator=debug`
    #[arg(long, env = "SLUICE_LOG_LEVEL", default_value = "info", value_name = "LEVEL", value_parser = log_filter)]
    pub log_level: String,
}

/// Waits until an operator answers `GET /readyz` with 200.
///
/// The chart's `helm test` runs it in a pod, against the operators' Service. It needs no rights.
#[derive(Debug, Clone, Parser)]
#[command(name = "sluice-operator ready", version, max_term_width = 120, after_help = READY_AFTER_HELP)]
pub struct ReadyArgs {
    /// Address of the operator: host or Service, and port
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    pub address: String,

    /// Seconds to wait for the answer, from the start of the command
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
}

/// The command that the words of the command line ask for.
#[derive(Debug, Clone)]
pub enum Invocation {
    /// Run the operator.
    Run(Box<Args>),
    /// Ask an operator whether it is ready.
    Ready(ReadyArgs),
}

impl Invocation {
    /// Parses the words of a command line, starting with the program's name. `ready` must be the second word. Without it the operator runs, so
    /// that manifests need no subcommand.
    pub fn try_parse_from(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        if words.get(1).is_some_and(|word| word == "ready") {
            words.remove(1);
            return ReadyArgs::try_parse_from(words).map(Self::Ready);
        }
        Args::try_parse_from(words).map(|args| Self::Run(Box::new(args)))
    }
}

impl Args {
    /// The namespaces to watch, without the empty entry that the chart renders for "all".
    pub fn namespaces(&self) -> Vec<String> {
        self.watch_namespaces.iter().filter(|name| !name.is_empty()).cloned().collect()
    }

    /// The selector of the operator's pods; `None` without `--pod-labels`.
    pub fn operator_pods(&self) -> Option<OperatorPods> {
        let labels: BTreeMap<String, String> = self.pod_labels.iter().cloned().collect();
        (!labels.is_empty()).then(|| OperatorPods { namespace: self.namespace.clone(), labels })
    }

    /// What the operator logs in to Kafka with where pods log in with their own identity.
    pub fn own_logins(&self) -> OwnLogins {
        OwnLogins {
            tokens: self.kafka_tokens.iter().cloned().collect(),
            assertions: self.kafka_assertions.iter().cloned().collect(),
            aws_brokers: self.kafka_aws_brokers.clone(),
        }
    }

    /// This operator among others: all of its replicas have one Lease.
    pub fn responsible(&self) -> Responsible {
        let name = format!("{}/{}", self.namespace, self.lease_name);
        Responsible { name, selector: self.pipeline_selector.clone() }
    }

    /// The identity in the Lease. The process id distinguishes two operators on one machine outside of pods.
    pub fn lease_identity(&self) -> String {
        format!("{}_{}", self.identity, std::process::id())
    }
}

/// Format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    Json,
    /// Plain text for a terminal
    Text,
}

/// An audience, a file, and the brokers that its token is sent to.
fn token_file(text: &str) -> Result<(String, BoundFile), String> {
    bound_file(text).ok_or_else(|| {
        format!(
            "{text:?} is not AUDIENCE=FILE@BROKER+BROKER, such as \
             kafka=/etc/sluice-tokens/kafka/token@kafka-0.example.com:9093+kafka-1.example.com:9093"
        )
    })
}

/// A token endpoint, a file, and the brokers that what is granted is sent to. The token goes over TLS only.
fn assertion_file(text: &str) -> Result<(String, BoundFile), String> {
    bound_file(text).filter(|(endpoint, _)| endpoint.starts_with("https://")).ok_or_else(|| {
        format!(
            "{text:?} is not TOKEN_ENDPOINT=FILE@BROKER+BROKER with an endpoint that begins with https://, such as \
             https://login.example.com/token=/etc/sluice-tokens/assertion/token@kafka.example.com:9093"
        )
    })
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or("is not of the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The host name of this machine or pod.
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
        let parse = |words: &[&str]| {
            Invocation::try_parse_from(["sluice-operator"].iter().chain(words).map(OsString::from))
        };
        assert!(matches!(parse(&["--gateway-image", "ready"]), Ok(Invocation::Run(_))));
        ReadyArgs::command().debug_assert();
        let Ok(Invocation::Ready(args)) = parse(&["ready", "--address", "a:1"]) else { panic!() };
        assert_eq!((args.address.as_str(), args.timeout), ("a:1", 60));
        assert!(parse(&["ready", "--timeout", "0"]).is_err());
    }

    #[test]
    fn an_image_is_required_and_namespaces_are_split() {
        let parse = |args: &[&str]| Args::try_parse_from([&["sluice-operator"], args].concat());
        assert!(parse(&[]).is_err());
        let args = parse(&["--gateway-image", "gateway:1", "--watch-namespaces", "a,,b"]).unwrap();
        assert_eq!(args.namespaces(), ["a", "b"]);
        assert_eq!(args.gateway_image_pull_secrets, [""; 0]);
        let secrets = parse(&["--gateway-image", "g", "--gateway-image-pull-secrets", "a,b"]).unwrap();
        assert_eq!(secrets.gateway_image_pull_secrets, ["a", "b"]);
        assert_eq!((args.listen.port(), args.kafka_clients_max), (8080, 64));
        for (most, is_taken) in [("0", false), ("1", true), ("1024", true), ("1025", false)] {
            let found = parse(&["--gateway-image", "g", "--kafka-clients-max", most]);
            assert_eq!(found.is_ok(), is_taken, "{most}");
        }
        assert!(parse(&["--gateway-image", "g", "--listen", "nowhere"]).is_err());
    }

    #[test]
    fn a_token_has_an_audience_a_file_and_the_brokers_that_it_is_sent_to() {
        let parse =
            |tokens: &str| Args::try_parse_from(["o", "--gateway-image", "g", "--kafka-token", tokens]);
        let two = parse("https://a?b=c=/d/e@f:1+g:2,kafka=/h@i@j:3").unwrap().kafka_tokens;
        let expected = [("https://a?b=c", "/d/e", &["f:1", "g:2"][..]), ("kafka", "/h@i", &["j:3"][..])];
        assert_eq!(two.len(), expected.len());
        for ((audience, found), (of, file, servers)) in two.iter().zip(expected) {
            assert_eq!((audience.as_str(), found.file.as_str()), (of, file));
            assert_eq!(found.servers, servers);
        }
        for wrong in
            ["", "kafka", "kafka=/a", "=/a@b:1", "kafka=@b:1", "kafka=/a@", "kafka=/a@b:1+", "kafka=/a@+b:1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let said = parse("kafka=/a").unwrap_err().to_string();
        assert!(said.contains("AUDIENCE=FILE@BROKER+BROKER, such as kafka="), "{said}");
    }

    #[test]
    fn an_assertion_has_an_endpoint_with_tls_and_an_identity_of_aws_has_brokers() {
        let parse = |flag: &str, text: &str| Args::try_parse_from(["o", "--gateway-image", "g", flag, text]);
        let own = parse("--kafka-assertion", "https://a/t?b=c=/d@f:1+g:2").unwrap().own_logins();
        let bound = BoundFile { file: "/d".into(), servers: vec!["f:1".into(), "g:2".into()] };
        assert_eq!(own.assertions, [("https://a/t?b=c".to_owned(), bound)].into());
        for wrong in ["", "https://a/t", "http://a/t=/d@f:1", "https://a/t=/d", "=/d@f:1"] {
            assert!(parse("--kafka-assertion", wrong).is_err(), "{wrong}");
        }
        let own = parse("--kafka-aws", "b-1.example.com:9098,b-2.example.com:9098").unwrap().own_logins();
        assert_eq!(own.aws_brokers, ["b-1.example.com:9098", "b-2.example.com:9098"]);
        let none = Args::try_parse_from(["o", "--gateway-image", "g"]).unwrap().own_logins();
        assert_eq!(none, OwnLogins::default());
    }

    #[test]
    fn an_operator_looks_after_all_pipelines_or_those_of_its_selector() {
        let parse = |more: &[&str]| {
            Args::try_parse_from([&["o", "--gateway-image", "g", "--namespace", "n"], more].concat())
        };
        let all = parse(&[]).unwrap().responsible();
        assert_eq!((all.name.as_str(), all.selector), ("n/sluice-operator", None));
        let some =
            parse(&["--pipeline-selector", "team in (a, b)", "--lease-name", "l"]).unwrap().responsible();
        assert_eq!(some.name, "n/l");
        assert_eq!(some.selector.map(|selector| selector.to_string()).as_deref(), Some("team in (a, b)"));
        assert!(
            parse(&["--pipeline-selector", ""]).is_err() && parse(&["--pipeline-selector", "a b"]).is_err()
        );
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
