//! What the operator's metrics show of a pipeline in every mode: also in `Fixed` and `External`, and while the decision is held because
//! gateways do not answer. Alerts on lag need these numbers in every mode.

use super::{Cause, Decision, History, window::rates};
use crate::pipeline::policy::Policy;

/// Only the operator's metrics have it, not the status.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// Messages a second that arrive.
    pub arrival_rate: f64,
    /// Time of arrivals that wait in Kafka.
    pub lag_seconds: f64,
    /// Why there is lag, or would be; of a decision that is held, the last one that was known.
    pub cause: Cause,
}

impl Watched {
    /// From the decision that is taken, or would be. While it is held, Kafka's offsets give rate and lag. `None` before two samples.
    pub fn of(policy: &Policy, decision: &Decision, history: &History) -> Option<Self> {
        let cause = decision.cause;
        if let Some(figures) = &decision.figures {
            let (arrival_rate, lag_seconds) = (figures.arrival_rate, figures.lag_seconds);
            return Some(Self { arrival_rate, lag_seconds, cause });
        }
        // Kafka does not answer: nothing is known of what waits there.
        history.last().filter(|last| !last.partitions.is_empty())?;
        let rates = rates(policy, history)?;
        let (arrival_rate, lag_seconds) = (rates.arrival, rates.lag_seconds());
        Some(Self { arrival_rate, lag_seconds, cause })
    }
}
