//! What is said of volumes of `source.otlp`: one that is full, and one that is left with requests.

use crate::{
    otlp::{condition, running, said},
    sample,
};
use sluice_gateway_config::VolumeLimit;
use sluice_plan::{
    observed::{ClaimSeen, DrainJobSeen, DrainJobState, FullVolumeSeen, Silence, SilentSeen, TemplateSeen},
    scale::Standing,
};
use std::time::Duration;

/// The volume of this gateway, full for so many seconds.
fn full(ordinal: u32, seconds: u64) -> FullVolumeSeen {
    FullVolumeSeen {
        ordinal,
        name: format!("otlp-traces-gateway-{ordinal}"),
        seconds,
        bytes_max: 9_664 << 20,
        limit: VolumeLimit::Bytes,
    }
}

/// The claim of the second gateway.
fn claim() -> ClaimSeen {
    ClaimSeen {
        name: "queue-otlp-traces-gateway-1".into(),
        ordinal: 1,
        requested: Some(10 << 30),
        capacity: Some(10 << 30),
        is_bound: true,
        has_gateway: true,
        ..ClaimSeen::default()
    }
}

#[test]
fn a_volume_that_is_full_is_named_with_its_claim_its_size_and_what_helps() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = running(&pipeline, 2);
    facts.scaling.standing = Some(Standing::default());
    facts.volumes.claims = vec![claim()];
    for (volumes, expected) in [
        (vec![], None),
        // Clients have sent them again by now.
        (vec![full(1, 59)], None),
        // A gateway that is not wanted any more is not named.
        (vec![full(2, 600)], None),
        (
            vec![full(0, 10), full(1, 60)],
            Some(
                "otlp-traces-gateway-1 (claim queue-otlp-traces-gateway-1 of 10240Mi, up to 9664Mi of it for requests): the queue volume is full",
            ),
        ),
    ] {
        facts.full_volumes = volumes;
        let ready = condition(&said(&pipeline, &facts), "Ready").clone();
        match expected {
            None => assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "Running")),
            Some(begins) => {
                assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "SinkUnavailable"));
                assert!(ready.message.starts_with(begins), "{}", ready.message);
                assert!(ready.message.ends_with("or increase queue.size"), "{}", ready.message);
            }
        }
    }
    // Before an operator that starts has enough samples, the gateways say it already.
    facts.scaling.standing = None;
    let mut pipeline = pipeline;
    pipeline.status = Some(said(&pipeline, &facts));
    assert_eq!(condition(&said(&pipeline, &facts), "Ready").reason, "SinkUnavailable");
    // One that has just started knows nothing of them until it has asked.
    facts.full_volumes.clear();
    facts.silent = vec![SilentSeen {
        name: "otlp-traces-gateway-1".into(),
        address: "10.0.0.1:9090".into(),
        seconds: 0,
        how: Silence::NotAsked,
    }];
    assert_eq!(condition(&said(&pipeline, &facts), "Ready").reason, "SinkUnavailable");
    facts.silent.clear();
    assert_eq!(condition(&said(&pipeline, &facts), "Ready").reason, "Running");
}

#[test]
fn a_volume_that_is_full_is_said_with_the_limit_that_it_has_reached() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = running(&pipeline, 2);
    facts.scaling.standing = Some(Standing::default());
    facts.volumes.claims = vec![claim()];
    // A larger volume has no more files for a log.
    let of_files = FullVolumeSeen { limit: VolumeLimit::Segments, ..full(1, 60) };
    let of_device = FullVolumeSeen { limit: VolumeLimit::Device, ..full(1, 60) };
    for (volumes, limit, helps) in [
        (
            vec![of_files.clone()],
            "10240Mi, whose logs have as many files as they may)",
            "or increase source.otlp.logs",
        ),
        (
            vec![full(0, 60), of_files],
            "9664Mi of it for requests)",
            "or increase queue.size and source.otlp.logs",
        ),
        (vec![of_device], "10240Mi, whose file system has no room)", "or increase queue.size"),
    ] {
        facts.full_volumes = volumes;
        let message = condition(&said(&pipeline, &facts), "Ready").message.clone();
        assert!(message.contains(limit) && message.ends_with(helps), "{message}");
    }
}

#[test]
fn a_volume_that_is_left_with_requests_says_which_number_of_gateways_reads_it_and_how_to_give_it_up() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = running(&pipeline, 2);
    let claim = |ordinal: u32| ClaimSeen {
        name: format!("queue-otlp-traces-gateway-{ordinal}"),
        uid: format!("c{ordinal}"),
        ordinal,
        is_bound: true,
        ..ClaimSeen::default()
    };
    let job = |ordinal: u32, message: &str| DrainJobSeen {
        name: format!("otlp-traces-drain-{ordinal}"),
        ordinal,
        claim_uid: format!("c{ordinal}"),
        workload_version: "w".into(),
        state: DrainJobState::Failed { ago: Duration::from_secs(5), message: message.into() },
        not_started: None,
        going_for: None,
    };
    facts.volumes.template = Some(TemplateSeen { version: "w".into(), ..TemplateSeen::default() });
    facts.volumes.claims = vec![claim(2), claim(4)];
    for (jobs, expected) in [
        (
            vec![job(4, "its logs have requests")],
            "queue-otlp-traces-gateway-4 could not be drained (one of 2 queue volumes without a gateway); the operator tries again: its \
             logs have requests. To insert or read what is on it, run 5 gateways (replicas, or scaling.minReplicas in Auto). To give it up, \
             kubectl delete pvc queue-otlp-traces-gateway-4 -n tracing: requests that are not inserted, dead letters and damaged segments on \
             this volume are lost then",
        ),
        (
            vec![job(2, "it has dead letters"), job(4, "its logs have requests")],
            "queue-otlp-traces-gateway-2 and 1 more could not be drained (2 of 2 queue volumes without a gateway); the operator tries \
             again: it has dead letters. To insert or read what is on it, run 5 gateways (replicas, or scaling.minReplicas in Auto). To give \
             it up, kubectl delete pvc queue-otlp-traces-gateway-2 -n tracing: requests that are not inserted, dead letters and damaged \
             segments on this volume are lost then",
        ),
    ] {
        facts.volumes.jobs = jobs;
        let said = said(&pipeline, &facts);
        let drained = condition(&said, "VolumesDrained");
        assert_eq!((drained.status.as_str(), drained.reason.as_str()), ("False", "DrainFailed"));
        assert_eq!(drained.message, expected);
    }
}
