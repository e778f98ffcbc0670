//! Everything that a plan is made from beside the spec: what was observed, and what scaling has decided.

use crate::{
    observed::{
        EdgeSeen, FullVolumeSeen, MessagesSeen, MissingTable, OpenTransaction, Partitions, ReconcileFailure,
        SchemaSeen, Secrets, ServersSeen, SilentSeen, StorageClassSeen, UnconnectedSeen, UnfetchedSeen,
        UnreadSeen, UnusableTable, VolumesSeen, WorkloadSeen,
        inserts::{FailedInsert, SinkSeen},
    },
    pipeline::connections::Unresolved,
    scale::{Decision, Standing, Watched},
};
use sluice_crds::{DeliveryStatus, DrainStatus, Lag, MemoryResize, QueueStatus, RolloutStatus};
use std::collections::BTreeMap;

/// All facts about one pipeline, read at about the same time.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub struct Observed {
    /// Topics and partitions, as Kafka answers.
    pub partitions: Partitions,
    /// Properties of `source.kafka` that librdkafka refuses, each with its reason; none where librdkafka was not asked, as by the plugin.
    pub refused_properties: BTreeMap<String, String>,
    /// Connections that the spec references and that cannot be used.
    pub unresolved: Unresolved,
    /// The ClickHouse servers that gateways were last given. Without a StatefulSet, those of each config that pods mount; none where no config
    /// is known.
    pub servers: Vec<ServersSeen>,
    /// The Secrets that the spec names.
    pub secrets: Secrets,
    /// The schema Job that [`crate::plan::schema_job_name`] names.
    pub schema: SchemaSeen,
    /// What it names; `None` where it names none.
    pub schema_job: Option<String>,
    /// The StatefulSet and its pods; `None` when there is no StatefulSet.
    pub workload: Option<WorkloadSeen>,
    /// The edge and its pods; `None` if there are none.
    pub edge: Option<EdgeSeen>,
    /// How far the gateways are behind; `None` when it could not be found out.
    pub lag: Option<Lag>,
    /// Whether Kafka has committed offsets of the consumer group; `false` as well when it could not be found out.
    pub has_committed: bool,
    /// Whether of every partition Kafka has all that is not committed; `false` as well when it could not be found out.
    pub has_uncommitted: bool,
    /// What all gateways promise; `None` when they were not asked, or one did not say.
    pub delivery: Option<DeliveryStatus>,
    /// What waits on their volumes, not rounded; `None` while a gateway is not ready, or has not said it.
    pub queue: Option<QueueStatus>,
    /// Whether each gateway that is ready now has reported, since it was started, that nothing waits there.
    pub has_empty_queue: bool,
    /// Messages that Kafka deleted before they were read, as each gateway has counted since its start, by ordinal. Only gateways that
    /// have reported it.
    pub messages_lost: BTreeMap<u32, i64>,
    /// What gateways have counted lately of the messages that they took from Kafka; `None` when none said it.
    pub messages: Option<MessagesSeen>,
    /// Open transactions that keep gateways from reading partitions; `None` when it could not be found out.
    pub open_transactions: Option<Vec<OpenTransaction>>,
    /// Partitions that no gateway reads; `None` while all are read, and if it is unknown.
    pub unread: Option<UnreadSeen>,
    /// Ready gateways that did not answer when they were asked last.
    pub silent: Vec<SilentSeen>,
    /// Gateways that reach no broker; `None` when none gave an answer.
    pub unconnected: Option<Vec<UnconnectedSeen>>,
    /// Gateways that Kafka gives no messages although some wait; `None` when none gave an answer.
    pub unfetched: Option<Vec<UnfetchedSeen>>,
    /// Gateways whose volume has no room for requests.
    pub full_volumes: Vec<FullVolumeSeen>,
    /// Whether the gateways' inserts succeed.
    pub sink: SinkSeen,
    /// Whether inserts of a gateway have failed lately, and it is not known yet whether others come through.
    pub inserts_in_doubt: bool,
    /// How the last insert failed of a gateway whose inserts fail; `None` when it does not say.
    pub insert_error: Option<FailedInsert>,
    /// That a gateway of the newest revision misses the table; `None` while none does, and if it is unknown.
    pub missing_table: Option<MissingTable>,
    /// That a gateway of the newest revision cannot use the table for another reason, and so does not begin to read.
    pub unusable_table: Option<UnusableTable>,
    /// What scaling came to.
    pub scaling: ScalingSeen,
    /// A pipeline that has the same consumer group and came first ([`crate::pipeline::group_owner::group_owner`]).
    pub group_owner: Option<String>,
    /// Whether others that have not started want the same consumer group, so that a start is said first ([`crate::pipeline::group_owner::asks_first`]).
    pub asks_for_group: bool,
    /// The storage class of the queue volumes.
    pub storage_class: StorageClassSeen,
    /// The queue volumes.
    pub volumes: VolumesSeen,
    /// How far gateways are on their way to the newest revision; `None` when it was not observed, and the status still holds.
    pub rollout: Option<RolloutStatus>,
    /// Gateways that get more memory in place; `None` when it was not observed, and the status still holds for pods that exist.
    pub memory_resizes: Option<Vec<MemoryResize>>,
    /// What kept the plan from being carried out; `None` while nothing does, or while the obstacle may pass without a person.
    pub reconcile_failure: Option<ReconcileFailure>,
    /// Why Kubernetes does not create pods of the StatefulSet, in its words; `None` when there is no such event, or it was not read.
    pub pods_refused: Option<String>,
}

impl Observed {
    /// Whether it is unknown if gateways miss the table: some have not been heard, or one whose inserts fail does not say how.
    pub fn is_missing_table_unknown(&self) -> bool {
        let is_sink_unknown = match self.sink {
            SinkSeen::NotKnown => true,
            SinkSeen::Failing { .. } => self.insert_error.is_none(),
            SinkSeen::Well => false,
        };
        is_sink_unknown || self.has_unheard()
    }

    /// Whether it is unknown of a gateway why it is not ready.
    pub(crate) fn has_unheard(&self) -> bool {
        let pods = self.workload.as_ref().map_or(&[][..], |workload| &workload.pods);
        pods.iter().any(|pod| pod.is_unheard)
    }
}

/// What scaling came to, before anything is planned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScalingSeen {
    /// The decision; `None` where the spec wants none, and before enough was seen for one: then the number stays.
    pub decision: Option<Decision>,
    /// What the metrics show in every mode; `None` before there are enough samples, and while the pipeline is suspended.
    pub watched: Option<Watched>,
    /// Gateways that do not insert what is in their logs; `None` before there are enough samples: then what the status says still holds.
    pub standing: Option<Standing>,
    /// Gateways on their way out.
    pub drain: Option<DrainStatus>,
    /// The message when another client has set the number of gateways ([`crate::status::replica_conflict_message`]); `None` when none has.
    pub replica_conflict: Option<String>,
}
