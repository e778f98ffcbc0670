//! A gateway's wall clock that jumps on demand.
//!
//! Job: compiles the library of `e2e/faults/wall_clock.c`, and holds the file with the offset of the clock. Place in the flow: a scenario
//! passes [`WallClock::environment`] to the gateways that it starts. Owner: the scenario. Limits: only the time of day jumps, for a process
//! that reads it from the C library; monotonic clocks do not change.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::preload::Preload;

const SOURCE: &str = include_str!("../wall_clock.c");

/// The clock of all gateways that were started with its [environment](Self::environment).
pub struct WallClock(Preload);

impl WallClock {
    /// A correct clock. Its files are below `folder`; their names begin with `name`.
    pub fn make(folder: &Path, name: &str) -> Result<WallClock> {
        Preload::make(folder, &format!("{name}-clock"), "the clock that jumps", SOURCE, 1).map(WallClock)
    }

    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        self.0.environment("SLUICE_WALL_CLOCK")
    }

    /// Sets the clock this many seconds ahead of the right time, or behind if negative.
    pub fn set(&self, seconds: i64) -> Result<()> {
        self.0.set(0, seconds)
    }
}

#[cfg(test)]
mod tests {
    use e2e_stack::process::{command, output};

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
