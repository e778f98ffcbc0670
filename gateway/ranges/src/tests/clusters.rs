//! A cluster that reports another id than when the plan was made.

use super::*;

/// A cluster without an id, and the same one with it.
fn clusters() -> [Option<ClusterNumber>; 2] {
    ["unnamed", "MkU3OEVBNTcwNTJENDM2Qk"].map(|id| Some(ClusterNumber::of(id)))
}

fn assign_in(cluster: Option<ClusterNumber>, commit: Option<(i64, &str)>) -> (Ranges, Cutter, Found) {
    let committed = Committed { commit, begin: 0, log: Log { start: 0, end: 1_000 } };
    let settings = Settings { cluster, ..settings(RULE) };
    Ranges::assigned(GENERATION, &committed, settings, at(0)).unwrap()
}

/// Whether each range is doubtful that ends with these messages.
fn doubted(ranges: &mut Ranges, cutter: &mut Cutter, messages: i64) -> Vec<(OffsetRange, bool)> {
    let from = cutter.position();
    let ended: Vec<Closed> =
        (from..from + messages).filter_map(|offset| cutter.take(offset, Some(b"x"))).collect();
    for closed in &ended {
        ranges.closed(GENERATION, closed);
    }
    ended.iter().map(|closed| (closed.range, closed.doubtful)).collect()
}

#[test]
fn ranges_in_flight_of_a_cluster_with_another_id_are_doubtful() {
    let [unnamed, named] = clusters();
    for (then, now) in [(unnamed, named), (named, unnamed)] {
        let before = Plan { cluster: then, ..plan(0, 6, &[]) }.encode();
        let (mut ranges, mut cutter, found) = assign_in(now, Some((0, &before)));
        let renamed = Renamed { then: then.unwrap(), doubtful: range(0, 6) };
        assert_eq!(found.renamed, Some(renamed));
        let expected = [(range(0, 3), true), (range(3, 6), true), (range(6, 9), false)];
        assert_eq!(doubted(&mut ranges, &mut cutter, 9), expected);
        // If its first commit is not stored, the next owner must know what it has sent.
        assert_eq!(released(&mut ranges, 1), []);
        assert_eq!(ranges.waits_for(at(1)), Some(Wait::FirstCommit));
        let after = store(&mut ranges, 1);
        assert_eq!(released(&mut ranges, 1)[..2], [range(0, 3), range(3, 6)]);
        // If an owner dies before they are settled, the next one finds the same, with its own id or with the former one.
        assert_eq!((after.cluster, after.doubtful_up_to), (now, 6));
        let after = after.encode();
        let (mut ranges, mut cutter, found) = assign_in(now, Some((0, &after)));
        assert_eq!(found.renamed, None);
        assert_eq!(doubted(&mut ranges, &mut cutter, 9), expected);
        let (mut ranges, mut cutter, found) = assign_in(then, Some((0, &after)));
        assert_eq!(found.renamed.map(|renamed| renamed.then), now);
        assert!(doubted(&mut ranges, &mut cutter, 9).iter().all(|(_, doubtful)| *doubtful));
    }
}

#[test]
fn the_same_id_or_one_that_is_not_written_down_makes_no_range_doubtful() {
    let [unnamed, named] = clusters();
    for (then, now) in [(unnamed, unnamed), (named, named), (None, named), (named, None), (None, None)] {
        let before = Plan { cluster: then, ..plan(0, 6, &[]) }.encode();
        let (mut ranges, mut cutter, found) = assign_in(now, Some((0, &before)));
        assert_eq!(found.renamed, None, "{then:?} {now:?}");
        assert!(doubted(&mut ranges, &mut cutter, 6).iter().all(|(_, doubtful)| !doubtful));
    }
}

#[test]
fn without_ranges_in_flight_another_id_changes_nothing() {
    let [unnamed, named] = clusters();
    let before = Plan { cluster: unnamed, ..plan(6, 6, &[]) }.encode();
    let (mut ranges, mut cutter, found) = assign_in(named, Some((6, &before)));
    assert_eq!(found.renamed, None);
    assert_eq!(doubted(&mut ranges, &mut cutter, 3), [(range(6, 9), false)]);
}

/// A block on the queue volume has the token that it was made with. With the former id, it is the range of the plan, and the server may know its
/// token. With today's id, its messages are read again, and are doubtful.
#[test]
fn a_block_on_a_volume_is_taken_over_if_its_token_is_the_one_of_the_plan() {
    let [unnamed, named] = clusters();
    let before = Plan { cluster: unnamed, ..plan(0, 6, &[]) }.encode();
    let committed = Committed { commit: Some((0, &before)), begin: 0, log: Log { start: 0, end: 1_000 } };
    for (now, is_renamed, count) in
        [(unnamed, false, 1), (unnamed, true, 0), (named, false, 0), (named, true, 1)]
    {
        let kept =
            [SpooledRange { range: range(0, 3), is_derivable: true, decided: 3, rule: RULE, is_renamed }];
        let settings = Settings { cluster: now, ..settings(RULE) };
        assert_eq!(committed.former_cluster(&settings), unnamed.filter(|_| now == named));
        let (.., taken) = Ranges::assigned_with(GENERATION, &committed, settings, at(0), &kept).unwrap();
        assert_eq!(taken.len(), count, "{now:?} {is_renamed}");
        // Without the id of the topic, it may be another one of the same name.
        let settings = Settings { topic_id: None, ..settings };
        let (.., taken) = Ranges::assigned_with(GENERATION, &committed, settings, at(0), &kept).unwrap();
        assert_eq!(taken.len(), if is_renamed { 0 } else { count });
    }
}

#[test]
fn a_block_with_the_former_token_is_sent_under_it_and_stays_doubtful_for_the_next_owner() {
    let [unnamed, named] = clusters();
    let before = Plan { cluster: unnamed, ..plan(0, 6, &[]) }.encode();
    let kept =
        [SpooledRange { range: range(0, 3), is_derivable: true, decided: 3, rule: RULE, is_renamed: true }];
    let committed = Committed { commit: Some((0, &before)), begin: 0, log: Log { start: 0, end: 1_000 } };
    let settings = Settings { cluster: named, ..settings(RULE) };
    let (mut ranges, mut cutter, found, _) =
        Ranges::assigned_with(GENERATION, &committed, settings, at(0), &kept).unwrap();
    assert_eq!((found.renamed.map(|renamed| renamed.doubtful), cutter.position()), (Some(range(0, 6)), 3));
    assert_eq!(doubted(&mut ranges, &mut cutter, 6), [(range(3, 6), true), (range(6, 9), false)]);
    assert_eq!(released(&mut ranges, 1), [], "the plan does not say yet that tokens may be others");
    let after = store(&mut ranges, 1);
    assert_eq!((after.offset, after.cluster, after.doubtful_up_to), (0, named, 6));
    assert_eq!(released(&mut ranges, 1), [range(0, 3), range(3, 6), range(6, 9)]);
    // The next owner gives it a token with today's id: it may be stored twice then, and is counted.
    let after = after.encode();
    let (mut ranges, mut cutter, _) = assign_in(named, Some((0, &after)));
    assert_eq!(doubted(&mut ranges, &mut cutter, 6), [(range(0, 3), true), (range(3, 6), true)]);
}
