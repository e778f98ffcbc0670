//! What is said when a pipeline comes back from a rest and Kafka has forgotten where its group was: brokers do so some time after the last
//! member has left (`offsets.retention.minutes`). Nothing is held up for it, and nothing in Kafka is written. Pure: answers in, words out.

use crate::sample::Sample;
use sluice_crds::{InitialOffset, TracePipeline, status::condition};
use sluice_plan::Intent;

/// For people; `None` when the group still has offsets, when nobody knows, or when the pipeline does not come back right now.
pub fn expired(pipeline: &TracePipeline, kafka: Option<&Sample>) -> Option<String> {
    let (status, kafka) = (pipeline.status.as_ref()?, kafka?);
    let has_rested = status
        .conditions
        .iter()
        .any(|condition| condition.type_ == condition::SUSPENDED && condition.status == "True");
    // Without gateways before, nothing was committed.
    let has_run = status.suspension.is_some_and(|before| before.replicas > 0);
    let is_back = has_rested && has_run && Intent::of(pipeline) == Intent::Run;
    let is_known = kafka.missing.is_empty() && kafka.partitions.iter().all(Option::is_some);
    let mut partitions = kafka.partitions.iter().flatten();
    let has_messages = partitions.clone().any(|partition| partition.end > 0);
    if !is_back || !is_known || !has_messages || partitions.any(|partition| partition.committed.is_some()) {
        return None;
    }
    let follows = match pipeline.spec.source.kafka.initial_offset {
        InitialOffset::Earliest => {
            "begins at the oldest message (initialOffset: Earliest), so that what was inserted before the rest and Kafka still has may \
             be doubled"
        }
        InitialOffset::Latest => {
            "begins behind the newest message (initialOffset: Latest), so that what came in since it was suspended is skipped"
        }
    };
    Some(format!(
        "Kafka has no committed offset of the consumer group any more: it forgets them offsets.retention.minutes after the last gateway \
         has left. The pipeline {follows}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_plan::scale::PartitionSample;

    fn pipeline(suspended: &str, replicas: u32, initial_offset: &str) -> TracePipeline {
        let condition = json!({"type": "Suspended", "status": suspended, "reason": "Suspended", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let pipeline: Value = json!({
            "metadata": {"name": "a"},
            "spec": {
                "source": {"kafka": {
                    "bootstrapServers": ["kafka:9092"], "topics": ["a"], "initialOffset": initial_offset,
                }},
                "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
            },
            "status": {"conditions": [condition], "suspension": {"replicas": replicas}},
        });
        serde_json::from_value(pipeline).unwrap()
    }

    fn sample(partitions: &[Option<(u64, Option<u64>)>]) -> Sample {
        let partition = |(end, committed)| PartitionSample { end, committed, ..PartitionSample::default() };
        let partitions = partitions.iter().map(|one| one.map(partition)).collect();
        Sample { partitions, ..Sample::default() }
    }

    #[test]
    fn a_pipeline_that_comes_back_to_no_offsets_says_what_follows() {
        let forgotten = sample(&[Some((7, None)), Some((0, None))]);
        let of = |pipeline: &TracePipeline, kafka: &Sample| expired(pipeline, Some(kafka));
        for (initial_offset, words) in [("Earliest", "may be doubled"), ("Latest", "is skipped")] {
            let said = of(&pipeline("True", 2, initial_offset), &forgotten).unwrap();
            assert!(said.contains(words), "{said}");
        }
        let back = pipeline("True", 2, "Earliest");
        for kafka in [
            sample(&[Some((7, Some(3))), Some((0, None))]),
            sample(&[Some((0, None))]),
            sample(&[Some((7, None)), None]),
            Sample { missing: vec!["a".into()], ..forgotten.clone() },
        ] {
            assert_eq!(of(&back, &kafka), None, "{kafka:?}");
        }
        assert_eq!(expired(&back, None), None);
        assert_eq!(of(&pipeline("False", 2, "Earliest"), &forgotten), None, "it runs already");
        assert_eq!(of(&pipeline("True", 0, "Earliest"), &forgotten), None, "it never ran");
    }
}
