//! Appends the values of letters to a log of the queue volume again, with `source.otlp`.
//!
//! The gateway of the volume must not run: the command claims the volume, as a gateway does. So nothing is sent over a network, and no answer can be
//! missing: a message is durable before its line is printed, and the gateway's next start inserts it. If the command is killed, at most the letter
//! behind the last line was appended without one. What is found when the volume is opened goes to the log, which is standard error; if something
//! cannot be read, nothing is replayed.
//!
//! | the letter | what is appended |
//! | --- | --- |
//! | has a value in protobuf | that value |
//! | has no value, or one that is larger than a request may be | nothing |
//!
//! A letter stays on the volume: replaying it twice stores it twice.

use super::{Error, Found, Use, replay::line};
use crate::source::{
    appender::now_ms,
    opening::{self, OpenedVolume},
};
use sluice_gateway_config::{Format, GatewayConfig, OtlpSource};
use sluice_kafka::Message as _;
use sluice_spool::{
    Identity, Volume,
    log::{Log, LogError, OffsetsFound},
};
use std::{io::Write, path::Path};

pub(super) struct ReplayToLog {
    /// `None` in a dry run: nothing is opened.
    volume: Option<ClaimedVolume>,
    message_bytes_max: u64,
    json: bool,
    not_replayed: u64,
}

/// A volume that no gateway uses meanwhile.
struct ClaimedVolume {
    opened: OpenedVolume,
    _claim: Volume,
}

impl ReplayToLog {
    pub(super) fn new(
        config: &GatewayConfig,
        otlp: &OtlpSource,
        dry_run: bool,
        json: bool,
    ) -> Result<Self, Error> {
        let volume = if dry_run { None } else { Some(ClaimedVolume::open(config, otlp)?) };
        let message_bytes_max = otlp.limits.decompressed_bytes_max.get();
        Ok(Self { volume, message_bytes_max, json, not_replayed: 0 })
    }

    /// The value to append, or why there is none.
    fn value<'a>(&self, letter: &'a Found) -> Result<&'a [u8], String> {
        let kind = &letter.head.value;
        let value = letter.message.payload().filter(|_| letter.head.has_value());
        let value = value.ok_or_else(|| format!("its value is {kind}"))?;
        if letter.head.format != Some(Format::OtlpProto) {
            return Err("its value is not protobuf".to_owned());
        }
        if value.len() as u64 > self.message_bytes_max {
            return Err(format!(
                "its value has {} bytes, more than source.otlp.limits.decompressedBytesMax",
                value.len()
            ));
        }
        match sluice_otlp::validate(value) {
            Ok(0) => Err("its value has no spans".to_owned()),
            Ok(_) => Ok(value),
            Err(malformed) => Err(malformed.to_string()),
        }
    }

    /// The output about a letter, and the offset of the new message.
    fn replay(&mut self, letter: &Found) -> Result<(String, Option<i64>), Error> {
        let value = match self.value(letter) {
            Ok(value) => value,
            Err(why) => {
                self.not_replayed += 1;
                return Ok((format!("not replayed: {why}"), None));
            }
        };
        let Some(volume) = &mut self.volume else {
            return Ok(("would be replayed to a log of the queue volume".to_owned(), None));
        };
        let (log, offset) = volume.append(value)?;
        Ok((format!("replayed to {}/{log}@{offset}", opening::TOPIC), Some(offset)))
    }
}

impl ClaimedVolume {
    fn open(config: &GatewayConfig, otlp: &OtlpSource) -> Result<Self, Error> {
        let identity = Identity::of(&config.pipeline.namespace, &config.pipeline.name);
        let claim = Volume::claim(Path::new(&config.queue.path), &identity).map_err(Error::Claim)?;
        let volume_bytes = claim.space().map_err(Error::Claim)?.total;
        let opened = opening::open(config, otlp, volume_bytes).map_err(Error::Open)?;
        if let Some(why) = unreadable(&opened) {
            return Err(Error::Unreadable(why));
        }
        Ok(Self { opened, _claim: claim })
    }

    /// Appends a message durably to the log with the fewest bytes. Returns its log and offset.
    fn append(&mut self, message: &[u8]) -> Result<(i32, i64), Error> {
        let OpenedVolume { logs, writers, accepting, log_bytes_max, .. } = &mut self.opened;
        let used: u64 = writers.iter().map(Log::file_bytes).sum();
        let room = log_bytes_max.saturating_sub(used);
        let accepts = writers.iter_mut().take(*accepting).zip(logs.iter());
        let emptiest = accepts.min_by_key(|(writer, _)| (!writer.may_begin_segment(), writer.file_bytes()));
        let (writer, log) = emptiest.ok_or(Error::Unreadable(UNREADABLE_LOG))?;
        let appended = writer.append(&[message], now_ms(), room).map_err(Error::Append)?;
        writer.sync().map_err(|fatal| Error::Append(fatal.into()))?;
        Ok((log.id.partition, appended.first))
    }

    fn close(self) -> Result<(), LogError> {
        let OpenedVolume { logs, writers, .. } = self.opened;
        for (writer, log) in writers.into_iter().zip(logs) {
            let committed = log.offsets.committed().map_or(0, |committed| committed.offset);
            writer.close(committed)?;
        }
        Ok(())
    }
}

const UNREADABLE_LOG: &str = "a log of the queue volume cannot be read";

/// What cannot be read of a volume. A person may have to restore it, and what is appended meanwhile is lost then.
fn unreadable(opened: &OpenedVolume) -> Option<&'static str> {
    if !opened.unreadable.is_empty() || opened.letters.is_none() {
        Some(UNREADABLE_LOG)
    } else if opened.logs.iter().any(|log| log.offsets_found == OffsetsFound::Damaged) {
        Some("the committed offset of a log of the queue volume cannot be read")
    } else {
        None
    }
}

impl Use for ReplayToLog {
    fn letter(&mut self, letter: &Found, out: &mut dyn Write) -> Result<(), Error> {
        let outcome = self.replay(letter)?;
        writeln!(out, "{}", line(letter, outcome, self.json)).map_err(Error::Write)
    }

    fn end(&mut self, _: &mut dyn Write) -> Result<(), Error> {
        if let Some(volume) = self.volume.take() {
            volume.close().map_err(Error::Append)?;
        }
        if self.not_replayed > 0 { Err(Error::NotReplayed(self.not_replayed)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Action, Selection, run,
            test_letters::{self, config, opened},
        },
        *,
    };
    use sluice_spool::log::Read;
    use std::path::PathBuf;

    /// A request with one span, which has ids and nothing else.
    fn request() -> Vec<u8> {
        let span: Vec<u8> = [&[0x0a, 16][..], &[7; 16], &[0x12, 8], &[9; 8]].concat();
        [&[0x0a, 32, 0x12, 30, 0x12, 28][..], &span].concat()
    }

    /// A volume with the letters of two rows: a span, and what is none.
    fn with_letters(test: &str) -> (PathBuf, GatewayConfig) {
        let path = std::env::temp_dir().join(format!("sluice-replay-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let config = config(&path);
        test_letters::write(&config, &[(3, &request()), (4, b"none")]);
        (path, config)
    }

    fn replayed(config: &GatewayConfig, dry_run: bool) -> (Result<(), Error>, String) {
        let (mut out, mut progress) = (Vec::new(), Vec::new());
        let told = (&mut out as &mut dyn Write, &mut progress as &mut dyn Write);
        let action = Action::Replay { dry_run };
        let outcome = run(config, &Selection::default(), action, false, told);
        (outcome, String::from_utf8(out).unwrap())
    }

    fn messages(config: &GatewayConfig) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for log in opened(config).logs {
            let mut cursor = log.view.read_from(log.view.start());
            while let Read::Message(message) = cursor.read().unwrap() {
                found.push(message.payload);
            }
        }
        found
    }

    #[test]
    fn a_letter_is_in_a_log_again_once_and_what_cannot_be_replayed_says_why() {
        let (path, config) = with_letters("once");
        let (dry, said) = replayed(&config, true);
        assert!(matches!(dry, Err(Error::NotReplayed(1))) && said.contains("would be replayed"), "{said}");
        assert_eq!(messages(&config), Vec::<Vec<u8>>::new());
        let (outcome, said) = replayed(&config, false);
        assert!(matches!(outcome, Err(Error::NotReplayed(1))), "{outcome:?}");
        assert!(
            said.contains("otlp/1@3 row 0  replayed to otlp/0@0") && said.contains("not replayed"),
            "{said}"
        );
        assert_eq!(messages(&config), [request()]);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn letters_are_not_replayed_while_a_gateway_has_the_volume() {
        let (path, config) = with_letters("claimed");
        let claim = Volume::claim(&path, &Identity::of("n", "p")).unwrap();
        let (outcome, said) = replayed(&config, false);
        assert!(matches!(outcome, Err(Error::Claim(_))) && said.is_empty(), "{outcome:?} {said}");
        drop(claim);
        assert_eq!(messages(&config), Vec::<Vec<u8>>::new());
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn letters_are_not_replayed_to_a_volume_on_which_something_cannot_be_read() {
        let (path, config) = with_letters("unread");
        // Something that is no commit, in all places of it.
        let offsets = path.join("log-00/offsets");
        let whole = std::fs::read(&offsets).unwrap();
        std::fs::write(&offsets, vec![1; whole.len()]).unwrap();
        let (outcome, said) = replayed(&config, false);
        assert!(matches!(outcome, Err(Error::Unreadable(_))) && said.is_empty(), "{outcome:?} {said}");
        std::fs::write(&offsets, whole).unwrap();
        assert_eq!(messages(&config), Vec::<Vec<u8>>::new());
        let mut opened = opened(&config);
        assert_eq!(unreadable(&opened), None);
        opened.unreadable.push(3);
        assert!(unreadable(&opened).is_some());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
