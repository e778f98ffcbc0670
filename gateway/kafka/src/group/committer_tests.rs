//! Commits that are refused in part, and where partitions begin.

use super::*;

#[test]
fn a_partition_begins_without_a_gap_where_it_is_committed_and_kafka_has_that() {
    let begins = |commit: Option<i64>| Beginning {
        commit: commit.map(|offset| (offset, String::new())),
        log: Log { start: 10, end: 20 },
        cluster: "c".into(),
        topic_id: None,
        is_new: false,
    };
    let gapless: Vec<i64> = (0..30).filter(|offset| begins(Some(*offset)).is_gapless()).collect();
    assert_eq!(gapless, (10..=20).collect::<Vec<i64>>());
    assert!(!begins(None).is_gapless());
    let begins = |is_new, initial| Beginning { is_new, ..begins(None) }.begins_at_oldest(initial);
    let (earliest, latest) = (InitialOffset::Earliest, InitialOffset::Latest);
    assert!(begins(false, earliest) && begins(true, latest) && !begins(false, latest));
}

/// The result of commits of this many partitions, if these of them are refused with this code, and the number of requests.
fn committed(
    count: i32,
    refused: &[i32],
    code: RDKafkaErrorCode,
) -> (Vec<CommitOutcome>, Vec<i32>, Vec<usize>) {
    let commit = |partition| {
        let commit = Commit { offset: 1, metadata: String::new() };
        (PartitionId { topic: "spans".into(), partition }, Generation(1), commit)
    };
    let mut requests = Vec::new();
    let made = outcome((0..count).map(commit).collect(), |commits| {
        requests.push(commits.len());
        let is_refused = commits.iter().any(|(id, ..)| refused.contains(&id.partition));
        if is_refused { Err(KafkaError::ConsumerCommit(code)) } else { Ok(()) }
    });
    let Outcome::Committed { partitions, problem } = made else { panic!("{made:?}") };
    let numbers: Vec<i32> = partitions.iter().map(|(id, ..)| id.partition).collect();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    let named = problem.map_or_else(Vec::new, |problem| problem.partitions);
    let named = named.into_iter().map(|id| id.partition).collect();
    (partitions.into_iter().map(|(.., outcome)| outcome).collect(), named, requests)
}

#[test]
fn a_partition_whose_commit_is_refused_is_refused_alone() {
    use CommitOutcome::{Stored, Unknown};
    let code = RDKafkaErrorCode::TopicAuthorizationFailed;
    assert_eq!(committed(4, &[], code), (vec![Stored; 4], vec![], vec![4]));
    let (outcomes, named, requests) = committed(4, &[2], code);
    assert_eq!((outcomes, named), (vec![Stored, Stored, Unknown, Stored], vec![2]));
    assert_eq!(requests, [4, 2, 2, 1, 1]);
    assert_eq!(committed(1, &[0], code), (vec![Unknown], vec![0], vec![1]));
    let (outcomes, named, requests) = committed(1_000, &[0, 999], code);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Unknown).count(), 2);
    assert_eq!(named, [0, 999]);
    assert!(requests.len() < 50, "{requests:?}");
}

#[test]
fn what_is_said_of_the_member_is_not_asked_again_in_parts() {
    for code in [RDKafkaErrorCode::IllegalGeneration, RDKafkaErrorCode::RequestTimedOut] {
        let (outcomes, named, requests) = committed(3, &[1], code);
        assert_eq!((outcomes, requests), (vec![CommitOutcome::Unknown; 3], vec![3]), "{code}");
        assert_eq!(named, [0, 1, 2]);
    }
}

#[test]
fn only_a_fenced_instance_is_over() {
    let refused = |code| sort(&Err(KafkaError::ConsumerCommit(code)));
    assert_eq!(sort(&Ok(())), CommitOutcome::Stored);
    assert_eq!(refused(RDKafkaErrorCode::FencedInstanceId), CommitOutcome::Fenced);
    for code in [
        RDKafkaErrorCode::IllegalGeneration,
        RDKafkaErrorCode::RebalanceInProgress,
        RDKafkaErrorCode::UnknownMemberId,
        RDKafkaErrorCode::RequestTimedOut,
    ] {
        assert_eq!(refused(code), CommitOutcome::Unknown, "{code}");
    }
}
