//! The command line of `kubectl sluice`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Examples:
  kubectl sluice status -n tracing                        all pipelines of the namespace
  kubectl sluice lag traces -n tracing                    lag of each partition
  kubectl sluice drain traces-gateway-0 -n tracing        before maintenance of its node or volume
  kubectl sluice dead-letter traces list --since 2h       messages and spans that could not be stored
  kubectl sluice audit traces --since 2h                  spans that are missing or doubled in the table
  kubectl sluice plan -f pipeline.yaml                    what the operator would apply, and which pods restart

Exit codes:
  0   done, and healthy
  1   unhealthy: a pipeline is not ready, no gateway reports a partition, a gateway does not answer or has not read its
      queue volume yet, a drain timed out, or a queue volume has unreadable data
  64  an argument is wrong, or the pipeline in the file is invalid
  66  the pipeline, pod or file does not exist
  69  the cluster is unreachable or refuses the request
  130 `audit` was stopped by Ctrl-C, SIGTERM or a closed terminal
`dead-letter` and `audit` exit with the code of `sluice-gateway dead-letter` and `sluice-gateway audit` in the pod.

Rights:
  all but plan      get and list on tracepipelines and pods
  plan              none; to say which pods restart, get on tracepipelines, traceconnections, statefulsets and deployments,
                    and list on pods and persistentvolumeclaims
  status NAME       get on pods/proxy, for the table of services; without it, the table says so
  lag, spool        get on pods/proxy
  drain             get on pods/proxy; get and create on pods/portforward; patch on pods
  dead-letter       get and create on pods/exec
  audit             create and delete on pods; get on pods/log and statefulsets; list on events, to say why a pod does not start";

const AUDIT_AFTER_HELP: &str = "\
Examples:
  kubectl sluice audit traces -n tracing --since 2h
  kubectl sluice audit traces --topic otlp_spans --partition 3 --since 120000 --until 130000 --json

Exit codes:
  0   nothing is missing or doubled
  64  an argument is wrong
  65  spans are missing or doubled
  66  spans have no row, but none is certainly lost; or Kafka no longer has offsets from --since on; or there is no such
      pipeline, or it has no gateways yet
  69  Kafka, ClickHouse or the cluster is away or refuses, a record batch cannot be read, the pod did not start or was
      ended or deleted, or its log cannot be read or has no result
  130 stopped by Ctrl-C, SIGTERM or a closed terminal";

const PLAN_AFTER_HELP: &str = "\
Examples:
  kubectl sluice plan -f pipeline.yaml --partitions 48
  kubectl sluice plan -f pipeline.yaml --clickhouse-memory 64 --clickhouse-cores 16
  kubectl sluice plan -f - --json < pipeline.yaml
  kubectl sluice plan -f pipeline.yaml --connections connection.yaml
  kubectl sluice plan -f pipeline.yaml --json | jq -r .restarts.message
  kubectl sluice plan -f pipeline.yaml --offline          in CI, without a cluster

Restarts:
  The line `restarts` says which pods are replaced if the file is applied, in which order, and which fields cause it.
  The file counts as the whole spec: a field that it does not set has its default.
  The command reads no Secrets. Lines `not known` say what may replace pods, too.
  In the JSON, `restarts` has these fields:
    outcome        New, Compared, Refused, Unmanaged or NotKnown
    message        the line; notKnown has the others, and comparedWith the pipeline and the API server
    gateways       restarts, replicasBefore, replicasAfter, order (Canary or Rolling), atATime, because, isRetry
    edge           the same; the order is Surge
    volumes        restarts and because, of gateways that get a new queue volume

Exit codes:
  0   the plan was printed, also if no cluster answered
  1   the output cannot be written
  64  an argument is wrong, or the pipeline is invalid
  66  the file cannot be read";

/// Shows trace pipelines: what runs, the lag, why there are this many gateways, and what you must do.
///
/// kubectl finds this program as `kubectl sluice` if the PATH has a file kubectl-sluice.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubectl-sluice", bin_name = "kubectl sluice", version, max_term_width = 120, after_help = AFTER_HELP)]
pub struct PluginArgs {
    /// The namespace; default: that of the kubeconfig's context
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// The context of the kubeconfig; default: the current one
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub context: Option<String>,

    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show one pipeline, or all of the namespace: what runs, the lag, why this many gateways, what it is doing, what you must do; of one
    /// pipeline also which services send most
    Status {
        /// The pipeline; default: all of the namespace
        name: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Print what the operator would apply for a pipeline in a file, and which pods restart; needs no cluster for the plan
    Plan(PlanArgs),
    /// Show the lag of each partition, as the gateways report it now
    Lag(Named),
    /// Show the blocks, or with source.otlp the logs and dead letters, on the queue volume of each gateway
    Spool(Named),
    /// Make a gateway leave the consumer group and insert everything it holds; --resume makes it join again
    Drain(DrainArgs),
    /// Compare what Kafka has with the table, span by span, in a pod that is deleted afterwards; changes no data
    Audit(AuditArgs),
    /// List, show or replay dead letters, in a gateway's pod and with its config
    DeadLetter(DeadLetterArgs),
}

/// Prints what the operator would apply for a TracePipeline in a file: every object as YAML, or every violation with its path.
///
/// The plan needs no cluster and no Kafka. It takes the number of partitions from --partitions and assumes that all Secrets exist. It
/// checks the types, ranges and rules of the CRD, with the messages of the API server. It does not check rules that compare with an
/// existing object. If a cluster answers, the command compares the file with the pipeline there and says which pods would restart.
#[derive(Debug, Clone, Args)]
#[command(after_help = PLAN_AFTER_HELP)]
pub struct PlanArgs {
    /// File with the pipeline, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,

    /// Which pipeline, if the file has several
    #[arg(long, value_name = "NAME")]
    pub pipeline: Option<String>,

    /// File with the connections that the pipeline references, if they are not in the same file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub connections: Vec<PathBuf>,

    /// Partitions of each topic
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub partitions: u32,

    /// Print one JSON object: replicas, partitions, derived, advice, warnings, restarts and objects; or violations
    #[arg(long)]
    pub json: bool,

    /// Ask no cluster: which pods would restart is then not known
    #[arg(long)]
    pub offline: bool,

    /// Image of the gateways if the pipeline has no spec.gateway.image
    #[arg(long, env = "SLUICE_GATEWAY_IMAGE", default_value = concat!("sluice-gateway:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub gateway_image: String,

    /// Memory of one ClickHouse server in GiB, for advice about its settings
    #[arg(long, value_name = "GIB", requires = "clickhouse_cores", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clickhouse_memory: Option<u32>,

    /// Cores of one ClickHouse server, for advice about its settings
    #[arg(long, value_name = "N", requires = "clickhouse_memory", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub clickhouse_cores: Option<u32>,
}

/// One pipeline.
#[derive(Debug, Clone, Args)]
pub struct Named {
    /// Name of the pipeline
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Drains one gateway, and waits for the end.
///
/// The gateway leaves the consumer group, inserts what it holds, and keeps running, not ready, until it restarts or is resumed. Use
/// this before maintenance of a node or a volume; before the operator removes a gateway, it drains it itself. The plugin annotates the pod
/// with sluice.dev/kept-out, because the operator resumes gateways that drain without it.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// Name of the gateway's pod
    pub pod: String,
    /// End the drain: the gateway joins the consumer group again
    #[arg(long)]
    pub resume: bool,
    /// Longest wait in seconds until the gateway holds nothing; the drain continues after it
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print what the gateway holds in the end as JSON
    #[arg(long)]
    pub json: bool,
}

/// Compares what Kafka has with the table, span by span.
///
/// It runs `sluice-gateway audit` in a pod of its own, because an audit takes 250 MB, more than a gateway's pod has to spare. The pod has
/// the image, config, Secrets and node selection of the pipeline's gateways. The command prints the pod's log, exits with its code and
/// deletes the pod, also after Ctrl-C or if the terminal closes. It keeps the pod if the audit has ended and its log cannot be read.
#[derive(Debug, Clone, Args)]
#[command(after_help = AUDIT_AFTER_HELP)]
pub struct AuditArgs {
    /// Name of the pipeline
    pub name: String,
    /// Only this topic; default: all topics of the pipeline
    #[arg(long)]
    pub topic: Option<String>,
    /// Only this partition; may be repeated; default: all partitions
    #[arg(long = "partition", value_name = "P", value_parser = clap::value_parser!(i32).range(0..))]
    pub partitions: Vec<i32>,
    /// Start here: an offset (1200), a time (2026-11-21T18:00:00Z) or an age (90m); default: the oldest message in Kafka
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub since: Option<String>,
    /// Stop before this message, in the same form; default: the current end
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub until: Option<String>,
    /// Print the result as JSON, with every range of every partition
    #[arg(long)]
    pub json: bool,
    /// List at most N missing and N doubled spans; all are counted
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Longest run in seconds; then the pod is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,
}

impl AuditArgs {
    /// The options for `sluice-gateway audit`. It checks their form.
    pub fn options(&self) -> Vec<String> {
        let one = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
        let limit = self.limit.map(|limit| limit.to_string());
        let named = [
            one("topic", self.topic.clone()),
            one("since", self.since.clone()),
            one("until", self.until.clone()),
            one("limit", limit),
            self.json.then(|| "--json".to_owned()),
        ];
        let partitions = self.partitions.iter().map(|partition| format!("--partition={partition}"));
        named.into_iter().flatten().chain(partitions).collect()
    }
}

/// Lists, shows or replays dead letters.
///
/// It runs `sluice-gateway dead-letter` in a gateway's pod, with the pod's config and credentials; with source.otlp in each gateway's
/// pod. The program uses memory of the pod; use --partition, --since and --limit to read fewer letters.
#[derive(Debug, Clone, Args)]
pub struct DeadLetterArgs {
    /// Name of the pipeline
    pub name: String,
    /// The action
    #[arg(value_enum)]
    pub action: Letters,
    /// Options for `sluice-gateway dead-letter`, such as --partition 3 --since 2h --limit 10 --json, or --dry-run for replay
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// Actions on dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Letters {
    /// Print one line per letter
    List,
    /// Print all fields of each letter
    Show,
    /// Produce the letters to their original topics again; a second replay stores the rows twice
    Replay,
}

impl Letters {
    /// The gateway's word for the action.
    pub fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Show => "show",
            Self::Replay => "replay",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent_and_help_says_what_each_does() {
        PluginArgs::command().debug_assert();
        let help = PluginArgs::command().render_long_help().to_string();
        for word in
            ["status", "plan", "lag", "spool", "drain", "audit", "dead-letter", "Exit codes:", "Rights:"]
        {
            assert!(help.contains(word), "{word} is missing in\n{help}");
        }
    }

    #[test]
    fn options_of_an_audit_are_passed_on_in_the_gateways_words() {
        let words =
            "k audit prod -n a --since 2h --partition 3 --partition 4 --json --topic t --until 7 --limit 5";
        let args = PluginArgs::try_parse_from(words.split(' ')).unwrap();
        assert_eq!(args.namespace.as_deref(), Some("a"));
        let Command::Audit(asked) = args.command else { panic!() };
        assert_eq!(
            asked.options().join(" "),
            "--topic=t --since=2h --until=7 --limit=5 --json --partition=3 --partition=4"
        );
        let Command::Audit(asked) = PluginArgs::try_parse_from(["k", "audit", "prod"]).unwrap().command
        else {
            panic!()
        };
        assert_eq!((asked.options(), asked.timeout), (Vec::new(), 3_600));
        for wrong in
            ["k audit", "k audit prod --partition -1", "k audit prod --timeout 0", "k audit prod --nonsense"]
        {
            assert!(PluginArgs::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_namespace_may_stand_anywhere_and_options_of_letters_are_passed_on() {
        let parse = |words: &str| PluginArgs::try_parse_from(words.split(' '));
        for words in ["k -n a status prod", "k status prod -n a"] {
            let args = parse(words).unwrap();
            assert_eq!(args.namespace.as_deref(), Some("a"), "{words}");
        }
        let args = parse("k -n a dead-letter prod show --partition 3 --json").unwrap();
        let Command::DeadLetter(asked) = args.command else { panic!() };
        assert_eq!((asked.action, asked.options.join(" ")), (Letters::Show, "--partition 3 --json".into()));
        for wrong in [
            "k",
            "k lag",
            "k drain",
            "k drain p --timeout 0",
            "k dead-letter prod",
            "k dead-letter prod drop",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
