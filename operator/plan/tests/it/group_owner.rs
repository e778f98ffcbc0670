//! Which of several pipelines has a consumer group that they share, and what is said of it.

use crate::{
    observed, sample,
    statuses::{condition, said, summary},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_crds::{Resources, TracePipeline, TracePipelineStatus, status::reason};
use sluice_plan::{
    Observed, SchemaFailed, SchemaFailure, SchemaSeen, TopicSeen, asks_first, group_of, group_owner,
};

/// A pipeline by name, the second in which it was made, group and brokers.
fn member(name: &str, created: i64, group: &str, brokers: &[&str]) -> TracePipeline {
    let mut value: Value = serde_json::to_value(sample("tracepipeline.yaml")).unwrap();
    value["metadata"] = json!({"name": name, "namespace": "tracing", "uid": name});
    value["spec"]["source"]["kafka"]["consumerGroup"] = group.into();
    value["spec"]["source"]["kafka"]["bootstrapServers"] = json!(brokers);
    let mut pipeline: TracePipeline = serde_json::from_value(value).unwrap();
    let created = jiff::Timestamp::from_second(created).unwrap();
    pipeline.metadata.creation_timestamp = Some(Time(created));
    pipeline
}

#[test]
fn the_older_of_two_pipelines_has_the_group_and_the_other_one_waits_and_names_it() {
    let all = [
        ("old", 1, "g", &["a:1", "b:1"][..]),
        ("young", 2, "g", &["b:1", "c:1"][..]),
        ("elsewhere", 3, "g", &["d:1"][..]),
        ("other", 4, "h", &["a:1"][..]),
        // Without a group of its own its name is the group.
        ("named", 5, "", &["a:1"][..]),
        ("thief", 6, "tracing.named", &["a:1"][..]),
        ("twin", 1, "g", &["a:1"][..]),
    ]
    .map(|(name, created, group, brokers)| member(name, created, group, brokers));
    let older = |name: &str| {
        let pipeline = all.iter().find(|one| one.metadata.name.as_deref() == Some(name)).unwrap();
        group_owner(pipeline, all.iter())
    };
    for (name, expected) in [
        ("old", None),
        ("young", Some("tracing/old")),
        ("elsewhere", None),
        ("other", None),
        ("named", None),
        ("thief", Some("tracing/named")),
        ("twin", Some("tracing/old")),
    ] {
        assert_eq!(older(name).as_deref(), expected, "{name}");
    }
    let facts = Observed { group_owner: older("young"), ..observed(&all[1], 12) };
    let status = said(&all[1], &facts);
    assert_eq!(
        summary(&status)[..2],
        [format!("False/{}", reason::CONSUMER_GROUP_TAKEN), "True/Waiting".into()]
    );
    let words = &condition(&status, "Ready").message;
    let group = group_of(&all[1]).unwrap();
    let expected = format!("tracing/old has the same consumer group ({group:?}) at the same brokers");
    assert!(words.contains(&expected), "{words}");
}

/// Its gateways have been started with this group at these brokers.
fn that_runs(mut pipeline: TracePipeline, group: &str, brokers: &[&str]) -> TracePipeline {
    pipeline.status = Some(TracePipelineStatus {
        consumer_group: Some(group.into()),
        bootstrap_servers: brokers.iter().map(|broker| (*broker).to_owned()).collect(),
        image: Some("gateway".into()),
        ..TracePipelineStatus::default()
    });
    pipeline
}

#[test]
fn whoever_has_a_group_keeps_it_from_an_older_pipeline_that_is_edited_to_it() {
    let young = that_runs(member("young", 2, "g", &["b:1"]), "g", &["b:1"]);
    // It ran elsewhere until its brokers, or its group, were edited; or it has never run.
    for old in [
        that_runs(member("old", 1, "g", &["b:1"]), "g", &["a:1"]),
        that_runs(member("old", 1, "g", &["a:1", "b:1"]), "g", &["a:1"]),
        that_runs(member("old", 1, "g", &["b:1"]), "h", &["b:1"]),
        member("old", 1, "g", &["b:1"]),
    ] {
        let all = [old, young.clone()];
        assert_eq!(group_owner(&all[0], all.iter()).as_deref(), Some("tracing/young"));
        assert_eq!(group_owner(&all[1], all.iter()), None);
    }
    // Of two that both have it, for whatever reason, the older one goes on.
    let all = [that_runs(member("old", 1, "g", &["b:1"]), "g", &["b:1"]), young];
    assert_eq!(group_owner(&all[0], all.iter()), None);
    assert_eq!(group_owner(&all[1], all.iter()).as_deref(), Some("tracing/old"));
}

/// It has been looked at, with these facts.
fn that_says(mut pipeline: TracePipeline, facts: impl FnOnce(Observed) -> Observed) -> TracePipeline {
    pipeline.metadata.generation = Some(1);
    pipeline.status = Some(said(&pipeline, &facts(observed(&pipeline, 12))));
    pipeline
}

#[test]
fn a_pipeline_that_cannot_start_keeps_nobody_from_its_group() {
    let old = || member("old", 1, "g", &["a:1"]);
    let young = member("young", 2, "g", &["a:1"]);
    let blocks = |old: TracePipeline| group_owner(&young, [&old].into_iter()).is_some();
    let without_topic = |facts: Observed| Observed {
        partitions: facts.partitions.keys().map(|topic| (topic.clone(), TopicSeen::Missing)).collect(),
        ..facts
    };
    assert!(!blocks(that_says(old(), without_topic)));
    let mut refused = old();
    refused.spec.gateway.resources = Resources::default().with_memory("64Mi");
    assert!(!blocks(that_says(refused, |facts| facts)));
    for reason in [reason::JOB_FAILED, reason::UNREACHABLE] {
        let failure = SchemaFailure { reason, message: "no server".into() };
        let schema = SchemaSeen::Failed(SchemaFailed { failure, ..SchemaFailed::default() });
        assert!(!blocks(that_says(old(), |facts| Observed { schema, ..facts })), "{reason}");
    }
    let mut resting = old();
    resting.spec.suspend = true;
    assert!(!blocks(resting));
    // It may start at any moment: the operator has not looked at it, its spec was edited since, or its schema Job is at work.
    assert!(blocks(old()));
    let mut edited = that_says(old(), without_topic);
    edited.metadata.generation = Some(2);
    assert!(blocks(edited));
    assert!(blocks(that_says(old(), |facts| Observed { schema: SchemaSeen::Running, ..facts })));
    // It has run, and reads on whatever it waits for.
    let mut running = that_says(old(), without_topic);
    let status = running.status.as_mut().unwrap();
    (status.image, status.consumer_group) = (Some("gateway".into()), Some("g".into()));
    status.bootstrap_servers = vec!["a:1".into()];
    assert!(blocks(running));
}

/// As when the topic that both wait for is made.
#[test]
fn of_two_that_come_out_of_a_wait_at_the_same_moment_one_starts() {
    let without_topic = |facts: Observed| Observed {
        partitions: facts.partitions.keys().map(|topic| (topic.clone(), TopicSeen::Missing)).collect(),
        ..facts
    };
    let both = [("old", 1), ("young", 2)].map(|(name, age)| member(name, age, "g", &["a:1"]));
    let both = both.map(|one| that_says(one, without_topic));
    let look = |all: &[TracePipeline; 2]| {
        all.clone().map(|one| {
            let (group_owner, asks_for_group) = (group_owner(&one, all.iter()), asks_first(&one, all.iter()));
            that_says(one, |facts| Observed { group_owner, asks_for_group, ..facts })
        })
    };
    let starts = |all: &[TracePipeline; 2]| {
        all.clone().map(|one| one.status.is_some_and(|status| status.image.is_some()))
    };
    let asked = look(&both);
    assert_eq!(starts(&asked), [false, false]);
    let decided = look(&asked);
    assert_eq!(starts(&decided), [true, false]);
    assert_eq!(starts(&look(&decided)), [true, false]);
    // The younger one alone: it says so, and has the group at the next look, also when the older one could start by then.
    let [old, young] = both.clone();
    let mut alone = look(&[old.clone(), young]);
    alone[0] = old.clone();
    let mut alone = look(&alone);
    assert_eq!(starts(&alone), [false, true]);
    alone[0] = old.clone();
    for _ in 0..2 {
        alone = look(&alone);
        assert_eq!(starts(&alone), [false, true]);
    }
    // It has said so, and its status does not tell whether it has started since: the older one that could start now is behind it.
    let said = look(&[old.clone(), both[1].clone()])[1].clone();
    assert_eq!(group_owner(&old, [&said].into_iter()).as_deref(), Some("tracing/young"));
    // A pipeline without others does not ask.
    assert!(!asks_first(&alone[0], std::iter::empty()));
}

#[test]
fn a_newer_version_of_a_pipeline_takes_no_group_from_it() {
    let before = member("young", 2, "g", &["b:1"]);
    let now = that_runs(before.clone(), "g", &["b:1"]);
    assert_eq!(group_owner(&before, [&now].into_iter()), None);
}

#[test]
fn a_plan_says_whose_group_it_has_and_a_pipeline_that_waits_goes_on_saying_so() {
    let mut pipeline = member("old", 1, "g", &["a:1"]);
    pipeline.status = Some(said(&pipeline, &observed(&pipeline, 12)));
    pipeline.spec.source.kafka.as_mut().unwrap().bootstrap_servers = vec!["b:1".into()];
    let facts = Observed { group_owner: Some("tracing/young".into()), ..observed(&pipeline, 12) };
    let status = said(&pipeline, &facts);
    assert_eq!(
        (status.consumer_group.as_deref(), &status.bootstrap_servers[..]),
        (Some("g"), &["a:1".to_owned()][..])
    );
}

proptest! {
    #[test]
    fn of_pipelines_that_share_a_group_exactly_one_has_it(
        ages in proptest::collection::vec((0i64..4, any::<bool>()), 1..12),
    ) {
        let all: Vec<_> = ages
            .iter()
            .enumerate()
            .map(|(at, (age, runs))| {
                let one = member(&format!("p{at}"), *age, "g", &["a:1"]);
                if *runs { that_runs(one, "g", &["a:1"]) } else { one }
            })
            .collect();
        let free: Vec<_> = all.iter().filter(|pipeline| group_owner(pipeline, all.iter()).is_none()).collect();
        prop_assert_eq!(free.len(), 1);
        let winner = format!("tracing/{}", free[0].metadata.name.as_deref().unwrap());
        for other in &all {
            let named = group_owner(other, all.iter());
            prop_assert!(named.is_none() || named.as_deref() == Some(winner.as_str()));
        }
    }
}
