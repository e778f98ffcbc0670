//! Opens the volume's logs, and says what was found.
//!
//! Owner: the main thread, once, after the volume was claimed.
//!
//! Each log has a folder `log-NN`; dead letters have `dead-letters`. There are as many logs as the config says, and those that an earlier config
//! has left: the folders are the record of their number. Those beyond the config are read, and get no more requests.

use crate::source::unreadable::ADVICE;
use anyhow::Context as _;
use sluice_gateway_config::{GatewayConfig, OtlpSource};
use sluice_ranges::PartitionId;
use sluice_spool::{
    Directory, Identity,
    log::{Log, LogFound, LogOpenError, LogOptions, LogView, Offsets, OffsetsFound, volume_id},
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    path::Path,
};

/// Stands for the topic in partitions, rows and tokens.
pub const TOPIC: &str = "otlp";

/// The folder of dead letters, and what stands for their topic.
pub(super) const LETTERS: &str = "dead-letters";

/// The number of the log of dead letters. Chosen: above the numbers of all logs of requests.
const LETTERS_NUMBER: u32 = 1_000_000;

/// A log as it was opened, without its writer.
pub struct OpenedLog {
    pub id: PartitionId,
    pub view: LogView<Directory>,
    pub offsets: Offsets<File>,
    /// Whether a later commit may have been stored, and cannot be read.
    pub is_commit_doubtful: bool,
}

/// A volume with its logs.
pub struct OpenedVolume {
    pub volume_id: [u8; 16],
    /// The logs, and their writers in the same order.
    pub logs: Vec<OpenedLog>,
    pub writers: Vec<Log<Directory>>,
    /// The first so many logs get requests.
    pub accepting: usize,
    /// Numbers of logs that cannot be read: they are left as they are.
    pub unreadable: Vec<i32>,
    /// Maximum bytes of all logs together.
    pub log_bytes_max: u64,
    /// Dead letters; `None` if their log cannot be read.
    pub letters: Option<Log<Directory>>,
    pub is_damaged: bool,
}

/// What a gateway that has ended keeps on its volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub struct Left {
    /// Requests that are not inserted. A log that was drained and closed has none.
    pub has_messages: bool,
    /// Segments of logs that cannot be read as a whole.
    pub is_damaged: bool,
    /// Dead letters.
    pub has_letters: bool,
    /// Blocks of a gateway with `source.kafka`, or what is left of damaged ones.
    pub has_blocks: bool,
}

impl Left {
    /// What only a gateway with `source.otlp`, or a person, takes from the volume; `None` if there is nothing.
    pub fn of_logs(self) -> Option<&'static str> {
        if self.has_messages {
            Some("requests")
        } else if self.is_damaged {
            Some("damaged segments")
        } else if self.has_letters {
            Some("dead letters")
        } else {
            None
        }
    }
}

/// Looks at the folders of a volume, without reading a segment.
///
/// # Errors
/// If a folder cannot be read.
pub fn left(root: &Path) -> anyhow::Result<Left> {
    let has_blocks = has_files(root, SEGMENT)? || has_files(root, DAMAGED)?;
    let mut left = Left { has_blocks, ..Left::default() };
    for number in numbers(root)? {
        let path = root.join(folder(number));
        left.has_messages |= has_files(&path, SEGMENT)?;
        left.is_damaged |= has_files(&path, DAMAGED)?;
    }
    let letters = root.join(LETTERS);
    if letters.is_dir() {
        left.has_letters = has_files(&letters, SEGMENT)?;
        left.is_damaged |= has_files(&letters, DAMAGED)?;
    }
    Ok(left)
}

/// How names of segments of a queue or log end, and those of damaged ones.
const SEGMENT: &str = "spool";
const DAMAGED: &str = "damaged";

/// The damaged segments of logs, with their folders, in no order.
///
/// # Errors
/// If a folder cannot be read.
pub fn damaged_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let folders = numbers(root)?.into_iter().map(folder);
    for folder in folders.chain(root.join(LETTERS).is_dir().then(|| LETTERS.to_owned())) {
        let names = segments(&root.join(&folder), DAMAGED)?;
        found.extend(names.into_iter().map(|name| format!("{folder}/{name}")));
    }
    Ok(found)
}

/// Whether a folder has segments whose names end so.
fn has_files(path: &Path, end: &str) -> anyhow::Result<bool> {
    Ok(!segments(path, end)?.is_empty())
}

/// The segments of a folder whose names end so.
fn segments(path: &Path, end: &str) -> anyhow::Result<Vec<String>> {
    let cannot = || format!("cannot list {}", path.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot)? {
        // A name that is not UTF-8 is not one of ours.
        let name = entry.with_context(cannot)?.file_name().into_string().unwrap_or_default();
        if name.starts_with("segment-") && name.split('.').nth(1) == Some(end) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Opens the volume of a config, which has this many bytes.
///
/// # Errors
/// If a folder or file cannot be used.
pub fn open(config: &GatewayConfig, otlp: &OtlpSource, volume_bytes: u64) -> anyhow::Result<OpenedVolume> {
    let path = Path::new(&config.queue.path);
    let left = left(path)?;
    if left.has_blocks {
        anyhow::bail!(
            "the queue volume {} has blocks of a gateway with source.kafka: empty it first, with sluice-gateway drain and that config",
            path.display()
        );
    }
    let root = directory(path)?;
    let volume_id = volume_id(&root, random_id)?;
    let identity = Identity::of(&config.pipeline.namespace, &config.pipeline.name).number();
    let letter_bytes = otlp.dead_letter_bytes_max.get();
    let log_bytes_max = config.queue.bytes_max(volume_bytes).saturating_sub(letter_bytes);
    let wanted = config.logs();
    let numbers: BTreeSet<u32> = (0..wanted).chain(numbers(path)?).collect();
    let next = numbers.last().map_or(0, |last| last.saturating_add(1));
    let mut found = FoundLogs { is_damaged: left.is_damaged, ..FoundLogs::default() };
    let share = log_bytes_max / u64::from(wanted.max(1));
    let options = |number| LogOptions::new(identity, number, TOPIC, share);
    for number in numbers {
        found.open(path, options(number))?;
    }
    if found.writers.is_empty() {
        // Requests are accepted all the same.
        found.open(path, options(next))?;
    }
    let letters =
        found.open_letters(path, LogOptions::new(identity, LETTERS_NUMBER, LETTERS, letter_bytes))?;
    let FoundLogs { logs, writers, unreadable, is_damaged } = found;
    // One that cannot be read is replaced by a log of an earlier config, if there is one.
    let accepting = writers.len().min(wanted as usize);
    Ok(OpenedVolume { volume_id, logs, writers, accepting, unreadable, log_bytes_max, letters, is_damaged })
}

/// The logs while they are opened, in the order of their numbers.
#[derive(Default)]
struct FoundLogs {
    logs: Vec<OpenedLog>,
    writers: Vec<Log<Directory>>,
    unreadable: Vec<i32>,
    is_damaged: bool,
}

impl FoundLogs {
    /// Opens a log. One that cannot be read is left as it is: its files are not written by this process.
    fn open(&mut self, root: &Path, options: LogOptions) -> anyhow::Result<()> {
        let number = options.number;
        let partition = i32::try_from(number).unwrap_or(i32::MAX);
        let Some((writer, offsets, found)) = readable(open_log(root, &folder(number), options))? else {
            self.unreadable.push(partition);
            return Ok(());
        };
        self.is_damaged |= say(number, &found);
        let id = PartitionId { topic: TOPIC.into(), partition };
        let is_commit_doubtful = found.offsets == OffsetsFound::Doubtful;
        self.logs.push(OpenedLog { id, view: writer.view(), offsets, is_commit_doubtful });
        self.writers.push(writer);
        Ok(())
    }

    fn open_letters(&mut self, root: &Path, options: LogOptions) -> anyhow::Result<Option<Log<Directory>>> {
        let Some((letters, _, found)) = readable(open_log(root, LETTERS, options))? else {
            self.is_damaged = true;
            return Ok(None);
        };
        self.is_damaged |= say(LETTERS_NUMBER, &found);
        Ok(Some(letters))
    }
}

/// A log that was opened; `None` if it could not be read, which is logged. Other errors are returned.
fn readable<T>(opened: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.downcast_ref::<LogOpenError>().is_some_and(LogOpenError::is_read) => {
            tracing::error!("{error:#}, so this log is neither read nor written: {ADVICE}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn directory(path: &Path) -> anyhow::Result<Directory> {
    Directory::open(path).with_context(|| format!("cannot open {}", path.display()))
}

fn open_log(
    root: &Path,
    folder: &str,
    options: LogOptions,
) -> anyhow::Result<(Log<Directory>, Offsets<File>, LogFound)> {
    let path = root.join(folder);
    if let Err(error) = fs::create_dir(&path)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("cannot create {}", path.display()));
    }
    // Before anything in it is relied on.
    let synced = File::open(root).and_then(|root| root.sync_all());
    synced.with_context(|| format!("cannot sync {}", root.display()))?;
    Log::open(directory(&path)?, options).with_context(|| format!("cannot open {}", path.display()))
}

fn folder(number: u32) -> String {
    format!("log-{number:02}")
}

/// The numbers of the logs that are on the volume.
fn numbers(root: &Path) -> anyhow::Result<Vec<u32>> {
    let mut found = Vec::new();
    let cannot = || format!("cannot list {}", root.display());
    for entry in fs::read_dir(root).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("log-")?.parse().ok());
        // Only the canonical spelling is one of ours.
        found.extend(number.filter(|number| name == *folder(*number)));
    }
    Ok(found)
}

/// A number that no other volume has.
fn random_id() -> [u8; 16] {
    let [a, b] = [0_u8, 1].map(|half| RandomState::new().hash_one((half, std::process::id())));
    ((u128::from(a) << 64) | u128::from(b)).to_be_bytes()
}

/// Logs what was found. Returns whether it is damage.
fn say(log: u32, found: &LogFound) -> bool {
    for cut in &found.recovered.cut {
        let messages: u64 = cut.blocks.iter().map(|block| block.rows).sum();
        let (bytes, headless) = (cut.bytes, cut.headless);
        tracing::warn!(
            log,
            messages,
            bytes,
            headless,
            "the last records of a log on the queue volume are not complete, and are cut off: their requests had no answer"
        );
    }
    for aside in &found.recovered.set_aside {
        let (file, reason) = (&aside.file, &aside.reason);
        tracing::error!(
            log,
            file,
            reason,
            "a file of a log on the queue volume is damaged: it is kept under this name, and read as far as it can be"
        );
    }
    for lost in &found.lost {
        let (first, next, messages) = (lost.first, lost.next, lost.count());
        tracing::error!(log, first, next, messages, "messages of a log cannot be read");
    }
    say_offsets(log, found.offsets);
    let is_damaged = found.offsets == OffsetsFound::Damaged;
    !found.recovered.set_aside.is_empty() || !found.lost.is_empty() || is_damaged
}

fn say_offsets(log: u32, found: OffsetsFound) {
    match found {
        OffsetsFound::Whole => {}
        OffsetsFound::Restored => tracing::warn!(
            log,
            "one of two copies of the committed offset of a log on the queue volume cannot be read, and the other is used: nothing is doubled. \
             After a loss of power this is usual; otherwise check the volume"
        ),
        OffsetsFound::Doubtful => tracing::error!(
            log,
            "the last commit of a log on the queue volume cannot be read, and the one before is used. If a loss of power has cut it off, nothing \
             is doubled. If it has rotted, rows that were inserted since the commit before may be stored twice: they are counted in \
             possible_duplicate_rows_total"
        ),
        OffsetsFound::Damaged => tracing::error!(
            log,
            "the committed offset of a log on the queue volume cannot be read: the log is read from its oldest message, and rows that were \
             stored before may be stored twice"
        ),
    }
}
