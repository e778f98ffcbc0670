//! The plan's bytes: a golden text, round trips, and arbitrary metadata of a broker.

use super::*;
use proptest::prelude::*;

fn small() -> Plan {
    Plan {
        offset: 100,
        rule: Rule { version: Version::Before, bytes: 16 << 20, messages: 100_000 },
        routing_epoch: 3,
        destination: None,
        horizon: 5_000,
        topic_id: Some([7; 16]),
        cluster: None,
        t0: 1_790_000_000,
        cuts: vec![101, 260, 4_000],
        parted: Vec::new(),
        gaps: Vec::new(),
        doubtful_up_to: 0,
    }
}

fn framed(body: &[u8]) -> String {
    let mut body = body.to_vec();
    let sum = check(&body);
    body.extend_from_slice(&sum);
    format!("{MAGIC}{FORMAT}:{}", STANDARD_NO_PAD.encode(body))
}

/// Groups have plans of older builds: any change of these bytes needs another format.
#[test]
fn the_format_never_changes() {
    let text = "sluice-plan/1:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHBwAAAAAAAAAAgPfE1QYDAZ8BnB1LHdx6";
    assert_eq!(small().encode(), text);
    assert_eq!(Plan::decode(100, text), Ok(small()));
}

/// Earlier versions wrote a random number, here 42, where the cluster stands now. That names no cluster, whatever the number is.
#[test]
fn plans_of_earlier_versions_name_no_cluster() {
    let gaps = vec![OffsetRange { first: 0, next: 7 }, OffsetRange { first: 40, next: 100 }];
    for (text, plan) in [
        ("sluice-plan/1:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHByoAAAAAAAAAgPfE1QYDAZ8BnB3PNh/o", small()),
        (
            "sluice-plan/3:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHByoAAAAAAAAAgPfE1QYDAZ8BnB0AAgAHITwQhojW",
            Plan { gaps, ..small() },
        ),
    ] {
        assert_eq!(Plan::decode(100, text), Ok(plan));
    }
}

/// The bytes of a plan without the checksum.
fn body(text: &str) -> Vec<u8> {
    let mut bytes = STANDARD_NO_PAD.decode(&text[MAGIC.len() + 2..]).unwrap();
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// An earlier version reads the same fields, and takes the cluster and the destination for its random number.
#[test]
fn a_cluster_and_a_destination_stand_where_earlier_versions_have_a_random_number() {
    let cluster = ClusterNumber::of_number(0x0006_0504);
    let destination = Destination::of_number(0x0003_0201);
    for (plan, text, expected) in [
        (
            Plan { destination, ..small() },
            "sluice-plan/1:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHBwAAANV6AQIDgPfE1QYDAZ8BnB0zQQFR",
            [0, 0, 0, 0xd5, 0x7a, 1, 2, 3],
        ),
        (
            Plan { cluster, ..small() },
            "sluice-plan/1:ZAKAgIAIoI0GgwCkJgcHBwcHBwcHBwcHBwcHBwcEBQYAAAAAAID3xNUGAwGfAZwd3nYp2Q",
            [4, 5, 6, 0, 0, 0, 0, 0],
        ),
        (
            Plan { destination, cluster, ..small() },
            "sluice-plan/1:ZAKAgIAIoI0GgwCkJgcHBwcHBwcHBwcHBwcHBwcEBQbVegECA4D3xNUGAwGfAZwdIJkXhA",
            [4, 5, 6, 0xd5, 0x7a, 1, 2, 3],
        ),
    ] {
        assert_eq!(plan.encode(), text);
        let is_padded = usize::from(plan.cluster.is_some());
        // Behind 12 bytes and the topic's id.
        let place = 28 + is_padded;
        let (with, without) = (body(text), body(&small().encode()));
        assert_eq!(with[place..place + 8], expected);
        assert_eq!(with[place + 8..], without[place + 8 - is_padded..], "what follows is the same");
        // The fields before the horizon: the routing epoch is 3 to every version.
        assert_eq!(Fields(&with[9..]).varint(), Ok(3));
        assert_eq!(Plan::decode(100, text), Ok(plan));
    }
}

#[test]
fn the_format_with_ranges_in_parts_never_changes() {
    let parts =
        RefusedParts { check: 0x0403_0201, rows: 3_001, height: 2, code: 469, refused: vec![0, 1, 187] };
    let plan =
        Plan { parted: vec![Parted { range: OffsetRange { first: 101, next: 260 }, parts }], ..small() };
    let text = "sluice-plan/2:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHBwAAAAAAAAAAgPfE1QYDAZ8BnB0BAZ8BAQIDBLkXAtUDAgACuQEB";
    assert_eq!(plan.encode()[..text.len()], *text);
    assert_eq!(Plan::decode(100, &plan.encode()), Ok(plan));
}

#[test]
fn the_format_with_gaps_never_changes() {
    let gaps = vec![OffsetRange { first: 0, next: 7 }, OffsetRange { first: 40, next: 100 }];
    let plan = Plan { gaps, ..small() };
    let text = "sluice-plan/3:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHBwAAAAAAAAAAgPfE1QYDAZ8BnB0AAgAHITzZpx1E";
    assert_eq!(plan.encode(), text);
    assert_eq!(Plan::decode(100, text), Ok(plan));
}

#[test]
fn doubtful_ranges_are_a_gap_behind_all_offsets_to_an_older_program() {
    let gap = |first| OffsetRange { first, next: first + 1 };
    let plan = Plan { gaps: vec![gap(40)], doubtful_up_to: 108, ..small() };
    let text = "sluice-plan/3:ZAKAgIAIoI0GA6QmBwcHBwcHBwcHBwcHBwcHBwAAAAAAAAAAgPfE1QYDAZ8BnB0AAigBw4CAgICAgIBAARJ1+7o";
    assert_eq!(plan.encode(), text);
    assert_eq!(Plan::decode(100, text), Ok(plan.clone()));
    let to_an_older = Plan { gaps: vec![gap(40), gap(DOUBT_MARK + 108)], doubtful_up_to: 0, ..small() };
    assert_eq!(to_an_older.encode(), text);
    let settled = Plan { doubtful_up_to: 100, ..plan.clone() };
    assert_eq!(settled.encode(), Plan { doubtful_up_to: 0, ..plan.clone() }.encode());
    let many = Plan { gaps: [10, 20, 30, 40].map(gap).to_vec(), ..plan };
    let kept = Plan { doubtful_up_to: 0, ..many.clone() };
    assert_eq!(Plan::decode(100, &many.encode()), Ok(kept), "a gap counts more");
}

#[test]
fn the_largest_plan_fits_the_metadata() {
    // Distances of 8 bytes: with 9 the last cut would pass 63 bits.
    let far = i64::MAX / 512;
    let plan = Plan {
        offset: far,
        rule: Rule { version: Version::Before, bytes: 1 << 62, messages: 1 << 62 },
        routing_epoch: u32::MAX,
        cluster: ClusterNumber::of_number(1),
        destination: Destination::of_number(1),
        horizon: i64::MAX,
        t0: i64::MAX.unsigned_abs(),
        cuts: (1..=256).map(|n| far + n * far).collect(),
        ..small()
    };
    let text = plan.encode();
    assert!(text.len() <= METADATA_BYTES_MAX, "{}", text.len());
    assert_eq!(text.len(), 2_853, "what the module says");
    assert_eq!(Plan::decode(far, &text), Ok(plan.clone()));
    // Each gap takes 3 bytes; no block has room for more of them.
    let parts = RefusedParts {
        check: u32::MAX,
        rows: parts::part_rows(parts::HEIGHT_MAX),
        height: 0,
        code: u32::MAX,
        refused: (1..=63).map(|number| number * 16_385).collect(),
    };
    assert!(parts.fits());
    let range = |n: i64| OffsetRange { first: far * (100 + 2 * n), next: far * (101 + 2 * n) };
    let parted = (0..3).map(|n| Parted { range: range(n), parts: parts.clone() }).collect();
    let gap = |n: i64| OffsetRange { first: far * (100 + 2 * n), next: far * (101 + 2 * n) };
    let plan = Plan { parted, gaps: (0..3).map(gap).collect(), doubtful_up_to: DOUBT_MARK - 2, ..plan };
    let with_gaps = Plan { gaps: (0..4).map(gap).collect(), ..plan.clone() };
    for text in [plan.encode(), with_gaps.encode()] {
        assert!(text.len() <= METADATA_BYTES_MAX, "{}", text.len());
    }
}

#[test]
fn what_others_committed_is_foreign() {
    for metadata in ["", "x", "sluice", "sluice-pla", "{\"v\":1}", "\u{1F600}"] {
        assert_eq!(Plan::decode(1, metadata), Err(Unread::Foreign), "{metadata:?}");
    }
}

#[test]
fn what_cannot_be_read_is_damaged() {
    for metadata in [
        "sluice-plan/",
        "sluice-plan/1",
        "sluice-plan/1:",
        "sluice-plan/1:!!",
        "sluice-plan/:AAAA",
        "sluice-plan/x:AAAA",
    ] {
        assert_eq!(Plan::decode(1, metadata), Err(Unread::Damaged), "{metadata:?}");
    }
    let metadata = small().encode();
    assert_eq!(Plan::decode(101, &metadata), Err(Unread::Damaged), "the offset was moved");
    for end in "sluice-plan/1:".len()..metadata.len() {
        assert_eq!(Plan::decode(100, &metadata[..end]), Err(Unread::Damaged), "cut off at {end}");
    }
}

#[test]
fn a_cut_above_the_horizon_is_damage() {
    let with_cut_at = |cut| {
        let mut body = vec![100, 2, 1, 1, 0, 10];
        body.extend_from_slice(&[0; 24]);
        body.extend_from_slice(&[0, 1, cut]);
        Plan::decode(100, &framed(&body)).map(|plan| plan.cuts)
    };
    assert_eq!(with_cut_at(10), Ok(vec![110]));
    assert_eq!(with_cut_at(11), Err(Unread::Damaged));
}

#[test]
fn what_a_newer_program_wrote_is_newer() {
    let body = "sluice-plan/4:whatever it likes";
    assert_eq!(Plan::decode(1, body), Err(Unread::Newer(Newer::Format)));
    let rule_3 = framed(&[100, 3, 1, 1, 255, 255]);
    assert_eq!(Plan::decode(100, &rule_3), Err(Unread::Newer(Newer::Rule(3))));
}

prop_compose! {
    fn plans()(
        offset in 0..i64::MAX / 2,
        version in prop::sample::select(&Version::KNOWN[..]),
        bytes in 1..1u64 << 40,
        messages in 1..1u64 << 40,
        (routing_epoch, t0) in (any::<u32>(), 0..1u64 << 40),
        (cluster, destination) in (
            prop::option::of((1..1u32 << 24).prop_map(|number| ClusterNumber::of_number(number).unwrap())),
            prop::option::of((1..1u32 << 24).prop_map(|number| Destination::of_number(number).unwrap())),
        ),
        ahead in 0..1i64 << 40,
        topic_id in prop::option::of(any::<[u8; 16]>().prop_filter("zeros are none", |id| *id != [0; 16])),
        gaps in prop::collection::vec(1..1i64 << 50, 0..=CUTS_MAX),
    ) -> Plan {
        let cuts: Vec<i64> = gaps.iter().scan(offset, |at, gap| { *at += gap; Some(*at) }).collect();
        let horizon = cuts.last().unwrap_or(&offset) + ahead;
        let rule = Rule { version, bytes, messages };
        Plan { offset, rule, routing_epoch, destination, horizon, topic_id, cluster, t0, cuts, parted: Vec::new(), gaps: Vec::new(), doubtful_up_to: 0 }
    }
}

prop_compose! {
    fn parts()(
        rows in 1..1u64 << 20, height in 0..10u8, check in any::<u32>(), code in any::<u32>(),
        some in prop::collection::vec(any::<prop::sample::Index>(), 1..64),
    ) -> RefusedParts {
        let count = usize::try_from(rows.div_ceil(parts::part_rows(height))).unwrap();
        let refused: std::collections::BTreeSet<u64> = some.iter().map(|one| one.index(count) as u64).collect();
        RefusedParts { check, rows, height, code, refused: refused.into_iter().collect() }
    }
}

prop_compose! {
    fn gaps()(apart in prop::collection::vec((1..1i64 << 50, 1..1i64 << 50), 0..=GAPS_MAX)) -> Vec<OffsetRange> {
        let gap = |from: &mut i64, (before, length): (i64, i64)| {
            let first = *from + before;
            *from = first + length;
            Some(OffsetRange { first, next: *from })
        };
        apart.into_iter().scan(0, gap).collect()
    }
}

prop_compose! {
    fn parted_plans()(
        plan in plans(),
        gaps in gaps(),
        parted in prop::collection::vec((0..1i64 << 50, 1..1i64 << 50, parts()), 1..=PARTED_MAX),
    ) -> Plan {
        let mut from = plan.offset;
        let parted = parted.into_iter().map(|(gap, length, parts)| {
            let first = from + gap;
            from = first + length;
            Parted { range: OffsetRange { first, next: from }, parts }
        }).collect();
        Plan { parted, gaps, ..plan }
    }
}

proptest! {
    #[test]
    fn a_plan_is_read_as_it_was_written(plan in plans(), gaps in gaps()) {
        let plan = Plan { gaps, ..plan };
        let text = plan.encode();
        prop_assert!(text.is_ascii() && text.len() <= METADATA_BYTES_MAX);
        prop_assert_eq!(Plan::decode(plan.offset, &text), Ok(plan));
    }

    #[test]
    fn a_plan_with_ranges_in_parts_and_gaps_is_read_as_it_was_written(plan in parted_plans()) {
        let text = plan.encode();
        prop_assert!(text.is_ascii() && text.len() <= METADATA_BYTES_MAX, "{}", text.len());
        prop_assert_eq!(Plan::decode(plan.offset, &text), Ok(plan));
    }

    #[test]
    fn one_changed_character_is_never_another_plan(plan in plans(), at in any::<prop::sample::Index>(), to in "[A-Za-z0-9+/:=-]") {
        let text = plan.encode();
        let at = at.index(text.len());
        let changed = format!("{}{to}{}", &text[..at], &text[at + 1..]);
        let read = Plan::decode(plan.offset, &changed);
        prop_assert!(changed == text || read.is_err(), "{:?}", read);
    }

    #[test]
    fn any_text_is_read_or_refused(offset in any::<i64>(), text in ".*", body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(Plan::decode(offset, &text), Err(Unread::Foreign));
        let ours = format!("{MAGIC}{FORMAT}:{text}");
        prop_assert_eq!(Plan::decode(offset, &ours), Err(Unread::Damaged));
        // With a right checksum, so that the fields themselves are read; what is read is written back the same.
        if let Ok(plan) = Plan::decode(offset, &framed(&body)) {
            prop_assert_eq!(Plan::decode(offset, &plan.encode()), Ok(plan));
        }
    }

    /// Bytes that begin like a plan reach the later fields.
    #[test]
    fn any_fields_are_read_or_refused(tail in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut body = vec![100, 2, 1, 1, 0, 10];
        body.extend_from_slice(&[0; 24]);
        body.extend_from_slice(&tail);
        if let Ok(plan) = Plan::decode(100, &framed(&body)) {
            prop_assert_eq!(Plan::decode(100, &plan.encode()), Ok(plan));
        }
    }

    /// The same for gaps, without ranges in parts.
    #[test]
    fn any_gaps_are_read_or_refused(tail in prop::collection::vec(0..5u8, 0..12)) {
        let mut body = vec![100, 2, 1, 1, 0, 10];
        body.extend_from_slice(&[0; 24]);
        body.extend_from_slice(&[0, 0, 0]);
        body.extend_from_slice(&tail);
        let text = framed(&body).replace("sluice-plan/1", "sluice-plan/3");
        if let Ok(plan) = Plan::decode(100, &text) {
            prop_assert_eq!(plan.encode(), text);
        }
    }

    /// The same for one range in parts, followed by arbitrary bytes.
    #[test]
    fn any_parts_are_read_or_refused(tail in prop::collection::vec(0..9u8, 0..40)) {
        let mut body = vec![100, 2, 1, 1, 0, 10];
        body.extend_from_slice(&[0; 24]);
        body.extend_from_slice(&[0, 0, 1, 2, 3]);
        body.extend_from_slice(&tail);
        let text = framed(&body).replace("sluice-plan/1", "sluice-plan/2");
        if let Ok(plan) = Plan::decode(100, &text) {
            prop_assert_eq!(Plan::decode(100, &plan.encode()), Ok(plan));
        }
    }
}
