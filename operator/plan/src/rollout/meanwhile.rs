//! How many gateways a StatefulSet has while it may not get its planned template, because the schema Job of that template has not ended. The
//! gateways that run have a template whose table was found, so scaling them depends on no Job.

use crate::observed::WorkloadSeen;

/// The number to set where `replicas` are to be there: fewer at once, since gateways that leave are empty by then.
///
/// More only if all gateways have one template, which a new one gets, too: during a rollout, a new gateway would get one that is not proved. A
/// StatefulSet at rest gets none: its former template may write to a table that nobody wants any more.
pub fn replicas_meanwhile(workload: &WorkloadSeen, replicas: u32) -> u32 {
    let may_grow = workload.wanted > 0 && workload.partition == 0 && workload.is_rolled_out();
    if may_grow { replicas } else { replicas.min(workload.wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_leave_at_any_time_and_join_only_others_of_one_template() {
        let even = |wanted: u32| WorkloadSeen {
            is_observed: true,
            wanted,
            replicas: wanted,
            updated: wanted,
            current_revision: Some("a".into()),
            update_revision: Some("a".into()),
            ..WorkloadSeen::default()
        };
        let canary = WorkloadSeen { updated: 1, update_revision: Some("b".into()), partition: 2, ..even(3) };
        let unseen = WorkloadSeen { is_observed: false, ..even(3) };
        for (workload, replicas, expected) in [
            (even(3), 2, 2),
            (even(3), 3, 3),
            (even(3), 5, 5),
            (even(3), 0, 0),
            (canary.clone(), 2, 2),
            (canary, 5, 3),
            (unseen, 5, 3),
            (even(0), 2, 0),
        ] {
            assert_eq!(replicas_meanwhile(&workload, replicas), expected, "{workload:?} {replicas}");
        }
    }
}
