//! What is found of what was written down in a file beside the segments.
//!
//! Owner: the spool thread, which reads them when it is asked to. A file that is there and cannot be read is none of these: it ends the
//! process, as every call does that fails on the volume. Taking it for absent would send a block under another token than the one that it
//! may be in under; and the next start finds it, if it can be read by then.

use sluice_spool::{Directory, Fatal, whole_file};

/// What is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written<T> {
    /// There is no such file.
    Nothing,
    /// It is as it was written.
    Whole(T),
    /// It is not, or another version of this program wrote it.
    Damaged,
}

impl<T> Written<T> {
    /// Reads a file, which has no more than so many bytes; `decode` says `None` when it is damaged.
    pub(super) fn read(
        files: &Directory,
        name: &str,
        bytes_max: usize,
        decode: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Self, Fatal> {
        let read = whole_file::read(files, name, bytes_max);
        let bytes = read.map_err(|source| Fatal { action: "read", file: name.to_owned(), source })?;
        Ok(match bytes.as_deref().map(std::str::from_utf8) {
            None => Self::Nothing,
            Some(text) => text.ok().and_then(decode).map_or(Self::Damaged, Self::Whole),
        })
    }

    /// What was written, if that is known.
    pub fn whole(self) -> Option<T> {
        match self {
            Self::Whole(written) => Some(written),
            Self::Nothing | Self::Damaged => None,
        }
    }

    /// Whether something was written and cannot be told.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged)
    }
}
