//! Gateways that leave, against a world in which anything may fail at any moment: the operator between any two of its
//! writes, gateways that do not answer, and people who want another number meanwhile.

use proptest::prelude::*;
use sluice_crds::{DrainOutcome, DrainState, DrainStatus, OnTimeout};
use sluice_plan::{
    Moment,
    drain::{Answer, Request, Seen, Step, Terms, request, step, stopped::Stopped},
};

/// Gateways at most in these worlds.
const PODS_MAX: u32 = 6;
/// Steps after which a world that is left alone must have come to rest: each gateway's blocks, and a few states.
const CALM_STEPS: u32 = 120;
const TIMEOUT_SECONDS: u32 = 100;
const STEP_SECONDS: u64 = 2;

/// One gateway of the model.
#[derive(Debug, Clone, Copy, Default)]
struct Pod {
    drained: bool,
    blocks: u64,
    is_older: bool,
    reach: Reach,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reach {
    #[default]
    Answers,
    Silent,
    /// It ended, and the group still counts it as a member.
    Away,
}

/// What happens in one turn.
#[derive(Debug, Clone)]
enum Event {
    /// The operator looks, and gets as far as this: asking some of the gateways, setting replicas, writing the status.
    Look {
        /// A bit for each gateway.
        asks: u8,
        writes_replicas: bool,
        writes_status: bool,
    },
    /// The StatefulSet controller starts and ends pods.
    Control,
    /// This number of gateways is wanted.
    Want(u32),
    /// A gateway gets blocks, or becomes silent, or answers again, or is replaced.
    Blocks(u32, u64),
    Silent(u32, bool),
    End(u32),
    Restart(u32),
    /// Time passes.
    Wait(u64),
}

#[derive(Debug)]
struct World {
    now: Moment,
    terms: Terms,
    wanted: u32,
    replicas: u32,
    pods: Vec<Pod>,
    written: Option<DrainStatus>,
}

impl World {
    fn new(on_timeout: OnTimeout, replicas: u32) -> Self {
        Self {
            now: Moment(1_000_000),
            terms: Terms { timeout_seconds: TIMEOUT_SECONDS, on_timeout },
            wanted: replicas,
            replicas,
            pods: vec![Pod::default(); replicas as usize],
            written: None,
        }
    }

    fn answer(&mut self, ordinal: u32, asked: Request) -> Answer {
        let Some(pod) = self.pods.get_mut(ordinal as usize) else { return Answer::Gone };
        match (pod.reach, asked) {
            (Reach::Away, Request::Drain) => return Answer::Away,
            (Reach::Away, Request::Resume) => return Answer::Gone,
            (Reach::Silent, _) => return Answer::Silent,
            (Reach::Answers, _) => {}
        }
        if pod.is_older {
            return Answer::Unknown;
        }
        pod.drained = asked == Request::Drain;
        match asked {
            Request::Drain if pod.blocks > 0 => Answer::Holds { blocks: pod.blocks },
            _ => Answer::Done,
        }
    }

    fn look(&mut self, asks: u8, writes_replicas: bool, writes_status: bool) {
        let all = 0..u32::try_from(self.pods.len()).unwrap();
        let (away, running) = all.partition(|ordinal| self.pods[*ordinal as usize].reach == Reach::Away);
        let (current, wanted) = (self.replicas, self.wanted);
        let (answers, stopped) = ([].into(), [].into());
        let mut seen = Seen { current, wanted, running, away, answers, stopped, has_kafka: true };
        if let Some((asked, ordinals)) = request(self.written.as_ref()) {
            let reached = ordinals.filter(|ordinal| asks >> ordinal & 1 == 1);
            seen.answers = reached.map(|ordinal| (ordinal, self.answer(ordinal, asked))).collect();
        }
        let Step { replicas, next } = step(self.now, self.terms, self.written.as_ref(), &seen);
        self.check(replicas, &seen);
        if writes_replicas {
            self.replicas = replicas;
        }
        // The replicas are written before the status.
        if writes_replicas && writes_status {
            self.written = next;
        }
    }

    /// No gateway that holds blocks is removed, unless the user asked for it.
    fn check(&self, replicas: u32, seen: &Seen) {
        for ordinal in replicas..self.replicas {
            let Some(pod) = self.pods.get(ordinal as usize) else { continue };
            // A Job empties the volume that one leaves behind.
            let forced = (self.terms.on_timeout != OnTimeout::Abort || pod.reach == Reach::Away)
                && self.now.0
                    >= self.written.as_ref().map_or(0, since_ms) + u64::from(TIMEOUT_SECONDS) * 1_000;
            let empty = pod.drained && pod.blocks == 0;
            let answer = seen.answers.get(&ordinal);
            assert!(
                empty || (pod.is_older && pod.reach != Reach::Away) || forced,
                "{ordinal} of {self:?} was taken away: {answer:?}"
            );
        }
    }

    fn happen(&mut self, event: &Event) {
        self.now = Moment(self.now.0 + STEP_SECONDS * 1_000);
        match *event {
            Event::Look { asks, writes_replicas, writes_status } => {
                self.look(asks, writes_replicas, writes_status);
            }
            Event::Control => self.pods.resize(self.replicas as usize, Pod::default()),
            Event::Want(wanted) => self.wanted = wanted,
            Event::Blocks(ordinal, blocks) => {
                // Who is drained reads nothing and gets no new blocks.
                self.change(ordinal, |pod| {
                    pod.blocks = if pod.drained { pod.blocks.min(blocks) } else { blocks }
                });
            }
            Event::Silent(ordinal, silent) => {
                let reach = if silent { Reach::Silent } else { Reach::Answers };
                self.change(ordinal, |pod| pod.reach = reach);
            }
            Event::End(ordinal) => {
                self.change(ordinal, |pod| {
                    *pod = Pod { is_older: pod.is_older, reach: Reach::Away, ..Pod::default() }
                });
            }
            Event::Restart(ordinal) => {
                self.change(ordinal, |pod| *pod = Pod { is_older: pod.is_older, ..Pod::default() });
            }
            Event::Wait(seconds) => self.now = Moment(self.now.0 + seconds * 1_000),
        }
    }

    fn change(&mut self, ordinal: u32, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.pods.get_mut(ordinal as usize) {
            change(pod);
        }
    }
}

const ABORT: Terms = Terms { timeout_seconds: TIMEOUT_SECONDS, on_timeout: OnTimeout::Abort };

/// Four gateways, of which two are to leave, with these answers; of `source.otlp`, unless the source is Kafka.
fn leaving(answers: [Answer; 2], has_kafka: bool) -> Seen {
    Seen {
        current: 4,
        wanted: 2,
        running: vec![0, 1, 2],
        away: Vec::new(),
        answers: [(2, answers[0]), (3, answers[1])].into(),
        stopped: [].into(),
        has_kafka,
    }
}

/// The last gateway does not run, for this many seconds.
fn stopped(seconds: u32, seen: Seen) -> Seen {
    Seen { stopped: [(3, Stopped { claim: "queue-a-3".to_owned(), seconds })].into(), ..seen }
}

/// What follows this many seconds after the drain began.
fn after(seconds: u64, seen: &Seen) -> Step {
    let begun = step(Moment(0), ABORT, None, &Seen { stopped: [].into(), ..seen.clone() });
    step(Moment(seconds * 1_000), ABORT, begun.next.as_ref(), seen)
}

fn said(step: &Step) -> &str {
    &step.next.as_ref().unwrap().reason
}

const NOT_RUNNING: &str =
    "gateway 3 does not run, and only it can insert the requests that may be on its volume queue-a-3";

#[test]
fn a_gateway_that_does_not_run_stays_while_only_it_can_empty_its_volume() {
    let seen = leaving([Answer::Done, Answer::Gone], false);
    let waits = after(10, &stopped(10, seen.clone()));
    assert_eq!((waits.replicas, said(&waits)), (4, "1 of 2 are empty"));
    assert_eq!(waits.next.unwrap().state, DrainState::Draining, "it may just restart");
    // The pod of another kind of pipeline, or one whose claim a person has deleted.
    assert_eq!(after(30, &seen).replicas, 2);
    // The StatefulSet has lost the number already: it does not come back.
    let fewer = Seen { current: 3, ..stopped(30, seen) };
    let begun = DrainStatus { from: 4, ..after(0, &leaving([Answer::Silent; 2], false)).next.unwrap() };
    assert_eq!(step(Moment(1_000), ABORT, Some(&begun), &fewer).replicas, 2);
}

#[test]
fn while_a_gateway_does_not_run_the_others_are_not_asked_to_drain() {
    let seen = stopped(30, leaving([Answer::Done, Answer::Gone], false));
    // Whether it stopped before or afterwards.
    for waiting in [step(Moment(0), ABORT, None, &seen), after(30, &seen)] {
        let drain = waiting.next.clone().unwrap();
        assert_eq!((waiting.replicas, request(Some(&drain))), (4, Some((Request::Resume, 2..4))));
        assert_eq!(drain.reason, format!("{NOT_RUNNING}; the operator waits for it"));
        let since = since_ms(&drain) / 1_000;
        let at =
            |seconds: u64, seen: &Seen| step(Moment((since + seconds) * 1_000), ABORT, Some(&drain), seen);
        let still = at(99, &seen).next.unwrap();
        assert_eq!((still.state, &still.reason, still.outcome), (DrainState::Waiting, &drain.reason, None));
        for seconds in [100, 9_999] {
            let late = at(seconds, &seen);
            let words = format!(
                "{NOT_RUNNING}: see why its pod does not run, or give them up with kubectl delete pvc queue-a-3 --wait=false (with \
                 volumeBindingMode Immediate, the claim may come back: delete it again)"
            );
            assert_eq!((late.replicas, said(&late)), (4, words.as_str()));
            let late = late.next.unwrap();
            assert_eq!((late.state, late.outcome), (DrainState::Waiting, Some(DrainOutcome::TimedOut)));
        }
        // It runs again, or more gateways are wanted: at once.
        let runs = Seen {
            stopped: [].into(),
            answers: [(2, Answer::Done), (3, Answer::Done)].into(),
            ..seen.clone()
        };
        assert_eq!(at(5, &runs), Step { replicas: 4, next: None });
        let more = Seen { wanted: 6, answers: [(2, Answer::Done), (3, Answer::Gone)].into(), ..seen.clone() };
        assert_eq!(at(5, &more), Step { replicas: 6, next: None });
    }
}

#[test]
fn a_gateway_that_cannot_read_a_log_is_not_removed() {
    let seen = leaving([Answer::Done, Answer::Unreadable], false);
    let words = "gateway 3 cannot read a log on its volume now, and the requests in it are not inserted: check the volume and its disk, \
                 and see the logs of its pod";
    let holds = after(30, &seen);
    assert_eq!((holds.replicas, said(&holds)), (4, format!("1 of 2 are empty: {words}").as_str()));
    let late = after(100, &seen);
    assert_eq!((late.replicas, said(&late)), (4, format!("not empty after 100 s: {words}").as_str()));
    assert_eq!(late.next.unwrap().state, DrainState::Waiting);
}

#[test]
fn the_reason_says_of_which_gateways_it_is_not_known_that_they_are_empty() {
    let stays = |what: &str| {
        format!(
            "1 of 2 are empty: gateway 3 has nothing to insert, and its volume stays: it is damaged{what}, or the gateway is too old to say \
             whether"
        )
    };
    let gone = "1 of 2 are empty: gateway 2 does not run, and has not said that it is empty".to_owned();
    let empty = || "all are empty".to_owned();
    for (answers, has_kafka, expected) in [
        ([Answer::Done, Answer::Done], false, empty()),
        ([Answer::Done, Answer::Damaged], false, stays(", has dead letters")),
        ([Answer::Done, Answer::Damaged], true, stays("")),
        ([Answer::Gone, Answer::Done], false, gone),
        // Others read what it has not inserted.
        ([Answer::Gone, Answer::Done], true, empty()),
    ] {
        let left = after(30, &leaving(answers, has_kafka));
        assert_eq!((left.replicas, said(&left)), (2, expected.as_str()), "{answers:?} {has_kafka}");
    }
}

fn since_ms(drain: &DrainStatus) -> u64 {
    u64::try_from(drain.since.0.as_millisecond()).unwrap()
}

fn event() -> impl Strategy<Value = Event> {
    let ordinal = || 0..PODS_MAX;
    prop_oneof![
        6 => (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(asks, writes_replicas, writes_status)| {
            Event::Look { asks, writes_replicas, writes_status }
        }),
        6 => Just(WHOLE),
        3 => Just(Event::Control),
        2 => (0..=PODS_MAX).prop_map(Event::Want),
        2 => (ordinal(), 0u64..3).prop_map(|(ordinal, blocks)| Event::Blocks(ordinal, blocks)),
        1 => (ordinal(), any::<bool>()).prop_map(|(ordinal, silent)| Event::Silent(ordinal, silent)),
        1 => ordinal().prop_map(Event::End),
        1 => ordinal().prop_map(Event::Restart),
        1 => (0u64..200).prop_map(Event::Wait),
    ]
}

/// Nothing keeps the operator from any of it.
const WHOLE: Event = Event::Look { asks: u8::MAX, writes_replicas: true, writes_status: true };

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_taken_away_full_and_nobody_stays_drained(
        events in proptest::collection::vec(event(), 0..60), replicas in 1..=PODS_MAX, older in any::<bool>(),
        on_timeout in prop_oneof![Just(OnTimeout::Abort), Just(OnTimeout::Force), Just(OnTimeout::Job)],
    ) {
        let mut world = World::new(on_timeout, replicas);
        world.pods[0].is_older = older;
        for event in &events {
            world.happen(event);
        }
        // Left alone: everybody answers, what is drained gets empty, and the operator is not interrupted.
        for _ in 0..CALM_STEPS {
            for pod in &mut world.pods {
                pod.reach = Reach::Answers;
                pod.blocks = if pod.drained { 0 } else { pod.blocks };
            }
            world.happen(&WHOLE);
            world.happen(&Event::Control);
        }
        prop_assert_eq!(world.replicas, world.wanted, "{:?}", world);
        prop_assert_eq!(&world.written, &None, "{:?}", world);
        prop_assert!(world.pods.iter().all(|pod| !pod.drained), "{:?}", world);
    }
}
