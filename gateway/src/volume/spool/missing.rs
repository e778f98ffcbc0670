//! Records of the queue volume that cannot be read, and what they covered as far as anybody can say.
//!
//! Found when the volume is opened, or later; judged by what Kafka says ([`crate::volume::orphans`], `sluice-gateway drain`): then they
//! are in the table, read again, or lost and counted.

use sluice_spool::{BlockId, Coordinates, Lost, Recovered};

/// What is said of the end of a file that was cut off.
const CUT: &str = "its end was not written, or is damaged";

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// To end it with; `None` for one that was not written to its end, of which nothing is on the volume any more.
    pub record: Option<BlockId>,
    /// What it covers; `None` when its header cannot be read either.
    pub covers: Option<Coordinates>,
    /// Whether it was written down as the only copy of its rows.
    pub is_only_copy: bool,
}

impl From<Lost> for Missing {
    fn from(Lost { id, coordinates, is_only_copy }: Lost) -> Self {
        Self { record: Some(id), covers: coordinates, is_only_copy }
    }
}

impl Missing {
    /// Whether its offsets may have been committed because it was on the volume, where `enqueues` says that this is done. Of one that was
    /// not written to its end they were not: nobody is told of a record before it is [kept](sluice_spool::Queue::keep_blocks). Whoever
    /// committed them has inserted its messages.
    pub fn is_enqueued(&self, enqueues: bool) -> bool {
        enqueues && self.record.is_some()
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
            all.map(|covers| (&*cut.file, CUT, Self { record: None, covers, is_only_copy: false }))
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
            lost: vec![Lost { id, coordinates: None, is_only_copy: true }],
        };
        let blocks = vec![covers.clone()];
        let cut = Cut { file: "segment-2.spool".to_owned(), bytes: 9, blocks, headless: 1 };
        let recovered = Recovered { set_aside: vec![aside], cut: vec![cut], ..Recovered::default() };
        let found: Vec<_> =
            Missing::found(&recovered).map(|(file, _, missing)| (file.to_owned(), missing)).collect();
        let missing = |record, covers, is_only_copy| Missing { record, covers, is_only_copy };
        let cut_off = |covers| ("segment-2.spool".to_owned(), missing(None, covers, false));
        let aside = ("segment-1.damaged".to_owned(), missing(Some(id), None, true));
        assert_eq!(found, [aside, cut_off(Some(covers)), cut_off(None)]);
    }
}
