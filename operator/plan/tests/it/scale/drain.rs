//! Gateways that leave, against a world in which anything may fail at any moment: the operator between any two of its
//! writes, gateways that do not answer, and people who want another number meanwhile.

use proptest::prelude::*;
use sluice_crds::{DrainState, DrainStatus, OnTimeout};
use sluice_plan::{
    Moment,
    drain::{Answer, Request, Seen, Step, Terms, request, step},
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
        let mut seen = Seen { current, wanted, running, away, answers, stopped };
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

/// Two of four gateways are to leave. The step that these answers lead to, this number of seconds after the operator asked them. The claim
/// belongs to the last one, which does not run.
fn leaving(seconds: u64, claim: Option<&str>, answers: [Answer; 2]) -> Step {
    let terms = Terms { timeout_seconds: TIMEOUT_SECONDS, on_timeout: OnTimeout::Abort };
    let asked = Seen {
        current: 4,
        wanted: 2,
        running: vec![0, 1],
        away: Vec::new(),
        answers: [(2, answers[0]), (3, answers[1])].into(),
        stopped: claim.map(|claim| (3, claim.to_owned())).into_iter().collect(),
    };
    let begun = step(Moment(0), terms, None, &Seen { running: vec![0, 1, 2], ..asked.clone() });
    step(Moment(seconds * 1_000), terms, begun.next.as_ref(), &asked)
}

fn said(step: &Step) -> &str {
    &step.next.as_ref().unwrap().reason
}

#[test]
fn a_gateway_that_does_not_run_stays_while_only_it_can_empty_its_volume() {
    let answers = [Answer::Done, Answer::Gone];
    let words = "gateway 3 does not run, and only it can insert the requests that may be on its volume queue-a-3: see why its pod does \
                 not run, or give them up with kubectl delete pvc queue-a-3 --wait=false";
    for seconds in [30, 99] {
        let waits = leaving(seconds, Some("queue-a-3"), answers);
        assert_eq!((waits.replicas, said(&waits)), (4, format!("1 of 2 are empty: {words}").as_str()));
    }
    let late = leaving(100, Some("queue-a-3"), answers);
    assert_eq!((late.replicas, said(&late)), (4, format!("not empty after 100 s: {words}").as_str()));
    assert_eq!(late.next.as_ref().unwrap().state, DrainState::Waiting);
    // The pod of another kind of pipeline, or one that a person has given up.
    assert_eq!(leaving(30, None, answers).replicas, 2);
    // It alone leaves.
    let alone = Seen {
        current: 4,
        wanted: 3,
        running: vec![0, 1, 2],
        away: Vec::new(),
        answers: [].into(),
        stopped: [(3, "queue-a-3".to_owned())].into(),
    };
    let terms = Terms { timeout_seconds: TIMEOUT_SECONDS, on_timeout: OnTimeout::Abort };
    let begun = step(Moment(0), terms, None, &alone);
    assert_eq!((begun.replicas, request(begun.next.as_ref())), (4, Some((Request::Drain, 3..4))));
    // The others take part again after the timeout, whether or not it runs.
    let back = Seen { answers: [(3, Answer::Gone)].into(), ..alone };
    let waiting = DrainStatus { state: DrainState::Waiting, ..begun.next.unwrap() };
    assert_eq!(step(Moment(100_000), terms, Some(&waiting), &back), Step { replicas: 4, next: None });
}

#[test]
fn the_reason_says_of_which_gateways_it_is_not_known_that_they_are_empty() {
    for (answers, expected) in [
        ([Answer::Done, Answer::Done], "all are empty"),
        (
            [Answer::Done, Answer::Damaged],
            "1 of 2 are empty: gateway 3 has nothing to insert, and its volume stays: it is damaged, has dead letters, or the gateway is \
             too old to say whether",
        ),
        (
            [Answer::Gone, Answer::Done],
            "1 of 2 are empty: gateway 2 does not run, and has not said that it is empty",
        ),
    ] {
        let gone = leaving(30, None, answers);
        assert_eq!((gone.replicas, said(&gone)), (2, expected));
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
