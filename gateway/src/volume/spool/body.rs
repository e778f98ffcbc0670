//! Bodies that are read from the queue volume while they are sent.
//!
//! Owner: the thread `spool-read` reads; the I/O runtime takes the pieces. Memory: [`PIECE_BYTES`] for each piece that a connection
//! has not sent yet, at most [`PIECES_MAX`] a try: those that the connection buffers, and one that is read ahead.
//!
//! The checksum of a whole record is verified before it is first sent, and again while it is sent; the last piece is held back until it
//! is right. So damage in between interrupts the request, and the server stores nothing. Because that try has no answer, the record is
//! verified again before the next one ([`recheck_crc`]), which finds the damage.
//!
//! A failed read says nothing about the record: the volume has failed, and callers get no answer before the process ends.
//!
//! [`recheck_crc`]: crate::volume::block_frames::BlockFrames::recheck_crc

use crate::ground::async_sender::AsyncSender;
use bytes::Bytes;
use crossbeam_channel::{Receiver, TrySendError, bounded};
use sluice_clickhouse::body::{BodyPieces, BodySource, Broken, InsertBody};
use sluice_gateway_config::budget::SPOOL_PIECE_BYTES;
use sluice_spool::{BlockHead, Body, BodyError, Damage, Fatal};
use std::{
    fs::File,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};
use tokio::sync::oneshot;

#[expect(clippy::cast_possible_truncation, reason = "a constant far below 2^32")]
const PIECE_BYTES: usize = SPOOL_PIECE_BYTES as usize;

/// Reads that wait for the thread. Chosen: more than the tries of the largest `insert.concurrency` and the blocks that are prepared for
/// one, each with one read at a time. Those of several shards may be more: they wait for room.
const JOBS_MAX: usize = 128;

/// A record that cannot be read as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl From<Damage> for Unreadable {
    fn from(damage: Damage) -> Self {
        Self(damage.to_string())
    }
}

type Piece = (Body<File>, Result<Bytes, Unreadable>);

enum Job {
    /// Read all of it and verify its checksum.
    Verify { body: Body<File>, answer: oneshot::Sender<Result<(), Unreadable>> },
    /// Read the first bytes.
    ReadFirst { body: Body<File>, bytes: usize, answer: oneshot::Sender<Result<Bytes, Unreadable>> },
    /// Read a piece.
    Read { body: Body<File>, answer: oneshot::Sender<Piece> },
}

/// The thread that reads.
#[derive(Clone)]
pub(super) struct Reads(AsyncSender<Job>);

impl Reads {
    /// `failed` is called each time the volume fails.
    pub fn start(failed: impl Fn(Fatal) + Send + 'static) -> std::io::Result<Self> {
        let (jobs, jobs_in) = bounded(JOBS_MAX);
        thread::Builder::new().name("spool-read".to_owned()).spawn(move || read(&jobs_in, failed))?;
        Ok(Self(AsyncSender::new(jobs)))
    }

    pub fn record(&self, head: &BlockHead, body: Body<File>) -> Record {
        Record { reads: self.clone(), metadata_bytes: u64::from(head.metadata_bytes), body }
    }

    async fn ask(&self, job: Job) {
        if self.0.send(job).await.is_err() {
            // The thread runs as long as there are handles.
        }
    }
}

fn read(jobs: &Receiver<Job>, failed: impl Fn(Fatal)) {
    let mut buffer = vec![0; PIECE_BYTES];
    for job in jobs {
        // The caller may have given up the block, or the try may have ended: then nothing receives the answer.
        let was_read = match job {
            Job::Verify { body, answer } => {
                sound(body.verify(&mut buffer)).map(|whole| drop(answer.send(whole)))
            }
            Job::ReadFirst { mut body, bytes, answer } => {
                let mut first = vec![0; bytes];
                let read = sound(body.read(&mut first));
                read.map(|read| drop(answer.send(read.map(|_| Bytes::from(first)))))
            }
            Job::Read { mut body, answer } => {
                let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(body.left()).unwrap_or(PIECE_BYTES))];
                let read = sound(body.read(&mut piece));
                read.map(|read| drop(answer.send((body, read.map(|_| Bytes::from(piece))))))
            }
        };
        was_read.unwrap_or_else(&failed);
    }
}

/// The bytes, or the damage of the record; an error if the volume has failed.
fn sound<T>(read: Result<T, BodyError>) -> Result<Result<T, Unreadable>, Fatal> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(BodyError::Damaged(damage)) => Ok(Err(damage.into())),
        Err(BodyError::Failed(fatal)) => Err(fatal),
    }
}

/// A block on the volume that can be read.
pub struct Record {
    reads: Reads,
    metadata_bytes: u64,
    body: Body<File>,
}

impl Record {
    /// Reads all of it and verifies its checksum.
    pub async fn verify(&self) -> Result<(), Unreadable> {
        let (answer, verified) = oneshot::channel();
        self.reads.ask(Job::Verify { body: self.body.clone(), answer }).await;
        super::answered(verified).await
    }

    pub async fn metadata(self) -> Result<Bytes, Unreadable> {
        let (answer, read) = oneshot::channel();
        let bytes = usize::try_from(self.metadata_bytes).unwrap_or(usize::MAX);
        self.reads.ask(Job::ReadFirst { body: self.body, bytes, answer }).await;
        super::answered(read).await
    }

    /// Its frames as the body of an INSERT; each try reads them again.
    pub fn into_body(self) -> InsertBody {
        let bytes = self.body.left().saturating_sub(self.metadata_bytes);
        InsertBody::read_from(Arc::new(self), bytes)
    }
}

impl BodySource for Record {
    fn open(&self) -> Box<dyn BodyPieces> {
        let (reads, unsent) = (self.reads.clone(), self.metadata_bytes);
        let mut pieces = Pieces { reads, unsent, coming: None, is_over: false, has_failed: false };
        pieces.read_on(self.body.clone());
        Box::new(pieces)
    }
}

/// A piece that is being read; `None` when the thread has ended.
type Coming = Pin<Box<dyn Future<Output = Option<Piece>> + Send>>;

/// A body that is being read by one try.
struct Pieces {
    reads: Reads,
    /// Bytes at the start that are not sent.
    unsent: u64,
    coming: Option<Coming>,
    is_over: bool,
    /// Whether the volume has failed, so that the process ends.
    has_failed: bool,
}

impl Pieces {
    fn read_on(&mut self, body: Body<File>) {
        self.is_over = body.left() == 0;
        if !self.is_over {
            let (answer, coming) = oneshot::channel();
            // At once, if there is room: it is read while the piece before is sent.
            let waits = match self.reads.0.try_send(Job::Read { body, answer }) {
                Err(TrySendError::Full(job)) => Some((self.reads.clone(), job)),
                Ok(()) | Err(TrySendError::Disconnected(_)) => None,
            };
            self.coming = Some(Box::pin(async move {
                if let Some((reads, job)) = waits {
                    reads.ask(job).await;
                }
                coming.await.ok()
            }));
        }
    }

    /// The part of a piece that is sent.
    fn sent(&mut self, mut piece: Bytes) -> Bytes {
        let skipped = usize::try_from(self.unsent).unwrap_or(usize::MAX).min(piece.len());
        self.unsent -= skipped as u64;
        piece.split_off(skipped)
    }
}

impl BodyPieces for Pieces {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            if self.has_failed {
                return Poll::Pending;
            }
            let Some(coming) = &mut self.coming else {
                return Poll::Ready(Some(Err(Broken(
                    "the body ended early; it was read to that place".to_owned(),
                ))));
            };
            let answer = ready!(coming.as_mut().poll(context));
            self.coming = None;
            match answer {
                Some((body, Ok(piece))) => {
                    self.read_on(body);
                    let sent = self.sent(piece);
                    if !sent.is_empty() {
                        return Poll::Ready(Some(Ok(sent)));
                    }
                }
                Some((_, Err(damage))) => return Poll::Ready(Some(Err(Broken(damage.to_string())))),
                // An error here would be taken for damage of the record.
                None => self.has_failed = true,
            }
        }
    }
}
