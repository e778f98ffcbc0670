//! What `kubectl sluice` is told on its command line.

use crate::args::PlanArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
Exit codes:
  0   done, and all is well
  1   something is not as it should be: a pipeline that is not ready, a partition that no gateway answers for, a gateway that is
      not drained in time, or has something on its volume that cannot be read
  64  the command line, or the pipeline in a file, is wrong
  66  there is no such pipeline, pod or file
  69  the cluster cannot be reached, or refuses
`dead-letter` ends as the program in the pod does.

Rights: get and list of tracepipelines and pods; get of pods/proxy for lag, spool and drain; for drain get and create of
pods/portforward and patch of pods, too; get and create of pods/exec for dead-letter.";

/// Trace pipelines at a glance: what runs, how far behind, why this size, and what a person must do.
///
/// As a file called kubectl-sluice on the PATH it is the command `kubectl sluice`.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubectl-sluice", bin_name = "kubectl sluice", version, max_term_width = 120, after_help = AFTER_HELP)]
pub struct PluginArgs {
    /// The namespace; that of the kubeconfig's context when it is left out
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// The context of the kubeconfig; its current one when it is left out
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub context: Option<String>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// The story of a pipeline, or of all of the namespace: what runs, how far behind, why this size, what it is doing now, what a
    /// person must do
    Status {
        /// The pipeline; all of the namespace when it is left out
        name: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// What the operator would do with a pipeline in a file; needs no cluster
    Plan(PlanArgs),
    /// How far each partition is behind, as the gateways say now
    Lag(Named),
    /// What waits on the queue volume of each gateway
    Spool(Named),
    /// Make a gateway give up its partitions and insert what it holds, and wait for that; or take it back
    Drain(DrainArgs),
    /// List, show or replay what could not be delivered, from within a gateway's pod and with its config
    DeadLetter(DeadLetterArgs),
}

/// A pipeline.
#[derive(Debug, Clone, Args)]
pub struct Named {
    /// The pipeline
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A gateway that is to be drained.
///
/// It leaves the consumer group, inserts what it holds and stays up, not ready, until it is started again or resumed. The operator
/// does the same by itself before it takes a gateway away: this is for a node or a volume that a person wants to look after. The pod
/// is marked (annotation sluice.dev/kept-out), because the operator takes back whoever drains without having been asked to.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The gateway's pod
    pub pod: String,
    /// Take part again
    #[arg(long)]
    pub resume: bool,
    /// Seconds to wait until it holds nothing; it goes on draining afterwards
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print what it holds in the end as JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with dead letters.
///
/// Runs `sluice-gateway dead-letter` in a gateway's pod, with the pod's config and credentials. It takes some of the pod's memory
/// while it runs: narrow it by --partition, --since and --limit.
#[derive(Debug, Clone, Args)]
pub struct DeadLetterArgs {
    /// The pipeline
    pub name: String,
    /// What to do
    #[arg(value_enum)]
    pub action: Letters,
    /// Passed on, as --partition 3 --since 2h --limit 10 --json, or --dry-run for replay
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// What to do with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Letters {
    /// One line each
    List,
    /// Everything that is known about each
    Show,
    /// Produce them to the topics that they came from; twice stores twice
    Replay,
}

impl Letters {
    /// As the gateway calls it.
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
        for word in ["status", "plan", "lag", "spool", "drain", "dead-letter", "Exit codes:", "Rights:"] {
            assert!(help.contains(word), "{word} is missing in\n{help}");
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
