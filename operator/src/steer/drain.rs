//! Drains gateways before they are removed, as `sluice_plan::drain` decides: sends them the commands that the status announces, and takes
//! their answers.

use crate::{
    read::{
        gateways::commands::{Command, Commands},
        observe::Facts,
    },
    world::{World, clock, memory::Key, status},
};
use k8s_openapi::jiff::Timestamp;
use sluice_crds::{DrainStatus, OnTimeout, TracePipeline};
use sluice_plan::{
    WorkloadSeen,
    drain::{
        Answer, Request, Seen, Step, Terms, empty,
        lifecycle::terms,
        membership::{has_just_started, is_within_session, may_last},
        request, step,
        stopped::Stopped,
    },
    pods::ordinal,
};
use std::collections::BTreeMap;

/// The next step of a drain, and the gateways that are empty. Sends the gateways the command that the status announces.
pub async fn drain_step(
    pipeline: &TracePipeline,
    (workload, wanted): (&WorkloadSeen, u32),
    facts: &Facts,
    world: &World,
    commands: &Commands,
) -> (Step, Vec<u32>) {
    let written = status::drain(pipeline);
    let Some(terms) = terms(pipeline) else {
        // The plan reports what is wrong with the spec.
        return (Step { replicas: workload.wanted, next: written.cloned() }, Vec::new());
    };
    let mut answers = match (request(written), written) {
        (Some((request, ordinals)), Some(DrainStatus { since, .. })) => {
            let command = Command { request, since: since.clone() };
            commands.tell(&Key::of(pipeline), &command, ordinals, &facts.gateways).await
        }
        _ => BTreeMap::new(),
    };
    // `since` in the status may be of another leader, whose clock is another one.
    let moment = world.shared.server_time.at(world.now());
    let now = clock::timestamp(moment);
    // If all gateways are removed, no other gateway waits for their partitions.
    let stays_some = wanted > 0;
    let away = if stays_some { away(facts, now) } else { Vec::new() };
    if let Some((Request::Drain, _)) = request(written)
        && stays_some
    {
        keep_members((written, now), facts, &away, &mut answers);
    }
    let running: Vec<u32> = facts.gateways.iter().map(|gateway| gateway.ordinal).collect();
    let empty = empty(written, &answers);
    let stopped = stopped(pipeline, terms, (facts, &running), world);
    let has_kafka = pipeline.spec.source.kafka.is_some();
    let seen = Seen { current: workload.wanted, wanted, running, away, answers, stopped, has_kafka };
    (step(moment, terms, written, &seen), empty)
}

/// Gateways that do not run, and whose volumes only they can empty. A claim that never had a volume holds nothing; one that was deleted was
/// given up by a person. At rest, and when the pipeline is deleted, volumes stay in any case.
fn stopped(
    pipeline: &TracePipeline,
    terms: Terms,
    (facts, running): (&Facts, &[u32]),
    world: &World,
) -> BTreeMap<u32, Stopped> {
    if pipeline.spec.source.otlp.is_none() || terms.on_timeout != OnTimeout::Abort {
        return BTreeMap::new();
    }
    let claims = facts.observed.volumes.claims.iter();
    let kept =
        claims.filter(|claim| claim.is_bound && !claim.is_deleted && !running.contains(&claim.ordinal));
    let kept = kept.map(|claim| (claim.ordinal, claim.name.clone())).collect();
    let now = world.now();
    world.shared.memory.with(&Key::of(pipeline), |memory| memory.stopped.see(now, kept, running))
}

/// Gateways whose pods exist, do not run, and may still be members of the group.
fn away(facts: &Facts, now: Timestamp) -> Vec<u32> {
    facts.pods.iter().filter(|pod| may_last(pod, now)).filter_map(ordinal).collect()
}

/// Gateways that drain count as gone or empty only once they are no members of the group any more. A gateway without a pod may be about to get
/// one again: a session timeout after the drain began, its membership is over. One that has just started may never have joined, and the
/// group may count the process before it.
fn keep_members(
    (written, now): (Option<&DrainStatus>, Timestamp),
    facts: &Facts,
    away: &[u32],
    answers: &mut BTreeMap<u32, Answer>,
) {
    let is_early = written.is_some_and(|drain| is_within_session(drain.since.0, now));
    for (one, answer) in answers {
        let mut pods = facts.pods.iter().filter(|pod| ordinal(pod) == Some(*one)).peekable();
        let is_member = match answer {
            Answer::Gone => away.contains(one) || (pods.peek().is_none() && is_early),
            Answer::Done | Answer::Damaged => pods.any(|pod| has_just_started(pod, now)),
            Answer::Away
            | Answer::Unknown
            | Answer::Holds { .. }
            | Answer::Unreadable
            | Answer::OtherPod
            | Answer::Silent => false,
        };
        if is_member {
            *answer = Answer::Away;
        }
    }
}
