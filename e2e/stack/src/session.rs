//! The stack for one command: a running one, which is used and kept running, or one of its own, which is stopped at the end.

use crate::part::{PartStatus, State};
use crate::programs::Form;
use crate::say;
use crate::{down, status, up};

/// What to do about the stack, from how its parts are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// All parts run: use the stack and keep it running.
    Use,
    /// No part runs: start the stack, and stop it at the end.
    Begin,
    /// Only some parts run: another command may have stopped the others on purpose. These do not answer.
    Refuse(Vec<&'static str>),
}

/// Does `work` while the stack is up; one that did not run before is taken down behind it, whatever came of the work.
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

/// Brings the stack up when nothing of it runs; tells whether it did. `up` alone does not do: it would complete a stack whose
/// broker or server a test has just stopped, and say that it did not run before, so that we would take it away from that test.
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
