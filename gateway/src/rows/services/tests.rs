//! What is counted and shown, also among more services than have places.

use super::*;
use proptest::prelude::*;

fn totals(rows: u64, raw_bytes: u64) -> RowTotals {
    RowTotals { rows, raw_bytes }
}

/// Sends a message of resources: name, spans and bytes.
fn send(tally: &mut ServiceTally, resources: &[(&str, u64, u64)]) {
    tally.begin();
    let mut at = totals(7, 700);
    for (name, spans, bytes) in resources {
        tally.resource(name.as_bytes(), at);
        at = totals(at.rows + spans, at.raw_bytes + bytes);
    }
    tally.commit(at);
}

fn said(services: &Services) -> Vec<(String, u64, u64)> {
    let Largest { services, other, rest } = services.look();
    assert_eq!(other, rest, "no service has ceased to be one of the largest");
    let named = services.iter().map(|(name, volume)| (name.to_string(), volume.spans, volume.row_bytes));
    named.chain([("(rest)".to_owned(), other.spans, other.row_bytes)]).collect()
}

fn row(name: &str, spans: u64, bytes: u64) -> (String, u64, u64) {
    (name.to_owned(), spans, bytes)
}

#[test]
fn spans_and_bytes_are_counted_by_service() {
    let services = Arc::new(Services::default());
    let mut tally = ServiceTally::new(services.clone());
    send(&mut tally, &[("a", 2, 20), ("b", 1, 100), ("a", 3, 30), ("", 1, 5), ("none", 0, 0)]);
    assert_eq!(said(&services), [row("b", 1, 100), row("a", 5, 50), row("", 1, 5), row("(rest)", 0, 0)]);
}

#[test]
fn a_message_that_is_not_whole_counts_nothing() {
    let services = Arc::new(Services::default());
    let mut tally = ServiceTally::new(services.clone());
    tally.begin();
    tally.resource(b"a", totals(0, 0));
    tally.resource(b"b", totals(4, 40));
    send(&mut tally, &[("b", 1, 10)]);
    assert_eq!(said(&services), [row("b", 1, 10), row("(rest)", 0, 0)]);
}

#[test]
fn a_service_called_other_is_among_the_others() {
    let services = Arc::new(Services::default());
    send(&mut ServiceTally::new(services.clone()), &[(OTHER, 2, 20), ("a", 1, 1)]);
    assert_eq!(said(&services), [row("a", 1, 1), row("(rest)", 2, 20)]);
}

#[test]
fn a_service_that_grows_takes_the_place_of_a_smaller_one_and_nothing_falls() {
    let services = Arc::new(Services::default());
    let mut tally = ServiceTally::new(services.clone());
    let names: Vec<String> = (0..=LARGEST_MAX).map(|number| format!("s{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        send(&mut tally, &[(name, 1, 1_000 - number as u64)]);
    }
    let before = services.look();
    assert_eq!((before.services.len(), before.other), (LARGEST_MAX, Volume { spans: 1, row_bytes: 950 }));
    send(&mut tally, &[("s50", 1, 5_000), ("s49", 1, 1)]);
    let after = services.look();
    assert_eq!((&*after.services[0].0, after.services[0].1), ("s50", Volume { spans: 2, row_bytes: 5_950 }));
    assert!(after.services.iter().all(|(name, _)| &**name != "s49"));
    assert_eq!(after.other, Volume { spans: 2, row_bytes: 951 }, "what came before stays");
    assert_eq!(after.rest, Volume { spans: 2, row_bytes: 952 }, "all of the one that is not shown");
}

#[test]
fn names_beyond_the_limit_are_the_rest_and_long_ones_are_cut() {
    let services = Arc::new(Services::default());
    let mut tally = ServiceTally::new(services.clone());
    let long = "é".repeat(NAME_BYTES_MAX);
    send(&mut tally, &[(&long, 1, 1_000_000)]);
    for number in 0..SERVICES_MAX + 5 {
        send(&mut tally, &[(&format!("{number}"), 1, 1)]);
    }
    let Largest { services: largest, other, .. } = services.look();
    assert_eq!((largest[0].0.len(), largest.len()), (NAME_BYTES_MAX, LARGEST_MAX));
    let all = SERVICES_MAX as u64 + 6;
    assert_eq!(other.spans, all - LARGEST_MAX as u64);
}

#[test]
fn a_large_service_that_comes_late_is_shown() {
    let services = Arc::new(Services::default());
    let mut tally = ServiceTally::new(services.clone());
    let mut late = ServiceTally::new(services.clone());
    late.begin();
    late.resource(b"0", totals(0, 0));
    for number in 0..SERVICES_MAX as u64 + 100 {
        send(&mut tally, &[(&format!("{number}"), 1, 1_000_000 - number)]);
    }
    let before = services.look();
    // This message began before the look, which may have given the place of its service free.
    late.commit(totals(1, 10));
    send(&mut tally, &[("giant", 5, 9_000_000), ("1", 1, 1)]);
    send(&mut tally, &[("511", 1, 1)]);
    let after = services.look();
    assert_eq!((&*after.services[0].0, after.services[0].1.spans), ("giant", 5));
    let sum = |largest: &Largest| {
        largest.services.iter().map(|(_, volume)| volume.spans).sum::<u64>() + largest.rest.spans
    };
    assert_eq!((sum(&before), sum(&after)), (612, 620));
    assert!(after.other.spans >= before.other.spans && after.other.row_bytes >= before.other.row_bytes);
}

proptest! {
    /// Every counter only grows from look to look, and the largest and the rest are all.
    #[test]
    fn no_number_ever_falls(
        messages in prop::collection::vec(prop::collection::vec((0..80u8, 0..5u64), 0..12), 1..40),
    ) {
        let services = Arc::new(Services::default());
        let mut tally = ServiceTally::new(services.clone());
        let (mut before, mut all) = (HashMap::<Arc<str>, Volume>::new(), 0);
        let mut rest = Volume::default();
        for message in messages {
            let named: Vec<(String, u64)> =
                message.into_iter().map(|(name, spans)| (format!("{name}"), spans)).collect();
            let resources: Vec<(&str, u64, u64)> =
                named.iter().map(|(name, spans)| (name.as_str(), *spans, spans * 10)).collect();
            all += resources.iter().map(|resource| resource.1).sum::<u64>();
            send(&mut tally, &resources);
            let Largest { services: largest, other, rest: left } = services.look();
            prop_assert!(other.spans >= rest.spans && other.row_bytes >= rest.row_bytes);
            rest = other;
            for (name, volume) in &largest {
                let earlier = before.insert(name.clone(), *volume).unwrap_or_default();
                prop_assert!(volume.spans >= earlier.spans && volume.row_bytes >= earlier.row_bytes);
            }
            let told = largest.iter().map(|(_, volume)| volume.spans).sum::<u64>() + left.spans;
            prop_assert_eq!(told, all);
        }
    }
}
