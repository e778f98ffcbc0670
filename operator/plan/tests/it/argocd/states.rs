//! Situations whose statuses no end-to-end test reads off a cluster, each with why, and what the facts are in it.

use crate::statuses::running;
use serde_json::json;
use sluice_crds::{TracePipeline, status::reason};
use sluice_plan::{Observed, SchemaFailed, SchemaFailure, SchemaSeen, sink::SinkSeen};

/// A state that an end-to-end test causes, beside others that are exported, without stopping at it.
const PASSED: &str = "An end-to-end test causes it; its conditions are those of a state like it";
/// A reason that the operator reads off a Job, and that no Job of this version has.
const UNSAID: &str = "The schema Job of this version calls a server that does not answer in time Unreachable; the operator knows the word";

/// One situation.
pub struct State {
    pub name: &'static str,
    /// Why it is not read off a cluster.
    pub why: &'static str,
    pub pipeline: TracePipeline,
    pub facts: Observed,
}

/// All of them.
pub fn states() -> [State; 2] {
    let failure = SchemaFailure { reason: reason::TIMEOUT, message: "what the Job said".into() };
    let late = SchemaSeen::Failed(SchemaFailed { failure, times: 1, ..SchemaFailed::default() });
    [
        but("sink-away", UNSAID, |facts| facts.schema = late),
        but("inserts-failing", PASSED, |facts| facts.sink = SinkSeen::Failing { all: true }),
    ]
}

/// A pipeline that runs, but for this.
fn but(name: &'static str, why: &'static str, change: impl FnOnce(&mut Observed)) -> State {
    let (pipeline, mut facts) = running(&json!({}), &[]);
    change(&mut facts);
    State { name, why, pipeline, facts }
}
