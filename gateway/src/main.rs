//! Parses the command line, runs the command and turns its result into an exit code.

use clap::Parser as _;
use sluice_gateway::{
    app,
    args::{
        Arguments, AuditArguments, Command, ConfigFile, DdlCommand, DeadLetterCommand, DrainArguments,
        Letters,
    },
    commands::{
        audit::{self, Progress},
        check, ddl,
        dead_letter::{self, Action, Selection},
        drain::{self, Problem},
    },
    edge,
    exit_codes::{EXIT_CONFIG, EXIT_FINDINGS, EXIT_LEFT, EXIT_UNAVAILABLE, EXIT_UNSEEN},
    table::{sink, table_watch::TableChanged},
};
use sluice_gateway_config::{
    CheckedConfig, Log, LogFormat,
    edge_budget::{EdgeBudget, EdgeSizing},
    in_two_shards, parse,
};
use sluice_kafka::TopicMadeAnew;
use sluice_ranges::Version;
use std::{
    fmt::Display,
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};
use tracing_subscriber::EnvFilter;

// One allocator for Rust and, through the C symbols that it defines, for librdkafka: the memory budget assumes a single allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Must be the first call. By default OpenSSL frees its state in an exit handler while librdkafka's threads may still be in a TLS
    // handshake, which ends in SIGSEGV. This call registers no exit handler (OPENSSL_INIT_NO_ATEXIT).
    openssl_sys::init();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::SUCCESS };
            return if error.print().is_ok() { code } else { ExitCode::FAILURE };
        }
    };
    match execute(&arguments.command) {
        Ok(code) => code,
        Err(Failure { code, text }) => {
            complain(&text);
            ExitCode::from(code)
        }
    }
}

/// Why the program ends, and its exit code.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn new(code: u8, error: impl Display) -> Self {
        Self { code, text: error.to_string() }
    }
}

fn execute(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(file) => run(&load(file)?),
        Command::Edge(file) => run_edge(file),
        Command::Check { file, json } => run_check(&load(file)?, *json),
        Command::Audit(arguments) => run_audit(arguments),
        Command::Drain(arguments) => run_drain(arguments),
        Command::Ddl(command) => run_ddl(command),
        Command::DeadLetter(DeadLetterCommand::List(letters)) => dead_letters(letters, Action::List),
        Command::DeadLetter(DeadLetterCommand::Show(letters)) => dead_letters(letters, Action::Show),
        Command::DeadLetter(DeadLetterCommand::Replay { letters, dry_run }) => {
            dead_letters(letters, Action::Replay { dry_run: *dry_run })
        }
    }
}

fn load(file: &ConfigFile) -> Result<CheckedConfig, Failure> {
    let config = parse::read(&file.config).map_err(|error| Failure::new(EXIT_CONFIG, error))?;
    config.check().map_err(|violations| wrong(file, violations))
}

/// A config that was read and breaks rules.
fn wrong(file: &ConfigFile, violations: impl Display) -> Failure {
    Failure::new(EXIT_CONFIG, format!("the config {} is wrong:\n{violations}", file.config.display()))
}

fn run(config: &CheckedConfig) -> Result<ExitCode, Failure> {
    log_to_stderr(&config.config().log)?;
    abort_on_panic();
    for shared in in_two_shards(config.config().sink.clickhouse.shards()) {
        tracing::warn!("sink.clickhouse.shards[{}]: {}", shared.other.0, shared.words());
    }
    // A limit that a webhook has changed is no error of the config: the exit code says that a retry may help.
    let config = app::container::fitted(config).map_err(|error| Failure::new(EXIT_UNAVAILABLE, error))?;
    app::run(&config, Version::CURRENT).map_err(|error| {
        // A restart picks up the table's new columns or the new topic; this exit code asks for it.
        let starts_anew = error.is::<TableChanged>() || error.is::<TopicMadeAnew>();
        let of_server = error.downcast_ref::<sluice_otlp_server::Error>();
        let code = match of_server {
            _ if starts_anew => EXIT_UNAVAILABLE,
            // A certificate, tokens or users.
            Some(error) if error.is_of_config() => EXIT_CONFIG,
            _ => 1,
        };
        Failure::new(code, told(&error))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// An error with its causes. Most errors have the text of their cause in their own: it is not repeated.
fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

fn run_edge(file: &ConfigFile) -> Result<ExitCode, Failure> {
    let config = parse::read_edge(&file.config).map_err(|error| Failure::new(EXIT_CONFIG, error))?;
    let checked = config.check().map_err(|violations| wrong(file, violations))?;
    let sizing = EdgeSizing::of(checked.config());
    let budget = EdgeBudget::divide(&sizing)
        .map_err(|shortfall| wrong(file, format_args!("memory.limit: {shortfall}")))?;
    log_to_stderr(&checked.config().log)?;
    abort_on_panic();
    let budget =
        app::container::fitted_edge(sizing, budget).map_err(|error| Failure::new(EXIT_UNAVAILABLE, error))?;
    edge::run::run(&checked, &budget).map_err(|error| {
        let code = if edge::run::is_of_config(&error) { EXIT_CONFIG } else { 1 };
        Failure::new(code, told(&error))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Aborts the process if any thread panics. A process that continued without one of its workers would look healthy and read nothing.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn run_check(config: &CheckedConfig, json: bool) -> Result<ExitCode, Failure> {
    let findings = block_on(check::check(config))?;
    let text = if json {
        serde_json::to_string(&findings).map_err(|error| Failure::new(1, error))? + "\n"
    } else {
        findings.to_string()
    };
    let written = say(&text);
    Ok(if findings.problems.is_empty() { written } else { ExitCode::from(EXIT_UNAVAILABLE) })
}

fn run_audit(arguments: &AuditArguments) -> Result<ExitCode, Failure> {
    let config = load(&arguments.file)?;
    let request = audit::Request {
        topic: arguments.topic.clone(),
        partitions: arguments.partitions.clone(),
        since: arguments.since,
        until: arguments.until,
        limit: arguments.limit,
    };
    let report = audit::audit(&config, &request, |progress| {
        let Progress { action, partition, offsets_done, offsets } = progress;
        complain(&format!("{action}: {partition}, {offsets_done} of {offsets} offsets done"));
    });
    let report = report.map_err(|error| {
        let code = if error.is_of_usage() { EXIT_CONFIG } else { EXIT_UNAVAILABLE };
        Failure::new(code, error)
    })?;
    let text = if arguments.json {
        serde_json::to_string(&report).map_err(|error| Failure::new(1, error))? + "\n"
    } else {
        report.to_string()
    };
    let written = say(&text);
    // Without a start, an audit begins at whatever Kafka still has.
    let has_gone = request.since.is_some() && !report.gone.is_empty();
    Ok(match (report.is_clean(), report.unread.is_empty(), report.is_complete() && !has_gone) {
        (false, _, _) => ExitCode::from(EXIT_FINDINGS),
        (true, false, _) => ExitCode::from(EXIT_UNAVAILABLE),
        (true, true, false) => ExitCode::from(EXIT_UNSEEN),
        (true, true, true) => written,
    })
}

fn run_drain(arguments: &DrainArguments) -> Result<ExitCode, Failure> {
    let config = load(&arguments.file)?;
    log_to_stderr(&config.config().log)?;
    abort_on_panic();
    let DrainArguments { timeout, give_up_damaged, .. } = *arguments;
    let request = drain::Request { timeout: timeout.to_std(), give_up_damaged };
    let report = drain::drain(&config, request, |progress| {
        let drain::Progress { action, left, damaged } = progress;
        complain(&format!("{action}: {left} and {damaged} damaged records are left"));
    });
    let report = report.map_err(|error| Failure::new(EXIT_LEFT, error))?;
    let text = if arguments.json {
        serde_json::to_string(&report).map_err(|error| Failure::new(1, error))? + "\n"
    } else {
        report.to_string()
    };
    let written = say(&text);
    Ok(match &report.problem {
        None => written,
        Some(problem) => {
            complain(&problem.to_string());
            ExitCode::from(match problem {
                Problem::Unavailable(_) => EXIT_UNAVAILABLE,
                Problem::ByHand(_) | Problem::Lost(_) => EXIT_LEFT,
            })
        }
    })
}

fn dead_letters(letters: &Letters, action: Action) -> Result<ExitCode, Failure> {
    let config = load(&letters.file)?;
    if matches!(action, Action::Replay { .. }) && config.config().source.otlp.is_some() {
        // It opens logs, as a gateway does: what is damaged or cut off is said once.
        log_to_stderr(&config.config().log)?;
    }
    let selection = Selection {
        topic: letters.topic.clone(),
        partition: letters.partition,
        offset: letters.offset,
        since: letters.since.map(sluice_gateway_config::Duration::to_std),
        limit: letters.limit,
    };
    let (mut out, mut progress) = (std::io::stdout().lock(), std::io::stderr());
    let told = (&mut out as &mut dyn std::io::Write, &mut progress as &mut dyn std::io::Write);
    match dead_letter::run(config.config(), &selection, action, letters.json, told) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader of the output has closed the pipe.
        Err(dead_letter::Error::Write(_)) => Ok(ExitCode::FAILURE),
        // Not a server's failure: the user must narrow the selection, or look at the letters that were not replayed. A caller that retries
        // after `EXIT_UNAVAILABLE` would replay all other letters again.
        Err(error @ (dead_letter::Error::TooMany(_) | dead_letter::Error::NotReplayed(_))) => {
            Err(Failure::new(1, error))
        }
        Err(error) => Err(unavailable(error)),
    }
}

fn run_ddl(command: &DdlCommand) -> Result<ExitCode, Failure> {
    let (DdlCommand::Print(arguments) | DdlCommand::Diff(arguments) | DdlCommand::Apply(arguments)) = command;
    let config = load(&arguments.file)?;
    let (clickhouse, json) = (&config.config().sink.clickhouse, arguments.json);
    let told = match command {
        DdlCommand::Print(_) => ddl::print(clickhouse, json),
        DdlCommand::Diff(_) => block_on(ddl::diff(clickhouse, json, complain))?,
        DdlCommand::Apply(_) => block_on(ddl::apply(clickhouse, json, complain))?,
    };
    let told = told.map_err(|error| ddl_failure(&error))?;
    let written = say(&told.text);
    if let Some(line) = &told.last_line {
        complain(line);
    }
    Ok(if told.code == 0 { written } else { ExitCode::from(told.code) })
}

/// The message for a person, followed by the last line for the operator, which reads it from the end of the Job's pod log.
fn ddl_failure(error: &sink::Error) -> Failure {
    let text = error.to_string();
    let line = ddl::last_line(error.reason(), &text);
    unavailable(format!("{text}\n{line}"))
}

fn unavailable(error: impl Display) -> Failure {
    Failure::new(EXIT_UNAVAILABLE, error)
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| Failure::new(1, error))?.block_on(future))
}

fn log_to_stderr(log: &Log) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&log.level).map_err(|error| {
        Failure::new(EXIT_CONFIG, format!("log.level: {:?} is not a level: {error}", log.level))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}

/// Writes to standard output. Fails if the reader has closed it.
fn say(text: &str) -> ExitCode {
    let written = std::io::stdout().write_all(text.as_bytes());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn complain(text: &str) {
    if writeln!(std::io::stderr(), "{text}").is_err() {
        // Standard error is closed; there is no other place to report to.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot subscribe to spans: {source}")]
    struct Subscribe {
        source: std::fmt::Error,
    }

    #[test]
    fn a_cause_that_is_in_the_text_is_not_repeated() {
        let cause = std::fmt::Error.to_string();
        let error = anyhow::Error::new(Subscribe { source: std::fmt::Error });
        assert_eq!(told(&error), format!("cannot subscribe to spans: {cause}"));
        let within = Err::<(), _>(std::fmt::Error).context("cannot start").unwrap_err();
        assert_eq!(told(&within), format!("cannot start: {cause}"));
    }
}
