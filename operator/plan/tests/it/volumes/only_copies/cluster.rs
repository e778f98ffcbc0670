//! The cluster, naively: pods, volumes and Jobs by ordinal, what is on the volumes, and what Kubernetes, `ClickHouse` and the gateways do.
//! Whatever throws the only copy of rows away panics.

use super::super::{claim, template};
use crate::{planned, sample, statuses::running};
use serde_json::json;
use sluice_crds::{Commit, DeletionPolicy, DrainStatus, ScalingMode, SuspensionStatus, TracePipeline};
use sluice_plan::{
    ClaimSeen, DrainJobSeen, DrainJobState, Moment, Observed, TemplateSeen, VolumesSeen, WorkloadSeen,
    drain::{Answer, Request},
    volumes::orphans::DRAIN_RETRY_AFTER,
};
use std::collections::BTreeMap;

/// Gateways at the most: below the partitions of the sample.
pub const GATEWAYS: u32 = 4;

/// When pipelines are deleted, in ms, and the limit of a drain in ms.
pub const DELETED_MS: u64 = 1_767_225_600_000;
pub const LIMIT_MS: u64 = 60_000;

/// A gateway with the config that it was started with.
#[derive(Debug, Clone)]
pub struct Pod {
    pub commits_enqueued: bool,
    pub revision: String,
    pub is_drained: bool,
    /// Of all pods there ever were.
    pub number: u32,
}

#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub struct Volume {
    pub uid: String,
    /// Rows that Kafka has too.
    pub has_copies: bool,
    /// Rows that Kafka had too, before it let go of them.
    pub has_forgotten: bool,
    pub has_only_copies: bool,
    pub is_drained: bool,
}

impl Volume {
    pub fn is_full(&self) -> bool {
        self.has_copies || self.has_forgotten || self.has_only_copies
    }

    /// All that is on it is inserted.
    fn empty(&mut self) {
        (self.has_copies, self.has_forgotten, self.has_only_copies) = (false, false, false);
    }
}

/// The StatefulSet as it was applied last.
#[derive(Debug, Clone)]
pub struct Live {
    pub replicas: u32,
    pub generation: u32,
    pub commits_enqueued: bool,
    pub revision: String,
    pub keeps_scaled: bool,
    pub keeps_deleted: bool,
}

#[derive(Debug)]
pub struct Cluster {
    pub pipeline: TracePipeline,
    pub facts: Observed,
    pub live: Live,
    pub pods: BTreeMap<u32, Pod>,
    pub volumes: BTreeMap<u32, Volume>,
    pub jobs: BTreeMap<u32, DrainJobSeen>,
    pub leaving: Option<DrainStatus>,
    pub suspension: Option<SuspensionStatus>,
    /// The answer when the operator last asked: whether anything was queued, and the pods that answered.
    pub told: Option<(bool, Vec<u32>)>,
    pub now: Moment,
    pub made: u32,
}

impl Cluster {
    pub fn new(commits_enqueued: bool) -> Self {
        let mut pipeline = sample("tracepipeline.yaml");
        pipeline.spec.scaling.mode = ScalingMode::Fixed;
        pipeline.spec.scaling.drain.timeout = format!("{}s", LIMIT_MS / 1_000);
        pipeline.spec.replicas = Some(GATEWAYS);
        let (_, facts) = running(&json!({}), &[]);
        let live = Live {
            replicas: 0,
            generation: 0,
            commits_enqueued,
            revision: String::new(),
            keeps_scaled: true,
            keeps_deleted: true,
        };
        let mut cluster = Self {
            pipeline,
            facts,
            live,
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            leaving: None,
            suspension: None,
            told: None,
            now: Moment(DELETED_MS),
            made: 0,
        };
        cluster.commits(commits_enqueued);
        let plan = planned(&cluster.pipeline, &cluster.observed());
        cluster.apply(&plan, GATEWAYS);
        cluster.control();
        cluster
    }

    pub fn commits(&mut self, enqueued: bool) {
        self.pipeline.spec.delivery.commit =
            if enqueued { Commit::AfterEnqueue } else { Commit::AfterInsert };
    }

    pub fn scale(&mut self, replicas: u32) {
        if replicas != self.live.replicas {
            self.live.replicas = replicas;
            self.live.generation += 1;
        }
    }

    /// Kubernetes throws a claim away.
    pub fn throw_away(&mut self, ordinal: u32, why: &str) {
        if let Some(volume) = self.volumes.remove(&ordinal) {
            // Who wants everything gone at once has said so of what is not committed.
            let is_told_to = self.pipeline.metadata.deletion_timestamp.is_some()
                && self.pipeline.spec.deletion_policy == DeletionPolicy::Immediate;
            let is_lost = volume.has_only_copies || volume.has_forgotten && !is_told_to;
            assert!(!is_lost, "the only copy of rows on volume {ordinal} is gone: {why}");
        }
    }

    /// `ClickHouse` has been away for so long that Kafka has none of the messages any more.
    pub fn forget(&mut self) {
        for volume in self.volumes.values_mut() {
            volume.has_forgotten |= volume.has_copies;
            volume.has_copies = false;
        }
    }

    pub fn control(&mut self) {
        let surplus: Vec<u32> = self.pods.range(self.live.replicas..).map(|(ordinal, _)| *ordinal).collect();
        for ordinal in surplus {
            self.pods.remove(&ordinal);
            if !self.live.keeps_scaled {
                self.throw_away(ordinal, "it was scaled away");
            }
        }
        for ordinal in 0..self.live.replicas {
            self.made += 1;
            let uid = format!("u{}", self.made);
            self.volumes.entry(ordinal).or_insert_with(|| Volume { uid, ..Volume::default() });
            if !self.pods.contains_key(&ordinal) {
                self.pods.insert(ordinal, self.pod());
            }
        }
    }

    /// A new pod with the newest config.
    pub fn pod(&self) -> Pod {
        let Live { commits_enqueued, revision, .. } = self.live.clone();
        Pod { commits_enqueued, revision, is_drained: false, number: self.made }
    }

    pub fn start(&mut self, ordinal: u32, is_rolled: bool) {
        self.made += 1;
        let new = self.pod();
        if let Some(pod) = self.pods.get_mut(&ordinal) {
            *pod = if is_rolled { new } else { Pod { is_drained: false, ..pod.clone() } };
        }
    }

    pub fn write(&mut self) {
        for (ordinal, pod) in self.pods.iter().filter(|(_, pod)| !pod.is_drained) {
            let volume = self.volumes.get_mut(ordinal).expect("a pod has its volume");
            volume.has_only_copies |= pod.commits_enqueued;
            volume.has_copies |= !pod.commits_enqueued;
        }
    }

    pub fn insert(&mut self) {
        for ordinal in self.pods.keys() {
            self.volumes.get_mut(ordinal).expect("a pod has its volume").empty();
        }
    }

    pub fn work(&mut self, fails: bool) {
        for (ordinal, job) in self.jobs.iter_mut().filter(|(_, job)| job.state == DrainJobState::Running) {
            let volume = self.volumes.get_mut(ordinal).filter(|volume| volume.uid == job.claim_uid);
            let free = volume.filter(|_| !self.pods.contains_key(ordinal) && !fails);
            job.state = match free {
                Some(volume) => {
                    volume.empty();
                    DrainJobState::Succeeded
                }
                None => DrainJobState::Failed { ago: DRAIN_RETRY_AFTER, message: String::new() },
            };
        }
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.pods.values().map(|pod| pod.number).collect()
    }

    pub fn ask(&mut self) {
        let is_empty =
            !self.pods.is_empty() && !self.pods.keys().any(|ordinal| self.volumes[ordinal].is_full());
        self.told = Some((is_empty, self.numbers()));
    }

    pub fn workload(&self) -> WorkloadSeen {
        let pods = u32::try_from(self.pods.len()).unwrap();
        let updated = self.pods.values().filter(|pod| pod.revision == self.live.revision).count();
        let all = updated == self.pods.len();
        WorkloadSeen {
            wanted: self.live.replicas,
            replicas: pods,
            ready: pods,
            updated: u32::try_from(updated).unwrap(),
            current_revision: Some(if all { "new" } else { "old" }.into()),
            update_revision: Some("new".into()),
            revision: Some(self.live.revision.clone()),
            proved: None,
            failed: None,
            ..self.facts.workload.clone().expect("it runs")
        }
    }

    pub fn seen(&self) -> VolumesSeen {
        let claims = self.volumes.iter().map(|(ordinal, volume)| ClaimSeen {
            uid: volume.uid.clone(),
            is_drained: volume.is_drained,
            has_gateway: self.pods.contains_key(ordinal),
            ..claim(*ordinal, 1, 1)
        });
        let Live { generation, keeps_scaled, keeps_deleted, .. } = self.live;
        VolumesSeen {
            template: Some(TemplateSeen {
                version: format!("w.{generation}"),
                keeps_scaled,
                keeps_deleted,
                ..template("1Gi")
            }),
            claims: claims.collect(),
            jobs: self.jobs.values().cloned().collect(),
            ..VolumesSeen::default()
        }
    }

    pub fn observed(&self) -> Observed {
        let mut facts = self.facts.clone();
        facts.workload = Some(self.workload());
        facts.volumes = self.seen();
        // What others have said is no news of these.
        facts.has_empty_queue = self.told.as_ref().is_some_and(|(is, of)| *is && *of == self.numbers());
        facts.scaling.drain.clone_from(&self.leaving);
        facts
    }

    pub fn answer(&mut self, ordinal: u32, asked: Request) -> Answer {
        let Some(pod) = self.pods.get_mut(&ordinal) else { return Answer::Gone };
        pod.is_drained = asked == Request::Drain;
        let volume = &self.volumes[&ordinal];
        match asked {
            Request::Drain if volume.is_full() => Answer::Holds { blocks: 1 },
            _ => Answer::Done,
        }
    }
}
