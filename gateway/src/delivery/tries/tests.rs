//! Tables of failures and the steps that follow.

mod futile;
mod refused;

use super::*;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_mins(1);

fn at(now: Duration) -> At {
    At { now, age_budget: 30 * MINUTE, heard: Some(now), insert_timeout: MINUTE / 2, random: 1.0 }
}

const NOW: Duration = Duration::from_hours(1);

fn failure(code: u32, class: Class) -> Failure {
    Failure { class, code: Some(code), is_query_limit: false }
}

const PARSE: Failure = Failure { class: Class::Poison, code: Some(117), is_query_limit: false };
const SHIFTED: Failure = Failure { class: Class::RefreshSchema, code: Some(33), is_query_limit: false };
const MEMORY: Failure = Failure { class: Class::BackPressure, code: Some(241), is_query_limit: false };
const QUERY_LIMIT: Failure = Failure { is_query_limit: true, ..MEMORY };
const REFUSED: Failure = Failure { class: Class::Retry, code: None, is_query_limit: false };
const LOST: Failure = Failure { class: Class::InDoubt, code: None, is_query_limit: false };
const DEFECT: Failure = Failure { class: Class::InDoubt, code: Some(49), is_query_limit: false };

/// A name for the next step, without its waits.
fn name(next: Next) -> &'static str {
    match next {
        Next::SendAgain { replica: Replica::Same, may_double: false, .. } => "again here",
        Next::SendAgain { replica: Replica::Another, may_double: false, .. } => "again elsewhere",
        Next::SendAgain { may_double: true, .. } => "again, maybe twice",
        Next::Describe => "describe",
        Next::Look => "look",
        Next::AskFate(Why::TooOld) => "too old",
        Next::AskFate(Why::BeforeParts) => "ask fate",
        Next::Bisect { may_double: false } => "bisect",
        Next::Bisect { may_double: true } => "bisect, maybe twice",
        Next::Split { may_double: false } => "split",
        Next::Split { may_double: true } => "split, maybe twice",
        Next::Halt { actor, .. } => actor.label(),
        Next::Settle { views_incomplete: false } => "settle",
        Next::Settle { views_incomplete: true } => "settle without views",
    }
}

/// Events of a block, in order.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Fails(Failure),
    Is(Described),
    Told(Fate),
}

use Happens::{Fails, Is, Told};

/// Applies them, one second apart; each send starts at once.
fn play(mut tries: Tries, course: &[Happens]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (happens, seconds) in course.iter().zip(1..) {
        let at = at(NOW + Duration::from_secs(seconds));
        let next = match *happens {
            Fails(failure) => {
                assert_eq!(tries.sending(&at), None, "at {names:?}");
                tries.failed(failure, &at)
            }
            Is(described) => tries.described(described, &at),
            Told(fate) => tries.told(fate, &at),
        };
        names.push(name(next));
    }
    names
}

#[test]
fn what_follows_a_single_failure() {
    let table = [
        (REFUSED, "again elsewhere"),
        (LOST, "again elsewhere"),
        (failure(3, Class::Retry), "again here"),
        (failure(202, Class::BackPressure), "again elsewhere"),
        (failure(252, Class::BackPressure), "again here"),
        (failure(252, Class::Split), "split"),
        (failure(252, Class::Halt), "server"),
        (failure(216, Class::InDoubt), "again here"),
        (failure(319, Class::InDoubt), "again elsewhere"),
        (failure(999, Class::InDoubt), "again elsewhere"),
        (failure(60, Class::Halt), "table"),
        (failure(516, Class::Halt), "access"),
        (failure(164, Class::Halt), "settings"),
        (failure(62, Class::Halt), "settings"),
        (Failure { class: Class::Halt, code: None, is_query_limit: false }, "network"),
        (Failure { class: Class::Split, code: None, is_query_limit: false }, "split"),
        (failure(389, Class::Done), "settle"),
        (SHIFTED, "describe"),
        (PARSE, "describe"),
        (MEMORY, "again elsewhere"),
    ];
    for (failure, next) in table {
        assert_eq!(play(Tries::new(false), &[Fails(failure)]), [next], "{failure:?}");
    }
}

#[test]
fn rows_are_to_blame_only_after_a_look_at_the_table() {
    let looked = Is(Described::Unchanged);
    let table: &[(&[Happens], &[&str])] = &[
        (&[Fails(PARSE), looked, Fails(PARSE)], &["describe", "again here", "bisect"]),
        (&[Fails(SHIFTED), looked, Fails(SHIFTED)], &["describe", "again here", "bisect"]),
        (&[Fails(SHIFTED), looked, Fails(PARSE)], &["describe", "again here", "bisect"]),
        // Another class in between changes nothing, while the look at the table is fresh.
        (
            &[Fails(SHIFTED), looked, Fails(REFUSED), Fails(SHIFTED)],
            &["describe", "again here", "again elsewhere", "bisect"],
        ),
        (
            &[Fails(failure(131, Class::RefreshSchema)), looked, Fails(failure(131, Class::RefreshSchema))],
            &["describe", "again here", "split"],
        ),
        (
            &[Fails(failure(115, Class::RefreshSchema)), looked, Fails(failure(115, Class::RefreshSchema))],
            &["describe", "again here", "settings"],
        ),
        (&[Fails(PARSE), Is(Described::Unfit), Fails(PARSE)], &["describe", "table", "describe"]),
        (&[Fails(PARSE), Is(Described::Unknown), Fails(PARSE)], &["describe", "again elsewhere", "describe"]),
    ];
    for (course, nexts) in table {
        assert_eq!(play(Tries::new(false), course), *nexts, "{course:?}");
    }
}

#[test]
fn a_look_at_the_table_goes_stale() {
    let mut tries = Tries::new(false);
    assert_eq!(tries.failed(SHIFTED, &at(NOW)), Next::Describe);
    tries.described(Described::Unchanged, &at(NOW));
    assert_eq!(name(tries.clone().failed(SHIFTED, &at(NOW + TABLE_FRESH_MAX))), "bisect");
    let later = at(NOW + TABLE_FRESH_MAX + Duration::from_secs(1));
    assert_eq!(tries.failed(SHIFTED, &later), Next::Describe);
}

#[test]
fn what_does_not_pass_becomes_something_else() {
    let last = |failure: Failure, times: usize| {
        *play(Tries::new(false), &vec![Fails(failure); times]).last().unwrap()
    };
    let table = [
        (failure(271, Class::Retry), 2, "program"),
        (failure(76, Class::Retry), 2, "again elsewhere"),
        (failure(243, Class::BackPressure), 6, "again elsewhere"),
        (failure(243, Class::BackPressure), 7, "server"),
        (MEMORY, 6, "again elsewhere"),
        (MEMORY, 7, "ask fate"),
        (QUERY_LIMIT, 1, "ask fate"),
        (DEFECT, 4, "again elsewhere"),
        (DEFECT, 5, "describe"),
        (failure(999, Class::InDoubt), 100, "again elsewhere"),
        (failure(202, Class::BackPressure), 100, "again elsewhere"),
        (REFUSED, 100, "again elsewhere"),
        (LOST, 100, "again elsewhere"),
        (failure(60, Class::Halt), 100, "table"),
    ];
    for (failure, times, next) in table {
        assert_eq!(last(failure, times), next, "{failure:?} {times} times");
    }
}

/// Memory stays short, and then `fate` is the answer; the next step, and the step after the next failure.
fn after_memory(fate: Fate) -> Vec<&'static str> {
    let mut course = vec![Fails(MEMORY); 7];
    course.extend([Told(fate), Fails(MEMORY)]);
    play(Tries::new(false), &course).split_off(6)
}

#[test]
fn a_block_is_halved_only_once_its_fate_is_sure() {
    assert_eq!(after_memory(Fate::Absent)[..2], ["ask fate", "split"]);
    assert_eq!(after_memory(Fate::Stored)[..2], ["ask fate", "settle"]);
    assert_eq!(after_memory(Fate::InTable)[..2], ["ask fate", "settle"]);
    assert_eq!(after_memory(Fate::Unknown), ["ask fate", "again elsewhere", "ask fate"]);
}

#[test]
fn a_defect_that_may_depend_on_rows_is_bisected_in_the_end() {
    let mut course = vec![Fails(DEFECT); 5];
    course.extend([Is(Described::Unchanged), Fails(DEFECT)]);
    assert_eq!(play(Tries::new(false), &course)[4..], ["describe", "again here", "ask fate"]);
    for (fate, next) in [
        (Fate::Absent, "bisect"),
        (Fate::Unknown, "bisect, maybe twice"),
        (Fate::Stored, "settle"),
        (Fate::InTable, "settle"),
    ] {
        let mut course = course.clone();
        course.push(Told(fate));
        assert_eq!(*play(Tries::new(false), &course).last().unwrap(), next, "{fate:?}");
    }
}

#[test]
fn what_a_view_refuses_is_never_sent_in_parts_before_its_fate_is_known() {
    let course = [Fails(PARSE), Is(Described::Unchanged), Fails(PARSE)];
    assert_eq!(play(Tries::new(true), &course), ["describe", "again here", "ask fate"]);
    for (fate, next) in
        [(Fate::InTable, "settle without views"), (Fate::Stored, "settle"), (Fate::Absent, "bisect")]
    {
        let course: Vec<_> = course.into_iter().chain([Told(fate)]).collect();
        assert_eq!(*play(Tries::new(true), &course).last().unwrap(), next, "{fate:?}");
    }
    let early = [Fails(SHIFTED), Is(Described::Unchanged), Fails(SHIFTED)];
    assert_eq!(play(Tries::new(true), &early), ["describe", "again here", "bisect"]);
}

#[test]
fn a_block_in_doubt_is_not_sent_blindly_once_its_token_may_be_forgotten() {
    let mut tries = Tries::new(false);
    assert_eq!(tries.sending(&at(NOW)), None);
    assert_eq!(name(tries.failed(LOST, &at(NOW + MINUTE))), "again elsewhere");
    assert_eq!(tries.doubt_since(), Some(NOW));
    // The last moment at which a try still ends in time.
    let latest = NOW + 29 * MINUTE + MINUTE / 2;
    assert_eq!(tries.sending(&at(latest)), None);
    let late = at(latest + Duration::from_millis(1));
    assert_eq!(tries.sending(&late), Some(Next::AskFate(Why::TooOld)));
    let told = |fate| {
        let mut tries = tries.clone();
        (name(tries.told(fate, &late)), tries.doubt_since(), tries.sending(&late))
    };
    assert_eq!(told(Fate::Stored).0, "settle");
    assert_eq!(told(Fate::InTable).0, "settle");
    assert_eq!(told(Fate::Absent), ("again here", None, None));
    assert_eq!(told(Fate::Unknown), ("again, maybe twice", None, None));
}

#[test]
fn a_block_that_nobody_can_have_stored_never_grows_too_old() {
    let mut tries = Tries::new(false);
    for minutes in 0..600 {
        let at = at(NOW + minutes * MINUTE);
        assert_eq!(tries.sending(&at), None);
        tries.failed(if minutes % 2 == 0 { REFUSED } else { failure(202, Class::BackPressure) }, &at);
    }
    assert_eq!(tries.doubt_since(), None);
}

#[test]
fn a_range_of_a_former_owner_is_in_doubt_from_its_first_send_on() {
    let mut young = Tries::inherited(false, NOW);
    assert_eq!(young.sending(&at(NOW + MINUTE)), None);
    let (mut old, late) = (Tries::inherited(false, NOW), at(NOW + 30 * MINUTE));
    assert_eq!(old.sending(&late), Some(Next::AskFate(Why::TooOld)));
    assert_eq!(name(old.told(Fate::Unknown, &late)), "again, maybe twice");
    assert_eq!(old.sending(&late), None);
}

#[test]
fn without_a_window_every_retry_in_doubt_may_double() {
    let none = At { age_budget: Duration::ZERO, ..at(NOW) };
    let mut tries = Tries::new(false);
    for _ in 0..3 {
        assert_eq!(tries.sending(&none), None);
        tries.failed(LOST, &none);
        assert_eq!(tries.sending(&none), Some(Next::AskFate(Why::TooOld)));
        assert_eq!(name(tries.told(Fate::Unknown, &none)), "again, maybe twice");
    }
}

#[test]
fn the_last_wait_ends_while_the_token_is_still_good() {
    let mut tries = Tries::new(false);
    for _ in 0..8 {
        assert_eq!(tries.sending(&at(NOW)), None);
        tries.failed(LOST, &at(NOW));
    }
    // Half a minute for the try itself; then one second, and twenty, before that.
    let second = Duration::from_secs(1);
    let Next::SendAgain { after, .. } = tries.failed(LOST, &at(NOW + 29 * MINUTE + 29 * second)) else {
        panic!("not sent again")
    };
    assert_eq!(after, second);
    let Next::SendAgain { after, .. } = tries.failed(LOST, &at(NOW + 29 * MINUTE + 10 * second)) else {
        panic!("not sent again")
    };
    assert_eq!(after, 5 * second);
}

#[test]
fn a_single_row_that_is_too_much_is_dead_lettered_or_waits_for_someone() {
    let table = [
        (failure(252, Class::Split), "bisect"),
        (failure(131, Class::RefreshSchema), "bisect"),
        (Failure { class: Class::Split, code: None, is_query_limit: false }, "bisect"),
        (MEMORY, "server"),
        (QUERY_LIMIT, "settings"),
        (failure(396, Class::Split), "settings"),
    ];
    for (failure, next) in table {
        let mut tries = Tries::new(false);
        tries.failed(failure, &at(NOW));
        assert_eq!(name(tries.indivisible(&at(NOW))), next, "{failure:?}");
    }
}

#[test]
fn attempts_that_never_reached_a_server_are_not_looked_for() {
    let mut tries = Tries::new(false);
    for (failure, begun) in [(REFUSED, 0), (LOST, 1), (MEMORY, 2), (REFUSED, 2)] {
        assert_eq!(tries.sending(&at(NOW)), None);
        tries.failed(failure, &at(NOW));
        assert_eq!(tries.begun(), Some(begun));
    }
    assert_eq!(tries.first_sent(), NOW);
    let inherited = Tries::inherited(false, MINUTE);
    assert_eq!((inherited.begun(), inherited.first_sent()), (None, MINUTE));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares with a stateless rule: when the first try started whose outcome is unknown.
    #[test]
    fn a_block_that_may_be_in_the_table_is_neither_cut_nor_sent_late_without_saying_so(
        views in any::<bool>(),
        course in prop::collection::vec((0usize..10, 0usize..4, 0usize..3, 0u64..400), 1..80),
    ) {
        let failures = [
            REFUSED, LOST, MEMORY, DEFECT, PARSE, SHIFTED, failure(202, Class::BackPressure), failure(60, Class::Halt),
            failure(252, Class::Split), failure(319, Class::InDoubt),
        ];
        let fates = [Fate::Stored, Fate::InTable, Fate::Absent, Fate::Unknown];
        let described = [Described::Unchanged, Described::Unfit, Described::Unknown];
        let mut tries = Tries::new(views);
        let mut now = NOW;
        let mut unanswered: Option<Duration> = None;
        'tries: for (which, fate, seen, seconds) in course {
            now += Duration::from_secs(seconds);
            let at = at(now);
            let late = unanswered.is_some_and(|since| now + at.insert_timeout > since + at.age_budget);
            let mut next = if let Some(next) = tries.sending(&at) {
                prop_assert!(late && next == Next::AskFate(Why::TooOld));
                next
            } else {
                prop_assert!(!late, "sent late");
                let failure = failures[which];
                if outcome::may_be_stored(failure.code, failure.class, views) {
                    unanswered.get_or_insert(now);
                }
                tries.failed(failure, &at)
            };
            loop {
                next = match next {
                    Next::Describe => tries.described(described[seen], &at),
                    Next::Look => return Err(TestCaseError::fail("what is known is of late")),
                    Next::AskFate(_) => {
                        prop_assert!(unanswered.is_some(), "asked without need");
                        let next = tries.told(fates[fate], &at);
                        let ends_doubt = fates[fate] == Fate::Absent
                            || matches!(next, Next::SendAgain { may_double: true, .. });
                        if ends_doubt {
                            unanswered = None;
                        }
                        next
                    }
                    Next::Bisect { may_double } | Next::Split { may_double } => {
                        prop_assert!(may_double == (unanswered.is_some()));
                        break 'tries;
                    }
                    Next::Settle { .. } => {
                        prop_assert!(matches!(fates[fate], Fate::Stored | Fate::InTable));
                        break 'tries;
                    }
                    Next::SendAgain { after, .. } | Next::Halt { after, .. } => {
                        prop_assert!(after <= Duration::from_secs(5));
                        break;
                    }
                };
            }
        }
    }
}

#[test]
fn parts_of_a_block_do_not_look_at_the_table_each_for_itself() {
    let mut whole = Tries::new(false);
    whole.sending(&at(NOW));
    assert_eq!(name(whole.failed(PARSE, &at(NOW))), "describe");
    whole.described(Described::Unchanged, &at(NOW));
    assert_eq!(play(whole.of_part(), &[Fails(PARSE)]), ["bisect"]);
    assert_eq!((whole.of_part().failures(), whole.of_part().begun()), (0, Some(0)));
    // What a former owner may have stored is in doubt, whatever the answers to this one.
    let inherited = whole.of_inherited_part(NOW.saturating_sub(MINUTE));
    assert_eq!(inherited.doubt_since(), Some(NOW.saturating_sub(MINUTE)));
    let course = [Fails(PARSE), Told(Fate::Unknown)];
    assert_eq!(play(inherited, &course), ["ask fate", "bisect, maybe twice"]);
}

#[test]
fn a_block_in_doubt_is_not_sent_on_the_strength_of_what_was_known_before_a_cut() {
    let mut tries = Tries::new(false);
    let outdated = |now| At { heard: Some(NOW), ..at(now) };
    assert_eq!(tries.sending(&outdated(NOW)), None, "nobody has sent it");
    tries.failed(LOST, &outdated(NOW));
    // Twenty minutes, of a budget that was half an hour before the server went away.
    let back = NOW + 20 * MINUTE;
    assert_eq!(tries.sending(&outdated(back)), Some(Next::Look));
    let Next::SendAgain { after, replica, may_double } = tries.looked(&outdated(back)) else {
        panic!("it waits");
    };
    assert!(after >= Duration::from_secs(1) && replica == Replica::Another && !may_double);
    assert_eq!(tries.sending(&outdated(back)), Some(Next::Look), "as long as nobody answers");
    assert_eq!(tries.doubt_since(), Some(NOW));
    // What others have written meanwhile leaves less of the window than that.
    let known = At { age_budget: 4 * MINUTE, ..at(back) };
    let again = Next::SendAgain { after: Duration::ZERO, replica: Replica::Another, may_double: false };
    assert_eq!(tries.looked(&known), again);
    assert_eq!(tries.clone().sending(&known), Some(Next::AskFate(Why::TooOld)));
    // Or it leaves enough.
    assert_eq!(tries.sending(&at(back)), None);
}

#[test]
fn a_block_in_doubt_is_sent_again_once_its_servers_have_answered_since() {
    let mut tries = Tries::new(false);
    assert_eq!(tries.sending(&at(NOW)), None);
    let second = Duration::from_secs(1);
    // The servers have answered while it was sent: the try may have ended because of a restart after that.
    let before = |now| At { heard: Some(NOW + second), ..at(now) };
    tries.failed(LOST, &before(NOW + 2 * second));
    assert_eq!(tries.sending(&before(NOW + 3 * second)), Some(Next::Look));
    let since = |now| At { heard: Some(NOW + 2 * second), ..at(now) };
    assert_eq!(tries.sending(&since(NOW + 3 * second)), None);
    // A server that was not reached has not received it.
    let mut tries = Tries::new(false);
    assert_eq!(tries.sending(&at(NOW)), None);
    tries.failed(REFUSED, &before(NOW + 2 * second));
    assert_eq!(tries.sending(&before(NOW + 3 * second)), None);
}

#[test]
fn nobody_is_asked_for_a_fate_before_a_server_answers() {
    // As after a start while the servers of its shard are away: their window is unknown.
    let unheard = |now| At { age_budget: Duration::ZERO, heard: None, ..at(now) };
    let mut tries = Tries::inherited(false, NOW);
    for minutes in 1..20 {
        let at = unheard(NOW + minutes * MINUTE);
        assert_eq!(tries.sending(&at), Some(Next::Look));
        assert_eq!(name(tries.looked(&at)), "again elsewhere");
    }
    assert_eq!(tries.doubt_since(), Some(NOW));
    // Once a server has answered, its token is as good as before.
    assert_eq!(tries.clone().sending(&at(NOW + 20 * MINUTE)), None);
    // Or the server has no window: while it does not know the block's fate, that is asked again.
    let none = At { age_budget: Duration::ZERO, ..at(NOW + 20 * MINUTE) };
    for _ in 0..3 {
        assert_eq!(tries.sending(&none), Some(Next::AskFate(Why::TooOld)));
        let Next::SendAgain { after, replica, may_double } = tries.untold(&none) else { panic!("it waits") };
        assert!(after >= Duration::from_secs(1) && replica == Replica::Another && !may_double);
        assert_eq!(tries.doubt_since(), Some(NOW));
    }
}

#[test]
fn a_block_to_be_cut_goes_whole_again_while_nobody_says_what_became_of_it() {
    let mut tries = Tries::inherited(false, NOW.saturating_sub(MINUTE));
    let course = [Fails(PARSE), Is(Described::Unchanged), Fails(PARSE)];
    for (happens, next) in course.iter().zip(["describe", "again here", "ask fate"]) {
        assert_eq!(tries.sending(&at(NOW)), None);
        let step = match happens {
            Fails(failure) => tries.failed(*failure, &at(NOW)),
            Is(found) => tries.described(*found, &at(NOW)),
            Told(fate) => tries.told(*fate, &at(NOW)),
        };
        assert_eq!(name(step), next);
    }
    assert_eq!(name(tries.untold(&at(NOW))), "again elsewhere");
    // Its token is still good, and it is not split because of a later answer to another question.
    assert_eq!(tries.sending(&at(NOW)), None);
    assert_eq!(name(tries.clone().told(Fate::Absent, &at(NOW))), "again here");
    assert_eq!(name(tries.failed(PARSE, &at(NOW))), "ask fate");
    assert_eq!(name(tries.told(Fate::Absent, &at(NOW))), "bisect");
}

#[test]
fn a_block_that_waited_too_long_for_its_first_try_is_asked_for_once_and_then_sent() {
    // As if the deduplication window were unknown: every block is too old.
    let late = At { age_budget: Duration::ZERO, ..at(NOW) };
    let mut tries = Tries::new(false);
    tries.doubted(Duration::ZERO);
    assert_eq!(tries.sending(&late).map(name), Some("too old"));
    assert_eq!(name(tries.told(Fate::Unknown, &late)), "again, maybe twice");
    tries.doubted(Duration::ZERO);
    assert_eq!(tries.sending(&late), None, "it is sent");
    // A block that was sent has its own doubt.
    let mut sent = Tries::new(false);
    assert_eq!(sent.sending(&late), None);
    sent.doubted(Duration::ZERO);
    assert_eq!(sent.doubt_since(), None);
}
