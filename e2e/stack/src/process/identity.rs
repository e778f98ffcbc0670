//! One process. Its start time separates it from a later process with the same id.

use std::fmt;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Time between two checks of a wait; short beside the tenths of a second that a process takes to end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process by id and start time (clock ticks since boot, `proc(5)` field 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: Pid,
    born: u64,
}

impl Process {
    /// The living process with this id. One that ended but is not yet reaped by its parent (state `Z`) does not count.
    pub fn of(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        born_of(&stat).map(|born| Self { pid, born })
    }

    /// Parses what [`fmt::Display`] wrote; `None` unless exactly this process still lives.
    pub fn recorded(text: &str) -> Option<Self> {
        let (pid, born) = text.trim().split_once(' ')?;
        let recorded = Self { pid: Pid::from_raw(pid.parse().ok()?)?, born: born.parse().ok()? };
        recorded.lives().then_some(recorded)
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether this process, and not another with its id, still runs.
    pub fn lives(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Sends a signal. It is no error if the process has already ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // The descriptor refers to the process that has the id now. After the check, the signal cannot reach a later process with this id.
        let handle = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            other => other?,
        };
        if !self.lives() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => other.map_err(io::Error::from),
        }
    }

    /// Waits at most `patience` until it has ended; returns whether it has.
    pub fn ended_within(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.lives() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        true
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid(), self.born)
    }
}

/// The start time in a line of `/proc/PID/stat`, unless the process is a zombie. The second field is the program's name in
/// brackets and may itself hold spaces and brackets, so counting starts behind the last one.
fn born_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    // Field 3 (the state) was taken; the start time is field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_an_odd_name() {
        let stat = "17 (a) Z (b)) S 1 17 17 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 100";
        assert_eq!(born_of(stat), Some(4242));
    }

    #[test]
    fn a_zombie_does_not_count_as_living() {
        let stat = "17 (sh) Z 1 17 17 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 100";
        assert_eq!(born_of(stat), None);
    }

    #[test]
    fn a_record_of_this_process_is_read_back() {
        let me = Process::of(rustix::process::getpid()).unwrap();
        assert_eq!(Process::recorded(&me.to_string()), Some(me));
    }

    #[test]
    fn a_record_with_another_start_time_is_another_process() {
        let me = Process::of(rustix::process::getpid()).unwrap();
        assert_eq!(Process::recorded(&format!("{} {}", me.pid(), me.born + 1)), None);
        assert_eq!(Process::recorded("not a record"), None);
        assert_eq!(Process::recorded(""), None);
    }
}
