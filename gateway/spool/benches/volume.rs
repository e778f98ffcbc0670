//! The cost of the queue on the volume of the temporary directory, or on a named one.
//!
//! ```text
//! cargo bench -p sluice-spool --bench volume [-- --path DIRECTORY] [--blocks N] [--block-bytes N] [--sync-every N] [--rounds N]
//! ```
//!
//! | stage | does, per block |
//! | --- | --- |
//! | `append` | appends it, with a sync after a number of blocks |
//! | `open` | reads it and compares its checksum, as after a restart |
//! | `drain` | marks it as sent, with a sync after a number of blocks; reads it through a buffer of 256 KiB; settles it |
//!
//! One thread. MB are 10^6 bytes of bodies. CPU is the process's own, user and system: it includes the copies into and out of the
//! system's cache, but not the disk. `drain` and `open` read what `append` has just written: from the cache, if it fits there. The lines
//! are the median of the rounds. Each round writes and removes everything again.

use rustix::time::{ClockId, clock_gettime};
use sluice_spool::{BlockHead, BlockId, Directory, Options, Queue};
use std::{
    error::Error,
    io::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BUFFER_BYTES: usize = 256 << 10;

struct Arguments {
    path: PathBuf,
    blocks: usize,
    block_bytes: usize,
    sync_every: usize,
    rounds: usize,
}

fn arguments() -> Outcome<Arguments> {
    let mut found = Arguments {
        path: std::env::temp_dir(),
        blocks: 1_024,
        block_bytes: 1 << 20,
        sync_every: 8,
        rounds: 3,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--path" => found.path = value()?.into(),
            "--blocks" => found.blocks = value()?.parse()?,
            "--block-bytes" => found.block_bytes = value()?.parse()?,
            "--sync-every" => found.sync_every = value()?.parse::<usize>()?.max(1),
            "--rounds" => found.rounds = value()?.parse::<usize>()?.max(1),
            // Cargo adds this argument.
            "--bench" => {}
            other => return Err(format!("what is {other}?").into()),
        }
    }
    Ok(found)
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Taken {
    wall: Duration,
    cpu: Duration,
}

fn timed<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Taken)> {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    let (began, before) = (Instant::now(), cpu());
    let value = act()?;
    Ok((value, Taken { wall: began.elapsed(), cpu: cpu().saturating_sub(before) }))
}

fn append(queue: &mut Queue<Directory>, arguments: &Arguments, body: &[Vec<u8>]) -> Outcome<()> {
    for block in 0..arguments.blocks {
        let first = i64::try_from(block)?;
        let head = BlockHead {
            topic: "spans".into(),
            partition: i32::try_from(block % 8)?,
            first,
            next: first + 1,
            token: b"oesl5fcqiwqjz2yhnohzp4tv6m".as_slice().into(),
            rows: 10_000,
            raw_bytes: 8 << 20,
            span_end_nanos_max: 1,
            first_sent_ms: None,
            routing_epoch: None,
            destination: None,
            columns: 1,
            metadata_bytes: 0,
        };
        queue.append(&head, body, 1)?;
        if (block + 1) % arguments.sync_every == 0 {
            queue.sync()?;
        }
    }
    Ok(queue.sync()?)
}

fn drain(queue: &mut Queue<Directory>, arguments: &Arguments) -> Outcome<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let ids: Vec<BlockId> = queue.held().take(arguments.sync_every).map(|held| held.id).collect();
        if ids.is_empty() {
            return Ok(queue.sync()?);
        }
        for id in &ids {
            queue.mark_sent(*id, 1)?;
        }
        queue.sync()?;
        for id in ids {
            let (_, mut body) = queue.read(id)?;
            while body.read(&mut buffer)? > 0 {}
            queue.settle(id)?;
        }
    }
}

fn round(arguments: &Arguments, body: &[Vec<u8>]) -> Outcome<[Taken; 3]> {
    let path = arguments.path.join(format!("sluice-spool-bench-{}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    let open =
        || -> Outcome<_> { Ok(Queue::open(Directory::open(&path)?, Options::new(1, 1 << 40, false))?) };
    let (mut queue, _) = open()?;
    let ((), appended) = timed(|| append(&mut queue, arguments, body))?;
    drop(queue);
    let ((mut queue, report), opened) = timed(open)?;
    if report.blocks != arguments.blocks as u64 {
        return Err(format!("{} blocks are there", report.blocks).into());
    }
    let ((), drained) = timed(|| drain(&mut queue, arguments))?;
    queue.close()?;
    std::fs::remove_dir(&path)?;
    Ok([appended, opened, drained])
}

#[expect(clippy::cast_precision_loss, reason = "a sum of bytes lies far below 2^53")]
fn main() -> Outcome<()> {
    let arguments = arguments()?;
    // In pieces, like the frames of a block.
    let body: Vec<Vec<u8>> = (0..arguments.block_bytes)
        .step_by(64 << 10)
        .map(|at| vec![0x5a; (arguments.block_bytes - at).min(64 << 10)])
        .collect();
    let rounds: Vec<[Taken; 3]> =
        (0..arguments.rounds).map(|_| round(&arguments, &body)).collect::<Outcome<_>>()?;
    let bytes = (arguments.blocks * arguments.block_bytes) as f64 / 1e6;
    let mut out = std::io::stdout().lock();
    let Arguments { blocks, block_bytes, sync_every, .. } = arguments;
    writeln!(out, "{blocks} blocks of {block_bytes} bytes, a sync after every {sync_every}\n")?;
    writeln!(out, "{:<8} {:>8} {:>10} {:>11}", "stage", "MB/s", "MB/CPU s", "us CPU/block")?;
    for (stage, name) in ["append", "open", "drain"].into_iter().enumerate() {
        let median = |of: fn(&Taken) -> Duration| {
            let mut times: Vec<Duration> = rounds.iter().map(|round| of(&round[stage])).collect();
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64()
        };
        let (wall, cpu) = (median(|taken| taken.wall), median(|taken| taken.cpu));
        let per_block = cpu * 1e6 / blocks as f64;
        writeln!(out, "{name:<8} {:>8.0} {:>10.0} {per_block:>11.0}", bytes / wall, bytes / cpu)?;
    }
    Ok(out.flush()?)
}
