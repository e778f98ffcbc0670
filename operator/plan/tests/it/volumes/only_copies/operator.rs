//! What the operator does with the cluster, by the code under test, and cut off wherever a schedule says; and how a pipeline is deleted.

use super::{
    action::Action,
    cluster::{Cluster, DELETED_MS, LIMIT_MS, Live, Volume},
};
use crate::planned;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{DeletionPolicy, FINALIZER, Retention, TracePipelineStatus};
use sluice_plan::{
    DrainJobSeen, DrainJobState, Intent, Moment, Observed, Plan, build,
    drain::{
        Request, Seen, Step, empty,
        lifecycle::{Removal, removal, suspension, terms},
        request, step,
    },
    objects,
    volumes::{
        orphans,
        removal::{Shown, thrown_away, to_be_retained},
    },
};
use std::collections::BTreeMap;

impl Cluster {
    pub fn happen(&mut self, action: &Action) {
        match *action {
            Action::Commits(enqueued) => self.commits(enqueued),
            Action::OnTimeout(on_timeout) => self.pipeline.spec.scaling.drain.on_timeout = on_timeout,
            Action::Keeps { scaled } => {
                let keeps = if scaled { Retention::Retain } else { Retention::Delete };
                self.pipeline.spec.queue.retention_policy.when_scaled = keeps;
            }
            Action::Wants(replicas) => self.pipeline.spec.replicas = Some(replicas),
            Action::Suspends(suspend) => self.pipeline.spec.suspend = suspend,
            Action::Scaled(replicas) => self.scale(replicas),
            Action::Controlled => self.control(),
            Action::Rolled(ordinal) => self.start(ordinal, true),
            Action::Restarted(ordinal) => self.start(ordinal, false),
            Action::Written => self.write(),
            Action::Inserted => self.insert(),
            Action::Forgotten => self.forget(),
            Action::Goes(policy) => self.pipeline.spec.deletion_policy = policy,
            Action::Worked { fails } => self.work(fails),
            Action::Asked => self.ask(),
            Action::Reconciled { writes, seconds } => {
                self.reconcile(writes);
                self.now.0 += seconds * 1_000;
            }
        }
    }

    fn drain_step(&mut self, wanted: u32) -> Step {
        let written = self.leaving.clone();
        let mut seen = Seen {
            current: self.live.replicas,
            wanted,
            running: self.pods.keys().copied().collect(),
            away: Vec::new(),
            answers: BTreeMap::new(),
            stopped: BTreeMap::new(),
            has_kafka: true,
        };
        if let Some((asked, ordinals)) = request(written.as_ref()) {
            seen.answers = ordinals.map(|ordinal| (ordinal, self.answer(ordinal, asked))).collect();
        }
        step(self.now, terms(&self.pipeline).expect("they can be read"), written.as_ref(), &seen)
    }

    /// What the operator does, in its order, until it is cut off.
    pub fn reconcile(&mut self, writes: usize) {
        self.pipeline.status =
            Some(TracePipelineStatus { suspension: self.suspension, ..TracePipelineStatus::default() });
        let facts = self.observed();
        let plan = planned(&self.pipeline, &facts);
        let next = match Intent::of(&self.pipeline) {
            Intent::Suspend if self.suspension.is_some() => self.drain_step(0),
            Intent::Run => self.drain_step(plan.replicas()),
            _ => Step { replicas: self.live.replicas, next: self.leaving.clone() },
        };
        let mut left = writes;
        let mut may = || {
            left = left.saturating_sub(1);
            left > 0
        };
        if !to_be_retained(&self.pipeline, &facts.volumes).is_empty() {
            if !may() {
                return;
            }
            self.retain();
        }
        if Intent::of(&self.pipeline) == Intent::Suspend {
            if !may() {
                return;
            }
            self.scale(next.replicas);
        } else {
            let Some(replicas) = self.tend(&plan, &facts, next.replicas, &mut may) else { return };
            if !may() {
                return;
            }
            self.apply(&plan, replicas);
        }
        if may() {
            self.suspension = suspension(&self.pipeline, facts.workload.as_ref());
            self.leaving = next.next;
        }
    }

    /// `None` when it is cut off.
    fn tend(
        &mut self,
        plan: &Plan,
        facts: &Observed,
        replicas: u32,
        may: &mut impl FnMut() -> bool,
    ) -> Option<u32> {
        let steps = orphans(self.live.replicas, replicas, plan.deletes_drained_volumes(), &facts.volumes);
        for (name, _) in &steps.unmark {
            may().then(|| self.volume(name).is_drained = false)?;
        }
        for name in &steps.end {
            may().then(|| self.jobs.retain(|_, job| job.name != *name))?;
        }
        for (name, _) in &steps.mark {
            may().then(|| self.volume(name).is_drained = true)?;
        }
        for (name, _) in &steps.delete {
            may().then(|| self.throw_away(ordinal(name), "the operator deletes it"))?;
        }
        for drain in &steps.drain {
            let job = DrainJobSeen {
                name: format!("demo-drain-{}", drain.ordinal),
                ordinal: drain.ordinal,
                claim_uid: drain.claim_uid.clone(),
                workload_version: drain.workload_version.clone(),
                state: DrainJobState::Running,
                not_started: None,
                going_for: None,
            };
            may().then(|| self.jobs.insert(drain.ordinal, job))?;
        }
        Some(steps.replicas_max.map_or(replicas, |most| most.min(replicas)))
    }

    /// The StatefulSet becomes what is planned, in one write.
    pub fn apply(&mut self, plan: &Plan, replicas: u32) {
        let parts = build(plan).into_parts();
        let spec = parts.workload.and_then(|workload| workload.spec).expect("the schema is there");
        let policy = spec.persistent_volume_claim_retention_policy.expect("it is always said");
        let is_kept = |word: &Option<String>| word.as_deref() == Some("Retain");
        let live = Live {
            commits_enqueued: plan.config_yaml().contains("AfterEnqueue"),
            revision: objects::revision(plan),
            keeps_scaled: is_kept(&policy.when_scaled),
            keeps_deleted: is_kept(&policy.when_deleted),
            ..self.live.clone()
        };
        let before = &self.live;
        let is_same = (&live.revision, live.keeps_scaled, live.keeps_deleted)
            == (&before.revision, before.keeps_scaled, before.keeps_deleted);
        self.live = Live { generation: before.generation + u32::from(!is_same), ..live };
        self.scale(replicas);
    }

    /// A user deletes the pipeline. Once the operator removes its finalizer, Kubernetes deletes what the pipeline owns.
    pub fn delete(&mut self, policy: DeletionPolicy, inserts: bool) {
        self.now = Moment(self.now.0.max(DELETED_MS));
        let since = self.now;
        self.pipeline.metadata.deletion_timestamp = Some(time(since));
        self.pipeline.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        self.pipeline.spec.deletion_policy = policy;
        loop {
            self.retain();
            let late = Moment(since.0 + LIMIT_MS + 4_000);
            assert!(self.now <= late, "it is let go at the limit");
            match removal(self.now, &self.pipeline, Some(&self.workload())) {
                Removal::Drain => {
                    let next = self.drain_step(0);
                    if next.replicas == 0 {
                        self.throw_away_empty();
                        break;
                    }
                    self.leaving = next.next;
                }
                // Its objects stay.
                Removal::Orphan => return,
                Removal::Free | Removal::LetGo(_) => break,
            }
            self.write();
            if inserts {
                self.insert();
            }
            self.now.0 += 2_000;
        }
        self.write();
        if !self.live.keeps_deleted {
            for ordinal in 0..self.live.replicas {
                self.throw_away(ordinal, "the pipeline was deleted");
            }
        }
    }

    /// Makes the StatefulSet keep claims that it would delete.
    fn retain(&mut self) {
        for field in to_be_retained(&self.pipeline, &self.seen()) {
            match field {
                "whenScaled" => self.live.keeps_scaled = true,
                _ => self.live.keeps_deleted = true,
            }
            self.live.generation += 1;
        }
    }

    /// The operator deletes the claims of gateways that said that they are empty, whatever happens to those before they end.
    fn throw_away_empty(&mut self) {
        let asked = request(self.leaving.as_ref()).map_or(0..0, |(_, ordinals)| ordinals);
        let answers = asked.map(|ordinal| (ordinal, self.answer(ordinal, Request::Drain))).collect();
        let empty = empty(self.leaving.as_ref(), &answers);
        let commits_after_insert = !self.live.commits_enqueued && self.workload().is_rolled_out();
        let (seen, shown) = (self.seen(), Shown { empty: &empty, commits_after_insert });
        for ordinal in self.pods.keys().copied().collect::<Vec<_>>() {
            self.start(ordinal, false);
        }
        self.write();
        for claim in thrown_away(&self.pipeline, &seen, shown) {
            self.throw_away(claim.ordinal, "the operator deletes it with the pipeline");
            self.pods.remove(&claim.ordinal);
        }
    }

    fn volume(&mut self, name: &str) -> &mut Volume {
        self.volumes.get_mut(&ordinal(name)).expect("it was seen")
    }
}

fn ordinal(name: &str) -> u32 {
    name.rsplit_once('-').unwrap().1.parse().unwrap()
}

fn time(moment: Moment) -> Time {
    let seconds = i64::try_from(moment.0 / 1_000).unwrap();
    Time(jiff::Timestamp::from_second(seconds).unwrap())
}
