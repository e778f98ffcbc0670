//! Dead letters on the queue volume: a log of their own, which is bounded and never emptied by the gateway.
//!
//! Owner: the thread of letters. A letter is durable before it counts as delivered.

use crate::source::{appender::now_ms, keeper::OnFatal, numbers::SourceNumbers, opening::LETTERS};
use sluice_gateway_config::{ByteSize, GatewayConfig};
use sluice_kafka::dead_letter::{LetterStore, NoRoom};
use sluice_spool::{
    Directory, Fatal, Identity, OpenError,
    log::{Log, LogError, LogView},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// The letters of a config's volume, for a command beside the gateway.
///
/// # Errors
/// If the folder cannot be read.
pub fn read_only(config: &GatewayConfig) -> Result<LogView<Directory>, ReadOnlyError> {
    let path = Path::new(&config.queue.path).join(LETTERS);
    let identity = Identity::of(&config.pipeline.namespace, &config.pipeline.name).number();
    let files = Directory::open(&path).map_err(|source| ReadOnlyError::Folder { path, source })?;
    Ok(LogView::read_only(files, identity)?)
}

/// Why letters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadOnlyError {
    /// The folder of letters.
    #[error(
        "cannot open {path}: {source}; run this where the queue volume is mounted, for example in the gateway's pod"
    )]
    Folder { path: PathBuf, source: std::io::Error },
    /// A file in it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A message.
    #[error(transparent)]
    Read(#[from] Fatal),
}

/// The log of letters.
pub struct LetterLog {
    /// `None` if it cannot be read: then it takes no letters.
    log: Option<Log<Directory>>,
    bytes_max: u64,
    /// The volume's path.
    volume: String,
    numbers: Arc<SourceNumbers>,
    on_fatal: OnFatal,
}

impl LetterLog {
    /// Letters up to this many bytes.
    pub fn new(
        log: Option<Log<Directory>>,
        bytes_max: ByteSize,
        volume: &str,
        (numbers, on_fatal): (Arc<SourceNumbers>, OnFatal),
    ) -> Self {
        numbers.letter_bytes.store(log.as_ref().map_or(0, Log::file_bytes), Ordering::Relaxed);
        Self { log, bytes_max: bytes_max.get(), volume: volume.to_owned(), numbers, on_fatal }
    }
}

impl LetterStore for LetterLog {
    fn append(&mut self, letter: Vec<u8>) -> Result<i64, NoRoom> {
        let Some(log) = &mut self.log else {
            let why = format!("the log {LETTERS} cannot be read; the log of the gateway has the error");
            return Err(NoRoom::Full { volume: self.volume.clone(), why });
        };
        let room = self.bytes_max.saturating_sub(log.file_bytes());
        let appended = log.append(&[&letter], now_ms(), room);
        let stored = appended.and_then(|appended| {
            log.sync()?;
            Ok(appended.first)
        });
        let bytes = log.file_bytes();
        self.numbers.letter_bytes.store(bytes, Ordering::Relaxed);
        stored.map_err(|error| match error {
            LogError::Fatal(fatal) => {
                (self.on_fatal)(fatal);
                NoRoom::Ended
            }
            full => NoRoom::Full {
                volume: self.volume.clone(),
                why: format!(
                    "{full}; letters have {bytes} bytes of {} (source.otlp.deadLetterBytesMax)",
                    self.bytes_max
                ),
            },
        })
    }
}
