//! A library of C that is preloaded into gateways, and the file by whose numbers it does what a scenario wants.
//!
//! Owner: the scenario. Limits: each number is signed, has 64 bits, and is in the machine's byte order.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use e2e_stack::process::{command, output};

/// Bytes of a number in the file.
const NUMBER_BYTES: u64 = 8;

/// A compiled library and its file.
pub struct Preload {
    library: PathBuf,
    switch: PathBuf,
    file: File,
}

impl Preload {
    /// Compiles `source`, and makes the file with so many zeros. The files are below `folder`; their names begin with `name`. `what` names
    /// the library in an error.
    pub fn make(folder: &Path, name: &str, what: &str, source: &str, numbers: u64) -> Result<Preload> {
        let at = |end: &str| folder.join(format!("{name}.{end}"));
        let (code, library, switch) = (at("c"), at("so"), at("switch"));
        std::fs::write(&code, source).with_context(|| format!("write {}", code.display()))?;
        let mut cc = command("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&code);
        output(&mut cc).with_context(|| format!("compile {what}"))?;
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&switch);
        let file = file.with_context(|| format!("open {}", switch.display()))?;
        let preload = Preload { library, switch, file };
        (0..numbers).try_for_each(|place| preload.set(place, 0))?;
        Ok(preload)
    }

    /// The environment variables of its gateways; `switch` is the one with the path of the file.
    pub fn environment(&self, switch: &str) -> Vec<(String, PathBuf)> {
        vec![("LD_PRELOAD".to_owned(), self.library.clone()), (switch.to_owned(), self.switch.clone())]
    }

    /// Writes a number, by its place from 0 on.
    pub fn set(&self, place: u64, number: i64) -> Result<()> {
        // In place, because gateways have the file mapped.
        let written = self.file.write_all_at(&number.to_ne_bytes(), place * NUMBER_BYTES);
        written.with_context(|| format!("write {}", self.switch.display()))
    }

    /// Reads a number, by its place from 0 on.
    pub fn get(&self, place: u64) -> Result<i64> {
        let mut bytes = [0; 8];
        let read = self.file.read_exact_at(&mut bytes, place * NUMBER_BYTES);
        read.with_context(|| format!("read {}", self.switch.display()))?;
        Ok(i64::from_ne_bytes(bytes))
    }
}
