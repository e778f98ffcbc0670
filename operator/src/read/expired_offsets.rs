//! Detects that Kafka deleted the committed offsets of a pipeline's group while the pipeline was suspended, or had no gateways because its
//! topics were idle. Brokers delete them `offsets.retention.minutes` after the last member has left. The operator only reports it: it delays nothing, and writes nothing to Kafka.
//! Pure: answers in, texts out.

use super::kafka::sample::Sample;
use sluice_crds::{
    InitialOffset, KafkaSource, TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};
use sluice_plan::{Intent, Moment, scale::State};

/// The state of a resumed group's committed offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Kafka does not answer for all partitions.
    NotKnown,
    /// The group continues at its offsets, or Kafka has no messages that it could miss.
    Well,
    /// Kafka deleted the offsets. The text says what follows.
    Expired(String),
}

/// Whether the pipeline is being resumed and its group had committed offsets before the suspension. Without any, Kafka cannot have deleted
/// them.
pub fn is_back(pipeline: &TracePipeline) -> bool {
    let Some(status) = &pipeline.status else { return false };
    let has_rested = status
        .conditions
        .iter()
        .any(|condition| condition.type_ == condition::SUSPENDED && condition.status == "True");
    let had_offsets = status.suspension.is_some_and(|before| before.has_committed);
    (has_rested && had_offsets || was_idle(status)) && Intent::of(pipeline) == Intent::Run
}

/// Whether no gateway ran because the topics were idle, and the group had committed offsets when the last one left.
fn was_idle(status: &TracePipelineStatus) -> bool {
    let mut conditions = status.conditions.iter();
    let is_idle =
        conditions.any(|condition| condition.type_ == condition::READY && condition.reason == reason::IDLE);
    let remembered =
        status.scaling.as_ref().map(|scaling| State::resumed(&scaling.remembered, Moment::default()));
    is_idle && remembered.and_then(|state| state.rest).is_some_and(|rest| rest.has_committed)
}

/// Whether the group of a resumed pipeline still has its offsets.
pub fn judge(pipeline: &TracePipeline, kafka: Option<&Sample>) -> Judgement {
    // Without Kafka there are none.
    let Some(source) = &pipeline.spec.source.kafka else { return Judgement::Well };
    // Without a lag the offsets could not be read.
    let Some(kafka) = kafka.filter(|kafka| kafka.lag_messages.is_some()) else { return Judgement::NotKnown };
    if kafka.has_committed() {
        return Judgement::Well;
    }
    if kafka.partitions.iter().any(Option::is_none) {
        return Judgement::NotKnown;
    }
    // A group that begins at the oldest message reads nothing twice if Kafka has no message. One that begins behind the newest may have
    // skipped messages that Kafka has deleted since.
    let is_latest = source.initial_offset == InitialOffset::Latest;
    let mut known = kafka.partitions.iter().flatten();
    let has_messages = known.any(|partition| partition.end > if is_latest { 0 } else { partition.log_start });
    if has_messages { Judgement::Expired(expired(source)) } else { Judgement::Well }
}

fn expired(source: &KafkaSource) -> String {
    let follows = match source.initial_offset {
        InitialOffset::Earliest => {
            "begins at the oldest message (initialOffset: Earliest): rows that were inserted before may be inserted twice"
        }
        InitialOffset::Latest => {
            "begins after the newest message (initialOffset: Latest): messages that arrived meanwhile are skipped"
        }
    };
    format!(
        "Kafka has deleted the committed offsets of the consumer group, as it does offsets.retention.minutes after the last gateway has \
         left. The pipeline {follows}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_plan::scale::PartitionSample;

    fn pipeline(suspended: &str, has_committed: bool, initial_offset: &str) -> TracePipeline {
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
            "status": {
                "conditions": [condition],
                "suspension": {"replicas": 2, "hasCommitted": has_committed},
            },
        });
        serde_json::from_value(pipeline).unwrap()
    }

    fn sample(partitions: &[Option<(u64, Option<u64>)>]) -> Sample {
        let partition = |(end, committed)| PartitionSample { end, committed, ..PartitionSample::default() };
        let partitions = partitions.iter().map(|one| one.map(partition)).collect();
        Sample { partitions, lag_messages: Some(0), ..Sample::default() }
    }

    #[test]
    fn a_pipeline_whose_group_had_offsets_comes_back() {
        assert!(is_back(&pipeline("True", true, "Earliest")));
        assert!(!is_back(&pipeline("False", true, "Earliest")), "it runs already");
        assert!(!is_back(&pipeline("True", false, "Earliest")), "its gateways never committed");
        let mut rests = pipeline("True", true, "Earliest");
        rests.spec.suspend = true;
        assert!(!is_back(&rests), "it still rests");
        let fresh = TracePipeline { status: None, ..rests };
        assert!(!is_back(&fresh));
    }

    #[test]
    fn idle_topics_whose_group_had_offsets_are_read_again() {
        let with = |reason: &str, remembered: Value| {
            let mut pipeline = pipeline("False", false, "Earliest");
            let status = json!({
                "conditions": [{"type": "Ready", "status": "True", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "scaling": {"reason": "", "remembered": remembered},
            });
            pipeline.status = Some(serde_json::from_value(status).unwrap());
            pipeline
        };
        let rest = |has_committed: bool| json!({"rest": {"since": 1, "hasCommitted": has_committed}});
        assert!(is_back(&with("Idle", rest(true))));
        assert!(!is_back(&with("Idle", rest(false))), "its gateways never committed");
        assert!(!is_back(&with("Idle", json!({}))));
        assert!(!is_back(&with("Running", rest(true))), "it runs already");
    }

    #[test]
    fn no_offsets_any_more_says_what_follows() {
        let forgotten = sample(&[Some((7, None)), Some((0, None))]);
        for (initial_offset, words) in [("Earliest", "may be inserted twice"), ("Latest", "are skipped")] {
            let judgement = judge(&pipeline("True", true, initial_offset), Some(&forgotten));
            assert!(matches!(&judgement, Judgement::Expired(said) if said.contains(words)), "{judgement:?}");
        }
    }

    /// Kafka has deleted the messages, too, as it does on topics that are idle for longer than their retention.
    #[test]
    fn without_a_message_nothing_is_read_twice_and_some_may_have_been_skipped() {
        let with = |log_start| {
            let partition = PartitionSample { log_start, end: 7, ..PartitionSample::default() };
            Sample { partitions: vec![Some(partition)], ..sample(&[]) }
        };
        let judged = |initial_offset, log_start| {
            judge(&pipeline("True", true, initial_offset), Some(&with(log_start)))
        };
        assert_eq!(judged("Earliest", 7), Judgement::Well);
        assert!(matches!(judged("Earliest", 6), Judgement::Expired(_)));
        assert!(matches!(judged("Latest", 7), Judgement::Expired(_)));
    }

    #[test]
    fn what_is_not_known_is_judged_later() {
        let back = pipeline("False", true, "Earliest");
        let unread = Sample { lag_messages: None, ..sample(&[]) };
        for (kafka, expected) in [
            (None, Judgement::NotKnown),
            (Some(unread), Judgement::NotKnown),
            (Some(sample(&[Some((7, None)), None])), Judgement::NotKnown),
            (Some(sample(&[Some((7, Some(3))), None])), Judgement::Well),
            (Some(sample(&[Some((7, Some(3))), Some((0, None))])), Judgement::Well),
            (Some(sample(&[Some((0, None))])), Judgement::Well),
        ] {
            assert_eq!(judge(&back, kafka.as_ref()), expected, "{kafka:?}");
        }
    }
}
