//! Claims that Kubernetes would delete with the StatefulSet, although its retention policy says `Retain` by now.
//!
//! `whenDeleted: Delete` makes the StatefulSet an owner of its claims, and the garbage collector deletes them after it. With `Retain` the
//! StatefulSet controller removes this owner reference, but only from claims whose pod exists. Claims of gateways that were scaled in, or
//! of a suspended pipeline, keep it and would be deleted. So the operator removes the reference from these ([`unused`]). If the pipeline
//! is deleted, it removes the reference from all claims ([`held`]), and lets the StatefulSet go once it has seen that.
//!
//! A claim without a volume holds nothing, and keeps its owner.

use crate::observed::{ClaimSeen, VolumesSeen};

/// Claims with a volume that a StatefulSet with `whenDeleted: Retain` still owns.
pub fn held(seen: &VolumesSeen) -> impl Iterator<Item = &ClaimSeen> {
    let keeps = seen.template.as_ref().is_some_and(|template| template.keeps_deleted && !template.is_going);
    seen.claims
        .iter()
        .filter(move |claim| keeps && claim.goes_with_workload && claim.is_bound && !claim.is_going)
}

/// Those of them without a pod: Kubernetes does not remove their owner.
pub fn unused(seen: &VolumesSeen) -> impl Iterator<Item = &ClaimSeen> {
    held(seen).filter(|claim| !claim.has_gateway)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::TemplateSeen;

    #[test]
    fn what_a_workload_is_told_to_keep_does_not_go_with_it() {
        let plain = ClaimSeen { is_bound: true, goes_with_workload: true, ..ClaimSeen::default() };
        let claims = vec![
            ClaimSeen { ordinal: 0, has_gateway: true, ..plain.clone() },
            ClaimSeen { ordinal: 1, ..plain.clone() },
            ClaimSeen { ordinal: 2, goes_with_workload: false, ..plain.clone() },
            ClaimSeen { ordinal: 3, is_bound: false, ..plain.clone() },
            ClaimSeen { ordinal: 4, is_going: true, ..plain },
        ];
        let of = |keeps_deleted: bool, is_going: bool| {
            let template = TemplateSeen { keeps_deleted, is_going, ..TemplateSeen::default() };
            let seen =
                VolumesSeen { template: Some(template), claims: claims.clone(), ..VolumesSeen::default() };
            let ordinals =
                |claims: Vec<&ClaimSeen>| -> Vec<u32> { claims.iter().map(|claim| claim.ordinal).collect() };
            (ordinals(held(&seen).collect()), ordinals(unused(&seen).collect()))
        };
        assert_eq!(of(true, false), (vec![0, 1], vec![1]));
        assert_eq!(of(false, false), (vec![], vec![]), "they are meant to go");
        assert_eq!(of(true, true), (vec![], vec![]), "what goes with it goes already");
        let alone = VolumesSeen { claims, ..VolumesSeen::default() };
        assert_eq!(held(&alone).count(), 0);
    }
}
