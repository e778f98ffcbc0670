//! Which group's turn it is: of those whose files have changed since they last ran, or of all if there is none, the one that ran longest
//! ago; of those that never ran, the number of commits decides, so that machines without a memory take turns, too.
//!
//! When each group last ran well is kept in the cache, as JSON: the group's name, the commit, and seconds since 1970.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use e2e_stack::paths::{Paths, put, workspace};
use e2e_stack::process::{command, output};
use serde::{Deserialize, Serialize};

use super::group::{self, Group};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A run of a group that passed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Ran {
    commit: String,
    /// Seconds since 1970.
    at: u64,
}

/// When each group ran.
#[derive(Debug)]
pub struct Rotation {
    file: PathBuf,
    ran: BTreeMap<String, Ran>,
}

impl Rotation {
    /// Reads what the cache has. A file that cannot be understood counts as none: then all groups count as never run.
    ///
    /// # Errors
    /// When there is a file that cannot be read.
    pub fn read(paths: &Paths) -> Result<Rotation> {
        let file = paths.cache.join("verify-groups.json");
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("read {}", file.display()))?,
        };
        Ok(Rotation { file, ran: serde_json::from_str(&text).unwrap_or_default() })
    }

    /// The group whose turn it is.
    ///
    /// # Errors
    /// What git says.
    pub fn next(&self) -> Result<&'static Group> {
        let commits = git(&["rev-list", "--count", "HEAD"])?;
        let commits: usize = commits.trim().parse().context("understand the number of commits")?;
        let changed: Vec<bool> = group::ALL.iter().map(|group| self.has_changed(group)).collect();
        let last: Vec<Option<u64>> =
            group::ALL.iter().map(|group| self.last(group).map(|ran| ran.at)).collect();
        group::ALL.get(turn(&changed, &last, commits)).context("there is no group")
    }

    /// Writes down that a group has passed, at this commit, now.
    ///
    /// # Errors
    /// What git says, or when the file cannot be written.
    pub fn note(&self, group: &Group) -> Result<()> {
        // Another run may have noted others meanwhile.
        let mut ran: BTreeMap<String, Ran> = fs::read_to_string(&self.file)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        ran.insert(group.name.to_owned(), Ran { commit, at: now() });
        put(&self.file, &serde_json::to_string_pretty(&ran).context("write the groups as JSON")?).map(drop)
    }

    /// A line for each group that is not among these: when it last ran.
    pub fn left_out(&self, groups: &[&Group]) -> Vec<String> {
        let others = group::ALL.iter().filter(|group| !groups.iter().any(|one| one.name == group.name));
        let line = |group: &Group| {
            let when = self.last(group).map_or("never ran here".to_owned(), |ran| {
                let days = now().saturating_sub(ran.at) / DAY;
                format!("last ran {days} days ago at {}", ran.commit.get(..10).unwrap_or(&ran.commit))
            });
            format!("LEFT OUT  group {}: {when}", group.name)
        };
        others.map(line).collect()
    }

    fn last(&self, group: &Group) -> Option<&Ran> {
        self.ran.get(group.name)
    }

    /// Whether its files differ from those it last ran on. One that never ran has changed.
    fn has_changed(&self, group: &Group) -> bool {
        let Some(ran) = self.last(group) else { return true };
        let mut diff = command("git");
        diff.current_dir(workspace()).args(["diff", "--quiet", &ran.commit, "--"]).args(group.paths);
        // A commit that is not there any more counts as another one.
        !diff.status().is_ok_and(|status| status.success())
    }
}

/// The place of the group whose turn it is: changed before unchanged, then never run before longest ago, then by the number of commits.
fn turn(changed: &[bool], last: &[Option<u64>], commits: usize) -> usize {
    let groups = changed.len();
    let from_here = |place: usize| (place + groups - commits % groups.max(1)) % groups.max(1);
    (0..groups).min_by_key(|&place| (!changed[place], last[place], from_here(place))).unwrap_or_default()
}

fn git(arguments: &[&str]) -> Result<String> {
    output(command("git").current_dir(workspace()).args(arguments))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_never_ran_take_turns_by_the_number_of_commits() {
        let places: Vec<usize> = (7..11).map(|commits| turn(&[true; 3], &[None; 3], commits)).collect();
        assert_eq!(places, [1, 2, 0, 1]);
    }

    #[test]
    fn a_group_whose_files_changed_comes_before_one_that_ran_longer_ago() {
        assert_eq!(turn(&[false, true, false], &[Some(1), Some(9), Some(2)], 0), 1);
        assert_eq!(turn(&[false, false, false], &[Some(3), Some(9), Some(2)], 0), 2);
        assert_eq!(turn(&[true, true, false], &[Some(3), Some(2), Some(1)], 0), 1);
        assert_eq!(turn(&[true, true, true], &[Some(3), None, Some(1)], 0), 1, "what never ran comes first");
    }
}
