//! `sluice-gateway dead-letter`: lists, shows and replays messages of the dead-letter topic.
//!
//! Place in the flow: a person runs it beside the gateways. It joins no group and commits nothing. It reads letters from the start of the
//! selection up to the end of the topic at the command's start. With `source.otlp`, it reads the letters on the queue volume, beside the gateway that
//! writes them, and replays them while no gateway runs. Two letters with equal coordinates and equal values count as one: a crash doubled them. Offsets of a
//! topic or a volume that was made anew begin at 0 again, so that coordinates alone do not say it.
//!
//! Limits: [`LETTERS_MAX`] letters, whose coordinates and hashes of values are kept; besides, one letter at a time is in memory.

mod json_span;
mod list;
mod replay;
mod replay_to_log;
mod show;
mod span_text;
#[cfg(test)]
mod test_letters;
mod utc;

use crate::source::letters::{ReadOnlyError, read_only};
use sluice_gateway_config::{ByteSize, Format, GatewayConfig, Kafka};
use sluice_kafka::{
    Message as _, OwnedMessage, Patience, ReadError, TopicReader,
    dead_letter::{Coordinates, Head, LETTER_BYTES_MAX, NotALetter, ReplayError, default_topic, read_stored},
};
use sluice_ranges::OffsetRange;
use sluice_spool::log::{LogError, Read};
use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write},
    ops::ControlFlow,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long to wait for an answer of the brokers, and for the next letter.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

const PATIENCE: Patience = Patience { answer: ANSWER_TIMEOUT, message: ANSWER_TIMEOUT };

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of letters in one run. Chosen: about 150 bytes each, 150 MB, and more letters than people leave in the topic. Without the
/// coordinates of all letters, duplicates could not be found, and a replay would store rows twice.
pub const LETTERS_MAX: usize = 1_000_000;

/// What to do with the letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Print one line each.
    List,
    /// Print everything that is known about each.
    Show,
    /// Produce their values to their source topics; with `source.otlp`, append them to a log of the queue volume.
    Replay {
        /// Only print what would be done.
        dry_run: bool,
    },
}

/// The selected letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The dead-letter topic; `None` for those of the config.
    pub topic: Option<String>,
    /// Only letters from this source partition.
    pub partition: Option<i32>,
    /// Only letters from this source offset.
    pub offset: Option<i64>,
    /// Only letters that were written within this time.
    pub since: Option<Duration>,
    /// At most this many letters.
    pub limit: Option<u64>,
}

/// Why the command did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no source.
    #[error("source has neither kafka nor otlp")]
    NoSource,
    /// The queue volume cannot be claimed.
    #[error("letters of source.otlp are replayed while no gateway uses the volume: {0}; nothing was changed")]
    Claim(sluice_spool::Error),
    /// Its logs cannot be opened.
    #[error("{0:#}")]
    Open(anyhow::Error),
    /// Something on it cannot be read.
    #[error(
        "{0}: start the gateway, whose log says more, and check the volume and its disk; no letter is replayed meanwhile"
    )]
    Unreadable(&'static str),
    /// A letter cannot be appended to a log.
    #[error("cannot append to a log of the queue volume: {0}; letters that are listed were replayed")]
    Append(LogError),
    /// Letters on the queue volume cannot be read.
    #[error(transparent)]
    Volume(#[from] ReadOnlyError),
    /// A topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A message cannot be produced.
    #[error(transparent)]
    Replay(ReplayError),
    /// The output cannot be written.
    #[error("cannot write what was found: {0}")]
    Write(io::Error),
    /// There are more letters than the command can remember.
    #[error(
        "stopped after {0} letters, all of which were listed: the command cannot remember more to find duplicates; continue with \
         --partition, --offset or --since"
    )]
    TooMany(usize),
    /// Some letters were not replayed; each was named.
    #[error("{0} of the letters were not replayed")]
    NotReplayed(u64),
}

/// A letter and its place.
struct Found {
    message: OwnedMessage,
    head: Head,
}

impl Found {
    /// Topic, partition and offset of the letter itself.
    fn place(&self) -> String {
        format!("{}/{}@{}", self.message.topic(), self.message.partition(), self.message.offset())
    }

    /// Topic, partition, offset and row of its source.
    fn about(&self) -> String {
        let Coordinates { topic, partition, offset, row } = &self.head.coordinates;
        let row = row.map_or(String::new(), |row| format!(" row {row}"));
        format!("{topic}/{partition}@{offset}{row}")
    }
}

/// An action on each letter.
trait Use {
    /// Handles a letter; writes the result to `out`.
    fn letter(&mut self, letter: &Found, out: &mut dyn Write) -> Result<(), Error>;

    /// Called after the last letter.
    fn end(&mut self, _: &mut dyn Write) -> Result<(), Error> {
        Ok(())
    }
}

/// Runs an action; results go to `out`, everything else to `progress`.
pub fn run(
    config: &GatewayConfig,
    selection: &Selection,
    action: Action,
    json: bool,
    (out, progress): (&mut dyn Write, &mut dyn Write),
) -> Result<(), Error> {
    let kafka = config.source.kafka.as_ref();
    let mut list = list::List { json };
    let mut show = show::Show { json };
    let mut replay;
    let mut replay_to_log;
    let letters: &mut dyn Use = match action {
        Action::List => &mut list,
        Action::Show => &mut show,
        Action::Replay { dry_run } => {
            if let Some(kafka) = kafka {
                replay = replay::Replay::new(kafka, dry_run, json).map_err(Error::Replay)?;
                &mut replay
            } else {
                let otlp = config.source.otlp.as_ref().ok_or(Error::NoSource)?;
                replay_to_log = replay_to_log::ReplayToLog::new(config, otlp, dry_run, json)?;
                &mut replay_to_log
            }
        }
    };
    let mut reading = Reading::new(selection, progress);
    let Some(kafka) = kafka else {
        reading.log(config, letters, out)?;
        reading.conclude();
        return letters.end(out);
    };
    for topic in topics(kafka, config, selection) {
        if reading.is_full() {
            break;
        }
        match reading.topic(kafka, &topic, letters, out) {
            // The first letter creates the topic; a missing one is an error only if the user named it.
            Err(Error::Read(ReadError::Missing { .. })) if selection.topic.is_none() => {
                reading.say(&format!("there is no topic {topic}: no letter was ever written to it"));
            }
            read => read?,
        }
    }
    reading.conclude();
    letters.end(out)
}

fn topics(kafka: &Kafka, config: &GatewayConfig, selection: &Selection) -> Vec<String> {
    let of_config = || config.delivery.dead_letter.topic.clone().map(|topic| vec![topic]);
    let beside = || kafka.topics.iter().map(|topic| default_topic(topic)).collect();
    selection.topic.clone().map(|topic| vec![topic]).or_else(of_config).unwrap_or_else(beside)
}

/// The letters seen so far, so that a letter that a crash has doubled is used once.
struct Seen {
    /// With the hash of the value.
    letters: HashSet<(Coordinates, u64)>,
    letters_max: usize,
}

impl Seen {
    /// Whether a letter is seen for the first time; records it.
    fn is_first(&mut self, coordinates: &Coordinates, value: Option<&[u8]>) -> Result<bool, Error> {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let letter = (coordinates.clone(), hasher.finish());
        if self.letters.contains(&letter) {
            return Ok(false);
        }
        if self.letters.len() >= self.letters_max {
            return Err(Error::TooMany(self.letters_max));
        }
        Ok(self.letters.insert(letter))
    }
}

/// Reads the letters of a selection.
struct Reading<'a> {
    selection: &'a Selection,
    progress: &'a mut dyn Write,
    seen: Seen,
    used: u64,
    read: u64,
    doubled: u64,
    foreign: u64,
    told: Instant,
}

impl<'a> Reading<'a> {
    fn new(selection: &'a Selection, progress: &'a mut dyn Write) -> Self {
        Self {
            selection,
            progress,
            seen: Seen { letters: HashSet::new(), letters_max: LETTERS_MAX },
            used: 0,
            read: 0,
            doubled: 0,
            foreign: 0,
            told: Instant::now(),
        }
    }

    fn is_full(&self) -> bool {
        self.selection.limit.is_some_and(|limit| self.used >= limit)
    }

    fn topic(
        &mut self,
        kafka: &Kafka,
        topic: &str,
        letters: &mut dyn Use,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        // Letters may be larger than the limit of the source's batches.
        let record_batch_bytes_max = kafka.record_batch_bytes_max.max(ByteSize::bytes(4 * LETTER_BYTES_MAX));
        let kafka = Kafka { record_batch_bytes_max, ..kafka.clone() };
        let reader = TopicReader::new(&kafka, "dead-letter", PATIENCE)?;
        let ranges = self.ranges(&reader, topic)?;
        let mut left: u64 = ranges.values().map(|range| range.first.abs_diff(range.next)).sum();
        for (partition, range) in ranges {
            let mut at = range.first;
            reader.read((topic, partition), range, |message| {
                if self.is_full() {
                    return Ok(ControlFlow::Break(()));
                }
                left = left.saturating_sub(at.abs_diff(message.offset() + 1));
                at = message.offset() + 1;
                self.message(message.detach(), left, letters, out).map(ControlFlow::Continue)
            })?;
        }
        Ok(())
    }

    /// The letters on the queue volume, with `source.otlp`.
    fn log(
        &mut self,
        config: &GatewayConfig,
        letters: &mut dyn Use,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let since = self.selection.since.map_or(i64::MIN, millis_before_now);
        let view = read_only(config)?;
        let mut cursor = view.read_from(view.start());
        while !self.is_full() {
            let message = match cursor.read().map_err(ReadOnlyError::Read)? {
                Read::End => return Ok(()),
                Read::Lost(lost) => {
                    self.say(&format!("letters {} to {} cannot be read", lost.first, lost.next - 1));
                    continue;
                }
                Read::Message(message) => message,
            };
            let appended_ms = i64::try_from(message.appended_ms).unwrap_or(i64::MAX);
            match read_stored(&message.payload, message.offset, appended_ms) {
                Some(_) if appended_ms < since => {}
                Some(letter) => {
                    let left = u64::try_from(view.end() - message.offset - 1).unwrap_or(0);
                    self.message(letter, left, letters, out)?;
                }
                None => self.say(&format!("letter {} has an unknown form", message.offset)),
            }
        }
        Ok(())
    }

    /// The offsets to read of each partition.
    fn ranges(&self, reader: &TopicReader, topic: &str) -> Result<BTreeMap<i32, OffsetRange>, Error> {
        let range = |partition| {
            let bounds = reader.bounds(topic, partition)?;
            let first = match self.selection.since.map(millis_before_now) {
                None => bounds.first,
                // Without a message that new, there is nothing to read.
                Some(millis) => reader.offset_at(topic, partition, millis)?.unwrap_or(bounds.next),
            };
            Ok((partition, OffsetRange { first: first.max(bounds.first), next: bounds.next }))
        };
        reader.partitions(topic)?.into_iter().map(range).collect()
    }

    fn message(
        &mut self,
        message: OwnedMessage,
        left: u64,
        letters: &mut dyn Use,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.read += 1;
        let topic = message.topic().to_owned();
        if let Some(letter) = self.choose(message)? {
            self.used += 1;
            letters.letter(&letter, out)?;
        }
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            self.say(&format!("{} messages of {topic} read, up to {left} left", self.read));
        }
        Ok(())
    }

    /// The letter in a message, if the message is a letter, is selected, and was not seen before.
    fn choose(&mut self, message: OwnedMessage) -> Result<Option<Found>, Error> {
        let head = message.headers().map_or(Err(NotALetter::Unmarked), Head::read);
        let head = match head {
            Ok(head) => head,
            Err(why) => {
                self.foreign += 1;
                let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
                self.say(&format!("{topic}/{partition}@{offset} is not a letter: {why}"));
                return Ok(None);
            }
        };
        let Selection { partition, offset, .. } = *self.selection;
        let selected = partition.is_none_or(|partition| partition == head.coordinates.partition)
            && offset.is_none_or(|offset| offset == head.coordinates.offset);
        if !selected {
            return Ok(None);
        }
        if !self.seen.is_first(&head.coordinates, message.payload())? {
            self.doubled += 1;
            return Ok(None);
        }
        Ok(Some(Found { message, head }))
    }

    fn conclude(&mut self) {
        let Self { used, read, doubled, foreign, .. } = self;
        let more = if *foreign > 0 { format!(", {foreign} of them not letters") } else { String::new() };
        let text =
            format!("{used} letters; {read} messages read, {doubled} of them again the same letter{more}");
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        if writeln!(self.progress, "{text}").is_err() {
            // Standard error is closed; there is no other place to report to.
        }
    }
}

fn millis_before_now(time: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_sub(time).as_millis()).unwrap_or(i64::MAX)
}

/// The name of a format in the config.
fn format_name(format: Option<Format>) -> &'static str {
    match format {
        Some(Format::OtlpProto) => "OtlpProto",
        Some(Format::OtlpJson) => "OtlpJson",
        None => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_on_a_queue_volume_are_listed_beside_the_gateway() {
        let path = std::env::temp_dir().join(format!("sluice-letters-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let config = test_letters::config(&path);
        let listed = |selection: &Selection, action| {
            let (mut out, mut progress) = (Vec::new(), Vec::new());
            run(&config, selection, action, true, (&mut out, &mut progress))
                .map(|()| (String::from_utf8(out).unwrap(), String::from_utf8(progress).unwrap()))
        };
        let all = Selection { topic: None, partition: None, offset: None, since: None, limit: None };
        let error = listed(&all, Action::List).unwrap_err();
        assert!(error.to_string().contains("dead-letters"), "{error}");
        test_letters::write(&config, &[(3, b"span"), (4, b"span"), (4, b"span"), (3, b"another span")]);
        let (out, progress) = listed(&all, Action::List).unwrap();
        // The third letter is the second once more. In the fourth, offsets have begun at 0 again.
        assert_eq!((out.lines().count(), progress.contains("3 letters")), (3, true), "{out}{progress}");
        let one = Selection { offset: Some(4), ..all };
        assert!(listed(&one, Action::Show).unwrap().0.contains("no such type"));
        let replay = listed(&one, Action::Replay { dry_run: true }).unwrap_err();
        assert!(matches!(replay, Error::NotReplayed(1)), "its value is no span: {replay}");
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_letter_beyond_those_that_are_kept_in_mind_ends_the_run_and_one_of_them_does_not() {
        let at = |offset| Coordinates { topic: "spans".into(), partition: 0, offset, row: None };
        let mut seen = Seen { letters: HashSet::new(), letters_max: 2 };
        assert!(seen.is_first(&at(7), None).unwrap());
        assert!(!seen.is_first(&at(7), None).unwrap(), "a crash has doubled it");
        assert!(seen.is_first(&at(7), Some(b"")).unwrap());
        assert!(!seen.is_first(&at(7), None).unwrap());
        let error = seen.is_first(&at(9), None).unwrap_err();
        assert!(matches!(error, Error::TooMany(2)), "{error}");
        assert!(error.to_string().ends_with("continue with --partition, --offset or --since"));
    }
}
