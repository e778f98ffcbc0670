//! Chooses the group of a run: among the groups whose files changed since their last run (or among all, if none changed), the one that ran
//! longest ago. Among groups that never ran, the number of commits decides, so that machines without a cache take turns, too.
//!
//! Such a machine chooses among the groups whose files the last [`LANDING_COMMITS`] commits changed. A clone with fewer commits counts every
//! file as changed. On any machine, one of each [`TURNS`] turns is open to all groups, since the lists of files may be incomplete.
//!
//! The cache keeps when each group last passed, as JSON: the group's name, the commit, and seconds since 1970.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use e2e_stack::paths::{Paths, put, workspace};
use e2e_stack::process::{command, output};
use serde::{Deserialize, Serialize};

use super::group::{self, Group};

const DAY: u64 = 86_400;

/// Commits, counted along first parents, whose changes count on a machine without a cache. Chosen: one push has fewer, and the push before it
/// had its own group.
const LANDING_COMMITS: u32 = 20;

/// One of this many turns, by the number of commits, is open to all groups. Chosen: it shares no divisor with the number of groups, so that
/// each group gets such a turn.
const TURNS: usize = 3;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Ran {
    commit: String,
    /// Seconds since 1970.
    at: u64,
}

#[derive(Debug)]
pub struct Rotation {
    file: PathBuf,
    ran: BTreeMap<String, Ran>,
}

impl Rotation {
    /// Reads the cache. An invalid file counts as missing: then all groups count as never run.
    pub fn read(paths: &Paths) -> Result<Rotation> {
        let file = paths.cache.join("verify-groups.json");
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("read {}", file.display()))?,
        };
        Ok(Rotation { file, ran: serde_json::from_str(&text).unwrap_or_default() })
    }

    pub fn next(&self) -> Result<&'static Group> {
        let commits = commits()?;
        let changed: Vec<bool> = group::ALL.iter().map(|group| self.has_changed(group, commits)).collect();
        let last: Vec<Option<u64>> =
            group::ALL.iter().map(|group| self.last(group).map(|ran| ran.at)).collect();
        group::ALL.get(turn(&changed, &last, commits)).context("there is no group")
    }

    /// Records that a group passed at this commit now.
    pub fn note(&self, group: &Group) -> Result<()> {
        // Another run may have recorded other groups meanwhile.
        let mut ran: BTreeMap<String, Ran> = fs::read_to_string(&self.file)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        ran.insert(group.name.to_owned(), Ran { commit, at: now() });
        put(&self.file, &serde_json::to_string_pretty(&ran).context("write the groups as JSON")?).map(drop)
    }

    /// A line for each group that is not in `groups`: when it last ran.
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

    /// Whether a group's files changed since its last run or, if it never ran here, within [`LANDING_COMMITS`]. In an open turn every group
    /// counts as changed.
    fn has_changed(&self, group: &Group, commits: usize) -> bool {
        if is_open(commits) {
            return true;
        }
        let before = self.last(group).map(|ran| ran.commit.clone());
        let before = before.unwrap_or_else(|| format!("HEAD~{LANDING_COMMITS}"));
        let mut diff = command("git");
        diff.current_dir(workspace()).args(["diff", "--quiet", &before, "--"]).args(group.paths);
        diff.stderr(Stdio::null());
        // A missing commit counts as changed.
        !diff.status().is_ok_and(|status| status.success())
    }
}

/// The number of commits. A shallow clone always has the same few commits: there, the first digits of the last hash are used instead.
fn commits() -> Result<usize> {
    const HASH_DIGITS: &str = "--short=8";
    if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        let hash = git(&["rev-parse", HASH_DIGITS, "HEAD"])?;
        return usize::from_str_radix(hash.trim(), 16).context("understand the hash of the last commit");
    }
    let number = git(&["rev-list", "--count", "HEAD"])?;
    number.trim().parse().context("understand the number of commits")
}

/// Whether this turn is open: every group counts as changed, and the one that ran longest ago runs.
fn is_open(commits: usize) -> bool {
    commits.is_multiple_of(TURNS)
}

/// The index of the chosen group: changed before unchanged, then never run before longest ago, then by the number of commits.
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
    fn of_groups_that_never_ran_those_that_the_last_commits_changed_take_turns() {
        let changed = [false, true, false, true, false];
        let places: Vec<usize> = (5..10).map(|commits| turn(&changed, &[None; 5], commits)).collect();
        assert_eq!(places, [1, 1, 3, 3, 1]);
        assert_eq!(turn(&[false; 5], &[None; 5], 7), 2, "if none has changed, all do");
        let last = [Some(1), Some(9), None, None, None];
        assert_eq!(turn(&changed, &last, 0), 3, "what never ran comes before what has");
        assert_eq!(
            turn(&[true, true, false, false, false], &last, 0),
            0,
            "what changed comes before what never ran"
        );
    }

    #[test]
    fn every_group_gets_a_turn_that_no_list_of_files_decides() {
        let groups = group::ALL.len();
        let commits = (0..TURNS * groups).filter(|commits| is_open(*commits));
        let mut places: Vec<usize> =
            commits.map(|commits| turn(&vec![true; groups], &vec![None; groups], commits)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..groups).collect::<Vec<_>>());
    }

    #[test]
    fn a_group_whose_files_changed_comes_before_one_that_ran_longer_ago() {
        assert_eq!(turn(&[false, true, false], &[Some(1), Some(9), Some(2)], 0), 1);
        assert_eq!(turn(&[false, false, false], &[Some(3), Some(9), Some(2)], 0), 2);
        assert_eq!(turn(&[true, true, false], &[Some(3), Some(2), Some(1)], 0), 1);
        assert_eq!(turn(&[true, true, true], &[Some(3), None, Some(1)], 0), 1, "what never ran comes first");
    }
}
