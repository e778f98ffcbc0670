//! Two clocks, and rounds of stages that take turns.

use crate::load::Load;
use crate::stages::{Stage, Worker};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A stage and what its rounds took.
pub struct Measured {
    /// Which.
    pub stage: Stage,
    /// CPU time of the process in each round that counts.
    pub cpu: Vec<Duration>,
    /// Wall time in each of these rounds.
    pub wall: Vec<Duration>,
    /// Bytes that came out of each round, where it is about bytes.
    pub bytes_out: Option<u64>,
}

/// Runs all stages in turn, `rounds` times and once before that to warm up.
pub fn rounds(stages: &[Stage], load: &Load, rounds: usize) -> Vec<Measured> {
    let mut worker = Worker::new();
    let mut measured: Vec<_> = stages
        .iter()
        .map(|&stage| {
            let bytes_out = stage.run(load, &mut worker);
            Measured { stage, cpu: Vec::new(), wall: Vec::new(), bytes_out }
        })
        .collect();
    for _ in 0..rounds {
        for measured in &mut measured {
            let (began, cpu_before) = (Instant::now(), cpu());
            let bytes_out = measured.stage.run(load, &mut worker);
            measured.cpu.push(cpu().saturating_sub(cpu_before));
            measured.wall.push(began.elapsed());
            assert!(bytes_out == measured.bytes_out, "every round makes the same bytes");
        }
    }
    measured
}

/// User and system time of this process, which has one thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The middle one; of an even number, the upper of the two.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
