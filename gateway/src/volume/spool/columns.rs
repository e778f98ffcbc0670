//! The columns that the blocks on the volume were encoded for.
//!
//! A record has only their number. When the table has other columns, its block can still be sent with the earlier names and types if the
//! table has those too ([`sluice_clickhouse::table::check_encoded`]). So they are recorded beside the segments.
//!
//! | file | content |
//! | --- | --- |
//! | `columns-N` | the columns with the number N, in 16 hex digits: a line with the XXH3 of what follows, in as many; then a line for each column: its name, a tab, its type |
//! | `columns-N.new` | an incomplete file; ignored |
//!
//! Owner: the spool thread. A file is complete and durable before the first record of its number is appended; without room for it, the
//! block is not appended either. When the volume is opened, files without blocks are removed; when it is closed without blocks, all of
//! them are. Volumes of earlier versions have none: their blocks can only go to the columns that they were encoded for.
//!
//! Limits: about 2 KiB for each change of the table while blocks are on the volume.

use super::Written;
use sluice_clickhouse::{column::TableColumns, table};
use sluice_spool::{
    Directory, Fatal, FileAt as _, Files as _,
    whole_file::{self, DRAFT_SUFFIX},
};
use std::{collections::BTreeSet, io, path::Path};
use twox_hash::XxHash3_64;

/// The prefix of each file name.
const PREFIX: &str = "columns-";

/// The longest file. Chosen: hundreds of times the size of a table's columns; a larger file is damaged.
const COLUMNS_BYTES_MAX: usize = 1 << 20;

/// The folder of the files.
#[derive(Debug)]
pub(super) struct ColumnFiles(Directory);

impl ColumnFiles {
    /// Opens the folder, and removes files that no block needs and incomplete ones.
    pub fn open(folder: &Path, needed: &BTreeSet<u64>) -> io::Result<Self> {
        let files = Self(Directory::open(folder)?);
        files.remove_all_but(needed)?;
        Ok(files)
    }

    fn remove_all_but(&self, needed: &BTreeSet<u64>) -> io::Result<()> {
        for name in self.0.names()? {
            let is_needed = |number| needed.contains(&number);
            if is_draft(&name) || number_of(&name).is_some_and(|number| !is_needed(number)) {
                whole_file::remove(&self.0, &name)?;
            }
        }
        Ok(())
    }

    /// Removes all files. Call when no block is left, so that an emptied volume looks unused.
    pub fn remove_all(&self) -> Result<(), Fatal> {
        let removed = self.remove_all_but(&BTreeSet::new());
        removed.map_err(|source| Fatal { action: "remove", file: PREFIX.to_owned(), source, is_read: false })
    }

    /// Writes a file durably. `false` if the device has no room for it.
    pub fn write(&self, number: u64, columns: &TableColumns) -> Result<bool, Fatal> {
        let name = name_of(number);
        let text = encode(columns);
        self.place(&name, &text).map_err(|source| Fatal {
            action: "write",
            file: name,
            source,
            is_read: false,
        })
    }

    fn place(&self, name: &str, text: &str) -> io::Result<bool> {
        let found = whole_file::read(&self.0, name, COLUMNS_BYTES_MAX)?;
        if found.is_none_or(|found| found != text.as_bytes()) {
            return whole_file::replace(&self.0, name, text.as_bytes());
        }
        // The run that wrote it may have died before it was durable.
        self.0.open(name)?.sync()?;
        self.0.sync_directory()?;
        Ok(true)
    }

    /// Reads the columns of this number.
    pub fn read(&self, number: u64) -> Result<Written<TableColumns>, Fatal> {
        Written::read(&self.0, &name_of(number), COLUMNS_BYTES_MAX, decode)
    }
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of a file of this name; `None` for an incomplete file, and for foreign files.
fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
    (name_of(number) == name).then_some(number)
}

fn is_draft(name: &str) -> bool {
    name.strip_suffix(DRAFT_SUFFIX).is_some_and(|name| number_of(name).is_some())
}

fn encode(columns: &TableColumns) -> String {
    let lines = columns.names_and_types().into_iter().map(|(name, of)| format!("{name}\t{of}\n"));
    let lines: String = lines.collect();
    format!("{:016x}\n{lines}", XxHash3_64::oneshot(lines.as_bytes()))
}

fn decode(text: &str) -> Option<TableColumns> {
    let (check, lines) = text.split_once('\n')?;
    if u64::from_str_radix(check, 16) != Ok(XxHash3_64::oneshot(lines.as_bytes())) {
        return None;
    }
    let pair = |line: &str| line.split_once('\t').map(|(name, of)| (name.to_owned(), of.to_owned()));
    let names_and_types: Option<Vec<_>> = lines.lines().map(pair).collect();
    table::columns_of(&names_and_types?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::test_volume::Volume;
    use sluice_clickhouse::column::Layout;

    fn columns(layout: Layout) -> TableColumns {
        let columns = TableColumns::of_layout(layout);
        TableColumns { described: columns.names_and_types(), ..columns }
    }

    #[test]
    fn columns_are_read_as_they_were_written_and_damage_is_found() {
        let volume = Volume::new("columns");
        let files = ColumnFiles::open(volume.path(), &BTreeSet::new()).unwrap();
        assert_eq!(files.read(7).unwrap(), Written::Nothing);
        for layout in [Layout::Json, Layout::Nested, Layout::Nested] {
            assert!(files.write(7, &columns(layout)).unwrap());
            assert_eq!(files.read(7).unwrap(), Written::Whole(columns(layout)));
        }
        let file = volume.path().join("columns-0000000000000007");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("UInt64", "UInt32")).unwrap();
        assert_eq!(files.read(7).unwrap(), Written::Damaged);
        std::fs::write(&file, "").unwrap();
        assert_eq!(files.read(7).unwrap(), Written::Damaged);
    }

    #[test]
    fn a_file_goes_with_the_last_block_of_its_columns_and_drafts_go_too() {
        let volume = Volume::new("columns-needed");
        let files = ColumnFiles::open(volume.path(), &BTreeSet::new()).unwrap();
        for number in [1, 2] {
            assert!(files.write(number, &columns(Layout::Map)).unwrap());
        }
        std::fs::write(volume.path().join("columns-0000000000000001.new"), "half").unwrap();
        std::fs::write(volume.path().join("another"), "").unwrap();
        std::fs::create_dir(volume.path().join("columns-of-somebody-else")).unwrap();
        let files = ColumnFiles::open(volume.path(), &BTreeSet::from([1])).unwrap();
        let read = [1, 2].map(|number| files.read(number).unwrap());
        assert_eq!(read, [Written::Whole(columns(Layout::Map)), Written::Nothing]);
        assert_eq!(volume.files().len(), 3);
        files.remove_all().unwrap();
        assert_eq!((files.read(1).unwrap(), volume.files().len()), (Written::Nothing, 2));
        std::fs::create_dir(volume.path().join(name_of(3))).unwrap();
        assert_eq!(files.read(3).unwrap_err().action, "read", "it is not absent");
    }
}
