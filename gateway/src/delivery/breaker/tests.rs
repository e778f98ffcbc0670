//! Compares the breaker with a naive version that searches the whole history.

use super::*;
use proptest::prelude::*;

impl Breaker {
    /// Whether it allows its full concurrency.
    fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Tries in flight.
    fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

impl Endpoints {
    /// The number of servers that are held back.
    fn held_back(&self) -> usize {
        self.0.iter().filter(|breaker| !breaker.is_closed()).count()
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Ask,
    /// The try in flight with this number, modulo the number in flight, ends.
    Return(usize, Answer, f64),
    /// This many milliseconds pass.
    Pass(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let answer = prop_oneof![
        4 => Just(Answer::Well),
        1 => Just(Answer::Unfit),
        2 => Just(Answer::Overloaded),
        1 => Just(Answer::None),
    ];
    prop_oneof![
        4 => Just(Action::Ask),
        4 => (any::<usize>(), answer, 0.0..=1.0).prop_map(|(n, answer, random)| Action::Return(n, answer, random)),
        2 => (0u64..12_000).prop_map(Action::Pass),
    ]
}

/// An event; the number is that of the try.
#[derive(Debug, Clone, Copy)]
enum Happened {
    Sent(usize),
    Returned(usize, Answer, Duration, f64),
}

/// The result of a history.
#[derive(Debug, PartialEq)]
struct Verdict {
    allowed: u32,
    until: Duration,
}

fn verdict(history: &[Happened], concurrency_max: u32) -> Verdict {
    let mut opened_at = None;
    let (mut in_a_row, mut well) = (0, 0);
    let mut until = Duration::ZERO;
    for (place, happened) in history.iter().enumerate() {
        let Happened::Returned(number, answer, now, random) = *happened else { continue };
        let sent_at = history.iter().position(|other| matches!(other, Happened::Sent(n) if *n == number));
        if opened_at.is_some_and(|opened| sent_at.unwrap() < opened) {
            continue;
        }
        let is_open = in_a_row > 0;
        if answer == Answer::Overloaded || (answer == Answer::None && is_open) {
            (opened_at, well) = (Some(place), 0);
            in_a_row += 1;
            until = now + wait(in_a_row, random);
        } else if matches!(answer, Answer::Well | Answer::Unfit) && is_open {
            well += 1;
            if allowed_after(well) >= concurrency_max {
                in_a_row = 0;
            }
        }
    }
    let allowed = if in_a_row > 0 { allowed_after(well) } else { concurrency_max };
    Verdict { allowed, until }
}

/// 1, 2, 2, 4, 4, 4, 4, 8, ..: each level lasts until as many tries have ended as it allows.
fn allowed_after(well: u32) -> u32 {
    (0..20).map(|doublings| 1 << doublings).take_while(|allowed| well >= allowed - 1).last().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_is_what_the_whole_history_allows(
        concurrency_max in 1u32..20,
        actions in prop::collection::vec(action(), 1..200),
    ) {
        let mut breaker = Breaker::new(concurrency_max);
        let (mut history, mut in_flight, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
        for (number, action) in actions.into_iter().enumerate() {
            match action {
                Action::Pass(millis) => now += Duration::from_millis(millis),
                Action::Ask => {
                    let Verdict { allowed, until } = verdict(&history, concurrency_max);
                    let may = now >= until && in_flight.len() < allowed as usize;
                    match breaker.ask(now) {
                        Ok(pass) => {
                            prop_assert!(may, "{} in flight, {allowed} allowed", in_flight.len());
                            in_flight.push((number, pass));
                            history.push(Happened::Sent(number));
                        }
                        Err(Wait::Until(moment)) => prop_assert!(!may && moment == until && now < until),
                        Err(Wait::Returned) => prop_assert!(!may && now >= until),
                    }
                }
                Action::Return(which, answer, random) if !in_flight.is_empty() => {
                    let (number, pass) = in_flight.swap_remove(which % in_flight.len());
                    breaker.give_back(pass, answer, now, random);
                    history.push(Happened::Returned(number, answer, now, random));
                }
                Action::Return(..) => {}
            }
            prop_assert_eq!(breaker.in_flight() as usize, in_flight.len());
        }
    }

    #[test]
    fn a_server_that_answers_again_has_everything_after_the_longest_wait(
        concurrency_max in 1u32..65,
        actions in prop::collection::vec(action(), 1..100),
    ) {
        let mut breaker = Breaker::new(concurrency_max);
        let (mut in_flight, mut now) = (Vec::new(), Duration::ZERO);
        for action in actions {
            match action {
                Action::Pass(millis) => now += Duration::from_millis(millis),
                Action::Ask => in_flight.extend(breaker.ask(now)),
                Action::Return(which, answer, random) if !in_flight.is_empty() => {
                    let pass = in_flight.swap_remove(which % in_flight.len());
                    breaker.give_back(pass, answer, now, random);
                }
                Action::Return(..) => {}
            }
        }
        for pass in in_flight {
            breaker.give_back(pass, Answer::Well, now, 1.0);
        }
        now += WAIT_MAX;
        let mut rounds = 0;
        while !breaker.is_closed() {
            let round: Vec<Pass> = std::iter::from_fn(|| breaker.ask(now).ok()).collect();
            prop_assert!(!round.is_empty(), "nothing may be sent");
            for pass in round {
                breaker.give_back(pass, Answer::Well, now, 1.0);
            }
            rounds += 1;
        }
        prop_assert!(rounds <= concurrency_max.ilog2() + 1, "{} rounds", rounds);
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Sends a try that gets this answer.
fn answered(
    endpoints: &mut Endpoints,
    last: Option<(usize, Replica)>,
    answer: Answer,
    now: Duration,
) -> usize {
    let (endpoint, pass) = endpoints.choose(last, now).unwrap();
    endpoints.give_back(endpoint, pass, answer, (now, 1.0));
    endpoint
}

#[test]
fn the_wait_grows_up_to_a_limit_and_half_of_it_is_chance() {
    let waits: Vec<u128> = (1..=7).map(|openings| wait(openings, 1.0).as_millis()).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    assert_eq!(wait(1, 0.0), WAIT_MIN / 2);
    assert_eq!(wait(u32::MAX, 1.0), WAIT_MAX);
}

#[test]
fn a_server_that_does_not_answer_is_asked_after_the_others() {
    let mut endpoints = Endpoints::new(3, 2);
    assert_eq!(answered(&mut endpoints, None, Answer::None, SECOND), 0);
    assert_eq!(answered(&mut endpoints, Some((0, Replica::Another)), Answer::None, SECOND), 1);
    assert_eq!(answered(&mut endpoints, None, Answer::Well, SECOND), 2);
    assert_eq!(answered(&mut endpoints, None, Answer::Well, SECOND), 2);
    // The server of the last try comes last, even if it is the only one that answers.
    assert_eq!(answered(&mut endpoints, Some((2, Replica::Another)), Answer::Well, SECOND), 0);
    assert_eq!(answered(&mut endpoints, None, Answer::Well, SECOND), 0);
    assert_eq!(endpoints.held_back(), 0);
}

#[test]
fn a_server_that_someone_must_mend_is_asked_after_the_others() {
    let mut endpoints = Endpoints::new(2, 2);
    assert_eq!(answered(&mut endpoints, None, Answer::Unfit, SECOND), 0);
    // The block that it refused, and all later ones.
    assert_eq!(answered(&mut endpoints, Some((0, Replica::Another)), Answer::Well, SECOND), 1);
    assert_eq!(answered(&mut endpoints, None, Answer::Unfit, SECOND), 1);
    // All are equally bad: blocks that they refuse alternate between them.
    assert_eq!(answered(&mut endpoints, Some((1, Replica::Another)), Answer::Well, SECOND), 0);
    assert_eq!(answered(&mut endpoints, None, Answer::Well, SECOND), 0);
    // A server that does not answer comes after it.
    assert_eq!(answered(&mut endpoints, None, Answer::None, SECOND), 0);
    assert_eq!(answered(&mut endpoints, None, Answer::Unfit, SECOND), 1);
    assert_eq!(endpoints.held_back(), 0);
}

#[test]
fn an_overloaded_server_is_left_alone_and_the_others_are_not() {
    let mut endpoints = Endpoints::new(2, 2);
    assert_eq!(answered(&mut endpoints, None, Answer::Overloaded, SECOND), 0);
    assert_eq!(endpoints.held_back(), 1);
    assert_eq!(answered(&mut endpoints, None, Answer::Overloaded, SECOND), 1);
    assert_eq!(endpoints.choose(None, SECOND), Err(Wait::Until(SECOND + WAIT_MIN)));
    assert_eq!(answered(&mut endpoints, Some((1, Replica::Same)), Answer::Well, 2 * SECOND), 1);
    assert_eq!(endpoints.held_back(), 1);
}

#[test]
fn a_server_alone_is_tried_again_although_another_is_wished_for() {
    let mut endpoints = Endpoints::new(1, 1);
    let (endpoint, pass) = endpoints.choose(Some((0, Replica::Another)), SECOND).unwrap();
    assert_eq!(endpoints.choose(None, SECOND), Err(Wait::Returned));
    endpoints.give_up(endpoint, pass);
    assert_eq!(answered(&mut endpoints, None, Answer::Well, SECOND), 0);
}

#[test]
fn what_a_failure_says_about_the_server() {
    let table = [
        (Class::BackPressure, Some(202), Answer::Overloaded),
        (Class::BackPressure, None, Answer::Overloaded),
        (Class::InDoubt, Some(999), Answer::Overloaded),
        (Class::Retry, None, Answer::None),
        (Class::InDoubt, None, Answer::None),
        (Class::InDoubt, Some(outcome::NOT_THE_SERVERS), Answer::None),
        (Class::InDoubt, Some(159), Answer::Well),
        (Class::Poison, Some(117), Answer::Well),
        (Class::Halt, None, Answer::Unfit),
        (Class::Halt, Some(516), Answer::Unfit),
        (Class::RefreshSchema, Some(60), Answer::Unfit),
    ];
    for (class, code, answer) in table {
        assert_eq!(Answer::of(Failure { class, code, is_query_limit: false }), answer, "{class:?} {code:?}");
    }
}
