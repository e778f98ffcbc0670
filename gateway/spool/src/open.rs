//! Opening a queue or a log: reads every segment in the folder, puts what is found in order and makes it durable before the caller relies on
//! it.

use crate::{
    failure::Failure,
    files::{Fatal, FileAt, Files},
    format::{Kind, VERSION_PACKED, name, parse_name},
    queue::{Options, Queue},
    recover::{Durable, FoundSegment, Partitions, Recovery, Verdict},
    recovered::{Recovered, SetAside},
    segment::Segment,
};
use std::{cell::Cell, collections::BTreeMap, sync::Arc};

/// The buffer for reading segments, in bytes. Chosen: large enough that a disk reads at its full speed.
const BUFFER_BYTES: usize = 256 << 10;

/// Why a queue cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A call failed.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// A newer program wrote the segment.
    #[error(
        "{file} on the queue volume has format version {version}; this program reads up to {VERSION_PACKED}: use a newer image"
    )]
    Newer { file: String, version: u32 },
    /// Two files have the same segment number.
    #[error("{file} exists twice on the queue volume, once marked as damaged; remove one of the two files")]
    Twice { file: String },
}

impl<F: Files> Queue<F> {
    /// Opens the queue in a directory that belongs to this process alone, and reports what was found.
    pub fn open(files: F, options: Options) -> Result<(Self, Recovered), OpenError> {
        let found = remove_drafts(&files)?;
        let mut queue = Self {
            files,
            options,
            segments: BTreeMap::new(),
            partitions: Partitions::default(),
            next: found.last_key_value().map_or(1, |(sequence, _)| sequence.saturating_add(1)),
            kept_bytes: 0,
            removed_bytes: 0,
            // Drafts were removed, and an earlier run's removals or renames may not be durable yet.
            directory_dirty: true,
            failure: Failure::default(),
        };
        let mut recovery = recovery();
        for (&sequence, &kind) in &found {
            let newest = sequence.saturating_add(1) == queue.next;
            let place = Found { sequence, kind, newest, durable: Durable::default() };
            match take_over(&queue.files, &queue.options, place, (&mut queue.partitions, &mut recovery))? {
                Taken::Ours(segment) => {
                    queue.segments.insert(sequence, *segment);
                }
                Taken::Foreign { bytes } => queue.kept_bytes = queue.kept_bytes.saturating_add(bytes),
            }
        }
        queue.settle_into_order()?;
        Ok((queue, recovery.report))
    }

    /// Cuts, seals, renames and removes files, then syncs: nothing is appended to a segment of an earlier run.
    fn settle_into_order(&mut self) -> Result<(), Fatal> {
        let sequences: Vec<u64> = self.segments.keys().copied().collect();
        for sequence in sequences {
            let segment = self.segments.get_mut(&sequence).expect("its key was just seen");
            let damaged = segment.damaged;
            close_off(segment)?;
            if damaged {
                self.rename_damaged(sequence)?;
            }
            self.remove_if_empty(sequence)?;
        }
        self.sync_directory()
    }
}

/// A segment's file, as it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub sequence: u64,
    pub kind: Kind,
    /// Whether no segment has a higher sequence.
    pub newest: bool,
    pub durable: Durable,
}

/// What a file is.
pub(crate) enum Taken<F> {
    /// A segment of this queue.
    Ours(Box<Segment<F>>),
    /// It is not, and was set aside. It stays on the volume.
    Foreign { bytes: u64 },
}

/// State that is passed from segment to segment while a folder is opened.
pub(crate) fn recovery() -> Recovery {
    Recovery { report: Recovered::default(), buffer: vec![0; BUFFER_BYTES] }
}

/// Reads a segment. Only the newest one can have a torn tail: the others were sealed before the next was created.
pub(crate) fn take_over<F: Files>(
    files: &F,
    options: &Options,
    Found { sequence, kind, newest, durable }: Found,
    (partitions, recovery): (&mut Partitions, &mut Recovery),
) -> Result<Taken<F::File>, OpenError> {
    let file_name = name(sequence, kind);
    let file = Arc::new(files.open(&file_name).map_err(Fatal::of_read("open", &file_name))?);
    let (identity, failure) = (options.identity, Cell::default());
    let reads_all = options.reads_all;
    let of_segment = file.clone();
    let left =
        FoundSegment { file: of_segment, sequence, kind, newest, identity, reads_all, durable, failure };
    match left.recover(partitions, recovery)? {
        Verdict::Newer(version) => Err(OpenError::Newer { file: file_name, version }),
        Verdict::Ours(segment) => Ok(Taken::Ours(segment)),
        Verdict::Foreign => {
            let bytes = file.size().map_err(Fatal::of_read("read the size of", &file_name))?;
            set_foreign_aside(files, (sequence, kind), &mut recovery.report)?;
            Ok(Taken::Foreign { bytes })
        }
    }
}

fn set_foreign_aside(
    files: &impl Files,
    (sequence, kind): (u64, Kind),
    report: &mut Recovered,
) -> Result<(), Fatal> {
    if kind == Kind::Damaged {
        return Ok(());
    }
    let (from, file) = (name(sequence, kind), name(sequence, Kind::Damaged));
    files.rename(&from, &file).map_err(Fatal::of("rename", &from))?;
    let reason = "it belongs to another queue, or was renamed".to_owned();
    report.set_aside.push(SetAside { file, reason, before: false, lost: Vec::new() });
    Ok(())
}

/// Cuts and seals a segment of an earlier run, and makes it durable: nothing is appended to it.
pub(crate) fn close_off<F: FileAt>(segment: &mut Segment<F>) -> Result<(), Fatal> {
    for ordinal in std::mem::take(&mut segment.torn) {
        // Torn blocks are reported now. A later run would take them for damage, like blocks before one that is marked.
        segment.settle(ordinal)?;
        segment.sync()?;
    }
    if segment.live > 0 || segment.damaged {
        segment.seal()?;
        // The data that was read may have been in memory only.
        segment.sync()?;
    }
    Ok(())
}

/// The segments in the folder. Removes files that never got their final name.
pub(crate) fn remove_drafts(files: &impl Files) -> Result<BTreeMap<u64, Kind>, OpenError> {
    let mut found = BTreeMap::new();
    for file in files.names().map_err(Fatal::of_read("list", "the directory"))? {
        let Some((sequence, kind)) = parse_name(&file) else { continue };
        if kind == Kind::New {
            files.remove(&file).map_err(Fatal::of("remove", &file))?;
        } else if found.insert(sequence, kind).is_some() {
            return Err(OpenError::Twice { file });
        }
    }
    Ok(found)
}
