//! The queue volumes of pods: which blocks are on them, and which owner has them.

use super::owner::OnVolume;
use crate::SpooledRange;
use std::collections::BTreeMap;

/// Pods with a volume. Other owners have none.
pub const PODS: usize = 2;

/// The volume of each pod.
#[derive(Debug, Default)]
pub struct Volumes {
    blocks: [Vec<OnVolume>; PODS],
    /// The last owner in the pod.
    owners: [Option<usize>; PODS],
}

impl Volumes {
    /// The owner that has the pod's volume, or had it last.
    pub fn owner(&self, pod: usize) -> Option<usize> {
        self.owners[pod]
    }

    /// The pod whose volume this owner has.
    pub fn pod(&self, owner: usize) -> Option<usize> {
        self.owners.iter().position(|last| *last == Some(owner))
    }

    /// Puts a block on it, unless it is there.
    pub fn put(&mut self, pod: usize, block: OnVolume) {
        if !self.blocks[pod].iter().any(|(kept, _)| kept.range == block.0.range) {
            self.blocks[pod].push(block);
        }
    }

    /// The blocks on it, in the order of the log. A range that was dropped and read again may be there twice, with another end.
    pub fn left(&self, pod: usize) -> Vec<OnVolume> {
        let mut left = self.blocks[pod].clone();
        left.sort_by_key(|(kept, _)| kept.range.first);
        left.dedup_by_key(|(kept, _)| kept.range.first);
        left
    }

    /// A new owner of the volume takes these blocks over; other blocks on it are dropped, and their messages are read again. Returns how
    /// many of the blocks have messages that Kafka no longer has.
    pub fn begin(
        &mut self,
        pod: usize,
        owner: usize,
        taken: &BTreeMap<i64, SpooledRange>,
        log_start: i64,
    ) -> u64 {
        self.owners[pod] = Some(owner);
        self.blocks[pod].retain(|(kept, _)| taken.get(&kept.range.first) == Some(kept));
        self.blocks[pod].iter().filter(|(kept, _)| kept.range.next <= log_start).count() as u64
    }
}
