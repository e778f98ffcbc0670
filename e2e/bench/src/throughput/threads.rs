//! CPU time of a running process by thread.
//!
//! Job: show the CPU time of a run by thread. Place in the flow: sampled during a run, because the kernel forgets threads when they end.
//! The figures that count are the [`witness`](super::witness)'s. Limits: the CPU time of a thread after the last sample is missing; user
//! and system time are separated in clock ticks of 10 ms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::param::clock_ticks_per_second;

/// CPU time of all threads of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    pub name: String,
    pub user_us: u64,
    pub system_us: u64,
}

/// The last sample of each thread, by its id.
#[derive(Clone, Debug, Default)]
pub struct Threads(BTreeMap<u32, ThreadTime>);

impl Threads {
    /// Samples every thread of every process that `parent` started, directly or not.
    pub fn look(&mut self, parent: u32) {
        // A process that ends between two reads was already sampled before.
        for child in children(parent) {
            let tasks = fs::read_dir(Path::new("/proc").join(child.to_string()).join("task"));
            for task in tasks.into_iter().flatten().flatten() {
                let id = task.file_name().to_str().and_then(|name| name.parse().ok());
                let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                if let Some((id, time)) = id.zip(thread_time(&stat, clock_ticks_per_second())) {
                    self.0.insert(id, time);
                }
            }
            self.look(child);
        }
    }

    /// The times by name, the longest first, without those that used less than one clock tick.
    pub fn by_name(&self) -> Vec<ThreadTime> {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for time in self.0.values() {
            let (user, system) = sums.entry(&time.name).or_default();
            *user += time.user_us;
            *system += time.system_us;
        }
        let time = |(name, (user_us, system_us)): (&str, _)| ThreadTime {
            name: name.to_owned(),
            user_us,
            system_us,
        };
        let used = sums.into_iter().filter(|(_, (user, system))| user + system > 0);
        let mut times: Vec<_> = used.map(time).collect();
        times.sort_by_key(|time| std::cmp::Reverse(time.user_us + time.system_us));
        times
    }
}

/// The processes that any thread of `parent` started and that have not been waited for.
fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Name and times in the kernel's line about a thread, or about a whole process: `id (name) state …`, user and system time in the 12th and 13th fields after the name
/// (proc(5)). The name may contain spaces and parentheses.
pub(crate) fn thread_time(stat: &str, ticks_per_second: u64) -> Option<ThreadTime> {
    let (id_and_name, fields) = stat.rsplit_once(')')?;
    let (_, name) = id_and_name.split_once('(')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let microseconds = |ticks: u64| ticks * 1_000_000 / ticks_per_second;
    let user_us = microseconds(times.next()?.ok()?);
    let system_us = microseconds(times.next()?.ok()?);
    Some(ThreadTime { name: name.to_owned(), user_us, system_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        let stat = "7 (rdk:broker 1) x) S 1 7 7 0 -1 4194304 10 20 30 40 250 31 5 6 20 0 3 0 99";
        let expected =
            ThreadTime { name: "rdk:broker 1) x".to_owned(), user_us: 2_500_000, system_us: 310_000 };
        assert_eq!(thread_time(stat, 100), Some(expected));
        assert_eq!(thread_time("", 100), None);
        assert_eq!(thread_time("7 (x) S 1", 100), None);
    }

    #[test]
    fn threads_of_one_name_are_one_line_and_the_longest_is_first() {
        let time = |name: &str, user_us| ThreadTime { name: name.to_owned(), user_us, system_us: 1 };
        let idle = ThreadTime { name: "main".to_owned(), user_us: 0, system_us: 0 };
        let seen = [(1, time("io", 5)), (2, time("worker", 4)), (3, time("worker", 6)), (4, idle)];
        let threads = Threads(seen.into());
        let times = threads.by_name();
        assert_eq!((times[0].name.as_str(), times[0].user_us, times[0].system_us), ("worker", 10, 2));
        assert_eq!((times[1].name.as_str(), times.len()), ("io", 2));
    }

    #[test]
    fn threads_of_what_a_process_started_are_seen() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut threads = Threads::default();
        threads.look(std::process::id());
        let seen = threads.0.contains_key(&child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(seen);
    }
}
