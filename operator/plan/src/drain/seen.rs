//! The facts for a step of a drain: what gateways answered, and which of them do not run.

use super::{SILENT_SECONDS, stopped::Stopped};
use std::{collections::BTreeMap, ops::Range};

/// The answer of one gateway, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Its pod does not exist or does not run, and the consumer group does not count it as a member.
    Gone,
    /// Its pod ended or was created, or its process started, less than a session ago: the group may still count it as a member
    /// ([`super::membership`]), and no other gateway reads its partitions. Once it is in the group again, it gets the request and leaves at once.
    Away,
    /// An older gateway, which does not know the request. It leaves the group when its pod is deleted.
    Unknown,
    /// It has carried out the request. A drained gateway has no blocks and nothing uncommitted.
    Done,
    /// It is drained, and its queue volume must stay: it is damaged, or has dead letters of `source.otlp`, or the gateway is too old to say.
    Damaged,
    /// It drains and still holds blocks, or uncommitted messages.
    Holds {
        /// Blocks that are not inserted.
        blocks: u64,
    },
    /// It cannot read a log on its volume now, and the requests in it are not inserted.
    Unreadable,
    /// Another pod answers at the address of its pod.
    OtherPod,
    /// It did not answer in time.
    Silent,
}

impl Answer {
    pub(super) fn lets_go(self) -> bool {
        matches!(self, Self::Gone | Self::Unknown | Self::Done | Self::Damaged)
    }
}

/// The facts for a step; answers by ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Replicas of the StatefulSet.
    pub current: u32,
    /// Replicas that the plan wants.
    pub wanted: u32,
    /// Ordinals of pods that run.
    pub running: Vec<u32>,
    /// Ordinals of pods that do not run and may still be members of the group.
    pub away: Vec<u32>,
    /// Answers to [`super::request`].
    pub answers: BTreeMap<u32, Answer>,
    /// With `source.otlp`, gateways that do not run: only they insert what may be on their volumes.
    pub stopped: BTreeMap<u32, Stopped>,
    /// Whether the source is Kafka: other gateways read again what one of them did not insert.
    pub has_kafka: bool,
}

impl Seen {
    /// The gateway if it does not run and only it can empty its volume. Higher ordinals than those of the StatefulSet do not come back.
    pub(super) fn stopped(&self, ordinal: u32) -> Option<&Stopped> {
        self.stopped.get(&ordinal).filter(|_| ordinal < self.current)
    }

    /// Those of these gateways that do not run.
    pub(super) fn stopped_of(&self, ordinals: Range<u32>) -> impl Iterator<Item = (u32, &Stopped)> {
        ordinals.filter_map(move |ordinal| Some((ordinal, self.stopped(ordinal)?)))
    }

    /// Whether one of these gateways does not run, and is not just restarting.
    pub(super) fn has_stopped(&self, ordinals: Range<u32>) -> bool {
        self.stopped_of(ordinals).any(|(_, stopped)| stopped.seconds >= SILENT_SECONDS)
    }
}
