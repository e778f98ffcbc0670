//! A small file beside the segments that is whole or absent, even after a crash: written to a draft, synced, and renamed.
//!
//! Owner: the owner of the directory. A draft that a crash left has a name that ends with [`DRAFT_SUFFIX`], and is ignored. When the
//! volume is opened, the code that owns files with its prefix removes it.

use crate::files::{FileAt, Files, is_full};
use std::io;

/// The suffix of a draft's name.
pub const DRAFT_SUFFIX: &str = ".new";

/// Replaces the file durably. `false` if the device is full, at whichever step: then nothing has changed.
pub fn replace(files: &impl Files, name: &str, bytes: &[u8]) -> io::Result<bool> {
    let draft = format!("{name}{DRAFT_SUFFIX}");
    match write_synced(files, &draft, bytes).and_then(|()| files.rename(&draft, name)) {
        Ok(()) => {}
        Err(error) if is_full(&error) => {
            remove(files, &draft)?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    files.sync_directory()?;
    Ok(true)
}

/// The file's bytes; `None` if it does not exist. Bytes beyond `bytes_max` are left out: the file was not written like that, and its
/// checksum will not match.
pub fn read(files: &impl Files, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match files.open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size.min(bytes_max)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

/// Removes the file, if it exists.
pub fn remove(files: &impl Files, name: &str) -> io::Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_synced(files: &impl Files, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = files.create(name)?;
    file.write_all_at(bytes, 0)?;
    file.sync()
}
