//! Files of certificates and credentials: read at the start, and again while the server runs, as the kubelet replaces them.
//!
//! Contents are compared, not times: the kubelet replaces a link, and other tools write in place. Files that only fit together (a
//! certificate and its key) are a group. A group that cannot be read or used (half of it was replaced, mostly) leaves the former one in use,
//! and is tried again. The other groups are read all the same.

use crate::{
    counters::Counters,
    notices::{NoticeKind, Notices},
    server::Error,
};
use std::{
    fs::File,
    io::Read as _,
    ops::Range,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

/// Bytes of one file. Chosen: thousands of tokens, or hundreds of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What was read, one a file.
pub(crate) type Contents = Vec<Vec<u8>>;

/// Files that something is made of.
pub(crate) trait Files: Clone + Send + 'static {
    /// What is made of them.
    type Made: Send + Sync + 'static;

    /// Reads each of them, in a fixed order.
    fn read(&self) -> Vec<Result<Vec<u8>, Error>>;

    /// The files that only fit together, by their places in that order.
    fn groups(&self) -> Vec<Range<usize>>;

    /// Makes it.
    fn make(&self, contents: &Contents) -> Result<Self::Made, Error>;
}

/// What was made last. Clones share it.
#[derive(Debug)]
pub(crate) struct Live<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Live<T> {
    pub fn new(made: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(made))))
    }

    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, made: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(made);
    }
}

/// Files, and what was made of them.
pub(crate) struct Watched<F: Files> {
    files: F,
    contents: Contents,
    live: Live<F::Made>,
}

impl<F: Files> Watched<F> {
    /// Reads the files for the first time.
    pub async fn load(files: F) -> Result<Self, Error> {
        let aside = move || {
            let contents = files.read().into_iter().collect::<Result<Contents, Error>>()?;
            let live = Live::new(files.make(&contents)?);
            Ok(Self { files, contents, live })
        };
        joined(tokio::task::spawn_blocking(aside).await)
    }

    pub fn live(&self) -> Live<F::Made> {
        self.live.clone()
    }

    /// Reads the files, and makes it again of the groups that have changed and can be used.
    pub async fn refresh(&mut self, counters: &Counters, notices: &Notices) {
        let (files, former) = (self.files.clone(), self.contents.clone());
        let aside = move || Ok(refreshed(&files, former));
        match joined(tokio::task::spawn_blocking(aside).await) {
            Ok(Refreshed { made, contents, errors }) => {
                if let Some(made) = made {
                    self.contents = contents;
                    self.live.set(made);
                    counters.reload();
                    let words = || "files have changed and were read again".to_owned();
                    notices.tell(NoticeKind::FilesReloaded, words);
                }
                if !errors.is_empty() {
                    counters.fail_reload();
                    let words = || format!("{}; what was read before is used on", errors.join("; "));
                    notices.tell(NoticeKind::FilesFailed, words);
                }
            }
            Err(error) => {
                counters.fail_reload();
                notices.tell(NoticeKind::FilesFailed, || format!("{error}; what was read before is used on"));
            }
        }
    }
}

/// What reading the files again gave.
struct Refreshed<M> {
    /// `None` if nothing has changed that can be used.
    made: Option<M>,
    /// What it was made of.
    contents: Contents,
    /// One of each group that cannot be read or used.
    errors: Vec<String>,
}

/// Reads the files, and takes over each group that can be used.
fn refreshed<F: Files>(files: &F, mut contents: Contents) -> Refreshed<F::Made> {
    let mut read: Vec<_> = files.read().into_iter().map(Some).collect();
    let (mut made, mut errors) = (None, Vec::new());
    for group in files.groups() {
        let mut candidate = contents.clone();
        let mut used = Ok(());
        for place in group {
            match (read.get_mut(place).and_then(Option::take), candidate.get_mut(place)) {
                (Some(Ok(content)), Some(former)) => *former = content,
                (Some(Err(error)), _) => used = Err(error),
                _ => {}
            }
        }
        match used {
            Ok(()) if candidate == contents => {}
            Ok(()) => match files.make(&candidate) {
                Ok(new) => (made, contents) = (Some(new), candidate),
                Err(error) => errors.push(error.to_string()),
            },
            Err(error) => errors.push(error.to_string()),
        }
    }
    Refreshed { made, contents, errors }
}

/// The result of a blocking thread, whose panic is that of the caller.
fn joined<T>(joined: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    match joined {
        Ok(made) => made,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Ending),
    }
}

/// Reads a file up to its limit.
pub(crate) fn read(what: &'static str, file: &Path) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Read { what, file: file.to_owned(), reason };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|error| failed(error.to_string()))?;
    // One byte more, so that a larger file is seen as such.
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(failed(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
