//! The file system, as the queue uses it: a flat directory of files that are read and written at positions.
//!
//! A trait, because tests run the same queue on a model disk that tears, loses and reorders unsynced writes.
//!
//! After a crash, the bytes of a file up to its last [`FileAt::sync`] and names up to the last [`Files::sync_directory`] are there. Any
//! part of later changes may be there, in any order.

use rustix::io::Errno;
use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// A directory.
pub trait Files {
    /// An open file in it.
    type File: FileAt;

    /// The names of all files, in no order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file for reading and writing; an existing file is emptied.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Renames a file. Open handles stay valid.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// An open file.
pub trait FileAt {
    /// Its size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills the buffer with the bytes from a position.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all bytes at a position. After an error any part of them may be written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Shortens the file.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Makes bytes and size durable. After an error the state of writes since the last sync is unknown: the system forgets the failure,
    /// and a second call succeeds without writing anything.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the operating system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    open: File,
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), open: File::open(path)? })
    }
}

impl Files for Directory {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not one of the queue's.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path.join(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.open.sync_all()
    }
}

impl FileAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    /// `fdatasync`: makes the size durable with the bytes, but not times.
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A failed call, after which the state of the volume is unknown. The process ends; its next run reads the volume again.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {file} on the queue volume: {source}")]
pub struct Fatal {
    /// The action that failed.
    pub action: &'static str,
    pub file: String,
    /// What the system said.
    pub source: io::Error,
    /// Whether it was a call that changes nothing.
    pub is_read: bool,
}

impl Fatal {
    /// Names the action and the file.
    pub(crate) fn of(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self { action, file, source, is_read: false }
    }

    /// Names the action, which changes nothing, and the file.
    pub(crate) fn of_read(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self { action, file, source, is_read: true }
    }

    /// Whether the disk could not give what is stored. The state of what was written before is known then: another try may succeed, and other files
    /// can be used. Whatever else fails, such as a missing permission, is no fault of one file.
    pub fn is_unreadable(&self) -> bool {
        self.is_read && is_of_disk(&self.source)
    }
}

/// Whether the disk, or the file system on it, has failed: an input/output error, or damage that the file system has found.
pub fn is_of_disk(error: &io::Error) -> bool {
    let of_disk = [Errno::IO, Errno::UCLEAN, Errno::BADMSG].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| of_disk.contains(&errno))
}

/// Whether a write failed for lack of space.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a read failed because the file ends too soon, which is a fact about the file. Other failures say nothing about its content.
pub(crate) fn is_short(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_that_the_disk_has_failed_leaves_a_file_unreadable() {
        let read = |errno: Errno| Fatal::of_read("read", "offsets")(io::Error::from(errno));
        for errno in [Errno::IO, Errno::UCLEAN, Errno::BADMSG] {
            assert!(read(errno).is_unreadable(), "{errno}");
            assert!(!Fatal::of("write", "offsets")(io::Error::from(errno)).is_unreadable(), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ROFS, Errno::ISDIR] {
            assert!(!read(errno).is_unreadable(), "{errno}");
        }
        assert!(!Fatal::of_read("read", "offsets")(io::Error::other("no number")).is_unreadable());
    }
}
