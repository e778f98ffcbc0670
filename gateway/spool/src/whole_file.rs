//! A small file beside the segments that is whole or absent, also after a crash: written beside its place, synced, and moved there.
//!
//! Owner: whoever owns the directory. What a crash has left half written has a name that ends with [`DRAFT_SUFFIX`], counts for nothing, and
//! is removed by whoever has files of its beginning when the volume is opened.

use crate::files::{FileAt, Files, is_full};
use std::io;

/// What the name of one ends with that is being written.
pub const DRAFT_SUFFIX: &str = ".new";

/// Puts it in its place durably. `false` when the device has no room for it, at whichever step it says so: then nothing has changed.
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

/// Its bytes; `None` where there is no such file. What it has beyond `bytes_max` is left out: it was not written so, which its check says.
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

/// Removes it, if it is there.
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
