//! A StatefulSet, its controller and its kubelet, as far as a rollout meets them: one revision is one word, and those that begin with
//! `bad` never become ready.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use sluice_crds::{DrainState, DrainStatus, RolloutState, RolloutStatus, RolloutStrategy};
use sluice_plan::{
    FailedSeen, GatewaySeen, ProvedSeen, WorkloadSeen,
    rollout::{Memory, Seen, Step, Template, Terms, Unavailable, outdated, step, stuck},
};
use std::collections::{BTreeMap, BTreeSet};

pub const CANARY_SECONDS: u32 = 60;
pub const DEADLINE_SECONDS: u32 = 600;

pub fn terms() -> Terms {
    Terms {
        strategy: RolloutStrategy::Canary,
        canary_seconds: CANARY_SECONDS,
        unavailable: Unavailable::Number(1),
        auto_rollback: true,
        deadline_seconds: DEADLINE_SECONDS,
    }
}

#[derive(Debug, Clone)]
pub struct Pod {
    pub uid: u32,
    pub revision: String,
    created: Timestamp,
    ready_since: Option<Timestamp>,
}

/// The cluster and the operator's status.
#[derive(Debug, Clone)]
pub struct Model {
    pub now: Timestamp,
    pub terms: Terms,
    /// What the spec asks for: revision, a number that rises with each edit, replicas.
    pub wanted: (String, u32, u32),
    pub status: Option<RolloutStatus>,
    /// Gateways on their way out.
    pub leaving: Option<DrainStatus>,
    /// The template that the StatefulSet has, and the one that it remembers.
    pub template: String,
    pub proved: Option<String>,
    pub failed: Option<FailedSeen>,
    pub partition: u32,
    pub replicas: u32,
    is_observed: bool,
    current: String,
    update: String,
    pub pods: BTreeMap<u32, Pod>,
    uids: u32,
    /// Revisions that may be on more than one gateway.
    pub passed: BTreeSet<String>,
}

impl Model {
    /// This many gateways run `good-0`, and nothing is under way.
    pub fn running(replicas: u32) -> Self {
        let mut model = Self {
            now: Timestamp::from_second(1_790_000_000).unwrap(),
            terms: terms(),
            wanted: ("good-0".into(), 0, replicas),
            status: None,
            leaving: None,
            template: "good-0".into(),
            proved: None,
            failed: None,
            partition: 0,
            replicas,
            is_observed: true,
            current: "good-0".into(),
            update: "good-0".into(),
            pods: BTreeMap::new(),
            uids: 0,
            passed: ["good-0".to_owned()].into(),
        };
        for _ in 0..3 {
            model.control();
            model.start_pods();
        }
        model.look(true, true);
        assert_eq!(model.state(), Some(RolloutState::Complete));
        model
    }

    pub fn state(&self) -> Option<RolloutState> {
        self.status.as_ref().map(|status| status.state)
    }

    pub fn edit(&mut self, revision: &str) {
        self.wanted = (revision.to_owned(), self.wanted.1 + 1, self.wanted.2);
    }

    pub fn pass(&mut self, seconds: u32) {
        self.now = self.now.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap();
    }

    pub fn seen(&self) -> WorkloadSeen {
        let count = |is: &dyn Fn(&Pod) -> bool| {
            u32::try_from(self.pods.values().filter(|pod| is(pod)).count()).unwrap()
        };
        WorkloadSeen {
            scaled_by: Vec::new(),
            plan_hash: Some(self.template.clone()),
            is_observed: self.is_observed,
            wanted: self.replicas,
            replicas: count(&|_| true),
            ready: count(&|pod| pod.ready_since.is_some()),
            stay_unready: 0,
            updated: count(&|pod| pod.revision == self.update),
            current_revision: Some(self.current.clone()),
            update_revision: Some(self.update.clone()),
            pods: Vec::new(),
            gateways: self.pods.iter().map(|(ordinal, pod)| gateway(*ordinal, pod)).collect(),
            source_version: None,
            image: None,
            revision: Some(self.template.clone()),
            proved: self.proved.clone().map(|revision| ProvedSeen {
                revision,
                image: None,
                config_hash: None,
            }),
            failed: self.failed.clone(),
            partition: self.partition,
        }
    }

    /// One reconcile: what is decided is applied and written, unless the operator dies before.
    pub fn look(&mut self, applies: bool, writes: bool) -> Step {
        self.look_until(applies, usize::MAX, writes)
    }

    /// The same of an operator that dies after this many deletions of pods.
    pub fn look_until(&mut self, applies: bool, deletions: usize, writes: bool) -> Step {
        let (workload, (revision, edit, replicas)) = (self.seen(), self.wanted.clone());
        let spec = edit.to_string();
        let seen = Seen {
            workload: Some(&workload),
            replicas,
            revision: &revision,
            spec: &spec,
            plan_hash: &revision,
            leaving: self.leaving.as_ref(),
            trouble: None,
        };
        let step = step(self.now, &self.terms, self.status.as_ref(), &seen);
        if applies {
            let was_tried = self.state() == Some(RolloutState::Canary)
                && self.status.as_ref().is_some_and(|status| status.revision == step.next.revision);
            let has_passed = step.next.state == RolloutState::Rolling && was_tried;
            if has_passed || step.next.state == RolloutState::Complete {
                self.passed.insert(step.next.revision.clone());
            }
            self.apply(&step, &revision);
            for ordinal in self.to_delete(&step.next, &workload).into_iter().take(deletions) {
                self.pods.remove(&ordinal);
            }
        }
        if applies && writes {
            self.status = Some(step.next.clone());
        }
        step
    }

    /// Pods that the operator deletes, by what it has looked at, and the server itself where more than one may be away.
    fn to_delete(&self, next: &RolloutStatus, workload: &WorkloadSeen) -> Vec<u32> {
        let (unavailable, is_draining) = (self.terms.unavailable, self.leaving.is_some());
        let is_way_back = next.state == RolloutState::RolledBack;
        if outdated(next, unavailable, workload, is_draining).is_none_or(|due| is_way_back && due.is_empty())
        {
            return stuck(self.now, next, workload, false).map(|pod| pod.ordinal).into_iter().collect();
        }
        let now = self.seen();
        let found = outdated(next, unavailable, &now, is_draining).unwrap_or_default();
        found.into_iter().map(|pod| pod.ordinal).collect()
    }

    fn apply(&mut self, step: &Step, planned: &str) {
        self.proved = match step.memory {
            Memory::Nothing => None,
            Memory::Kept => self.proved.clone(),
            Memory::Live => Some(self.template.clone()),
        };
        let template = match step.template {
            Template::Planned => planned.to_owned(),
            Template::Proved => self.proved.clone().expect("there is something to go back to"),
            Template::Live => self.template.clone(),
        };
        if step.template != Template::Live {
            self.failed = (step.template == Template::Proved).then(|| FailedSeen {
                revision: step.next.revision.clone(),
                spec: step.next.failed_spec.clone().unwrap(),
                message: step.next.message.clone(),
            });
        }
        let is_change =
            template != self.template || step.partition != self.partition || step.replicas != self.replicas;
        self.is_observed &= !is_change;
        (self.template, self.partition, self.replicas) = (template, step.partition, step.replicas);
    }

    /// The operator drains gateways from this one on.
    pub fn leave(&mut self, target: u32) {
        self.leaving = Some(DrainStatus {
            state: DrainState::Draining,
            target,
            from: self.replicas,
            since: Time(self.now),
            reason: String::new(),
            outcome: None,
        });
    }

    /// One turn of the StatefulSet controller, of a StatefulSet that is Parallel.
    pub fn control(&mut self) {
        self.is_observed = true;
        self.update.clone_from(&self.template);
        self.pods.retain(|ordinal, _| *ordinal < self.replicas);
        for ordinal in 0..self.replicas {
            if !self.pods.contains_key(&ordinal) {
                let revision = if ordinal < self.partition { &self.current } else { &self.update };
                let pod =
                    Pod { uid: self.uids, revision: revision.clone(), created: self.now, ready_since: None };
                self.uids += 1;
                self.pods.insert(ordinal, pod);
            }
        }
        for ordinal in (self.partition..self.replicas).rev() {
            if self.pods[&ordinal].revision != self.update {
                self.pods.remove(&ordinal);
                break;
            }
            if self.pods[&ordinal].ready_since.is_none() {
                break;
            }
        }
        let all = usize::try_from(self.replicas).unwrap();
        let is_done = |pod: &&Pod| pod.revision == self.update && pod.ready_since.is_some();
        if self.pods.values().filter(is_done).count() == all {
            self.current.clone_from(&self.update);
        }
    }

    /// The kubelet starts what can be started.
    pub fn start_pods(&mut self) {
        for pod in self.pods.values_mut().filter(|pod| !pod.revision.starts_with("bad")) {
            pod.ready_since = pod.ready_since.or(Some(self.now));
        }
    }

    /// The kubelet starts one of them.
    pub fn start_pod(&mut self, ordinal: u32) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&ordinal).filter(|pod| !pod.revision.starts_with("bad")) {
            pod.ready_since = pod.ready_since.or(Some(now));
        }
    }

    /// Gateways that a rollout has replaced and that are not ready again.
    pub fn taken(&self) -> u32 {
        let stays = |pod: &&Pod| pod.revision != self.update || pod.ready_since.is_some();
        self.replicas - u32::try_from(self.pods.values().filter(stays).count()).unwrap()
    }

    /// Gateways that are not ready, for whatever reason.
    pub fn away(&self) -> u32 {
        let ready = self.pods.values().filter(|pod| pod.ready_since.is_some()).count();
        self.replicas - u32::try_from(ready).unwrap()
    }

    /// A gateway of an older revision is not ready any more, as those that have an old password.
    pub fn fail_outdated(&mut self, ordinal: u32) {
        if self.pods.get(&ordinal).is_some_and(|pod| pod.revision != self.update) {
            self.fail(ordinal);
        }
    }

    /// A gateway is not ready for a while.
    pub fn fail(&mut self, ordinal: u32) {
        if let Some(pod) = self.pods.get_mut(&ordinal) {
            pod.ready_since = None;
        }
    }

    /// A node goes away with a pod.
    pub fn lose(&mut self, ordinal: u32) {
        self.pods.remove(&ordinal);
    }

    /// Everybody does what they do, for so long that whatever is to come has come.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.control();
            self.start_pods();
            self.look(true, true);
            self.pass(10);
        }
    }

    /// Gateways with a revision that no gateway has tried to the end.
    pub fn untried(&self) -> usize {
        self.pods.values().filter(|pod| !self.passed.contains(&pod.revision)).count()
    }

    pub fn revisions(&self) -> Vec<&str> {
        self.pods.values().map(|pod| pod.revision.as_str()).collect()
    }
}

fn gateway(ordinal: u32, pod: &Pod) -> GatewaySeen {
    let is_bad = pod.revision.starts_with("bad");
    GatewaySeen {
        name: format!("a-gateway-{ordinal}"),
        uid: pod.uid.to_string(),
        ordinal,
        revision: Some(pod.revision.clone()),
        created: Some(pod.created),
        ready_since: pod.ready_since,
        waiting: is_bad.then(|| "ImagePullBackOff".into()),
        trouble: is_bad.then(|| "ImagePullBackOff, no such image".into()),
        ..GatewaySeen::default()
    }
}
