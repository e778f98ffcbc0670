//! `stack up|down|status` on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

use e2e_stack::part::{PartStatus, State};
use e2e_stack::process::interrupt;
use e2e_stack::programs::Form;
use e2e_stack::target::TargetArgs;
use e2e_stack::{images, say};

/// Characters of a reason in the table; `--json` has the whole reason.
const REASON_CHARACTERS: usize = 120;

/// Commands for the local stack.
#[derive(Subcommand, Clone, Debug)]
pub enum StackCommand {
    /// Start Kubernetes, Kafka and ClickHouse; builds them the first time
    Up,
    /// Stop everything that `up` started; the data stays
    Down {
        /// Also remove state, topics, tables and volumes
        #[arg(long)]
        purge: bool,
    },
    /// Show every part; exits with 0 if all are up, else with 1
    Status {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Build an image of a program with its libraries and load it into the cluster; prints the image's reference
    Image {
        /// Name of the image
        name: String,
        /// File of the program
        program: PathBuf,
        /// The cluster
        #[command(flatten)]
        target: TargetArgs,
    },
}

impl StackCommand {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Up => up(),
            Self::Down { purge } => e2e_stack::down(*purge).map(|()| ExitCode::SUCCESS),
            Self::Status { json } => status(*json),
            Self::Image { name, program, target } => image(name, program, target),
        }
    }
}

fn up() -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let up = e2e_stack::up(Form::Checked)?;
    say::progress("stack", if up.ran_before { "was up" } else { "up" });
    say::line(&format!("export KUBECONFIG={}", up.kubeconfig.display()));
    Ok(ExitCode::SUCCESS)
}

fn status(json: bool) -> anyhow::Result<ExitCode> {
    let parts = e2e_stack::status()?;
    if json {
        say::line(&serde_json::to_string(&parts).context("write the status as JSON")?);
    } else {
        for part in &parts {
            say::line(&row(part));
        }
    }
    Ok(if e2e_stack::is_up(&parts) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn image(name: &str, program: &Path, target: &TargetArgs) -> anyhow::Result<ExitCode> {
    let store = target
        .target()?
        .resolve()?
        .images
        .context("this cluster pulls its images; push it to its registry instead")?;
    let image = images::build_image(name, program)?;
    images::load(&image, &store)?;
    say::line(&image.reference);
    Ok(ExitCode::SUCCESS)
}

fn row(part: &PartStatus) -> String {
    let pid = part.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let state = match part.state {
        State::Up => "up",
        State::Unhealthy => "unhealthy",
        State::Down => "down",
    };
    let reason: String = part.reason.as_deref().unwrap_or_default().chars().take(REASON_CHARACTERS).collect();
    let address = if part.address.is_empty() { "-" } else { &part.address };
    format!("{:<24} {state:<10} {pid:>8}  {address} {reason}", part.name).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_name_state_pid_and_address() {
        let part = PartStatus {
            name: "etcd",
            pid: Some(7),
            address: "127.0.0.1:2379".into(),
            state: State::Up,
            reason: None,
        };
        assert_eq!(row(&part).split_whitespace().collect::<Vec<_>>(), ["etcd", "up", "7", "127.0.0.1:2379"]);
        let part = PartStatus {
            name: "volumes",
            pid: None,
            address: String::new(),
            state: State::Down,
            reason: None,
        };
        assert_eq!(row(&part).split_whitespace().collect::<Vec<_>>(), ["volumes", "down", "-", "-"]);
    }
}
