//! How gateways get another pod template: one of them first, the others once it has proved itself, and back when it fails.
//!
//! ```text
//!             another revision is planned                  well for canary.duration            all are ready
//!  Complete ------------------------------> Canary ---------------------------------> Rolling ----------> Complete
//!                    |                         |  fails                                  |  fails
//!                    | a single gateway,       +----------------> RolledBack <-----------+   (Failed, where nothing may be
//!                    | or nothing proved       |                      |                       gone back to)
//!                    `--> Rolling              `<-- another revision, or another spec
//! ```
//!
//! The state stands in the status; everything else is read off the StatefulSet and its pods, so that an operator that crashed
//! continues. What is gone back to stands in the StatefulSet itself (`objects/rollout_step.rs`). A step never brings a revision that is not
//! proved to more than one gateway where another one could be kept on the old one. The others follow one after another, or as many at a
//! time as may be away (`rollout/outdated.rs`). Pure: no clock and no client.

mod hold;
mod judgement;
mod known_spec;
mod meanwhile;
mod outdated;
pub(crate) mod source_change;

mod stuck;

pub use crate::pipeline::rollout_terms::{Terms, Unavailable};
pub use judgement::{Counted, Counts, Looks, trouble_of};
pub use known_spec::{spec_hash, spec_known_as};
pub use meanwhile::replicas_meanwhile;
pub use outdated::outdated;
pub use stuck::stuck;

use crate::observed::WorkloadSeen;
use judgement::{Judgement, judge, seconds_between};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sluice_crds::{DrainStatus, RolloutState, RolloutStatus, RolloutStrategy};

/// What is planned, and what runs.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// The StatefulSet and its pods; `None` before there is one.
    pub workload: Option<&'a WorkloadSeen>,
    /// Replicas to have now.
    pub replicas: u32,
    /// The planned revision: [`crate::objects::revision`].
    pub revision: &'a str,
    /// The spec that it comes from: [`spec_known_as`].
    pub spec: &'a str,
    /// The hash of the planned StatefulSet, by which one is known that carries no revision.
    pub plan_hash: &'a str,
    /// Gateways on their way out.
    pub leaving: Option<&'a DrainStatus>,
    /// What the first gateway has trouble with by its own account, and the others have not.
    pub trouble: Option<String>,
}

/// What to do now, and what to write into the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The state from now on.
    pub next: RolloutStatus,
    /// Which template the StatefulSet gets.
    pub template: Template,
    /// Gateways with a lower ordinal keep what they have.
    pub partition: u32,
    /// What is remembered to go back to.
    pub memory: Memory,
    /// Replicas to set.
    pub replicas: u32,
}

/// Which template a StatefulSet gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    Planned,
    /// The one that is remembered.
    Proved,
    /// The one that it has.
    Live,
}

/// What a StatefulSet remembers to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Nothing,
    /// What it remembers already.
    Kept,
    /// The template that it has now.
    Live,
}

/// The next step.
pub fn step(now: Timestamp, terms: &Terms, written: Option<&RolloutStatus>, seen: &Seen<'_>) -> Step {
    let turn = Turn { now, terms, written, seen };
    let Some(workload) = seen.workload else { return turn.first() };
    let step = turn.gone_back(workload).unwrap_or_else(|| match written {
        Some(written) if turn.is_under_way(workload, written) => turn.go_on(workload, written),
        Some(written) if turn.waits_for_leaving(workload, written) => turn.stay(workload, written),
        _ => turn.begin(workload),
    });
    match step.template {
        Template::Live => step,
        // It waits no more.
        Template::Planned | Template::Proved => {
            Step { next: RolloutStatus { held_since: None, ..step.next }, ..step }
        }
    }
}

struct Turn<'a> {
    now: Timestamp,
    terms: &'a Terms,
    written: Option<&'a RolloutStatus>,
    seen: &'a Seen<'a>,
}

impl<'a> Turn<'a> {
    /// There is no StatefulSet: nothing runs, and nothing can be gone back to.
    fn first(&self) -> Step {
        let state = if self.seen.replicas == 0 { RolloutState::Pending } else { RolloutState::Rolling };
        let next = self.state(state, None, "gateways are starting");
        Step {
            next,
            template: Template::Planned,
            partition: 0,
            memory: Memory::Nothing,
            replicas: self.seen.replicas,
        }
    }

    /// The revision that is planned failed, of this very spec: what was put back stays.
    fn gone_back(&self, workload: &WorkloadSeen) -> Option<Step> {
        let written = self.written.filter(|written| written.state == RolloutState::RolledBack);
        let next = match written {
            Some(written) if self.is_of(written) => written.clone(),
            // The operator was cut off before it wrote that down.
            _ => self.taken_back(workload)?,
        };
        let memory = match &workload.proved {
            Some(_) => Memory::Kept,
            // Another client removed the annotation with the proved template; the running template is that one.
            None if self.live(workload) != Some(self.seen.revision) => Memory::Live,
            None => return None,
        };
        Some(Step {
            next,
            template: Template::Proved,
            partition: 0,
            memory,
            replicas: self.replicas_on_the_way_back(workload),
        })
    }

    /// By the StatefulSet's own account.
    fn taken_back(&self, workload: &WorkloadSeen) -> Option<RolloutStatus> {
        let failed = workload.failed.as_ref()?;
        let is_this = failed.revision == self.seen.revision && failed.spec == self.seen.spec;
        let proved = workload.proved.as_ref().filter(|_| is_this)?.revision.clone();
        let next = self.state(RolloutState::RolledBack, None, &failed.message);
        Some(RolloutStatus { proved: Some(proved), failed_spec: Some(failed.spec.clone()), ..next })
    }

    /// A gateway that is added while the one that failed is still there would hide it from a canary of what comes next.
    fn replicas_on_the_way_back(&self, workload: &WorkloadSeen) -> u32 {
        let is_back = workload.wanted == 0 || is_everywhere(workload);
        if is_back { self.seen.replicas } else { self.seen.replicas.min(workload.wanted) }
    }

    /// Whether the status is about this revision, as far as a failure is about this spec.
    fn is_of(&self, written: &RolloutStatus) -> bool {
        let is_same = written.revision == self.seen.revision;
        is_same && written.failed_spec.as_deref().is_none_or(|spec| spec == self.seen.spec)
    }

    fn is_under_way(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> bool {
        let is_given = self.live(workload) == Some(self.seen.revision);
        is_given && self.is_of(written) && written.state != RolloutState::RolledBack
    }

    /// The revision that the StatefulSet has, by our own account.
    fn live<'b>(&self, workload: &'b WorkloadSeen) -> Option<&'b str>
    where
        'a: 'b,
    {
        let planned = workload.plan_hash.as_deref() == Some(self.seen.plan_hash);
        workload.revision.as_deref().or(planned.then_some(self.seen.revision))
    }

    /// The StatefulSet gets the planned revision now, or has got it and the status does not say so.
    fn begin(&self, workload: &WorkloadSeen) -> Step {
        let is_given = self.live(workload) == Some(self.seen.revision);
        if is_given && (is_everywhere(workload) || self.is_lost_at_rest(workload)) {
            return self.complete(workload);
        }
        let memory = self.memory(workload, is_given);
        let proved = match memory {
            // It was gone back to before, and only gateways that are added are missing: what comes next can go back to it.
            Memory::Nothing => self
                .written
                .and_then(|written| written.proved.clone())
                .filter(|proved| is_given && proved == self.seen.revision),
            Memory::Kept => workload.proved.as_ref().map(|proved| proved.revision.clone()),
            Memory::Live => Some(self.live(workload).unwrap_or("unnamed").to_owned()),
        };
        let wants_canary = self.terms.strategy == RolloutStrategy::Canary && memory != Memory::Nothing;
        let state = match (self.seen.replicas.max(workload.wanted), workload.wanted) {
            (0, _) => RolloutState::Pending,
            (_, 2..) if wants_canary => RolloutState::Canary,
            _ => RolloutState::Rolling,
        };
        let words = match state {
            RolloutState::Canary => "the first gateway is about to be replaced",
            _ => "gateways are replaced",
        };
        self.planned(workload, RolloutStatus { proved, ..self.state(state, None, words) }, memory)
    }

    /// The status was lost, or is older than rollouts, and the StatefulSet is not in the middle of one: it would remember something, or
    /// be on its way to another revision.
    fn is_lost_at_rest(&self, workload: &WorkloadSeen) -> bool {
        let is_one =
            workload.current_revision.is_some() && workload.current_revision == workload.update_revision;
        self.written.is_none() && workload.proved.is_none() && is_one
    }

    /// What is worth going back to, when the planned revision is about to be given or was.
    fn memory(&self, workload: &WorkloadSeen, is_given: bool) -> Memory {
        let kept = if workload.proved.is_some() { Memory::Kept } else { Memory::Nothing };
        if is_given {
            return kept;
        }
        let live = self.live(workload);
        let is_live_proved = match self.written {
            Some(written) => {
                let is_complete = written.state == RolloutState::Complete;
                // A copy of the StatefulSet may be older than the status that tells of its change.
                (is_complete && live == Some(written.revision.as_str()))
                    || (written.proved.is_some() && written.proved.as_deref() == live)
                    || (gave_up_the_way_back(workload, written) && live == Some(written.revision.as_str()))
                    || (is_complete && live.is_none())
            }
            // The status was lost, or is older than rollouts. A StatefulSet that remembers nothing is not in the middle of one.
            None => workload.proved.is_none() && workload.current_revision.is_some(),
        };
        if is_live_proved { Memory::Live } else { kept }
    }

    fn go_on(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> Step {
        match written.state {
            RolloutState::Complete => self.complete(workload),
            RolloutState::Canary => self.canary(workload, written),
            RolloutState::Failed if workload.partition > 0 => self.canary(workload, written),
            RolloutState::Rolling | RolloutState::Failed => self.rolling(workload, written),
            // There are gateways again, or still none; those who went back have been dealt with.
            RolloutState::Pending | RolloutState::RolledBack => self.begin(workload),
        }
    }

    fn canary(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> Step {
        if workload.wanted < 2 {
            // The others left in the meantime; the one that is there is judged as a single one.
            return self.planned(workload, self.onward("gateways are replaced"), Memory::Kept);
        }
        let first = workload.wanted - 1;
        let judged = match judge(workload, first, self.now) {
            Judgement::Well { since } => match &self.seen.trouble {
                None => return self.well(workload, written, since),
                Some(trouble) => Judgement::Unwell(trouble.clone()),
            },
            other => other,
        };
        let made = workload.gateways.iter().find(|gateway| gateway.ordinal == first);
        let begun = made.and_then(|gateway| gateway.created).map_or(written.since.0, |made| {
            // Since when it could have become ready.
            made.max(written.since.0)
        });
        self.unwell(workload, written, (judged, begun))
    }

    /// The first gateway is well: the others follow once it was so for long enough.
    fn well(&self, workload: &WorkloadSeen, written: &RolloutStatus, since: Timestamp) -> Step {
        let healthy = written.healthy_since.as_ref().map_or(self.now, |healthy| healthy.0.max(since));
        if seconds_between(healthy, self.now) >= i64::from(self.terms.canary_seconds) {
            return self.planned(
                workload,
                self.onward("the first gateway is healthy, the others follow"),
                Memory::Kept,
            );
        }
        let words = format!(
            "the first gateway is healthy; the others follow when it has been healthy for {} s",
            self.terms.canary_seconds
        );
        let next = RolloutStatus {
            healthy_since: Some(Time(healthy)),
            ..self.going_on(written, RolloutState::Canary, &words)
        };
        self.planned(workload, next, Memory::Kept)
    }

    fn rolling(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> Step {
        if workload.wanted == 0 && self.seen.replicas == 0 {
            return self.planned(
                workload,
                self.state(RolloutState::Pending, Some(written), ""),
                Memory::Kept,
            );
        }
        if is_everywhere(workload) || gave_up_the_way_back(workload, written) {
            return self.complete(workload);
        }
        let judged = workload.gateways.iter().map(|gateway| judge(workload, gateway.ordinal, self.now));
        let worst = judged.fold(Judgement::Waits(String::new()), Judgement::worse);
        // Every gateway that became ready is progress; one that may take its time to leave is none that is late.
        let ready = workload.gateways.iter().filter_map(|gateway| gateway.ready_since.or(gateway.created));
        let progressed = ready.fold(written.since.0, Timestamp::max);
        let begun =
            if workload.gateways.iter().any(|gateway| gateway.is_leaving) { self.now } else { progressed };
        self.unwell(workload, written, (worst, begun))
    }

    /// Not as it must be (yet): it is waited for until it fails.
    fn unwell(
        &self,
        workload: &WorkloadSeen,
        written: &RolloutStatus,
        (judged, begun): (Judgement, Timestamp),
    ) -> Step {
        let is_late = seconds_between(begun, self.now) >= i64::from(self.terms.deadline_seconds);
        let can_go_back = workload.proved.is_some();
        let state = if written.state == RolloutState::Failed { RolloutState::Failed } else { phase(written) };
        match judged {
            Judgement::Failed(why) if can_go_back => self.failed(workload, written, &why),
            Judgement::Waits(why) | Judgement::Unwell(why) | Judgement::Failed(why) if is_late => {
                let why = if why.is_empty() { "fewer gateways exist than are planned".into() } else { why };
                let late = format!("no progress for {} s: {why}", self.terms.deadline_seconds);
                self.failed(workload, written, &late)
            }
            // `Unheard`: after a start of the operator, a rollout that is late waits until the gateway was asked, for a minute at most. Then the
            // message has the cause.
            Judgement::Waits(_)
            | Judgement::Unwell(_)
            | Judgement::Unheard
            | Judgement::Failed(_)
            | Judgement::Well { .. } => {
                let words = match &self.seen.trouble {
                    _ if state == RolloutState::Failed => &written.message,
                    Some(trouble) => trouble,
                    None => phase_words(state),
                };
                let next = self.going_on(written, state, words);
                self.planned(workload, RolloutStatus { healthy_since: None, ..next }, Memory::Kept)
            }
        }
    }

    fn failed(&self, workload: &WorkloadSeen, written: &RolloutStatus, why: &str) -> Step {
        let failed_spec = Some(self.seen.spec.to_owned());
        if written.state == RolloutState::Failed {
            return self.planned(workload, written.clone(), Memory::Kept);
        }
        let proved = workload.proved.as_ref().map(|proved| proved.revision.clone());
        if self.terms.auto_rollback && proved.is_some() {
            let words = format!(
                "{why}; the operator rolled the gateways back to what ran before. Edit the spec, or the Secrets that it names, to try again"
            );
            let next = self.state(RolloutState::RolledBack, None, &words);
            return Step {
                next: RolloutStatus { proved, failed_spec, ..next },
                template: Template::Proved,
                partition: 0,
                memory: Memory::Kept,
                replicas: self.seen.replicas.min(workload.wanted),
            };
        }
        let next = self.state(RolloutState::Failed, None, why);
        let next = RolloutStatus { proved, failed_spec, ..next };
        // The rollout stays at its partition.
        Step { partition: workload.partition, ..self.planned(workload, next, Memory::Kept) }
    }

    /// All gateways have the planned revision. The proved template is not needed any more.
    fn complete(&self, workload: &WorkloadSeen) -> Step {
        let about_it = self.written.filter(|written| {
            written.state == RolloutState::Complete && written.revision == self.seen.revision
        });
        let next = about_it.cloned().unwrap_or_else(|| self.state(RolloutState::Complete, None, ""));
        self.planned(workload, next, Memory::Nothing)
    }

    /// The planned template with what follows from the state.
    fn planned(&self, workload: &WorkloadSeen, next: RolloutStatus, memory: Memory) -> Step {
        let is_held = match next.state {
            RolloutState::Canary => true,
            RolloutState::Failed => workload.partition > 0,
            _ => false,
        };
        // A gateway that is added while one is tried would be a second one with the revision; and the only one that there is is
        // the one that is tried.
        let is_tried_alone =
            next.state == RolloutState::Rolling && next.proved.is_some() && workload.wanted == 1;
        let replicas = if is_held || is_tried_alone {
            self.seen.replicas.min(workload.wanted)
        } else {
            self.seen.replicas
        };
        let partition = if is_held { workload.wanted.saturating_sub(1) } else { 0 };
        Step { next, template: Template::Planned, partition, memory, replicas }
    }

    fn onward(&self, words: &str) -> RolloutStatus {
        let proved = self.written.and_then(|written| written.proved.clone());
        RolloutStatus { proved, ..self.state(RolloutState::Rolling, None, words) }
    }

    /// The written state with other words. A rollout that failed and is healthy again continues from now.
    fn going_on(&self, written: &RolloutStatus, state: RolloutState, words: &str) -> RolloutStatus {
        if written.state == state {
            return RolloutStatus { message: words.to_owned(), ..written.clone() };
        }
        RolloutStatus { proved: written.proved.clone(), ..self.state(state, None, words) }
    }

    /// A state; since now, unless it is the one that is written of this revision.
    fn state(&self, state: RolloutState, of: Option<&RolloutStatus>, words: &str) -> RolloutStatus {
        let written = of.or(self.written);
        let same = written.filter(|written| written.state == state && written.revision == self.seen.revision);
        RolloutStatus {
            state,
            revision: self.seen.revision.to_owned(),
            proved: of.and_then(|written| written.proved.clone()),
            since: same.map_or(Time(self.now), |written| written.since.clone()),
            healthy_since: None,
            message: words.to_owned(),
            failed_spec: None,
            held_since: None,
        }
    }
}

fn phase(written: &RolloutStatus) -> RolloutState {
    if written.state == RolloutState::Canary { RolloutState::Canary } else { RolloutState::Rolling }
}

fn phase_words(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Canary => "the first gateway is not ready yet",
        _ => "gateways are replaced",
    }
}

/// Whether all gateways had the revision, so that the proved template is gone, and the status does not say so.
fn gave_up_the_way_back(workload: &WorkloadSeen, written: &RolloutStatus) -> bool {
    workload.proved.is_none() && workload.partition == 0 && written.proved.is_some()
}

/// Whether all gateways have the StatefulSet's newest revision and are ready. Without gateways nothing is shown.
fn is_everywhere(workload: &WorkloadSeen) -> bool {
    let all = workload.wanted;
    all > 0 && workload.replicas == all && workload.ready >= all && workload.is_rolled_out()
}
