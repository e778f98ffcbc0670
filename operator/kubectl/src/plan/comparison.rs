//! Which pods restart when a file is applied, by the planner: it renders the spec in the cluster and that of the file with the same facts.
//!
//! Place in the flow: after the plan of the file, with what [`Live`] has read. Pure: no clock and no client.
//!
//! Secrets are assumed to be unchanged. Where a revision is compared with that of the StatefulSet, it gets the version of the Secrets that the
//! StatefulSet has.
//!
//! Limits: the file counts as the whole spec. A field that it does not set has its default, also where another client set the field.

use super::{
    Assumed,
    change::{Change, Decides, Part},
    live::Live,
    restarts::{Order, PodChange, Restarts, VolumeChange},
    trial::{defaults, observed},
};
use crate::admission;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use sluice_crds::{RolloutState, TracePipeline, TracePipelineStatus, status::condition};
use sluice_plan::{
    Defaults, EdgeSeen, Intent, Observed, Plan, Planned, TopicSeen, VolumesSeen, WorkloadSeen,
    edge::ReadyEdge,
    objects::{self, plan_hash, revision, revision_with_secrets_of},
    rollout::{Seen, Terms, spec_known_as, step},
    volumes::replacement,
    words::form,
};
use std::collections::BTreeSet;

/// Which pods restart if the pipeline of the file, with what its connections say, is applied.
pub(super) fn restarts(live: &Live, file: &TracePipeline, assumed: &Assumed) -> Restarts {
    let facts = Facts::of(live, assumed);
    let file = with_defaults(file);
    let Some(before) = &live.pipeline else { return facts.of_new(&file) };
    // An apply changes neither the identity nor the status.
    let after =
        TracePipeline { metadata: before.metadata.clone(), spec: file.spec, status: before.status.clone() };
    match (Intent::of(before), Intent::of(&after)) {
        (Intent::Remove, _) => return Restarts::not_known("the pipeline in the cluster is being deleted"),
        (_, Intent::LeaveAlone) => return Restarts::unmanaged(),
        _ => {}
    }
    if let Some(why) = live.unresolved.words() {
        return Restarts::not_known(&format!("the spec in the cluster has no plan: {why}"));
    }
    let (old, new) = match (facts.rendered(before), facts.rendered(&after)) {
        (_, Err(why)) => return Restarts::refused(&why),
        (Err(why), _) => {
            return Restarts::not_known(&format!("the spec in the cluster has no plan: {why}"));
        }
        (Ok(old), Ok(new)) => (old, new),
    };
    let is_given = facts.is_given(&new.plan);
    if Intent::of(before) == Intent::LeaveAlone && !is_given {
        return Restarts::not_known(
            "the pipeline in the cluster is Unmanaged, and its gateways may run something else than its spec says",
        );
    }
    let render = |pipeline: &TracePipeline| facts.rendered(pipeline).ok().map(|rendered| rendered.decides);
    let change = Change::of((before, &old.decides), (&after, &new.decides), &render);
    let both = Both { facts: &facts, after: &after, old: &old, new: &new, change, is_given };
    let found = Restarts::of_both(both.gateways(), both.volumes(), both.edge());
    Restarts { not_known: both.not_known(), ..found }
}

/// The pipeline as the API server stores it.
fn with_defaults(file: &TracePipeline) -> TracePipeline {
    let mut object = admission::with_defaults(&json!(file));
    // A spec that could be read can be read with its defaults.
    let spec = serde_json::from_value(object["spec"].take()).unwrap_or_else(|_| file.spec.clone());
    TracePipeline { spec, ..file.clone() }
}

/// The facts with which each spec is rendered.
struct Facts<'a> {
    live: &'a Live,
    assumed: &'a Assumed,
    status: TracePipelineStatus,
    workload: Option<WorkloadSeen>,
    defaults: Defaults,
}

/// What the planner makes of one spec.
struct Rendered {
    plan: Box<Plan>,
    decides: Decides,
}

impl<'a> Facts<'a> {
    fn of(live: &'a Live, assumed: &'a Assumed) -> Self {
        let status = live.pipeline.as_ref().and_then(|pipeline| pipeline.status.clone()).unwrap_or_default();
        // The status names the operator's image if gateways run another one.
        let image = status.operator_image.as_ref().or(status.default_image.as_ref());
        let image = image.unwrap_or(&assumed.gateway_image).clone();
        let workload = live.workload.as_ref().map(|workload| WorkloadSeen::of(workload, &[]));
        Self { live, assumed, status, workload, defaults: defaults(image) }
    }

    fn observed(&self, pipeline: &TracePipeline) -> Observed {
        let mut facts = observed(pipeline, self.assumed.partitions);
        for topic in &self.status.topics {
            if let Some(seen) = facts.partitions.get_mut(&topic.name) {
                *seen = TopicSeen::Known(topic.partitions);
            }
        }
        let deployment = self.live.edge.as_ref().ok().and_then(Option::as_ref);
        Observed { workload: self.workload.clone(), edge: EdgeSeen::of(deployment, &[]), ..facts }
    }

    /// Renders a spec; an error says why the operator would keep what runs.
    fn rendered(&self, pipeline: &TracePipeline) -> Result<Rendered, String> {
        let plan = match sluice_plan::plan(pipeline, &self.observed(pipeline), &self.defaults) {
            Ok(Planned::Ready(plan)) => plan,
            Ok(Planned::Waiting(waiting)) => return Err(waiting.message),
            Err(found) => return Err(found.to_string()),
        };
        let claims = self.live.claims.clone().unwrap_or_default();
        let volumes = VolumesSeen { claims, ..VolumesSeen::default() };
        let replaced = replacement::outdated(&pipeline.spec.queue, &volumes).map(|claim| claim.ordinal);
        let edge = plan.edge().ready().and_then(|edge| objects::edge(edge).workload.spec);
        let decides = Decides {
            gateways: revision(&plan),
            volumes: replaced.collect(),
            edge: edge.map(|spec| spec.template),
        };
        Ok(Rendered { plan, decides })
    }

    /// A file whose pipeline the cluster does not have.
    fn of_new(&self, file: &TracePipeline) -> Restarts {
        if let Some(name) = self.live.workload.as_ref().and_then(|found| found.metadata.name.as_ref()) {
            return Restarts::not_known(&format!(
                "there is a StatefulSet {name} without a pipeline: the operator takes its gateways over, and what they run is not compared"
            ));
        }
        if Intent::of(file) == Intent::LeaveAlone {
            return Restarts::unmanaged();
        }
        match self.rendered(file) {
            Ok(new) => {
                let starts = |replicas: u32| PodChange {
                    restarts: Some(0),
                    replicas_before: Some(0),
                    replicas_after: Some(replicas),
                    ..PodChange::default()
                };
                let edge = new.plan.edge().ready().map(|edge| starts(edge.scale().first()));
                Restarts::of_new(starts(replicas(file, &new.plan)), edge)
            }
            Err(why) => Restarts::refused(&why),
        }
    }

    /// Whether all gateways have the pod template of this plan, unless a Secret has changed.
    fn is_given(&self, plan: &Plan) -> bool {
        let Some((live, seen)) = self.live.workload.as_ref().zip(self.workload.as_ref()) else {
            return false;
        };
        seen.is_rolled_out() && seen.revision == Some(revision_with_secrets_of(plan, live))
    }
}

/// The number of gateways that the operator sets.
fn replicas(pipeline: &TracePipeline, plan: &Plan) -> u32 {
    if Intent::of(pipeline) == Intent::Suspend { 0 } else { plan.replicas() }
}

/// The pipeline in the cluster and that of the file.
struct Both<'a> {
    facts: &'a Facts<'a>,
    /// The pipeline once the file is applied.
    after: &'a TracePipeline,
    old: &'a Rendered,
    new: &'a Rendered,
    change: Change<'a>,
    /// Whether all gateways have the pod template of the file already.
    is_given: bool,
}

impl Both<'_> {
    fn gateways(&self) -> PodChange {
        let now = self.facts.workload.as_ref().map_or(0, |seen| seen.wanted);
        let replicas = replicas(self.after, &self.new.plan);
        let none = PodChange {
            restarts: Some(0),
            replicas_before: Some(now),
            replicas_after: Some(replicas),
            ..PodChange::default()
        };
        let is_changed = self.change.changes(Part::Gateways);
        let is_retry = !is_changed && self.is_tried_again();
        let restarts = now.min(replicas);
        if self.is_given || restarts == 0 || !(is_changed || is_retry) {
            return none;
        }
        // A plan that stands has terms that can be read.
        let Ok(terms) = Terms::of(&self.after.spec) else { return none };
        let because = if is_retry { self.change.all() } else { self.change.causes(Part::Gateways) };
        PodChange {
            restarts: Some(restarts),
            order: Some(self.order(&terms, replicas)),
            at_a_time: Some(terms.unavailable.of(replicas).min(restarts)),
            because,
            is_retry,
            ..none
        }
    }

    /// How the rollout begins, by the operator's own next step.
    fn order(&self, terms: &Terms, replicas: u32) -> Order {
        let workload = self.facts.workload.as_ref();
        let seen = Seen {
            workload,
            replicas,
            revision: &self.new.decides.gateways,
            spec: &spec_known_as(self.after, workload),
            plan_hash: &plan_hash(&self.new.plan),
            leaving: None,
            trouble: None,
        };
        // How it begins does not depend on the time.
        let step = step(Timestamp::UNIX_EPOCH, terms, self.facts.status.rollout.as_ref(), &seen);
        if step.next.state == RolloutState::Canary { Order::Canary } else { Order::Rolling }
    }

    /// Whether the operator rolled this pod template back, and tries it again because the spec is another one.
    fn is_tried_again(&self) -> bool {
        let rollout = self.facts.status.rollout.as_ref();
        let failed = rollout.filter(|rollout| rollout.state == RolloutState::RolledBack);
        let failed = failed.and_then(|rollout| rollout.failed_spec.as_ref());
        failed.is_some_and(|spec| *spec != spec_known_as(self.after, self.facts.workload.as_ref()))
    }

    /// Gateways that get a new volume and did not before.
    fn volumes(&self) -> Option<VolumeChange> {
        let (old, new) = (&self.old.decides.volumes, &self.new.decides.volumes);
        let replicas = replicas(self.after, &self.new.plan);
        let replaced = new.difference(old).filter(|ordinal| **ordinal < replicas).count();
        let restarts = u32::try_from(replaced).unwrap_or(u32::MAX);
        (restarts > 0).then(|| VolumeChange { restarts, because: self.change.causes(Part::Volumes) })
    }

    /// The pods of the edge; `None` if there is none before and after.
    fn edge(&self) -> Option<PodChange> {
        let [old, new] = [self.old, self.new].map(|rendered| rendered.plan.edge().ready());
        if old.is_none() && new.is_none() {
            return None;
        }
        let deployment = self.facts.live.edge.as_ref().ok();
        let now = deployment.map(|found| EdgeSeen::of(found.as_ref(), &[]).map_or(0, |seen| seen.wanted));
        let replicas = new.map(ReadyEdge::scale).map_or(Some(0), |scale| {
            // An autoscaler begins with the present number.
            scale.fixed().or(now.filter(|now| *now > 0)).or_else(|| now.map(|_| scale.first()))
        });
        let none = PodChange {
            restarts: Some(0),
            replicas_before: now,
            replicas_after: replicas,
            ..PodChange::default()
        };
        if old.is_none() || new.is_none() || !self.change.changes(Part::Edge) {
            return Some(none);
        }
        let restarts = now.zip(replicas).map(|(now, replicas)| now.min(replicas));
        if restarts == Some(0) {
            return Some(none);
        }
        Some(PodChange {
            restarts,
            order: Some(Order::Surge),
            at_a_time: Some(1),
            because: self.change.causes(Part::Edge),
            ..none
        })
    }

    /// What may restart pods, too, and could not be found out.
    fn not_known(&self) -> Vec<String> {
        let Live { edge, claims, .. } = self.facts.live;
        let unread = [
            edge.as_ref().err().map(|why| format!("how many pods the edge has: {why}")),
            claims.as_ref().err().map(|why| format!("whether gateways get new queue volumes: {why}")),
        ];
        let all = [self.secrets(), self.earlier(), self.operator(), self.partitions()];
        all.into_iter().chain(unread).flatten().collect()
    }

    /// Secrets whose content decides, too. Those of OTLP clients replace no pod.
    fn secrets(&self) -> Option<String> {
        let secrets = self.after.spec.secrets();
        let names = secrets.iter().filter(|secret| !secret.of.is_of_clients()).map(|secret| secret.name);
        let names: BTreeSet<&str> = names.collect();
        (!names.is_empty()).then(|| {
            let all = names.iter().copied().collect::<Vec<_>>().join(", ");
            let secrets = form(names.len(), "Secret", "Secrets");
            format!("whether the content of the {secrets} {all} has changed, which replaces pods, too")
        })
    }

    /// Changes before this one that may not have reached all gateways.
    fn earlier(&self) -> Option<String> {
        let (status, runs) =
            (&self.facts.status, self.facts.workload.as_ref().is_some_and(|it| it.wanted > 0));
        if self.is_given || !runs {
            return None;
        }
        let state = status.rollout.as_ref().map(|rollout| rollout.state);
        if let Some(RolloutState::Canary | RolloutState::Rolling) = state {
            return Some(
                "which gateways an earlier change still replaces: its rollout is under way".to_owned(),
            );
        }
        let generation = self.after.metadata.generation;
        if generation.is_some() && status.observed_generation != generation {
            return Some("what an earlier change replaces: the operator has not looked at it yet".to_owned());
        }
        let ready = status.condition(condition::READY).filter(|ready| ready.status != "True")?;
        Some(format!(
            "whether an earlier change still replaces gateways: Ready is {} ({})",
            ready.status, ready.reason
        ))
    }

    /// An operator of another version may render other pod templates.
    fn operator(&self) -> Option<String> {
        let own = env!("CARGO_PKG_VERSION");
        let other = self.facts.status.operator_version.as_ref().filter(|version| *version != own)?;
        Some(format!(
            "whether the operator, {other}, makes the same pods of the file as this plugin, {own}: use the plugin of its version"
        ))
    }

    /// Topics that the operator has not seen.
    fn partitions(&self) -> Option<String> {
        let known = |name: &str| self.facts.status.topics.iter().any(|topic| topic.name == name);
        let topics = self.after.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics);
        let unknown: Vec<&str> = topics.map(String::as_str).filter(|name| !known(name)).collect();
        (!unknown.is_empty()).then(|| {
            let assumed = self.facts.assumed.partitions;
            format!("how many partitions {} has: --partitions {assumed} is assumed", unknown.join(", "))
        })
    }
}

#[cfg(test)]
mod tests;
