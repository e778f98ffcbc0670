//! How many gateways a StatefulSet has while it may not get its planned template, because the schema Job of that template has not ended. The
//! gateways that run have a template whose table was found, so scaling them depends on no Job.

use crate::observed::WorkloadSeen;

/// The number to set now if `replicas` are wanted. A lower number is set at once: at this time, the gateways to remove are empty.
///
/// A higher number is set only if all gateways have the same template: during a rollout, a new gateway would get a template that is not
/// proved. A suspended StatefulSet gets none: its former template may write to a table that is no longer wanted. With `rests`, the pipeline
/// runs without gateways because the topics are idle. Its gateways return with the template that they had, as if they had stayed.
pub fn replicas_meanwhile(workload: &WorkloadSeen, replicas: u32, rests: bool) -> u32 {
    let may_grow = (workload.wanted > 0 || rests) && workload.partition == 0 && workload.is_rolled_out();
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
        let unproved = WorkloadSeen { update_revision: Some("b".into()), ..even(0) };
        for (workload, replicas, rests, expected) in [
            (even(3), 2, false, 2),
            (even(3), 3, false, 3),
            (even(3), 5, false, 5),
            (even(3), 0, false, 0),
            (canary.clone(), 2, false, 2),
            (canary, 5, false, 3),
            (unseen, 5, false, 3),
            // Suspended, and resumed.
            (even(0), 2, false, 0),
            // Idle topics.
            (even(0), 2, true, 2),
            (even(0), 0, true, 0),
            (unproved, 2, true, 0),
        ] {
            assert_eq!(
                replicas_meanwhile(&workload, replicas, rests),
                expected,
                "{workload:?} {replicas} {rests}"
            );
        }
    }
}
