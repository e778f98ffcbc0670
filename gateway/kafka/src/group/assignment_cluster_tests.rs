//! Clusters that report another id than before.

use super::*;
use crate::ground::cluster::UNNAMED;

#[test]
fn a_plan_of_the_same_cluster_with_another_id_makes_ranges_in_flight_doubtful() {
    for (then, doubtful_up_to) in [("cluster", 0), (UNNAMED, 4), ("another", 4)] {
        let (mut assignment, _reports, _) = assignment();
        assignment.arrivals.arrive(vec![id(0)]);
        let before = plan(Some(ClusterNumber::of(then))).encode();
        assignment.begin(id(0), &beginning(Some((0, before))), &ConsumerStats::default());
        let ranges = &mut assignment.owned.get_mut(&id(0)).unwrap().ranges;
        let commit = ranges.commit(clock::now()).expect("the horizon runs out");
        let plan = Plan::decode(0, &commit.metadata).unwrap();
        assert_eq!(plan.cluster, Some(ClusterNumber::of("cluster")));
        assert_eq!(plan.doubtful_up_to, doubtful_up_to, "{then}");
    }
}
