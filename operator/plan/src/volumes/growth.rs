//! How volumes grow, and how the StatefulSet comes to make others: first every claim is asked to, then the StatefulSet is made anew
//! around its running pods, since what it makes claims from cannot be changed.
//!
//! ```text
//!  claims are smaller --> asked to grow --> StatefulSet deleted, pods stay --> made again, takes the pods over
//!        |                                   (neither rollout nor rescale)
//!        `-- their storage class does not let them: nothing is touched, and that is said
//! ```
//!
//! Pods are not restarted by any of it: their template is the same, and file systems grow while they are mounted.

use super::replacement;
use crate::{
    ground::quantity,
    observed::{ClaimSeen, StorageClassSeen, VolumesSeen},
};
use sluice_crds::Queue;

/// The progress of volumes towards the size of the spec, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Size that the spec asks for.
    pub wanted: String,
    /// Size of the claims that the StatefulSet makes, for now.
    pub(crate) template: String,
    /// Their storage class, for now.
    pub(crate) template_class: Option<String>,
    /// What is next.
    pub state: GrowthState,
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrowthState {
    /// Nothing: all claims ask for the size, and new ones will.
    Asked,
    /// These claims are to ask for it, by name and uid.
    Ask(Vec<(String, String)>),
    /// The StatefulSet is to be deleted without its pods.
    Recreate,
    /// It was, and is not gone yet.
    Recreating,
    /// All claims ask for it; a rollout or a rescale must end before the StatefulSet is made anew.
    Later,
    /// This storage class does not let them.
    NotExpandable(String),
    /// The storage class does not exist; nothing changes.
    ClassMissing(String),
}

impl Growth {
    pub(crate) fn of(queue: &Queue, seen: &VolumesSeen, class: StorageClassSeen, is_settled: bool) -> Self {
        let (wanted, named) = (&queue.size, queue.storage_class_name.clone());
        let live = seen.template.as_ref();
        let live_size = live.and_then(|template| template.size.clone()).unwrap_or_else(|| wanted.clone());
        let live_class = live
            .filter(|template| template.size.is_some())
            .map_or(&named, |template| &template.storage_class);
        let differs = quantity::bytes(&live_size) != quantity::bytes(wanted) || *live_class != named;
        let missing = named.as_ref().filter(|_| class == StorageClassSeen::Missing && differs);
        let as_it_is = (live_size.clone(), live_class.clone());
        let small: Vec<&ClaimSeen> = seen.claims.iter().filter(|claim| is_to_ask(claim, queue)).collect();
        let is_fixed = |class: &String| seen.expandable.get(class) == Some(&false);
        let fixed =
            small.iter().filter_map(|claim| claim.storage_class.as_ref()).find(|class| is_fixed(class));
        let (template, state) = match fixed {
            _ if live.is_some_and(|template| template.is_going) => (as_it_is, GrowthState::Recreating),
            Some(class) => (as_it_is, GrowthState::NotExpandable(class.clone())),
            None if !small.is_empty() => {
                let claims = small.iter().map(|claim| (claim.name.clone(), claim.uid.clone()));
                (as_it_is, GrowthState::Ask(claims.collect()))
            }
            None if !differs => (as_it_is, GrowthState::Asked),
            None if is_settled && missing.is_none() => {
                ((wanted.clone(), named.clone()), GrowthState::Recreate)
            }
            None => (
                as_it_is,
                missing.map_or(GrowthState::Later, |class| GrowthState::ClassMissing(class.clone())),
            ),
        };
        Self { wanted: wanted.clone(), template: template.0, template_class: template.1, state }
    }

    /// Whether the StatefulSet must not be applied: it is being deleted, or is about to be.
    pub(crate) fn holds_workload(&self) -> bool {
        matches!(self.state, GrowthState::Recreate | GrowthState::Recreating)
    }
}

/// The storage classes of claims that are to grow, for the operator to look at before it plans.
pub fn classes_to_ask(queue: &Queue, claims: &[ClaimSeen]) -> Vec<String> {
    let small = claims.iter().filter(|claim| is_to_ask(claim, queue));
    let mut classes: Vec<String> = small.filter_map(|claim| claim.storage_class.clone()).collect();
    classes.sort();
    classes.dedup();
    classes
}

/// One that is to be replaced gets the size then.
fn is_to_ask(claim: &ClaimSeen, queue: &Queue) -> bool {
    let is_smaller = claim.requested < quantity::bytes(&queue.size);
    !claim.is_going && claim.is_bound && is_smaller && !replacement::is_to_be_replaced(claim, queue)
}

/// Whether a volume, or its claim, is smaller than the spec wants. A claim without a volume gets one of the size that it requests.
pub(crate) fn is_small(claim: &ClaimSeen, wanted: &str) -> bool {
    let wanted = quantity::bytes(wanted);
    claim.requested < wanted || claim.capacity.is_some_and(|bytes| Some(bytes) < wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::TemplateSeen;

    const GIB: u64 = 1 << 30;

    fn claim(ordinal: u32, requested: u64, capacity: u64) -> ClaimSeen {
        ClaimSeen {
            name: format!("c{ordinal}"),
            uid: format!("u{ordinal}"),
            ordinal,
            requested: Some(requested * GIB),
            capacity: Some(capacity * GIB),
            storage_class: Some("fast".into()),
            is_bound: true,
            has_gateway: true,
            ..ClaimSeen::default()
        }
    }

    fn seen(template: Option<&str>, claims: &[(u64, u64)]) -> VolumesSeen {
        VolumesSeen {
            template: template
                .map(|size| TemplateSeen { size: Some(size.into()), ..TemplateSeen::default() }),
            claims: (0..).zip(claims).map(|(ordinal, (asked, has))| claim(ordinal, *asked, *has)).collect(),
            ..VolumesSeen::default()
        }
    }

    fn queue(class: Option<&str>) -> Queue {
        Queue { size: "2Gi".into(), storage_class_name: class.map(str::to_owned), ..Queue::default() }
    }

    fn of(seen: &VolumesSeen, is_settled: bool) -> (String, GrowthState) {
        let growth = Growth::of(&queue(None), seen, StorageClassSeen::NotAsked, is_settled);
        (growth.template, growth.state)
    }

    #[test]
    fn claims_grow_first_and_the_workload_is_made_anew_around_its_pods() {
        use GrowthState::{Ask, Asked, Later, Recreate, Recreating};
        let ask = |names: &[(&str, &str)]| {
            Ask(names.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned())).collect())
        };
        let mut going = seen(Some("1Gi"), &[(2, 1)]);
        going.template.as_mut().unwrap().is_going = true;
        for (seen, is_settled, template, state) in [
            (seen(None, &[]), false, "2Gi", Asked),
            (seen(Some("1Gi"), &[(1, 1), (2, 1), (1, 1)]), true, "1Gi", ask(&[("c0", "u0"), ("c2", "u2")])),
            // The step does not wait until the volumes have grown.
            (seen(Some("1Gi"), &[(2, 1), (2, 2)]), true, "2Gi", Recreate),
            (seen(Some("1Gi"), &[(2, 1), (2, 2)]), false, "1Gi", Later),
            (seen(Some("1Gi"), &[]), true, "2Gi", Recreate),
            (going, true, "1Gi", Recreating),
            (seen(None, &[(2, 1)]), false, "2Gi", Asked),
            // A claim that was made from the older size.
            (seen(None, &[(2, 1), (1, 1)]), false, "2Gi", ask(&[("c1", "u1")])),
            (seen(Some("2048Mi"), &[(2, 2), (3, 3)]), true, "2048Mi", Asked),
        ] {
            assert_eq!(of(&seen, is_settled), (template.to_owned(), state), "{seen:?}");
        }
    }

    #[test]
    fn nothing_is_touched_when_the_storage_class_does_not_let_volumes_grow() {
        let mut fixed = seen(Some("1Gi"), &[(1, 1), (1, 1)]);
        fixed.expandable.insert("fast".into(), false);
        assert_eq!(of(&fixed, true), ("1Gi".into(), GrowthState::NotExpandable("fast".into())));
        fixed.expandable.insert("fast".into(), true);
        assert!(matches!(of(&fixed, true).1, GrowthState::Ask(claims) if claims.len() == 2));
    }

    #[test]
    fn a_claim_that_goes_or_has_no_volume_yet_is_not_asked() {
        for change in
            [|claim: &mut ClaimSeen| claim.is_going = true, |claim: &mut ClaimSeen| claim.is_bound = false]
        {
            let mut seen = seen(Some("1Gi"), &[(1, 1)]);
            change(&mut seen.claims[0]);
            assert_eq!(of(&seen, true).1, GrowthState::Recreate);
            assert!(classes_to_ask(&queue(None), &seen.claims).is_empty());
        }
        let small = seen(Some("1Gi"), &[(1, 1), (1, 1)]);
        assert_eq!(classes_to_ask(&queue(None), &small.claims), ["fast"]);
    }

    #[test]
    fn another_class_or_a_smaller_size_goes_into_the_template_first() {
        use GrowthState::{Asked, ClassMissing, Later, Recreate};
        use StorageClassSeen::{Missing, NotAsked, Present};
        let live = |size: &str, class: Option<&str>| {
            let mut seen = seen(Some(size), &[(1, 1), (3, 3)]);
            seen.template.as_mut().unwrap().storage_class = class.map(str::to_owned);
            seen
        };
        let (fast, new) = (Some("fast"), Some("new"));
        for (live, wanted, class, is_settled, template, state) in [
            // The claims of 1Gi are not asked to grow: they are of another class, and are replaced.
            (live("2Gi", fast), new, Present, true, ("2Gi", new), Recreate),
            (live("2Gi", fast), new, NotAsked, true, ("2Gi", new), Recreate),
            (live("2Gi", fast), new, Present, false, ("2Gi", fast), Later),
            (live("2Gi", fast), new, Missing, true, ("2Gi", fast), ClassMissing("new".into())),
            (live("2Gi", new), new, Missing, true, ("2Gi", new), Asked),
            (live("3Gi", new), new, Present, true, ("2Gi", new), Recreate),
        ] {
            let growth = Growth::of(&queue(wanted), &live, class, is_settled);
            let found = (growth.template.as_str(), growth.template_class.as_deref());
            assert_eq!((found, growth.state), (template, state), "{live:?}");
        }
        // To name none replaces none, and is for new volumes alone.
        let mut none = live("2Gi", fast);
        none.claims.clear();
        let growth = Growth::of(&queue(None), &none, NotAsked, true);
        assert_eq!((growth.template_class, growth.state), (None, Recreate));
    }

    #[test]
    fn a_volume_is_small_until_it_has_the_bytes() {
        for (claim, expected) in [
            (claim(0, 1, 1), true),
            (claim(0, 2, 1), true),
            (claim(0, 2, 2), false),
            (claim(0, 3, 3), false),
            (ClaimSeen { capacity: None, ..claim(0, 2, 0) }, false),
        ] {
            assert_eq!(is_small(&claim, "2Gi"), expected, "{claim:?}");
        }
    }
}
