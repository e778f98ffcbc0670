//! Volumes without gateways against a naive model of the cluster: gateways write, people scale the StatefulSet behind the operator's
//! back, Jobs drain, and the operator is cut off between any two of its writes.

use super::{claim, template};
use proptest::prelude::*;
use sluice_plan::{
    ClaimSeen, DrainJobSeen, DrainJobState, TemplateSeen, VolumesSeen,
    volumes::{
        orphans,
        orphans::{DRAIN_RETRY_AFTER, Orphans},
    },
};
use std::{collections::BTreeMap, time::Duration};

/// Gateways at the most.
const GATEWAYS: u32 = 5;

#[derive(Debug, Clone)]
enum Action {
    /// Another client scales the StatefulSet, and its controller follows.
    Scaled(u32),
    /// Gateways that run put something on their volumes.
    Written,
    /// Jobs that run do their work, if no other pod has the volume, or fail.
    Worked { fails: bool },
    /// The operator looks, and does so many of its writes.
    Reconciled { wanted: u32, writes: usize },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..GATEWAYS).prop_map(Action::Scaled),
        Just(Action::Written),
        any::<bool>().prop_map(|fails| Action::Worked { fails }),
        (0..GATEWAYS, 0_usize..6).prop_map(|(wanted, writes)| Action::Reconciled { wanted, writes }),
        (0..GATEWAYS).prop_map(|wanted| Action::Reconciled { wanted, writes: usize::MAX }),
    ]
}

#[derive(Debug, Clone, Default)]
struct Volume {
    uid: String,
    has_something: bool,
    is_drained: bool,
}

/// The cluster: the StatefulSet with pods below `replicas`, volumes and Jobs by ordinal.
#[derive(Debug, Default)]
struct Cluster {
    replicas: u32,
    generation: u32,
    made: u32,
    volumes: BTreeMap<u32, Volume>,
    jobs: BTreeMap<u32, DrainJobSeen>,
}

impl Cluster {
    fn scale(&mut self, replicas: u32) {
        if replicas != self.replicas {
            self.replicas = replicas;
            self.generation += 1;
        }
        for ordinal in 0..replicas {
            self.made += 1;
            let uid = format!("u{}", self.made);
            self.volumes.entry(ordinal).or_insert_with(|| Volume { uid, ..Volume::default() });
        }
    }

    fn write(&mut self) {
        let used = self.volumes.range_mut(..self.replicas);
        used.for_each(|(_, volume)| volume.has_something = true);
    }

    fn work(&mut self, fails: bool) {
        for (ordinal, job) in self.jobs.iter_mut().filter(|(_, job)| job.state == DrainJobState::Running) {
            let volume = self.volumes.get_mut(ordinal).filter(|volume| volume.uid == job.claim_uid);
            // A volume belongs to one process at a time: the gateway's lock on it sees to that.
            let free = volume.filter(|_| *ordinal >= self.replicas && !fails);
            job.state = match free {
                Some(volume) => {
                    volume.has_something = false;
                    DrainJobState::Succeeded
                }
                None => DrainJobState::Failed { ago: DRAIN_RETRY_AFTER, message: String::new() },
            };
        }
    }

    fn version(&self) -> String {
        format!("w.{}", self.generation)
    }

    fn seen(&self) -> VolumesSeen {
        let claims = self.volumes.iter().map(|(ordinal, volume)| ClaimSeen {
            uid: volume.uid.clone(),
            is_drained: volume.is_drained,
            has_gateway: *ordinal < self.replicas,
            ..claim(*ordinal, 1, 1)
        });
        VolumesSeen {
            template: Some(TemplateSeen { version: self.version(), ..template("1Gi") }),
            claims: claims.collect(),
            jobs: self.jobs.values().cloned().collect(),
            ..VolumesSeen::default()
        }
    }

    /// What the operator does, in its order, until it is cut off.
    fn reconcile(&mut self, wanted: u32, deletes: bool, writes: usize) -> Orphans {
        let steps = orphans(self.replicas, wanted, deletes, &self.seen());
        let mut left = writes;
        let mut may = || {
            left = left.saturating_sub(1);
            left > 0
        };
        for (name, _) in steps.unmark.iter().take_while(|_| may()) {
            self.volume(name).is_drained = false;
        }
        for name in steps.end.iter().take_while(|_| may()) {
            self.jobs.retain(|_, job| job.name != *name);
        }
        for (name, uid) in steps.mark.iter().take_while(|_| may()) {
            assert_eq!(&self.volume(name).uid, uid);
            self.volume(name).is_drained = true;
        }
        for (name, uid) in steps.delete.iter().take_while(|_| may()) {
            let volume = self.volume(name).clone();
            assert_eq!(&volume.uid, uid);
            assert!(volume.is_drained && !volume.has_something, "{name} is deleted with something on it");
            let ordinal = Self::ordinal(name);
            assert!(ordinal >= self.replicas, "{name} is deleted under its gateway");
            self.volumes.remove(&ordinal);
        }
        for drain in steps.drain.iter().take_while(|_| may()) {
            self.jobs.insert(
                drain.ordinal,
                DrainJobSeen {
                    name: format!("demo-drain-{}", drain.ordinal),
                    ordinal: drain.ordinal,
                    claim_uid: drain.claim_uid.clone(),
                    workload_version: drain.workload_version.clone(),
                    state: DrainJobState::Running,
                    not_started: None,
                    going_for: None,
                },
            );
        }
        if may() {
            self.scale(steps.replicas_max.map_or(wanted, |most| most.min(wanted)));
            let shared = self.jobs.keys().find(|ordinal| **ordinal < self.replicas);
            assert_eq!(shared, None, "a gateway is started while a Job has its volume");
        }
        steps
    }

    fn volume(&mut self, name: &str) -> &mut Volume {
        self.volumes.get_mut(&Self::ordinal(name)).unwrap()
    }

    fn ordinal(name: &str) -> u32 {
        name.rsplit_once('-').unwrap().1.parse().unwrap()
    }
}

proptest! {
    #[test]
    fn no_volume_is_deleted_before_it_is_drained(
        actions in proptest::collection::vec(action(), 1..60), deletes in any::<bool>(),
    ) {
        let mut cluster = Cluster::default();
        cluster.scale(GATEWAYS);
        for action in actions {
            match action {
                Action::Scaled(replicas) => cluster.scale(replicas),
                Action::Written => cluster.write(),
                Action::Worked { fails } => cluster.work(fails),
                Action::Reconciled { wanted, writes } => drop(cluster.reconcile(wanted, deletes, writes)),
            }
        }
        // Left in peace, it comes to rest with nothing undone.
        for _ in 0..12 {
            cluster.reconcile(1, deletes, usize::MAX);
            cluster.work(false);
        }
        let steps = cluster.reconcile(1, deletes, usize::MAX);
        prop_assert_eq!(steps, Orphans::default());
        prop_assert!(cluster.jobs.is_empty(), "{:?}", cluster);
        let unused: Vec<_> = cluster.volumes.range(1..).map(|(_, volume)| volume.clone()).collect();
        prop_assert!(unused.iter().all(|volume| volume.is_drained), "{:?}", unused);
        prop_assert!(!deletes || unused.is_empty(), "{:?}", unused);
    }
}

#[test]
fn a_gateway_waits_for_the_job_that_has_its_volume_but_not_for_ever() {
    let job = |ordinal, going_for| DrainJobSeen {
        name: format!("demo-drain-{ordinal}"),
        ordinal,
        claim_uid: format!("u{ordinal}"),
        workload_version: "w.1".into(),
        state: DrainJobState::Running,
        not_started: None,
        going_for,
    };
    let seen = |jobs| VolumesSeen {
        template: Some(template("1Gi")),
        claims: (0..4)
            .map(|ordinal| ClaimSeen { has_gateway: ordinal < 1, ..claim(ordinal, 1, 1) })
            .collect(),
        jobs,
        ..VolumesSeen::default()
    };
    let running = orphans(1, 4, true, &seen(vec![job(2, None)]));
    assert_eq!((running.replicas_max, running.end), (Some(2), vec!["demo-drain-2".to_owned()]));
    assert!(running.drain.is_empty() && running.delete.is_empty());
    let going = |seconds| orphans(1, 4, true, &seen(vec![job(2, Some(Duration::from_secs(seconds)))]));
    assert_eq!((going(5).replicas_max, going(5).end.len()), (Some(2), 0));
    assert_eq!(going(120).replicas_max, None);
}

#[test]
fn volumes_are_left_alone_while_nobody_knows_who_uses_them() {
    for change in [
        |seen: &mut VolumesSeen| seen.template = None,
        |seen: &mut VolumesSeen| seen.template.as_mut().unwrap().is_going = true,
        |seen: &mut VolumesSeen| seen.claims[0].has_gateway = true,
        |seen: &mut VolumesSeen| seen.claims[0].is_going = true,
    ] {
        let unused = ClaimSeen { has_gateway: false, ..claim(3, 1, 1) };
        let mut seen =
            VolumesSeen { template: Some(template("1Gi")), claims: vec![unused], ..VolumesSeen::default() };
        assert_eq!(orphans(1, 1, true, &seen).drain.len(), 1);
        change(&mut seen);
        assert_eq!(orphans(1, 1, true, &seen), Orphans::default());
    }
}

#[test]
fn a_claim_that_never_had_a_volume_needs_no_job() {
    let mut seen = VolumesSeen {
        template: Some(template("1Gi")),
        claims: vec![ClaimSeen { has_gateway: false, is_bound: false, ..claim(3, 1, 0) }],
        ..VolumesSeen::default()
    };
    assert_eq!(orphans(1, 1, true, &seen).mark.len(), 1);
    seen.claims[0].is_drained = true;
    assert_eq!(orphans(1, 1, true, &seen).delete.len(), 1);
    assert_eq!(orphans(1, 1, false, &seen), Orphans::default());
}

#[test]
fn a_drained_claim_that_may_not_be_deleted_is_neither_asked_for_again_nor_drained_again() {
    let refused = ClaimSeen {
        has_gateway: false,
        is_drained: true,
        not_deleted: Some("forbidden".into()),
        ..claim(3, 1, 1)
    };
    let key = (refused.name.clone(), refused.uid.clone());
    let job = DrainJobSeen {
        name: "demo-drain-3".into(),
        ordinal: 3,
        claim_uid: refused.uid.clone(),
        workload_version: template("1Gi").version,
        state: DrainJobState::Succeeded,
        not_started: None,
        going_for: None,
    };
    let mut seen = VolumesSeen {
        template: Some(template("1Gi")),
        claims: vec![refused],
        jobs: vec![job],
        ..VolumesSeen::default()
    };
    let noted = Orphans { refused: vec![key.clone()], ..Orphans::default() };
    let ended = Orphans { end: vec!["demo-drain-3".into()], ..noted.clone() };
    assert_eq!(orphans(1, 1, true, &seen), ended, "the note says more than the Job");
    seen.jobs.clear();
    seen.template.as_mut().unwrap().version = "w.9".into();
    assert_eq!(orphans(1, 1, true, &seen), noted);
    assert_eq!(orphans(1, 1, false, &seen), Orphans::default());
    // What a gateway has again is judged anew.
    assert_eq!(orphans(4, 4, true, &seen).unmark, [key]);
}
