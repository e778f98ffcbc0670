//! The queue volumes of a pipeline that is deleted. No operator drains them later. So only volumes that are known to be empty are deleted;
//! an event names the others.
//!
//! | what is known of a volume | `whenDeleted: Delete` | `Retain` |
//! | --- | --- | --- |
//! | its gateway answered that it is empty, and commits after the insert | deleted | stays |
//! | nothing, or its gateway may commit before the insert | stays | stays |
//! | no gateway uses it (`orphans` deletes it while the pipeline exists) | stays | stays |
//! | the claim never had a volume ([`unbound`]) | deleted | deleted |
//!
//! A gateway may be restarted after it answered, and read again before its pod is deleted. If it commits after the insert, that is no loss:
//! Kafka still has these messages, and their offsets are not committed. If it commits before the insert, the answer proves nothing
//! ([`super::replacement`]).

use crate::{
    facts::Observed,
    observed::{ClaimSeen, VolumesSeen},
};
use k8s_openapi::api::core::v1::ConfigMap;
use sluice_crds::{DeletionPolicy, QueueMode, Retention, TracePipeline};
use sluice_gateway_config::{Commit as CommitOfGateway, parse};

/// What is known of the gateways of a pipeline that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Ordinals of empty gateways: [`crate::drain::empty`].
    pub empty: &'a [u32],
    /// Whether all gateways commit after the insert, also those that are restarted.
    pub commits_after_insert: bool,
}

/// Whether gateways with this config commit after the insert; `false` for a config that cannot be parsed.
pub fn commits_after_insert(config: &ConfigMap) -> bool {
    let says_so = |text: &String| matches!(parse::commit(text), Ok(CommitOfGateway::AfterInsert));
    config.data.as_ref().is_some_and(|data| !data.is_empty() && data.values().all(says_so))
}

/// The claims that are deleted with the pipeline.
pub fn thrown_away<'a>(
    pipeline: &TracePipeline,
    seen: &'a VolumesSeen,
    shown: Shown<'_>,
) -> Vec<&'a ClaimSeen> {
    let queue = &pipeline.spec.queue;
    let goes = queue.retention_policy.when_deleted == Retention::Delete
        && !pipeline.spec.has_only_copies_on_volumes();
    let is_empty =
        |claim: &&ClaimSeen| claim.has_gateway && !claim.is_going && shown.empty.contains(&claim.ordinal);
    let known = seen.claims.iter().filter(is_empty);
    known.filter(|_| goes && shown.commits_after_insert).collect()
}

/// Claims that never had a volume, by whether Kubernetes would make them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbound<'a> {
    /// The StatefulSet has, or is about to have, a pod that uses one of them: it would make a deleted claim again.
    MadeAgain(Vec<&'a ClaimSeen>),
    /// No pod uses them.
    Left(Vec<&'a ClaimSeen>),
}

/// The claims that never had a volume. They hold nothing, whatever `whenDeleted` is. `observed` comes from the operator's cache: the caller
/// reads each claim from the API server before it deletes it.
pub fn unbound(observed: &Observed) -> Unbound<'_> {
    let never = |claim: &&ClaimSeen| !claim.is_bound && claim.capacity.is_none() && !claim.is_going;
    let claims: Vec<&ClaimSeen> = observed.volumes.claims.iter().filter(never).collect();
    let wanted = observed.workload.as_ref().map_or(0, |workload| workload.wanted);
    let is_asked_for = |claim: &&ClaimSeen| claim.has_gateway || claim.ordinal < wanted;
    if claims.iter().any(is_asked_for) { Unbound::MadeAgain(claims) } else { Unbound::Left(claims) }
}

/// The sentence about claims that never had a volume and that the API server refused to delete; empty without such a claim.
pub fn never_bound_words(left: &[String]) -> String {
    if left.is_empty() {
        return String::new();
    }
    format!(
        ". The claims {} never had a volume, and the API server refuses to delete them; delete them before you make a pipeline of the \
         same name with another storage class",
        left.join(", ")
    )
}

/// The fields of the StatefulSet's `persistentVolumeClaimRetentionPolicy` that must become `Retain` before a gateway is removed. A
/// StatefulSet of an older operator may have `Delete` there. The operator does not apply the StatefulSet while the pipeline is suspended,
/// deleted, or has no plan, so that this field needs a request of its own.
pub fn to_be_retained(pipeline: &TracePipeline, seen: &VolumesSeen) -> Vec<&'static str> {
    let template = seen.template.as_ref().filter(|template| !template.is_going && template.size.is_some());
    let Some(template) = template.filter(|_| pipeline.spec.queue.mode == QueueMode::Spill) else {
        return Vec::new();
    };
    let is_meant = pipeline.spec.deletion_policy == DeletionPolicy::Immediate;
    let fields = [("whenScaled", template.keeps_scaled), ("whenDeleted", template.keeps_deleted || is_meant)];
    fields.into_iter().filter(|(_, is_well)| !is_well).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::{TemplateSeen, WorkloadSeen};
    use serde_json::{Value, json};

    fn pipeline(spec: &Value) -> TracePipeline {
        let mut full = json!({
            "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"]}},
            "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
        });
        for (field, value) in spec.as_object().unwrap() {
            full[field] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": full})).unwrap()
    }

    fn claim(ordinal: u32, has_gateway: bool) -> ClaimSeen {
        let (name, uid) = (format!("queue-a-gateway-{ordinal}"), format!("u{ordinal}"));
        ClaimSeen { name, uid, ordinal, is_bound: true, has_gateway, ..ClaimSeen::default() }
    }

    #[test]
    fn no_volume_is_thrown_away_that_is_not_known_to_be_empty() {
        let going = ClaimSeen { is_going: true, ..claim(3, true) };
        let claims = vec![claim(0, true), claim(1, true), claim(2, false), going];
        let seen = VolumesSeen { claims, ..VolumesSeen::default() };
        let of = |spec: &Value, empty: &[u32], commits_after_insert: bool| -> Vec<u32> {
            let shown = Shown { empty, commits_after_insert };
            thrown_away(&pipeline(spec), &seen, shown).iter().map(|claim| claim.ordinal).collect()
        };
        // Of the first nothing is known: it does not run, or cannot read all of its volume.
        assert_eq!(of(&json!({}), &[1, 2, 3], true), [1]);
        assert!(of(&json!({}), &[1], false).is_empty(), "it may put there what it commits");
        for spec in [
            json!({"queue": {"retentionPolicy": {"whenDeleted": "Retain"}}}),
            json!({"delivery": {"commit": "AfterEnqueue"}}),
        ] {
            assert!(of(&spec, &[0, 1], true).is_empty(), "{spec}");
        }
    }

    #[test]
    fn a_claim_that_never_had_a_volume_goes_once_nobody_makes_it_again() {
        let never =
            |ordinal: u32, has_gateway: bool| ClaimSeen { is_bound: false, ..claim(ordinal, has_gateway) };
        let of = |claims: Vec<ClaimSeen>, wanted: Option<u32>| {
            let workload = wanted.map(|wanted| WorkloadSeen { wanted, ..WorkloadSeen::default() });
            let volumes = VolumesSeen { claims, ..VolumesSeen::default() };
            let observed = Observed { workload, volumes, ..Observed::default() };
            let ordinals =
                |claims: Vec<&ClaimSeen>| claims.iter().map(|claim| claim.ordinal).collect::<Vec<_>>();
            match unbound(&observed) {
                Unbound::MadeAgain(claims) => (true, ordinals(claims)),
                Unbound::Left(claims) => (false, ordinals(claims)),
            }
        };
        let going = ClaimSeen { is_going: true, ..never(3, true) };
        let all = vec![claim(0, true), never(1, true), never(2, false), going];
        assert_eq!(of(all.clone(), Some(3)), (true, vec![1, 2]));
        assert_eq!(of(all, None), (true, vec![1, 2]), "a pod is left that keeps it");
        assert_eq!(of(vec![never(2, false)], Some(3)), (true, vec![2]), "its pod is about to be made");
        assert_eq!(of(vec![claim(0, true), never(2, false)], Some(2)), (false, vec![2]));
        assert_eq!(of(vec![claim(0, true)], Some(1)), (false, vec![]));
    }

    #[test]
    fn a_workload_that_throws_claims_away_is_told_to_keep_them() {
        let of = |policy: &str, mode: &str, (keeps_scaled, keeps_deleted): (bool, bool)| {
            let template = TemplateSeen {
                size: Some("1Gi".into()),
                keeps_scaled,
                keeps_deleted,
                ..TemplateSeen::default()
            };
            let seen = VolumesSeen { template: Some(template), ..VolumesSeen::default() };
            to_be_retained(&pipeline(&json!({"deletionPolicy": policy, "queue": {"mode": mode}})), &seen)
        };
        assert_eq!(of("Drain", "Spill", (false, false)), ["whenScaled", "whenDeleted"]);
        assert_eq!(of("Orphan", "Spill", (true, false)), ["whenDeleted"]);
        assert_eq!(of("Immediate", "Spill", (false, false)), ["whenScaled"]);
        assert!(of("Drain", "Spill", (true, true)).is_empty());
        assert!(of("Drain", "Disabled", (false, false)).is_empty());
        assert!(to_be_retained(&pipeline(&json!({})), &VolumesSeen::default()).is_empty());
    }

    #[test]
    fn a_config_says_when_gateways_commit_and_one_that_is_not_there_says_nothing() {
        let config = |text: &str| ConfigMap {
            data: Some([("gateway.yaml".to_owned(), format!("contractVersion: 1\n{text}"))].into()),
            ..ConfigMap::default()
        };
        assert!(commits_after_insert(&config("delivery:\n  commit: AfterInsert\n")));
        assert!(!commits_after_insert(&config("delivery:\n  commit: AfterEnqueue\n")));
        assert!(!commits_after_insert(&ConfigMap::default()));
        // The word is a topic's, and the value is written in another way.
        assert!(commits_after_insert(&config("source:\n  kafka:\n    topics: [AfterEnqueue]\n")));
        assert!(!commits_after_insert(&config("delivery: {commit: \"After\\u0045nqueue\"}\n")));
        assert!(!commits_after_insert(&config("no config")));
    }
}
