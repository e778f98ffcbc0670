//! Rules for all of the source.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod links;
mod rooms;

use std::fs;
use std::path::{Path, PathBuf};

/// The files with this extension below a folder. Files and folders that are not `wanted` are left out.
fn files(folder: &Path, extension: &str, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| wanted(path)) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}
