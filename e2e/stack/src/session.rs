//! The stack for one command: a running one, which is used and kept running, or one of its own, which is stopped at the end.

use crate::part::{PartStatus, State};
use crate::programs::Form;
use crate::say;
use crate::{down, status, up};

/// What to do with the stack, depending on its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// All parts run: use the stack and keep it running.
    Use,
    /// No part runs: start the stack, and stop it at the end.
    Begin,
    /// Only some parts run: another command may have stopped the others on purpose. The list has the parts that do not answer.
    Refuse(Vec<&'static str>),
}

/// Runs `work` while the stack runs. If the stack did not run before, it is stopped afterwards, even if `work` fails.
pub fn session<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = begin()?;
    let outcome = work();
    if !began {
        return outcome;
    }
    say::progress("stack", "stopping; its data stays");
    match (outcome, down(false)) {
        (Ok(_), Err(failure)) => Err(failure),
        (Err(failure), Err(second)) => Err(failure.context(format!("and then: {second:#}"))),
        (outcome, Ok(())) => outcome,
    }
}

/// Starts the stack if no part of it runs; returns whether it did. It cannot simply call `up`. If a test has just stopped the broker or the
/// server, `up` would start them again and report that the stack did not run before. This command would then stop the stack under that
/// test.
fn begin() -> anyhow::Result<bool> {
    match plan(&status()?) {
        Plan::Use => Ok(false),
        Plan::Begin => {
            up(Form::Checked)?;
            Ok(true)
        }
        Plan::Refuse(parts) => anyhow::bail!(
            "the local stack runs except {}; another command may be using it: try again when that is done, or run `cargo stack up`",
            parts.join(", ")
        ),
    }
}

fn plan(parts: &[PartStatus]) -> Plan {
    if parts.iter().all(|part| part.state == State::Down) {
        return Plan::Begin;
    }
    let missing = parts.iter().filter(|part| part.state != State::Up);
    let missing: Vec<_> = missing.map(|part| part.name).collect();
    if missing.is_empty() { Plan::Use } else { Plan::Refuse(missing) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(states: [State; 2]) -> Vec<PartStatus> {
        let named = ["kafka", "clickhouse"].into_iter().zip(states);
        let part =
            |(name, state)| PartStatus { name, pid: None, address: String::new(), state, reason: None };
        named.map(part).collect()
    }

    #[test]
    fn only_a_stack_of_which_nothing_runs_is_ours_to_begin_and_to_end() {
        assert_eq!(plan(&parts([State::Down, State::Down])), Plan::Begin);
        assert_eq!(plan(&parts([State::Up, State::Up])), Plan::Use);
        for other in [State::Down, State::Unhealthy] {
            assert_eq!(plan(&parts([State::Up, other])), Plan::Refuse(vec!["clickhouse"]));
        }
    }
}
