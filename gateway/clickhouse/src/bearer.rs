//! A token in a file, which is sent as `Authorization: Bearer`. The kubelet replaces the file while the gateway runs.
//!
//! Each request reads the file again if the last look is [`TOKEN_LOOK`] ago: a few hundred bytes in memory of the node. If the file cannot be
//! read then, the last token stays, and the server refuses it once it has expired. [`BearerFile::failure`] says why; the delivery task logs
//! that with the refusal.

use std::fmt;
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;

/// How old a token may be that is sent. Chosen: the kubelet replaces a token minutes before it expires.
pub const TOKEN_LOOK: Duration = Duration::from_secs(10);

/// The longest token. ClickHouse takes a header of up to 1 MiB (`http_max_field_value_size` 128 KiB by default); tokens have up to 10 KiB.
pub const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Why a token cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the token in {path}: {reason}")]
pub struct BearerError {
    path: String,
    reason: String,
}

/// A file with a token. Clones share what was read. The token is never printed.
#[derive(Clone)]
pub struct BearerFile(Arc<Shared>);

struct Shared {
    path: String,
    read: Mutex<Read>,
}

struct Read {
    value: HeaderValue,
    at: Instant,
    /// Why the last look found no token.
    failure: Option<BearerError>,
}

impl BearerFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`BearerError`], which names the file.
    pub fn open(path: &str) -> Result<Self, BearerError> {
        let read = Read { value: read(path)?, at: Instant::now(), failure: None };
        Ok(Self(Arc::new(Shared { path: path.to_owned(), read: Mutex::new(read) })))
    }

    /// The header's value with the token of now.
    pub fn header(&self) -> HeaderValue {
        self.header_at(Instant::now())
    }

    /// Why the token of the last look cannot be sent, so that an older one is.
    pub fn failure(&self) -> Option<BearerError> {
        self.last().failure.clone()
    }

    fn header_at(&self, now: Instant) -> HeaderValue {
        let mut last = self.last();
        if now.saturating_duration_since(last.at) >= TOKEN_LOOK {
            last.at = now;
            match read(&self.0.path) {
                Ok(value) => (last.value, last.failure) = (value, None),
                Err(failure) => last.failure = Some(failure),
            }
        }
        last.value.clone()
    }

    fn last(&self) -> MutexGuard<'_, Read> {
        // Poisoning is harmless: the value is always complete.
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BearerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BearerFile").field(&self.0.path).finish()
    }
}

fn read(path: &str) -> Result<HeaderValue, BearerError> {
    let failed = |reason: String| BearerError { path: path.to_owned(), reason };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    let token = text.trim_end_matches(['\n', '\r']);
    if token.is_empty() {
        return Err(failed("it is empty".to_owned()));
    }
    if text.len() as u64 > TOKEN_BYTES_MAX {
        return Err(failed(format!("it has more than {TOKEN_BYTES_MAX} bytes")));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(failed(
            "it has characters that are neither letters, digits nor signs of ASCII".to_owned(),
        ));
    }
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| failed(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("sluice-bearer-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_token_that_is_replaced_is_sent_after_the_bound_and_one_that_is_gone_is_kept() {
        let path = file("replaced");
        std::fs::write(&path, "one\n").unwrap();
        let bearer = BearerFile::open(path.to_str().unwrap()).unwrap();
        let begun = bearer.0.read.lock().unwrap().at;
        let sent = |after: Duration| bearer.header_at(begun + after).to_str().unwrap().to_owned();
        std::fs::write(&path, "two").unwrap();
        assert_eq!(sent(TOKEN_LOOK / 2), "Bearer one");
        assert_eq!(sent(TOKEN_LOOK), "Bearer two");
        assert_eq!(bearer.failure(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sent(TOKEN_LOOK * 3), "Bearer two");
        let failure = bearer.clone().failure().unwrap().to_string();
        assert!(failure.contains("cannot use the token in") && failure.contains("No such file"), "{failure}");
        std::fs::write(&path, "a b").unwrap();
        assert_eq!(sent(TOKEN_LOOK * 5), "Bearer two", "nonsense is not sent");
        assert!(bearer.failure().unwrap().to_string().contains("characters"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!((sent(TOKEN_LOOK * 7).as_str(), bearer.failure()), ("Bearer two", None));
        std::fs::remove_file(&path).unwrap();
        assert!(!format!("{bearer:?} {:?}", bearer.header()).contains("two"));
    }

    #[test]
    fn a_file_without_a_token_is_named() {
        let said = BearerFile::open("/nowhere/token").unwrap_err().to_string();
        assert!(said.contains("cannot use the token in /nowhere/token"), "{said}");
        let path = file("empty");
        for (text, part) in [
            (String::new(), "it is empty"),
            ("\n".into(), "it is empty"),
            ("a b".into(), "characters"),
            ("x".repeat(70_000), "more than 65536 bytes"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = BearerFile::open(path.to_str().unwrap()).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
