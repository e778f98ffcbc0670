//! Records of the queue volume that cannot be read, and what they covered, as far as that is known.
//!
//! Found when the volume is opened, or later. Kafka's answers ([`crate::delivery::orphans`], `sluice-gateway drain`) decide whether their
//! rows are in the table, are read again, or are lost and counted.

use sluice_spool::{BlockId, Coordinates, Lost, Recovered};
use std::collections::BTreeSet;

/// The reason for a file whose end was cut off.
const CUT: &str = "its end is missing or damaged";

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The record; `None` for an incomplete one that is no longer on the volume.
    pub record: Option<BlockId>,
    /// What it covers; `None` if its header cannot be read either.
    pub covers: Option<Coordinates>,
    /// Whether it was recorded as the only copy of its rows.
    pub is_only_copy: bool,
    /// Whether its offsets may have been committed because it was on the volume; `None` if the version that wrote it did not record that,
    /// and nothing else on the volume says so.
    pub is_enqueued: Option<bool>,
}

impl From<Lost> for Missing {
    fn from(Lost { id, coordinates, is_only_copy, relied_on }: Lost) -> Self {
        Self { record: Some(id), covers: coordinates, is_only_copy, is_enqueued: relied_on }
    }
}

impl Missing {
    /// Whether its offsets may have been committed because it was on the volume. If nothing on the volume says so, the current setting
    /// `enqueues` counts.
    pub fn is_enqueued(&self, enqueues: bool) -> bool {
        self.is_enqueued.unwrap_or(enqueues)
    }

    /// Completes it from readable blocks: one run wrote all blocks of a file, with the same setting.
    pub fn learn(&mut self, enqueued_segments: &BTreeSet<u64>) {
        if self.is_enqueued.is_none() && self.record.is_some_and(|id| enqueued_segments.contains(&id.segment))
        {
            self.is_enqueued = Some(true);
        }
    }

    /// All unreadable records that were found when a queue was opened, each with its file and what is wrong with it.
    pub fn found(recovered: &Recovered) -> impl Iterator<Item = (&str, &str, Self)> {
        let aside = recovered.set_aside.iter().flat_map(|aside| {
            let lost = aside.lost.iter().cloned();
            lost.map(|lost| (&*aside.file, &*aside.reason, Self::from(lost)))
        });
        let cut = recovered.cut.iter().flat_map(|cut| {
            let known = cut.blocks.iter().cloned().map(Some);
            let all = known.chain(std::iter::repeat_n(None, cut.headless));
            // A record is reported only once it is marked as kept, which a torn one is not. So if its offsets were committed, its
            // messages were inserted.
            let is_enqueued = cut.is_reliance_known.then_some(false);
            all.map(move |covers| {
                (&*cut.file, CUT, Self { record: None, covers, is_only_copy: false, is_enqueued })
            })
        });
        aside.chain(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_spool::{Cut, PartitionName, SetAside};

    #[test]
    fn what_was_cut_off_is_missing_as_what_is_damaged_is() {
        let partition = PartitionName { topic: "spans".into(), partition: 3 };
        let covers = Coordinates { partition: partition.into(), first: 20, next: 30, rows: 7 };
        let id = BlockId { segment: 1, ordinal: 4 };
        let aside = SetAside {
            file: "segment-1.damaged".to_owned(),
            reason: "a record's header is damaged".to_owned(),
            before: false,
            lost: vec![Lost { id, coordinates: None, is_only_copy: true, relied_on: None }],
        };
        let blocks = vec![covers.clone()];
        let file = "segment-2.spool".to_owned();
        let cut = Cut { file, bytes: 9, blocks, headless: 1, is_reliance_known: true };
        let recovered = Recovered { set_aside: vec![aside], cut: vec![cut], ..Recovered::default() };
        let found: Vec<_> =
            Missing::found(&recovered).map(|(file, _, missing)| (file.to_owned(), missing)).collect();
        let cut_off = |covers| {
            let missing = Missing { record: None, covers, is_only_copy: false, is_enqueued: Some(false) };
            ("segment-2.spool".to_owned(), missing)
        };
        let missing = Missing { record: Some(id), covers: None, is_only_copy: true, is_enqueued: None };
        let aside = ("segment-1.damaged".to_owned(), missing);
        assert_eq!(found, [aside, cut_off(Some(covers)), cut_off(None)]);
    }

    #[test]
    fn what_no_version_has_written_down_is_as_other_blocks_of_its_file_say_or_as_it_is_now() {
        let of = |segment| {
            let record = Some(BlockId { segment, ordinal: 0 });
            Missing { record, covers: None, is_only_copy: false, is_enqueued: None }
        };
        let (mut learns, mut alone) = (of(1), of(2));
        let mut known = Missing { is_enqueued: Some(false), ..of(1) };
        for missing in [&mut learns, &mut alone, &mut known] {
            missing.learn(&BTreeSet::from([1]));
        }
        let is_enqueued = |missing: &Missing| [true, false].map(|enqueues| missing.is_enqueued(enqueues));
        assert_eq!(is_enqueued(&learns), [true, true]);
        assert_eq!(is_enqueued(&alone), [true, false]);
        assert_eq!(is_enqueued(&known), [false, false]);
    }
}
