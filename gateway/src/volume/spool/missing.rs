//! Records of the queue volume that cannot be read, and what they covered as far as anybody can say.
//!
//! Found when the volume is opened, or later; judged by what Kafka says ([`crate::delivery::orphans`], `sluice-gateway drain`): then they
//! are in the table, read again, or lost and counted.

use sluice_spool::{BlockId, Coordinates, Lost, Recovered};
use std::collections::BTreeSet;

/// What is said of the end of a file that was cut off.
const CUT: &str = "its end is missing or damaged";

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// To end it with; `None` for one that was not written to its end, of which nothing is on the volume any more.
    pub record: Option<BlockId>,
    /// What it covers; `None` when its header cannot be read either.
    pub covers: Option<Coordinates>,
    /// Whether it was written down as the only copy of its rows.
    pub is_only_copy: bool,
    /// Whether its offsets may have been committed because it was on the volume; `None` where a version wrote it that did not write that down,
    /// and nothing else says so.
    pub is_enqueued: Option<bool>,
}

impl From<Lost> for Missing {
    fn from(Lost { id, coordinates, is_only_copy, relied_on }: Lost) -> Self {
        Self { record: Some(id), covers: coordinates, is_only_copy, is_enqueued: relied_on }
    }
}

impl Missing {
    /// Whether its offsets may have been committed because it was on the volume. Where nothing on the volume says so, it is taken to be as
    /// `enqueues` says that it is done now.
    pub fn is_enqueued(&self, enqueues: bool) -> bool {
        self.is_enqueued.unwrap_or(enqueues)
    }

    /// Learns from blocks that can be read: those of a file were written by one run, and all of them are what one of these is.
    pub fn learn(&mut self, enqueued_segments: &BTreeSet<u64>) {
        if self.is_enqueued.is_none() && self.record.is_some_and(|id| enqueued_segments.contains(&id.segment))
        {
            self.is_enqueued = Some(true);
        }
    }

    /// All that was found when a queue was opened, each with its file and what is wrong with that.
    pub fn found(recovered: &Recovered) -> impl Iterator<Item = (&str, &str, Self)> {
        let aside = recovered.set_aside.iter().flat_map(|aside| {
            let lost = aside.lost.iter().cloned();
            lost.map(|lost| (&*aside.file, &*aside.reason, Self::from(lost)))
        });
        let cut = recovered.cut.iter().flat_map(|cut| {
            let known = cut.blocks.iter().cloned().map(Some);
            let all = known.chain(std::iter::repeat_n(None, cut.headless));
            // Nobody is told of a record before it is kept, and so known from a torn one: whoever committed its offsets has inserted its
            // messages.
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
