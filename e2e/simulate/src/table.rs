//! Results as lines of a table.

use super::Run;

pub const HEADER: &str = "load         partitions  policy    rescales  lag p99 s  lag max s  replica-hours  outage: replicas before -> peak";

pub fn line(run: &Run) -> String {
    let outage = match (run.outage_replicas_before, run.outage_replicas_peak) {
        (Some(before), Some(peak)) => format!("{before} -> {peak}"),
        _ => "-".into(),
    };
    format!(
        "{:<12} {:>10}  {:<9} {:>8}  {:>9.1}  {:>9.1}  {:>13.1}  {outage}",
        run.load, run.partitions, run.policy, run.rescales, run.lag_p99_s, run.lag_max_s, run.replica_hours
    )
}
