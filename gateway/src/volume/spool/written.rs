//! The result of reading a file beside the segments.
//!
//! Owner: the spool thread, which reads the files on request. A file that exists and cannot be read is not a result: it ends the process,
//! like every failed call on the volume. If it were taken for absent, a block could be sent under another token than before. The next start
//! finds the file, if it can read it.

use sluice_spool::{Directory, Fatal, whole_file};

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written<T> {
    /// There is no such file.
    Nothing,
    /// The file is complete.
    Whole(T),
    /// The file is damaged, or another version of this program wrote it.
    Damaged,
}

impl<T> Written<T> {
    /// Reads a file of at most this many bytes; `decode` returns `None` if it is damaged.
    pub(super) fn read(
        files: &Directory,
        name: &str,
        bytes_max: usize,
        decode: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Self, Fatal> {
        let read = whole_file::read(files, name, bytes_max);
        let bytes =
            read.map_err(|source| Fatal { action: "read", file: name.to_owned(), source, is_read: true })?;
        Ok(match bytes.as_deref().map(std::str::from_utf8) {
            None => Self::Nothing,
            Some(text) => text.ok().and_then(decode).map_or(Self::Damaged, Self::Whole),
        })
    }

    /// The content, if it is known.
    pub fn whole(self) -> Option<T> {
        match self {
            Self::Whole(written) => Some(written),
            Self::Nothing | Self::Damaged => None,
        }
    }

    /// Whether there is a file whose content is unknown.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged)
    }
}
