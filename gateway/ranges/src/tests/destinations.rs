//! Where ranges are sent, as plans say it from owner to owner.

use super::*;

/// A first and another server.
fn servers() -> [Option<Destination>; 2] {
    ["a:8123", "b:8123"].map(|server| Some(Destination::of("otel", "otel_traces", server)))
}

fn assign_to(destination: Option<Destination>, commit: Option<(i64, &str)>) -> (Ranges, Cutter) {
    let committed = Committed { commit, begin: 0, log: Log { start: 0, end: 1_000 } };
    let settings = Settings { destination, ..settings(RULE) };
    let (ranges, cutter, _) = Ranges::assigned(GENERATION, &committed, settings, at(0)).unwrap();
    (ranges, cutter)
}

/// Whether an owner before may have sent the first range, and where to.
fn sent_to((ranges, cutter): &mut (Ranges, Cutter)) -> (bool, Option<Destination>) {
    assert_eq!(take(ranges, cutter, 3).len(), 1);
    let released = ranges.release(at(1));
    let first = released.first().expect("it is planned");
    (first.is_inherited, first.destination)
}

#[test]
fn what_an_owner_before_may_have_sent_names_where_until_it_is_settled() {
    let [a, b] = servers();
    let before = Plan { destination: a, ..plan(0, 4, &[]) }.encode();
    let mut owner = assign_to(b, Some((0, &before)));
    assert_eq!(sent_to(&mut owner), (true, a));
    let (mut ranges, mut cutter) = owner;
    // The worker stands at the horizon until everything below it is settled.
    let [next] = take(&mut ranges, &mut cutter, 1)[..] else { panic!("the range ends at the horizon") };
    // If an owner dies before the range is settled, the next owner reads the same.
    assert_eq!(store(&mut ranges, 2).destination, a);
    assert_eq!(released(&mut ranges, 2), [next]);
    for range in [range(0, 3), next] {
        assert_eq!(ranges.settled(GENERATION, range), Verdict::Recorded);
    }
    assert_eq!(store(&mut ranges, 10).destination, b);
}

#[test]
fn what_is_sent_to_the_same_servers_changes_nothing() {
    let [a, _] = servers();
    for then in [a, None] {
        let before = Plan { destination: then, ..plan(0, 3, &[]) }.encode();
        let mut owner = assign_to(a, Some((0, &before)));
        assert!(!owner.0.switches(), "{then:?}");
        assert_eq!(sent_to(&mut owner), (true, a));
    }
}

#[test]
fn a_plan_of_before_says_nothing_of_another_shards_servers() {
    let [a, _] = servers();
    let before = Plan { routing_epoch: 1, ..plan(0, 3, &[]) }.encode();
    assert_eq!(sent_to(&mut assign_to(a, Some((0, &before)))), (true, None));
}

#[test]
fn an_owner_that_left_in_order_has_sent_nothing_elsewhere() {
    let [a, b] = servers();
    let mut owner = assign_to(a, None);
    assert!(store(&mut owner.0, 0).horizon > 3, "producers are ahead");
    let (ranges, cutter) = &mut owner;
    let [first] = take(ranges, cutter, 3)[..] else { panic!("the third message ends the range") };
    assert_eq!(released(ranges, 1), [first]);
    assert_eq!(ranges.settled(GENERATION, first), Verdict::Recorded);
    ranges.leave();
    let last = store(ranges, 2);
    assert_eq!((last.offset, last.horizon), (3, 3));
    let mut next = assign_to(b, Some((3, &last.encode())));
    assert!(!next.0.switches());
    store(&mut next.0, 3);
    assert_eq!(sent_to(&mut next), (false, b));
}
