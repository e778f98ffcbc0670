//! Memory in place, against a world in which gateways are killed, nodes have no room, and the operator is cut off anywhere.

use crate::with;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use sluice_crds::{MEMORY_RESIZES_MAX, MemoryResize, MemoryResizeState as State, TracePipelineSpec};
use sluice_plan::{
    GatewaySeen, MemorySeen, Moment, Wait,
    size::resize::{Answer, Ask, Step, TIMES_MAX, answered, step, words},
};

const MIB: u64 = 1 << 20;
/// Memory of the spec, MiB.
const SPEC_MIB: u64 = 256;
/// Some second of 2026.
const NOW: i64 = 1_790_000_000;

fn spec(resize: &str) -> TracePipelineSpec {
    let resources = json!({"memory": format!("{SPEC_MIB}Mi"), "cpuRequest": "100m", "resize": resize});
    with("/spec/gateway", json!({"resources": resources})).spec
}

fn now() -> Moment {
    Moment(u64::try_from(NOW * 1_000).unwrap())
}

fn gateway(ordinal: u32, limit_mib: u64) -> GatewaySeen {
    let limit_bytes = Some(limit_mib * MIB);
    GatewaySeen {
        name: format!("prod-gateway-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        ordinal,
        memory: MemorySeen { limit_bytes, given_bytes: limit_bytes, ..MemorySeen::default() },
        ..GatewaySeen::default()
    }
}

fn killed(ends: u32, seconds_ago: i64, gateway: GatewaySeen) -> GatewaySeen {
    let killed_at = Some(Timestamp::from_second(NOW - seconds_ago).unwrap());
    GatewaySeen { ends, memory: MemorySeen { killed_at, ..gateway.memory.clone() }, ..gateway }
}

fn entry(memory: &str, ends: u32, state: State) -> MemoryResize {
    let (pod, uid) = ("prod-gateway-0".to_owned(), "uid-0".to_owned());
    MemoryResize { pod, uid, memory: memory.to_owned(), ends, state, message: String::new() }
}

#[test]
fn each_kill_is_answered_by_one_step_up_to_the_bound() {
    let of = |ends, ago, limit| killed(ends, ago, gateway(0, limit));
    let written = |memory: &str, ends| vec![entry(memory, ends, State::Done)];
    for (seen, written, expected) in [
        (gateway(0, 256), vec![], None),
        (of(1, 5, 256), vec![], Some(("384Mi", State::Asked))),
        (of(1, 599, 256), vec![], Some(("384Mi", State::Asked))),
        // That was long ago, and it has run well since.
        (of(1, 601, 256), vec![], None),
        (of(1, 5, 384), written("384Mi", 1), Some(("384Mi", State::Done))),
        (of(2, 5, 384), written("384Mi", 1), Some(("512Mi", State::Asked))),
        (of(3, 5, 512), written("512Mi", 2), Some(("512Mi", State::AtBound))),
        // Another client gave it more memory than the operator would: the operator does not reduce it.
        (of(1, 5, 900), vec![], Some(("900Mi", State::AtBound))),
        // Not whole MiB.
        (
            killed(
                1,
                5,
                GatewaySeen {
                    memory: MemorySeen { limit_bytes: Some(300_000_000), ..MemorySeen::default() },
                    ..gateway(0, 1)
                },
            ),
            vec![],
            Some(("384Mi", State::Asked)),
        ),
        (GatewaySeen { is_leaving: true, ..of(1, 5, 256) }, vec![], None),
    ] {
        let next = step(&spec("InPlace"), std::slice::from_ref(&seen), &written, now()).next;
        let said = next.first().map(|entry| (entry.memory.as_str(), entry.state));
        assert_eq!(said, expected, "{seen:?} {written:?}");
    }
}

#[test]
fn nothing_is_given_without_being_asked_for_in_the_spec() {
    let seen = [killed(1, 5, gateway(0, 256))];
    assert_eq!(step(&spec("None"), &seen, &[], now()), Step::default());
    let asked = [entry("384Mi", 1, State::Asked)];
    assert_eq!(step(&spec("None"), &seen, &asked, now()), Step::default(), "it was switched off meanwhile");
    let given = [entry("384Mi", 1, State::Done)];
    assert_eq!(step(&spec("None"), &[gateway(0, 384)], &given, now()).next, given, "it has it all the same");
}

#[test]
fn what_is_asked_for_is_written_first_and_asked_for_until_the_server_has_it() {
    let seen = [killed(1, 5, gateway(0, 256))];
    let first = step(&spec("InPlace"), &seen, &[], now());
    assert_eq!(first.ask, []);
    let second = step(&spec("InPlace"), &seen, &first.next, now());
    assert_eq!((second.ask.len(), &second.next), (1, &first.next));
    // The operator died before it could say that the server took it.
    let taken = killed(1, 5, gateway(0, 384));
    let third = step(&spec("InPlace"), &[taken], &second.next, now());
    assert_eq!((third.ask.len(), third.next[0].state), (0, State::Done));
}

#[test]
fn what_the_kubelet_says_is_told_and_its_figures_are_no_news() {
    let waits = |wait| GatewaySeen {
        memory: MemorySeen {
            limit_bytes: Some(384 * MIB),
            given_bytes: Some(256 * MIB),
            wait,
            ..MemorySeen::default()
        },
        ..gateway(0, 384)
    };
    let deferred = |words: &str| waits(Some(Wait::Deferred(words.into())));
    let follow = |seen, written: &MemoryResize| {
        step(&spec("InPlace"), &[seen], std::slice::from_ref(written), now()).next.remove(0)
    };
    let began = entry("384Mi", 1, State::InProgress);
    assert_eq!(follow(waits(None), &began), began);
    let waiting = follow(deferred("used: 5"), &began);
    assert_eq!((waiting.state, waiting.message.as_str()), (State::Deferred, "used: 5"));
    assert_eq!(follow(deferred("used: 6"), &waiting), waiting);
    let never = follow(waits(Some(Wait::Infeasible("no".into()))), &waiting);
    assert_eq!(never.state, State::Infeasible);
    let done = follow(gateway(0, 384), &waiting);
    assert_eq!((done.state, done.message.as_str()), (State::Done, ""));
}

#[test]
fn a_refusal_is_final_until_the_next_kill() {
    let seen = killed(1, 5, gateway(0, 256));
    let ask = Ask { pod: seen.name.clone(), uid: seen.uid.clone(), memory: "384Mi".into() };
    let mut next = vec![entry("384Mi", 1, State::Asked)];
    answered(&mut next, &ask, Answer::Refused("exceeded quota".into()));
    assert_eq!((next[0].state, next[0].message.as_str()), (State::Refused, "exceeded quota"));
    let rest = step(&spec("InPlace"), &[seen], &next, now());
    assert_eq!((rest.ask.len(), &rest.next), (0, &next));
    let again = step(&spec("InPlace"), &[killed(2, 1, gateway(0, 256))], &next, now()).next;
    assert_eq!((again[0].state, again[0].message.as_str()), (State::Asked, ""));
}

#[test]
fn people_read_what_was_done_and_what_would_help() {
    let told = |state, message: &str| {
        words(&[MemoryResize { message: message.into(), ..entry("384Mi", 1, state) }]).unwrap()
    };
    for (state, message, expected) in [
        (
            State::Done,
            "",
            "prod-gateway-0 was resized to 384Mi in place; set gateway.resources.limits.memory: 384Mi to keep it",
        ),
        (State::Deferred, "m", "prod-gateway-0 waits for 384Mi, which its node does not have free now (m)"),
        (
            State::Infeasible,
            "m",
            "prod-gateway-0 cannot have 384Mi on its node (m); set gateway.resources.limits.memory: 384Mi to move it to another node",
        ),
        (State::Refused, "m", "prod-gateway-0 was not resized to 384Mi in place (m)"),
        (
            State::AtBound,
            "",
            "prod-gateway-0 was OOM-killed with 384Mi; resizes in place end at 2 times gateway.resources.limits.memory: increase that field",
        ),
    ] {
        assert_eq!(told(state, message), expected);
    }
    let many = vec![entry("384Mi", 1, State::Done); 9];
    assert!(words(&many).unwrap().contains("; and 6 more; set gateway"), "{:?}", words(&many));
    assert_eq!(words(&[]), None);
}

#[test]
fn a_status_tells_of_so_many_and_the_others_follow() {
    let seen: Vec<GatewaySeen> = (0..200).map(|ordinal| killed(1, 5, gateway(ordinal, 256))).collect();
    let first = step(&spec("InPlace"), &seen, &[], now()).next;
    assert_eq!(first.len(), MEMORY_RESIZES_MAX);
    let second = step(&spec("InPlace"), &seen, &first, now());
    assert!(second.ask.len() < first.len() && !second.ask.is_empty(), "so many in one look");
    let kept: Vec<GatewaySeen> = seen.into_iter().skip(10).collect();
    assert_eq!(step(&spec("InPlace"), &kept, &first, now()).next.len(), MEMORY_RESIZES_MAX);
}

/// What happens in one turn.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The operator looks, and gets as far as this: asking, writing the status.
    Look {
        asks: bool,
        writes: bool,
    },
    /// The API server refuses whatever it is asked while this holds.
    Refuse(bool),
    /// The kernel kills a gateway.
    Kill(usize),
    /// The node gives what was asked for.
    Give(usize),
    /// Another pod has the name.
    Replace(usize),
    Switch(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let one = 0..3_usize;
    prop_oneof![
        6 => (any::<bool>(), any::<bool>()).prop_map(|(asks, writes)| Event::Look { asks, writes: asks && writes }),
        4 => Just(Event::Look { asks: true, writes: true }),
        4 => one.clone().prop_map(Event::Kill),
        2 => one.clone().prop_map(Event::Give),
        1 => one.prop_map(Event::Replace),
        1 => any::<bool>().prop_map(Event::Refuse),
        1 => any::<bool>().prop_map(Event::Switch),
    ]
}

struct World {
    pods: Vec<GatewaySeen>,
    /// Kills and changes of the limit of the pods that are there.
    counts: Vec<(u32, u32)>,
    written: Vec<MemoryResize>,
    refuses: bool,
    wanted: bool,
    made: u32,
}

impl World {
    fn new() -> Self {
        let pods = (0..3).map(|ordinal| gateway(ordinal, SPEC_MIB)).collect();
        Self { pods, counts: vec![(0, 0); 3], written: vec![], refuses: false, wanted: true, made: 3 }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Look { asks, writes } => self.look(asks, writes),
            Event::Refuse(refuses) => self.refuses = refuses,
            Event::Switch(wanted) => self.wanted = wanted,
            Event::Kill(at) => {
                let pod = &mut self.pods[at];
                pod.ends += 1;
                pod.memory.killed_at = Some(Timestamp::from_second(NOW).unwrap());
                self.counts[at].0 += 1;
            }
            Event::Give(at) => self.pods[at].memory.given_bytes = self.pods[at].memory.limit_bytes,
            Event::Replace(at) => {
                self.made += 1;
                let ordinal = u32::try_from(at).unwrap();
                self.pods[at] =
                    GatewaySeen { uid: format!("uid-{}", self.made), ..gateway(ordinal, SPEC_MIB) };
                self.counts[at] = (0, 0);
            }
        }
    }

    fn look(&mut self, asks: bool, writes: bool) {
        let spec = spec(if self.wanted { "InPlace" } else { "None" });
        let mut next = step(&spec, &self.pods, &self.written, now());
        for ask in next.ask.iter().filter(|_| asks) {
            let answer = self.patch(ask);
            answered(&mut next.next, ask, answer);
        }
        // An operator that asked for nothing may also end before it writes the status.
        if writes || (next.ask.is_empty() && asks) {
            self.written = next.next;
        }
    }

    fn patch(&mut self, ask: &Ask) -> Answer {
        if self.refuses {
            return Answer::Refused("scripted".into());
        }
        let at =
            self.pods.iter().position(|pod| pod.uid == ask.uid).expect("a pod that is there is asked for");
        let wanted: u64 = ask.memory.strip_suffix("Mi").unwrap().parse().unwrap();
        let limit_mib = self.pods[at].memory.limit_bytes.unwrap() / MIB;
        assert!(wanted >= limit_mib, "{ask:?} lowers {limit_mib}");
        assert!(wanted <= SPEC_MIB * TIMES_MAX, "{ask:?} is above the bound");
        self.counts[at].1 += u32::from(wanted > limit_mib);
        self.pods[at].memory.limit_bytes = Some(wanted * MIB);
        Answer::Taken(Box::new(self.pods[at].clone()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_kill_raises_a_limit_at_most_once_and_a_world_at_rest_is_left_alone(
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut world = World::new();
        for event in events {
            world.take(event);
            for (kills, raises) in &world.counts {
                prop_assert!(raises <= kills, "{raises} raises for {kills} kills");
            }
        }
        (world.refuses, world.wanted) = (false, true);
        for _ in 0..4 {
            world.look(true, true);
            (0..3).for_each(|at| world.take(Event::Give(at)));
        }
        let rest = step(&spec("InPlace"), &world.pods, &world.written, now());
        prop_assert_eq!(&rest.ask, &[]);
        prop_assert_eq!(&rest.next, &world.written);
        for (pod, (kills, _)) in world.pods.iter().zip(&world.counts) {
            let said = world.written.iter().find(|entry| entry.uid == pod.uid);
            prop_assert_eq!(said.is_some(), *kills > 0, "{:?}", pod);
        }
    }
}
