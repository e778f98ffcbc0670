//! A small file beside the segments that is whole or absent, also after a crash: written beside its place, synced, and moved there.
//!
//! Owner: the spool thread. What a crash has left half written has a name that ends with [`DRAFT_SUFFIX`], counts for nothing, and is
//! removed by whoever has files of its beginning when the volume is opened.

use sluice_spool::is_full;
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

/// What the name of one ends with that is being written.
pub(super) const DRAFT_SUFFIX: &str = ".new";

/// Puts it in its place durably. `false` when the device has no room for it, at whichever step it says so: then nothing has changed.
pub(super) fn replace(folder: &Path, name: &str, text: &str) -> io::Result<bool> {
    let draft = folder.join(format!("{name}{DRAFT_SUFFIX}"));
    match write_synced(&draft, text).and_then(|()| std::fs::rename(&draft, folder.join(name))) {
        Ok(()) => {}
        Err(error) if is_full(&error) => {
            remove(&draft)?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::block_frames::tests::Volume;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_draft() {
        let volume = Volume::new("whole-file");
        for text in ["one", "another"] {
            assert!(replace(volume.path(), "name", text).unwrap());
            assert_eq!(std::fs::read_to_string(volume.path().join("name")).unwrap(), text);
        }
        assert_eq!(volume.files().len(), 1);
    }

    #[test]
    fn without_room_what_was_there_stays() {
        let volume = Volume::new("whole-file-full");
        assert!(replace(volume.path(), "name", "one").unwrap());
        std::os::unix::fs::symlink("/dev/full", volume.path().join("name.new")).unwrap();
        assert!(!replace(volume.path(), "name", "another").unwrap());
        assert_eq!(std::fs::read_to_string(volume.path().join("name")).unwrap(), "one");
        assert_eq!(volume.files().len(), 1);
        // A device that has no room for the draft itself leaves none to be removed.
        remove(&volume.path().join("name.new")).unwrap();
    }
}
