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

/// Blocks on the queue volume with tokens of the former id are taken over. A cluster with another id that has one may be another cluster, and so
/// may one whose topic has no id.
#[test]
fn a_cluster_that_has_got_its_id_or_lost_it_is_the_same_if_the_topic_is() {
    let settings = |cluster| Settings {
        rule: RULE,
        routing_epoch: 0,
        destination: None,
        topic_id: Some([1; 16]),
        cluster,
    };
    for (then, now, is_known) in [
        ("cluster", "cluster", false),
        (UNNAMED, "cluster", true),
        ("cluster", UNNAMED, true),
        ("another", "cluster", false),
    ] {
        let [then, now] = [then, now].map(|id| Some(ClusterNumber::of(id)));
        let before = Plan { topic_id: Some([1; 16]), ..plan(then) };
        let former = beginning(Some((0, before.encode()))).former_cluster(&settings(now));
        assert_eq!(former, then.filter(|_| is_known), "{then:?} {now:?}");
        let of_any_topic = beginning(Some((0, plan(then).encode())));
        assert_eq!(of_any_topic.former_cluster(&settings(now)), None);
    }
}
