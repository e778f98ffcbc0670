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
    Directory, Fatal, Identity, is_of_disk,
    log::{Log, LogFound, LogOpenError, LogOptions, LogView, Offsets, OffsetsFound, volume_id},
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io,
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
    /// How far its committed offset can be read.
    pub offsets_found: OffsetsFound,
}

/// A volume with its logs.
pub struct OpenedVolume {
    pub volume_id: [u8; 16],
    /// The logs, and their writers in the same order.
    pub logs: Vec<OpenedLog>,
    pub writers: Vec<Log<Directory>>,
    /// The first so many logs get requests.
    pub accepting: usize,
    /// Numbers of logs that cannot be read, and are not used.
    pub unreadable: Vec<i32>,
    /// Bytes of their files, as far as the disk says.
    pub unreadable_bytes: u64,
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
    /// Folders of logs that the disk does not list.
    pub is_unreadable: bool,
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
        } else if self.is_unreadable {
            Some("unreadable logs")
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
/// If a folder cannot be read, except for an error of the disk in a folder of a log.
pub fn left(root: &Path) -> anyhow::Result<Left> {
    let of_root = list(root).with_context(|| format!("cannot list {}", root.display()))?;
    let has_blocks = of_root.has_segments || !of_root.damaged.is_empty();
    let mut left = Left { has_blocks, ..Left::default() };
    for folder in folders(root)? {
        let path = root.join(&folder);
        let Some(listed) = known(&path, list(&path))? else {
            left.is_unreadable = true;
            continue;
        };
        left.is_damaged |= !listed.damaged.is_empty();
        let has = if folder == LETTERS { &mut left.has_letters } else { &mut left.has_messages };
        *has |= listed.has_segments;
    }
    Ok(left)
}

/// Whether logs have messages that are not committed, also in damaged segments. Reads segments; no process has the volume meanwhile.
///
/// # Errors
/// If a file cannot be read.
pub fn has_uncommitted(root: &Path, identity: u64) -> anyhow::Result<bool> {
    for number in numbers(root)? {
        let path = root.join(folder(number));
        let has_uncommitted = sluice_spool::log::has_uncommitted(directory(&path)?, identity, number);
        if has_uncommitted.with_context(|| format!("cannot read {}", path.display()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The damaged segments of logs, with their folders, in no order. Folders that the disk does not list are left out.
///
/// # Errors
/// If a folder cannot be read.
pub fn damaged_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in folders(root)? {
        let path = root.join(&folder);
        let listed = known(&path, list(&path))?.unwrap_or_default();
        found.extend(listed.damaged.into_iter().map(|name| format!("{folder}/{name}")));
    }
    Ok(found)
}

/// The folders of logs and letters.
fn folders(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut folders: Vec<String> = numbers(root)?.into_iter().map(folder).collect();
    // If the disk does not say, listing it says why.
    folders.extend(root.join(LETTERS).try_exists().unwrap_or(true).then(|| LETTERS.to_owned()));
    Ok(folders)
}

/// The segments of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    has_segments: bool,
    /// The names of damaged ones.
    damaged: Vec<String>,
}

fn list(path: &Path) -> io::Result<Listed> {
    let mut listed = Listed::default();
    for entry in fs::read_dir(path)? {
        // A name that is not UTF-8 is not one of ours.
        let name = entry?.file_name().into_string().unwrap_or_default();
        let end = name.strip_prefix("segment-").and_then(|rest| rest.split('.').nth(1));
        listed.has_segments |= end == Some("spool");
        if end == Some("damaged") {
            listed.damaged.push(name);
        }
    }
    Ok(listed)
}

/// What is in a folder of a log; `None` if the disk does not say.
fn known<T>(path: &Path, listed: io::Result<T>) -> anyhow::Result<Option<T>> {
    match listed {
        Ok(listed) => Ok(Some(listed)),
        Err(error) if is_of_disk(&error) => {
            tracing::error!("cannot list {}: {error}: {ADVICE}", path.display());
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot list {}", path.display())),
    }
}

/// Bytes of the files of a folder, as far as the disk says.
fn bytes_in(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.fold(0, u64::saturating_add)
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
    let options =
        |number| LogOptions { takes_packed: true, ..LogOptions::new(identity, number, TOPIC, share) };
    for number in numbers {
        found.open(path, options(number))?;
    }
    if found.writers.is_empty() {
        // Requests are accepted all the same.
        found.open(path, options(next))?;
    }
    // Letters may stay for long: an earlier image reads their log.
    let letters =
        found.open_letters(path, LogOptions::new(identity, LETTERS_NUMBER, LETTERS, letter_bytes))?;
    let FoundLogs { logs, writers, unreadable, unreadable_bytes, is_damaged } = found;
    // One that cannot be read is replaced by a log of an earlier config, if there is one.
    let accepting = writers.len().min(wanted as usize);
    Ok(OpenedVolume {
        volume_id,
        logs,
        writers,
        accepting,
        unreadable,
        unreadable_bytes,
        log_bytes_max,
        letters,
        is_damaged,
    })
}

/// The logs while they are opened, in the order of their numbers.
#[derive(Default)]
struct FoundLogs {
    logs: Vec<OpenedLog>,
    writers: Vec<Log<Directory>>,
    unreadable: Vec<i32>,
    unreadable_bytes: u64,
    is_damaged: bool,
}

impl FoundLogs {
    /// Opens a log. This process does not use one that cannot be read.
    fn open(&mut self, root: &Path, options: LogOptions) -> anyhow::Result<()> {
        let number = options.number;
        let partition = i32::try_from(number).unwrap_or(i32::MAX);
        let Some((writer, offsets, found)) = readable(open_log(root, &folder(number), options))? else {
            self.unreadable.push(partition);
            let bytes = bytes_in(&root.join(folder(number)));
            self.unreadable_bytes = self.unreadable_bytes.saturating_add(bytes);
            return Ok(());
        };
        self.is_damaged |= say(number, &found);
        let id = PartitionId { topic: TOPIC.into(), partition };
        self.logs.push(OpenedLog { id, view: writer.view(), offsets, offsets_found: found.offsets });
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
        Err(error) if error.downcast_ref::<LogOpenError>().is_some_and(LogOpenError::is_unreadable) => {
            tracing::error!("{error:#}, so this log is not used: {ADVICE}");
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
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("cannot create {}", path.display()));
    }
    // Before anything in it is relied on.
    let synced = File::open(root).and_then(|root| root.sync_all());
    synced.with_context(|| format!("cannot sync {}", root.display()))?;
    let files = Directory::open(&path).map_err(|source| {
        LogOpenError::from(Fatal { action: "open", file: folder.to_owned(), source, is_read: true })
    });
    let opened = files.and_then(|files| Log::open(files, options));
    opened.with_context(|| format!("cannot open {}", path.display()))
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
            "the last commit of a log on the queue volume cannot be read, and the one before is used, or the oldest message if there was none. \
             What it had removed from the log is not lost. If a loss of power has cut it off, nothing is doubled. If it has rotted, rows that were \
             inserted since the commit before may be stored twice: they are counted in possible_duplicate_rows_total"
        ),
        OffsetsFound::Damaged => tracing::error!(
            log,
            "the committed offset of a log on the queue volume cannot be read: the log is read from its oldest message, and rows that were \
             stored before may be stored twice"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_the_disk_does_not_list_is_not_known_and_other_errors_are_returned() {
        let path = Path::new("/queue/log-00");
        let listed = |errno| known::<Listed>(path, Err(io::Error::from_raw_os_error(errno)));
        // EIO, EMFILE
        assert_eq!(listed(5).unwrap(), None);
        assert!(listed(24).unwrap_err().to_string().contains("cannot list /queue/log-00"));
        let unlisted = Left { is_unreadable: true, is_damaged: true, ..Left::default() };
        assert_eq!(unlisted.of_logs(), Some("unreadable logs"));
    }

    #[test]
    fn the_bytes_of_a_folder_are_those_of_its_files() {
        let path = std::env::temp_dir().join(format!("sluice-bytes-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("segment-0000000000000001.spool"), [0; 700]).unwrap();
        fs::write(path.join("offsets"), [0; 30]).unwrap();
        assert_eq!((bytes_in(&path), bytes_in(&path.join("gone"))), (730, 0));
        fs::remove_dir_all(&path).unwrap();
    }
}
