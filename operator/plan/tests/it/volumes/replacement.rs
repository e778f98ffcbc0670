//! Volumes that are replaced against a simple model of the cluster. In it, gateways put blocks on their volumes, restart, stop answering
//! and are deleted by other clients. The operator reads old copies, and may stop between any two of its writes.

use super::{GIB, claim, template};
use crate::{
    sample,
    statuses::{condition, running, said},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;
use sluice_crds::{DrainState, ReplacementStatus, TracePipeline};
use sluice_plan::{
    ClaimSeen, Emptied, HolderSeen, Moment, Observed, Planned, StorageClassSeen, TemplateSeen, VolumesSeen,
    drain::{Answer, Request, Terms},
    plan,
    volumes::replacement::{Fate, Seen, fate, never_bound, request, step},
};
use std::time::Duration;

const GATEWAYS: usize = 3;

#[derive(Debug, Clone)]
enum Action {
    /// Gateways that take part put something on their volumes.
    Written,
    /// What a gateway holds is inserted.
    Inserted(usize),
    /// Its process ends and is started again.
    Restarted(usize),
    /// Another client deletes its pod.
    Deleted(usize),
    /// The kubelet and the StatefulSet controller do what they are to do.
    Controlled,
    /// The operator looks, at what it saw last time or now, and does so many of its writes.
    Reconciled { is_stale: bool, writes: usize, silent: Option<usize>, seconds: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let gateway = || 0..GATEWAYS;
    let reconciled = (any::<bool>(), 0_usize..5, prop::option::weighted(0.2, gateway()), 1_u64..40);
    prop_oneof![
        2 => Just(Action::Written),
        3 => gateway().prop_map(Action::Inserted),
        1 => gateway().prop_map(Action::Restarted),
        1 => gateway().prop_map(Action::Deleted),
        3 => Just(Action::Controlled),
        6 => reconciled.prop_map(|(is_stale, writes, silent, seconds)| Action::Reconciled {
            is_stale, writes, silent, seconds
        }),
    ]
}

#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
struct Gateway {
    pod: u32,
    process: u32,
    is_leaving: bool,
    has_ended: bool,
    is_drained: bool,
    held: Option<Emptied>,
    claim: u32,
    is_claim_new: bool,
    is_claim_going: bool,
    has_something: bool,
}

#[derive(Debug)]
struct Cluster {
    pipeline: TracePipeline,
    facts: Observed,
    gateways: Vec<Gateway>,
    made: u32,
    now_seconds: u64,
    written: Option<ReplacementStatus>,
    last: VolumesSeen,
    replaced: usize,
}

impl Cluster {
    fn new() -> Self {
        let (mut pipeline, facts) = running(&json!({}), &[]);
        pipeline.spec.queue.size = "1Gi".into();
        pipeline.spec.queue.storage_class_name = Some("new".into());
        let gateways = (0..3).map(|id| Gateway { pod: id, process: id, claim: id, ..Gateway::default() });
        let (gateways, last) = (gateways.collect(), VolumesSeen::default());
        let (made, now_seconds, written, replaced) = (3, 1_000, None, 0);
        let mut cluster = Self { pipeline, facts, gateways, made, now_seconds, written, last, replaced };
        cluster.last = cluster.seen();
        cluster
    }

    fn make(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    fn seen(&self) -> VolumesSeen {
        let all = || (0..).zip(&self.gateways);
        let claims = all().map(|(ordinal, gateway)| ClaimSeen {
            uid: gateway.claim.to_string(),
            requested: Some(if gateway.is_claim_new { GIB } else { 2 * GIB }),
            storage_class: Some(if gateway.is_claim_new { "new" } else { "old" }.into()),
            is_going: gateway.is_claim_going,
            ..claim(ordinal, 1, 1)
        });
        let holders = all().map(|(ordinal, gateway)| HolderSeen {
            name: format!("demo-gateway-{ordinal}"),
            uid: gateway.pod.to_string(),
            ordinal,
            container: (!gateway.has_ended).then(|| gateway.process.to_string()),
            ended: gateway.has_ended.then(|| gateway.process.to_string()),
            late_for: gateway.is_leaving.then_some(Duration::ZERO),
            emptied: gateway.held.clone(),
        });
        let storage_class = Some("new".into());
        VolumesSeen {
            template: Some(TemplateSeen { storage_class, ..template("1Gi") }),
            claims: claims.collect(),
            holders: holders.collect(),
            replacing: self.written.clone(),
            ..VolumesSeen::default()
        }
    }

    fn restart(&mut self, of: usize) {
        let process = self.make();
        let gateway = &mut self.gateways[of];
        if !gateway.has_ended {
            (gateway.process, gateway.is_drained) = (process, false);
        }
    }

    /// Deleted pods end. Kubernetes makes them again if no finalizer holds them, with a new claim if the old one is deleted.
    fn control(&mut self) {
        for of in 0..GATEWAYS {
            let (pod, claim) = (self.make(), self.make());
            let gateway = &mut self.gateways[of];
            if gateway.has_ended && gateway.held.is_none() {
                let before = gateway.clone();
                *gateway = Gateway { pod, process: pod, ..Gateway::default() };
                (gateway.claim, gateway.is_claim_new, gateway.has_something) =
                    (before.claim, before.is_claim_new, before.has_something);
                if before.is_claim_going {
                    (gateway.claim, gateway.is_claim_new, gateway.has_something) = (claim, true, false);
                }
            }
            gateway.has_ended |= gateway.is_leaving;
        }
    }

    fn finish(&mut self, seen: &VolumesSeen, may: &mut impl FnMut() -> bool) {
        for holder in &seen.holders {
            let gateway = &mut self.gateways[holder.ordinal as usize];
            // What is let go of is looked at once more.
            let mut now = holder.clone();
            if fate(holder, self.written.as_ref()) == Fate::LetGo && gateway.pod.to_string() == holder.uid {
                now.late_for = gateway.is_leaving.then_some(Duration::ZERO);
                now.ended = gateway.has_ended.then(|| gateway.process.to_string());
                now.emptied.clone_from(&gateway.held);
            }
            let fate = fate(&now, self.written.as_ref());
            if fate == Fate::Wait || !may() {
                continue;
            }
            if let Fate::Replace { claim_uid } = fate
                && gateway.claim.to_string() == claim_uid
            {
                assert!(!gateway.has_something, "a claim is deleted with something on it");
                assert!(gateway.has_ended, "a claim is deleted under its gateway");
                self.replaced += usize::from(!gateway.is_claim_going);
                gateway.is_claim_going = true;
                if !may() {
                    return;
                }
            }
            if gateway.pod.to_string() == holder.uid {
                gateway.held = None;
            }
        }
    }

    fn ask(&mut self, silent: Option<usize>) -> Answer {
        let Some((request, ordinal)) = request(self.written.as_ref()) else { return Answer::Gone };
        let gateway = &mut self.gateways[ordinal as usize];
        if request == Request::Resume && gateway.held.is_some() {
            if gateway.is_leaving {
                return Answer::Silent;
            }
            gateway.held = None;
        }
        if silent == Some(ordinal as usize) {
            return Answer::Silent;
        }
        if gateway.is_leaving {
            return Answer::Gone;
        }
        gateway.is_drained = request == Request::Drain;
        match (request, gateway.has_something) {
            (Request::Drain, true) => Answer::Holds { blocks: 1 },
            _ => Answer::Done,
        }
    }

    fn reconcile(&mut self, is_stale: bool, writes: usize, silent: Option<usize>) {
        let seen = if is_stale { self.last.clone() } else { self.seen() };
        self.last = self.seen();
        let mut left = writes;
        let mut may = || {
            let may = left > 0;
            left = left.saturating_sub(1);
            may
        };
        self.finish(&seen, &mut may);
        let seen = VolumesSeen { replacing: self.written.clone(), ..seen };
        let mut facts = Observed { volumes: seen, ..self.facts.clone() };
        if let Some(workload) = &mut facts.workload {
            let ready = self.gateways.iter().filter(|one| !one.is_leaving && !one.is_drained).count();
            workload.ready = u32::try_from(ready).unwrap();
        }
        let answer = self.ask(silent);
        let Ok(Planned::Ready(planned)) = plan(&self.pipeline, &facts, &crate::defaults()) else {
            panic!("nothing is planned")
        };
        let terms = Terms::of(&self.pipeline.spec).unwrap();
        let queue = &self.pipeline.spec.queue;
        let next = planned.replaced_next();
        let seen = Seen { queue, volumes: &facts.volumes, answer, may_go_on: true, next };
        let step = step(Moment(self.now_seconds * 1_000), terms, self.written.as_ref(), &seen);
        if let Some(take) = &step.take {
            let ordinal = self.written.as_ref().unwrap().gateway;
            let gateway = &mut self.gateways[ordinal as usize];
            if gateway.pod.to_string() == take.pod_uid && !gateway.is_leaving && may() {
                gateway.held = Some(take.emptied.clone());
                gateway.is_leaving |= may();
            }
        }
        if may() {
            self.written = step.next;
        }
        let held = self.gateways.iter().filter(|one| one.held.is_some()).count();
        assert!(held <= 1, "two at once: {:?}", self.gateways);
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Written => {
                let takes_part = |one: &&mut Gateway| !one.is_drained && !one.has_ended;
                self.gateways.iter_mut().filter(takes_part).for_each(|one| one.has_something = true);
            }
            Action::Inserted(of) => {
                let gateway = &mut self.gateways[*of];
                gateway.has_something &= gateway.has_ended;
            }
            Action::Restarted(of) => self.restart(*of),
            Action::Deleted(of) => self.gateways[*of].is_leaving = true,
            Action::Controlled => self.control(),
            Action::Reconciled { is_stale, writes, silent, seconds } => {
                self.now_seconds += seconds;
                self.reconcile(*is_stale, *writes, *silent);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_claim_is_replaced_that_may_hold_something_and_all_are_at_last(
        actions in prop::collection::vec(action(), 0..120),
    ) {
        let mut cluster = Cluster::new();
        for action in &actions {
            cluster.act(action);
        }
        // No more disturbances: gateways insert the blocks that they hold.
        for _ in 0..80 {
            cluster.act(&Action::Written);
            (0..GATEWAYS).for_each(|of| cluster.act(&Action::Inserted(of)));
            cluster.act(&Action::Reconciled { is_stale: false, writes: 9, silent: None, seconds: 100 });
            cluster.act(&Action::Controlled);
        }
        prop_assert!(cluster.written.is_none(), "{:?}", cluster.written);
        prop_assert_eq!(cluster.replaced, GATEWAYS);
        for gateway in &cluster.gateways {
            prop_assert!(gateway.is_claim_new && gateway.held.is_none() && !gateway.is_drained, "{:?}", gateway);
        }
    }
}

#[test]
fn a_volume_that_is_not_empty_in_time_stays_its_gateway_takes_part_and_it_is_tried_again() {
    const STEP_SECONDS: u64 = 10;
    let mut cluster = Cluster::new();
    let timeout = u64::from(Terms::of(&cluster.pipeline.spec).unwrap().timeout_seconds);
    cluster.act(&Action::Written);
    let mut states = Vec::new();
    for _ in 0..3 * timeout / STEP_SECONDS {
        cluster.act(&Action::Reconciled { is_stale: false, writes: 9, silent: None, seconds: STEP_SECONDS });
        cluster.act(&Action::Controlled);
        let state = cluster.written.as_ref().map(|written| (written.state, written.gateway));
        if let Some((DrainState::Waiting, gateway)) = state {
            let reason = &cluster.written.as_ref().unwrap().reason;
            assert_eq!(
                *reason,
                format!("not ended after {timeout} s: it holds 1 block, or uncommitted messages")
            );
            // The next look sends it the command.
            cluster.act(&Action::Reconciled { is_stale: false, writes: 9, silent: None, seconds: 1 });
            assert!(!cluster.gateways[gateway as usize].is_drained, "it is kept from reading");
        }
        states.extend(state.map(|(state, _)| state).filter(|state| states.last() != Some(state)));
    }
    assert_eq!(states[..3], [DrainState::Draining, DrainState::Waiting, DrainState::Draining]);
    assert_eq!(cluster.replaced, 0);
    for (id, gateway) in (0..).zip(&cluster.gateways) {
        assert_eq!((gateway.pod, gateway.claim, gateway.process), (id, id, id), "{gateway:?}");
    }
}

fn outdated(queue: serde_json::Value, class: StorageClassSeen) -> (TracePipeline, Observed) {
    let (_, facts) = running(&json!({}), &[]);
    let mut pipeline = sample("tracepipeline.yaml");
    pipeline.spec.queue = serde_json::from_value(queue).unwrap();
    let storage_class = pipeline.spec.queue.storage_class_name.clone();
    let template = TemplateSeen { storage_class, ..template(&pipeline.spec.queue.size) };
    let claims = [(2, 2), (1, 2), (1, 1)];
    let claims = (0..).zip(claims).map(|(ordinal, (asked, has))| claim(ordinal, asked, has)).collect();
    let volumes = VolumesSeen { template: Some(template), claims, ..VolumesSeen::default() };
    (pipeline, Observed { volumes, storage_class: class, ..facts })
}

#[test]
fn what_cannot_become_as_it_is_wanted_is_replaced_and_that_is_said() {
    use StorageClassSeen::{Missing, NotAsked, Present};
    for (queue, class, next, resized) in [
        // All are of the class "fast". One has more than it asks for, which a new one would have too.
        (json!({"size": "1Gi"}), NotAsked, Some(0), "False/Replacing"),
        (json!({"size": "1Gi", "storageClassName": "fast"}), Present, Some(0), "False/Replacing"),
        (json!({"size": "1Gi", "storageClassName": "new"}), Present, Some(2), "False/Replacing"),
        (json!({"size": "1Gi", "storageClassName": "new"}), NotAsked, Some(2), "False/Replacing"),
        (json!({"size": "1Gi", "storageClassName": "new"}), Missing, None, "False/StorageClassMissing"),
        (json!({"size": "2Gi", "storageClassName": "new"}), Present, Some(2), "False/Replacing"),
        (json!({"size": "2Gi"}), Present, None, "False/Resizing"),
    ] {
        let (pipeline, facts) = outdated(queue.clone(), class);
        let Ok(Planned::Ready(plan)) = plan(&pipeline, &facts, &crate::defaults()) else { panic!("{queue}") };
        assert_eq!(plan.replaced_next(), next, "{queue}");
        let status = said(&pipeline, &facts);
        let condition = condition(&status, "VolumesResized");
        assert_eq!(format!("{}/{}", condition.status, condition.reason), resized, "{queue}");
    }
}

#[test]
fn nothing_is_begun_while_something_else_is_under_way() {
    let queue = json!({"size": "1Gi", "storageClassName": "new"});
    let changes: [fn(&mut Observed); 5] = [
        |facts| facts.workload.as_mut().unwrap().ready = 2,
        |facts| facts.workload.as_mut().unwrap().replicas = 2,
        |facts| facts.workload.as_mut().unwrap().updated = 2,
        |facts| facts.volumes.claims[1].is_going = true,
        |facts| facts.volumes.template.as_mut().unwrap().storage_class = None,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let (pipeline, mut facts) = outdated(queue.clone(), StorageClassSeen::Present);
        change(&mut facts);
        let Ok(Planned::Ready(plan)) = plan(&pipeline, &facts, &crate::defaults()) else { panic!("{at}") };
        assert_eq!(plan.replaced_next(), None, "{at}");
    }
}

#[test]
fn a_claim_that_never_had_a_volume_is_made_anew_at_once() {
    let (pipeline, mut facts) =
        outdated(json!({"size": "1Gi", "storageClassName": "new"}), StorageClassSeen::Present);
    assert_eq!(never_bound(&pipeline.spec.queue, &facts.volumes).count(), 0);
    let claim = &mut facts.volumes.claims[2];
    (claim.is_bound, claim.capacity) = (false, None);
    let found: Vec<_> = never_bound(&pipeline.spec.queue, &facts.volumes).collect();
    assert_eq!(found, [("queue-demo-gateway-2", "u2")]);
    facts.volumes.template.as_mut().unwrap().storage_class = None;
    assert_eq!(never_bound(&pipeline.spec.queue, &facts.volumes).count(), 0, "it would be made as it is");
}

#[test]
fn a_pod_is_replaced_only_when_nothing_else_has_run_in_it() {
    let since = Time("2026-01-01T00:00:00Z".parse().unwrap());
    let written =
        |state, gateway| ReplacementStatus { state, gateway, since: since.clone(), reason: String::new() };
    let draining = written(DrainState::Draining, 0);
    let emptied =
        |since: &str| Some(Emptied { container: "c1".into(), claim_uid: "u".into(), since: since.into() });
    let holder = |late: Option<u64>, ended: Option<&str>| HolderSeen {
        late_for: late.map(Duration::from_secs),
        ended: ended.map(str::to_owned),
        emptied: emptied(&since.0.to_string()),
        ..HolderSeen::default()
    };
    let replaced = "Replace { claim_uid: \"u\" }";
    for (late, ended, expected) in [
        (None, None, "Wait"),
        (None, Some("c1"), "Wait"),
        (Some(0), None, "Wait"),
        (Some(119), None, "Wait"),
        (Some(120), None, "LetGo"),
        (Some(0), Some("c1"), replaced),
        (Some(0), Some("c2"), "LetGo"),
        (Some(0), Some(""), "LetGo"),
    ] {
        let found = format!("{:?}", fate(&holder(late, ended), Some(&draining)));
        assert_eq!(found, expected, "{late:?} {ended:?}");
    }
    // Meanwhile the operator sent it `/resume`, or `/drain` once more.
    let ended = holder(Some(0), Some("c1"));
    for other in [None, Some(written(DrainState::Resuming, 0)), Some(written(DrainState::Draining, 1))] {
        for pod in [&ended, &holder(None, None)] {
            assert_eq!(fate(pod, other.as_ref()), Fate::LetGo, "{other:?}");
        }
    }
    let before = HolderSeen { emptied: emptied("2025-12-31T23:59:00Z"), ..ended };
    assert_eq!(fate(&before, Some(&draining)), Fate::LetGo);
    assert_eq!(fate(&HolderSeen::default(), Some(&draining)), Fate::Wait);
    let unread = HolderSeen {
        emptied: Some(Emptied::default()),
        late_for: Some(Duration::ZERO),
        ended: Some(String::new()),
        ..HolderSeen::default()
    };
    assert_eq!(fate(&unread, Some(&draining)), Fate::LetGo);
}
