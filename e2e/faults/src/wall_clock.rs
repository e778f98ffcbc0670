//! A gateway's wall clock that jumps on demand.
//!
//! Job: compiles the library of `e2e/faults/wall_clock.c`, and holds the file with the offset of the clock. Place in the flow: a scenario
//! passes [`WallClock::environment`] to the gateways that it starts. Owner: the scenario. Limits: only the time of day jumps, for a process
//! that reads it from the C library; monotonic clocks do not change.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use e2e_stack::process::{command, output};

/// The library's source.
const SOURCE: &str = include_str!("../wall_clock.c");

/// The clock of all gateways that were started with its [environment](Self::environment).
pub struct WallClock {
    library: PathBuf,
    jump: PathBuf,
    file: File,
}

impl WallClock {
    /// A correct clock. Its files are below `folder`; their names begin with `name`.
    pub fn make(folder: &Path, name: &str) -> Result<WallClock> {
        let at = |end: &str| folder.join(format!("{name}-{end}"));
        let (source, library, jump) = (at("clock.c"), at("clock.so"), at("clock.jump"));
        std::fs::write(&source, SOURCE).with_context(|| format!("write {}", source.display()))?;
        let mut cc = command("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        output(&mut cc).context("compile the clock that jumps")?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&jump);
        let clock =
            WallClock { library, file: file.with_context(|| format!("open {}", jump.display()))?, jump };
        clock.set(0)?;
        Ok(clock)
    }

    /// The environment variables of its gateways.
    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.library.clone()),
            ("SLUICE_WALL_CLOCK".to_owned(), self.jump.clone()),
        ]
    }

    /// Sets the clock this many seconds ahead of the right time, or behind if negative.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // In place, because gateways have the file mapped.
        self.file
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .with_context(|| format!("write {}", self.jump.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_the_clock_jump_and_another_one_does_not() {
        let folder = std::env::temp_dir().join(format!("sluice-wall-clock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let clock = WallClock::make(&folder, "test").unwrap();
        let seconds = |environment: Vec<(String, PathBuf)>| {
            let mut date = command("date");
            date.args(["-u", "+%s"]).envs(environment);
            output(&mut date).unwrap().trim().parse::<i64>().unwrap()
        };
        let right = seconds(Vec::new());
        clock.set(3_600).unwrap();
        assert!((3_600..3_700).contains(&(seconds(clock.environment()) - right)));
        clock.set(-3_600).unwrap();
        assert!((-3_600..-3_500).contains(&(seconds(clock.environment()) - right)));
        assert!((0..100).contains(&(seconds(Vec::new()) - right)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
