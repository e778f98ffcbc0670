//! Tables of servers' answers and the resulting guarantees.

use super::*;
use crate::ground::metrics::reference::metrics;
use sluice_clickhouse::deduplication::Version;
use sluice_clickhouse::{
    deduplication::{Forced, View},
    probe::TableEngine,
    ttl::RowTtl,
};

const SECOND: Duration = Duration::from_secs(1);
const LOAD: Load = Load { blocks_per_second: 1.0, insert_timeout: Duration::from_secs(30) };

fn answer(engine: &str, window_blocks: u64) -> Deduplication {
    let is_replicated = engine.starts_with("Replicated");
    Deduplication {
        version: Version([26, 7, 2, 1]),
        engine: TableEngine {
            name: engine.into(),
            deduplication_window_blocks: window_blocks,
            ttl: RowTtl::default(),
        },
        window_age: is_replicated.then_some(Duration::from_hours(1)),
        views: Vec::new(),
        forced: Vec::new(),
        lost: Vec::new(),
        partition_zone: None,
        table_uuid: None,
        token_places: BTreeSet::new(),
    }
}

/// The same with servers that keep their tokens there.
fn kept_in(engine: &str, places: &[&str]) -> Deduplication {
    let token_places = places.iter().map(|place| (*place).to_owned()).collect();
    Deduplication { token_places, ..answer(engine, 10_000) }
}

fn forced(name: &str) -> Deduplication {
    let forced = vec![Forced { name: name.into(), value: "1".into() }];
    Deduplication { forced, ..answer("MergeTree", 10_000) }
}

fn view(window_blocks: u64) -> View {
    View {
        name: "d.v".into(),
        engine: "SummingMergeTree".into(),
        window_blocks,
        groups: false,
        is_partitioned: false,
    }
}

fn reasons(answers: &[Deduplication], servers: usize) -> Vec<Reason> {
    Verdict::of(answers, servers, &LOAD).reasons.into_iter().collect()
}

#[test]
fn what_is_missing_is_named() {
    let lost = Deduplication { lost: vec!["async_insert".into()], ..answer("MergeTree", 10_000) };
    let unseen = View { engine: String::new(), ..view(0) };
    let unseen = Deduplication { views: vec![unseen], ..answer("MergeTree", 10_000) };
    let in_zone = |zone: &str| Deduplication {
        partition_zone: Some(zone.into()),
        ..answer("ReplicatedMergeTree", 10_000)
    };
    let with_view = |blocks| Deduplication { views: vec![view(blocks)], ..answer("MergeTree", 10_000) };
    let table: &[(Vec<Deduplication>, usize, &[Reason])] = &[
        (vec![answer("MergeTree", 10_000)], 1, &[]),
        (vec![answer("ReplicatedMergeTree", 10_000); 2], 2, &[]),
        (vec![answer("SharedMergeTree", 10_000)], 2, &[]),
        (vec![], 1, &[Reason::NotProbed]),
        (vec![answer("MergeTree", 0)], 1, &[Reason::WindowOff]),
        (vec![answer("MergeTree", 100)], 1, &[Reason::WindowShort]),
        (vec![answer("Null", 0)], 1, &[Reason::EngineForgets]),
        (vec![answer("Memory", 0)], 1, &[Reason::EngineForgets]),
        (vec![answer("Distributed", 0)], 1, &[Reason::EngineForwards]),
        (vec![answer("Buffer", 0)], 1, &[Reason::EngineForwards]),
        (vec![answer("MergeTree", 10_000); 2], 2, &[Reason::ServersNotReplicas]),
        (
            vec![answer("ReplicatedMergeTree", 10_000), answer("ReplicatedMergeTree", 0)],
            2,
            &[Reason::WindowOff],
        ),
        (vec![forced("async_insert")], 1, &[Reason::AsyncInsertForced]),
        (vec![forced("max_insert_block_size")], 1, &[Reason::SettingsForced]),
        (vec![lost.clone()], 1, &[Reason::SettingsLost]),
        (vec![kept_in("MergeTree", &["a", "b"])], 1, &[Reason::AddressBalances]),
        (vec![kept_in("ReplicatedMergeTree", &["/0", "/1"])], 1, &[Reason::AddressBalances]),
        (vec![kept_in("ReplicatedMergeTree", &["/0"])], 1, &[]),
        (vec![kept_in("ReplicatedMergeTree", &["/0"]); 2], 2, &[]),
        (
            vec![kept_in("ReplicatedMergeTree", &["/0"]), kept_in("ReplicatedMergeTree", &["/1"])],
            2,
            &[Reason::ServersNotReplicas],
        ),
        // One does not answer it.
        (vec![kept_in("ReplicatedMergeTree", &["/0"]), answer("ReplicatedMergeTree", 10_000)], 2, &[]),
        (vec![in_zone("UTC"); 2], 2, &[]),
        (vec![in_zone("UTC"), in_zone("Asia/Tokyo")], 2, &[Reason::TimeZone]),
        (vec![with_view(0)], 1, &[Reason::ViewsNotOnce]),
        (vec![with_view(10_000)], 1, &[]),
        (vec![unseen], 1, &[Reason::ViewsUnseen]),
        (vec![answer("Null", 0)], 2, &[Reason::EngineForgets, Reason::ServersNotReplicas]),
    ];
    for (answers, servers, expected) in table {
        assert_eq!(reasons(answers, *servers), *expected, "{answers:?}");
    }
}

/// A user that may only insert does not see that such a view needs a grant of its own.
#[test]
fn a_view_that_is_not_seen_may_make_the_server_refuse_every_insert() {
    let text = Reason::ViewsUnseen.to_string();
    for part in ["GRANT SHOW TABLES, SHOW COLUMNS", "GRANT SELECT on the table", "497"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_window_that_a_retry_may_miss_is_none() {
    let lost = Deduplication { lost: vec!["async_insert".into()], ..answer("MergeTree", 10_000) };
    let balances = kept_in("MergeTree", &["a", "b"]);
    for answers in
        [vec![answer("MergeTree", 10_000); 2], vec![forced("async_insert")], vec![lost], vec![balances]]
    {
        assert_eq!(Verdict::of(&answers, answers.len(), &LOAD).age_budget, Duration::ZERO);
    }
    let once = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    assert!(once.age_budget > Duration::ZERO);
    let varies = once.and(Reason::AddressBalances);
    assert_eq!((varies.age_budget, varies.reasons), (Duration::ZERO, [Reason::AddressBalances].into()));
}

#[test]
fn a_token_is_relied_on_for_half_of_the_window() {
    let table = [
        (answer("MergeTree", 10_000), 10.0, 500 * SECOND),
        // By blocks only: there is no age at which it forgets.
        (answer("MergeTree", 10_000), 0.0, AGE_BUDGET_MAX),
        (answer("MergeTree", 0), 10.0, Duration::ZERO),
        (answer("MergeTree", u64::MAX), 10.0, AGE_BUDGET_MAX),
        (answer("ReplicatedMergeTree", 10_000), 0.0, 1_800 * SECOND),
        (answer("ReplicatedMergeTree", 10_000), 1.0, 1_800 * SECOND),
        (answer("ReplicatedMergeTree", 10_000), 40.0, 125 * SECOND),
        (Deduplication { views: vec![view(1_000)], ..answer("MergeTree", 10_000) }, 10.0, 50 * SECOND),
        (Deduplication { views: vec![view(0)], ..answer("MergeTree", 10_000) }, 10.0, 500 * SECOND),
    ];
    for (answer, rate, budget) in table {
        assert_eq!(age_budget(&answer, rate), budget, "{answer:?} at {rate} blocks/s");
    }
}

#[test]
fn the_window_of_our_own_tables_is_twice_what_a_busy_table_takes_until_a_server_is_back() {
    let window = u64::from(sluice_clickhouse::ddl::DEDUPLICATION_WINDOW_BLOCKS);
    let budget = age_budget(&answer("MergeTree", window), BUSY_BLOCKS_PER_SECOND);
    // A lost try, a restart of the server, and the tries after it.
    assert!(budget >= Duration::from_mins(8), "{budget:?}");
    assert!(reasons(&[answer("MergeTree", window)], 1).is_empty());
}

#[test]
fn the_rate_is_the_highest_that_was_seen_of_late() {
    let mut rate = BlockRate::default();
    assert!((rate.per_second() - BUSY_BLOCKS_PER_SECOND).abs() < 1e-9, "nothing is known");
    rate.count(Duration::ZERO, 1_000);
    assert!((rate.per_second() - BUSY_BLOCKS_PER_SECOND).abs() < 1e-9, "one count is no rate");
    let mut rate = BlockRate::default();
    for (second, blocks) in [(0, 1_000), (30, 1_300), (60, 1_330), (90, 0), (120, 60)] {
        rate.count(second * SECOND, blocks);
    }
    assert!((rate.per_second() - 10.0).abs() < 1e-9);
    for look in 0..11 {
        rate.count((150 + 30 * look) * SECOND, 60);
    }
    assert!((rate.per_second() - IDLE_BLOCKS_PER_SECOND).abs() < 1e-9, "traffic may begin at any moment");
}

#[test]
fn a_small_window_is_short_before_a_rate_was_measured_and_while_nothing_comes() {
    let of = |window: u64, rate: &BlockRate| {
        let load = Load { blocks_per_second: rate.per_second(), insert_timeout: 30 * SECOND };
        Verdict::of(&[answer("MergeTree", window)], 1, &load)
    };
    let unmeasured = BlockRate::default();
    let mut idle = BlockRate::default();
    (0..4).for_each(|look| idle.count(30 * look * SECOND, 60));
    for rate in [&unmeasured, &idle] {
        assert_eq!(of(4, rate).reasons, [Reason::WindowShort].into());
        assert!(of(10_000, rate).reasons.is_empty());
    }
    assert_eq!(of(10_000, &unmeasured).age_budget, 500 * SECOND);
    assert_eq!(of(10_000, &idle).age_budget, 50_000 * SECOND);
}

/// The series of the guarantee that is 1.
fn promised(metrics: &crate::ground::metrics::Metrics) -> Vec<String> {
    let text = metrics.text().unwrap();
    let lines = text.lines().filter(|line| line.starts_with("sluice_gateway_delivery_guarantee{"));
    lines.filter_map(|line| line.strip_suffix(" 1")).map(str::to_owned).collect()
}

#[test]
fn one_series_is_1_and_says_why() {
    let metrics = metrics();
    let series = |guarantee: &str, reason: &str| {
        vec![format!("sluice_gateway_delivery_guarantee{{guarantee=\"{guarantee}\",reason=\"{reason}\"}}")]
    };
    assert_eq!(promised(&metrics), series("at_least_once", "not_probed"), "before the first connection");
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 1, [Reason::PlanUnavailable]);
    assert_eq!(promised(&metrics), series("at_least_once", "not_probed"));
    standing.found(0, Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD), None, SECOND);
    assert_eq!(standing.tell(SECOND), Some(Reason::PlanUnavailable));
    standing.beside(Reason::PlanUnavailable, false, SECOND);
    assert_eq!(promised(&metrics), series("exactly_once_effect", "none"));
    standing.beside(Reason::TopicCompacted, true, SECOND);
    assert_eq!(promised(&metrics), series("at_least_once", "topic_compacted"));
}

#[test]
fn when_a_server_has_answered_is_known_of_each_shard() {
    let standing = GuaranteeState::new(metrics().guarantee.clone(), 2, []);
    assert_eq!(standing.heard(0), None);
    standing.found(0, Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD), None, 100 * SECOND);
    assert_eq!((standing.heard(0), standing.heard(1)), (Some(100 * SECOND), None));
}

#[test]
fn what_others_wrote_during_a_cut_is_in_the_first_look_after_it() {
    let mut rate = BlockRate::default();
    for (second, blocks) in [(0, 0), (30, 3), (60, 6)] {
        rate.count(second * SECOND, blocks);
    }
    let window = answer("MergeTree", 10_000);
    let cut = 1_200 * SECOND;
    assert!(age_budget(&window, rate.per_second()) > cut);
    rate.count(60 * SECOND + cut, 6 + 12_000);
    assert!(age_budget(&window, rate.per_second()) < cut, "the window has moved on");
}

#[tokio::test]
async fn who_waits_for_a_look_goes_on_once_it_was_tried() {
    let metrics = metrics();
    let standing = std::sync::Arc::new(GuaranteeState::new(metrics.guarantee.clone(), 1, []));
    let mut watch = Watch::new(Vec::new(), standing.clone(), std::sync::Arc::default());
    // A question without a waiting block leaves no entry behind.
    watch.look_where_wanted(SECOND).await;
    let waits = tokio::spawn({
        let standing = standing.clone();
        async move { standing.look(0).await }
    });
    while !waits.is_finished() {
        watch.look_where_wanted(SECOND).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(standing.heard(0), None, "nobody has answered");
}

#[test]
fn a_range_in_doubt_uses_up_the_window() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 1, []);
    standing.found(0, Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD), None, SECOND);
    let budget = standing.age_budget(0, SECOND);
    assert_eq!(budget, 5_000 * SECOND);
    let (old, young) = (standing.enter_doubt(0, 100 * SECOND), standing.enter_doubt(0, 200 * SECOND));
    assert_eq!(standing.tell(100 * SECOND + budget), None);
    let text = metrics.text().unwrap();
    for line in [
        "sluice_gateway_in_doubt_ranges 2",
        "sluice_gateway_oldest_in_doubt_seconds 5000",
        "sluice_gateway_dedup_window_used_ratio 0.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    assert_eq!(standing.tell(101 * SECOND + budget), Some(Reason::InDoubtTooOld));
    standing.leave_doubt(old);
    assert_eq!(standing.tell(101 * SECOND + budget), None);
    standing.leave_doubt(young);
    standing.tell(10 * budget);
    assert!(metrics.text().unwrap().contains("\nsluice_gateway_oldest_in_doubt_seconds 0\n"));
}

#[test]
fn an_upgrade_that_forgets_tokens_ends_what_they_are_good_for() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 1, []);
    let verdict = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    standing.found(0, verdict.clone(), None, SECOND);
    standing.found(0, verdict.clone(), Some(Reason::ServerUpgraded), 100 * SECOND);
    assert_eq!(standing.age_budget(0, 99 * SECOND), Duration::ZERO);
    assert_eq!(standing.age_budget(0, 100 * SECOND), verdict.age_budget);
    assert_eq!(standing.tell(101 * SECOND), Some(Reason::ServerUpgraded));
    assert_eq!(standing.tell(100 * SECOND + verdict.age_budget), None);
}

#[test]
fn of_several_shards_the_weakest_counts() {
    let of = |answers: &[Deduplication]| Verdict::of(answers, 1, &LOAD);
    let (long, short) = (of(&[answer("MergeTree", 10_000)]), of(&[answer("MergeTree", 4_000)]));
    let away = of(&[]);
    let both = Verdict::of_shards([long.clone(), short.clone()]).unwrap();
    assert_eq!((both.age_budget, both.reasons.is_empty()), (short.age_budget, true));
    let all = Verdict::of_shards([long.clone(), away, short]).unwrap();
    assert_eq!(all.reasons, [Reason::NotProbed].into());
    assert_eq!(Verdict::of_shards([long.clone()]), Some(long));
}

#[test]
fn a_shard_that_is_away_or_without_a_window_says_nothing_of_the_tokens_of_others() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 3, []);
    let (whole, none) = (answer("MergeTree", 10_000), answer("MergeTree", 0));
    let verdict = Verdict::of(&[whole], 1, &LOAD);
    standing.found(0, verdict.clone(), None, SECOND);
    standing.found(1, Verdict::of(&[none], 1, &LOAD), None, SECOND);
    let budgets = [0, 1, 2].map(|shard| standing.age_budget(shard, SECOND));
    assert_eq!(budgets, [verdict.age_budget, Duration::ZERO, Duration::ZERO]);
    let views = [0, 1, 2].map(|shard| standing.has_views(shard));
    assert_eq!(views, [false, false, true], "what nobody has looked at may have some");
    let heard = [0, 1, 2].map(|shard| standing.heard(shard));
    assert_eq!(heard, [Some(SECOND), Some(SECOND), None]);
    // The reported guarantee is the weakest.
    assert_eq!(standing.report(SECOND).reasons, [Reason::NotProbed, Reason::WindowOff].into());
    assert_eq!(standing.tell(SECOND), Some(Reason::NotProbed));
}

#[test]
fn the_doubt_of_a_shard_uses_up_its_own_window() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 2, []);
    let of = |window| Verdict::of(&[answer("MergeTree", window)], 1, &LOAD);
    standing.found(0, of(10_000), None, SECOND);
    standing.found(1, of(1_000), None, SECOND);
    let told = |name: &str| {
        let text = metrics.text().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("sluice_gateway_{name} ")));
        line.unwrap().to_owned()
    };
    // The first shard's window is ten times as long as the second's; half of each is relied on.
    let wide = standing.enter_doubt(0, SECOND);
    assert_eq!(standing.tell(1_001 * SECOND), None);
    assert_eq!((told("in_doubt_ranges"), told("dedup_window_used_ratio")), ("1".into(), "0.1".into()));
    let narrow = standing.enter_doubt(1, SECOND);
    assert_eq!(standing.tell(1_501 * SECOND), Some(Reason::InDoubtTooOld));
    let said = [told("in_doubt_ranges"), told("oldest_in_doubt_seconds"), told("dedup_window_used_ratio")];
    assert_eq!(said, ["2", "1500", "1.5"]);
    standing.leave_doubt(narrow);
    assert_eq!(standing.tell(1_501 * SECOND), None);
    standing.leave_doubt(wide);
}

#[test]
fn an_upgrade_of_one_shard_ends_its_own_tokens_alone() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 2, []);
    let verdict = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    standing.found(0, verdict.clone(), None, SECOND);
    standing.found(1, verdict.clone(), Some(Reason::ServerUpgraded), 100 * SECOND);
    let budgets = [0, 1].map(|shard| standing.age_budget(shard, 99 * SECOND));
    assert_eq!(budgets, [verdict.age_budget, Duration::ZERO]);
    assert_eq!(standing.tell(101 * SECOND), Some(Reason::ServerUpgraded));
}

#[test]
fn a_block_that_may_be_elsewhere_ends_the_promise_while_more_may_come() {
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 1, []);
    let verdict = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    standing.found(0, verdict.clone(), None, SECOND);
    standing.moved(0, 100 * SECOND);
    // The tokens of this process still distinguish its own blocks.
    assert_eq!(standing.age_budget(0, 99 * SECOND), verdict.age_budget);
    assert_eq!(standing.tell(101 * SECOND), Some(Reason::DestinationChanged));
    assert_eq!(standing.tell(100 * SECOND + verdict.age_budget), None);
}

#[test]
fn the_log_has_every_reason_of_the_verdict_that_the_metric_shows() {
    let metrics = metrics();
    let standing = std::sync::Arc::new(GuaranteeState::new(metrics.guarantee.clone(), 1, []));
    let consumer = std::sync::Arc::<sluice_kafka::ConsumerStats>::default();
    let mut watch = Watch::new(Vec::new(), standing.clone(), consumer);
    let mut both_tell = |now: Duration, expected: &str| {
        watch.report(now);
        assert_eq!(watch.said.as_deref(), Some(expected), "the log at {now:?}");
        let first = expected.split(',').next().unwrap_or_default();
        let (guarantee, reason) = match first {
            "" => ("exactly_once_effect", "none"),
            reason => ("at_least_once", reason),
        };
        let series =
            format!("sluice_gateway_delivery_guarantee{{guarantee=\"{guarantee}\",reason=\"{reason}\"}}");
        assert_eq!(promised(&metrics), [series], "the metric at {now:?}");
    };
    let verdict = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    let budget = verdict.age_budget;
    both_tell(Duration::ZERO, "not_probed");
    standing.found(0, verdict.clone(), None, SECOND);
    both_tell(SECOND, "");
    let mut now = SECOND;
    for reason in [Reason::TimeZone, Reason::ServerUpgraded, Reason::AddressBalances] {
        standing.found(0, verdict.clone(), Some(reason), now);
        both_tell(now + SECOND, reason.label());
        now += budget;
        both_tell(now, "");
    }
    standing.moved(0, now);
    both_tell(now + SECOND, "destination_changed");
    now += budget;
    let doubt = standing.enter_doubt(0, now);
    now += budget + SECOND;
    both_tell(now, "in_doubt_too_old");
    standing.leave_doubt(doubt);
    both_tell(now, "");
    standing.beside(Reason::TopicCompacted, true, now);
    both_tell(now, "topic_compacted");
    standing.beside(Reason::PlanUnavailable, true, now);
    both_tell(now, "plan_unavailable,topic_compacted");
}

#[test]
fn what_the_consumer_knows_is_in_the_log() {
    let standing = std::sync::Arc::new(GuaranteeState::new(metrics().guarantee.clone(), 1, []));
    let consumer = std::sync::Arc::<sluice_kafka::ConsumerStats>::default();
    let mut watch = Watch::new(Vec::new(), standing.clone(), consumer.clone());
    standing.found(0, Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD), None, SECOND);
    for (is_compacted, logged) in [(false, ""), (true, "topic_compacted"), (false, "")] {
        consumer.is_topic_compacted.store(is_compacted, std::sync::atomic::Ordering::Relaxed);
        watch.look_at_source(SECOND);
        watch.report(SECOND);
        assert_eq!(watch.said.as_deref(), Some(logged));
    }
}

#[test]
fn every_reason_has_a_row_in_the_document() {
    let document = include_str!("../../DELIVERY.md");
    let (_, table) = document.split_once("### Reasons for at_least_once\n").unwrap();
    let (table, _) = table.split_once("\n### ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<_> =
        rows.flat_map(|names| names.split(", ")).map(|name| name.trim_matches('`')).collect();
    let labels: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
    assert_eq!(listed, labels);
}

#[test]
fn every_reason_has_a_label_of_its_own_and_a_sentence() {
    let labels: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
    assert_eq!(labels.len(), Reason::ALL.len());
    assert!(Reason::ALL.is_sorted());
    assert!(Reason::ALL.iter().all(|reason| reason.to_string().len() > 20));
    let verdict = Verdict::of(&[answer("MergeTree", 0)], 1, &LOAD);
    assert!(verdict.to_string().starts_with("at_least_once: the table's deduplication window is 0;"));
    let verdict = Verdict::of(&[answer("MergeTree", 10_000)], 1, &LOAD);
    assert_eq!(verdict.to_string(), "exactly_once_effect: the server drops a retry for at least 83 minutes");
}

#[test]
fn rows_survive_what_the_weakest_shard_gives() {
    use sluice_clickhouse::durability::Durability::{Fsync, Process, Quorum};
    let metrics = metrics();
    let standing = GuaranteeState::new(metrics.guarantee.clone(), 2, []);
    let told = || {
        let text = metrics.text().unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("sluice_gateway_durability{") && line.ends_with(" 1"));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told(), ["unknown"]);
    for (shard, found, least) in [
        (0, Some(Fsync), "unknown"),
        (1, Some(Quorum), "fsync"),
        (0, Some(Quorum), "quorum"),
        (1, Some(Process), "process"),
        (0, None, "unknown"),
    ] {
        standing.found_durability(shard, found);
        standing.tell(Duration::ZERO);
        assert_eq!(told(), [least], "{shard} {found:?}");
    }
}
