//! The id of a volume with logs: it stands for the topic's id in plans and tokens. A small file at the volume's root.
//!
//! `volume-id`: one line, `sluice-volume/1:`, the id in 32 hex digits, `:`, CRC32C of everything before in 8 hex digits.
//!
//! Without it the ranges in flight would get other tokens, and their rows could be stored twice. So a file that cannot be read is an error,
//! which a person decides about.

use crate::{
    files::{Fatal, Files},
    whole_file,
};
use std::fmt::Write as _;

/// The file's name.
pub const VOLUME_ID_FILE: &str = "volume-id";

const MAGIC: &str = "sluice-volume/1:";

/// Bytes of the line without its end.
const LINE_BYTES: usize = MAGIC.len() + 32 + 1 + 8;

/// Why there is no id.
#[derive(Debug, thiserror::Error)]
pub enum VolumeIdError {
    /// A call failed.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The file cannot be read.
    #[error(
        "the file {VOLUME_ID_FILE} on the queue volume cannot be read: restore it, or remove it; without it, rows of requests that are not \
         committed yet may be stored twice"
    )]
    Damaged,
    /// There is no room for it.
    #[error("the queue volume is too full to create {VOLUME_ID_FILE} on it")]
    Full,
}

/// The id of the volume whose root this is. A volume without one gets what `make` makes.
pub fn volume_id(files: &impl Files, make: impl FnOnce() -> [u8; 16]) -> Result<[u8; 16], VolumeIdError> {
    let found = whole_file::read(files, VOLUME_ID_FILE, LINE_BYTES.saturating_add(2));
    if let Some(bytes) = found.map_err(Fatal::of_read("read", VOLUME_ID_FILE))? {
        return decode(&bytes).ok_or(VolumeIdError::Damaged);
    }
    let id = make();
    let is_written = whole_file::replace(files, VOLUME_ID_FILE, encode(id).as_bytes());
    let is_written = is_written.map_err(Fatal::of("write", VOLUME_ID_FILE))?;
    if is_written { Ok(id) } else { Err(VolumeIdError::Full) }
}

fn encode(id: [u8; 16]) -> String {
    let mut line = format!("{MAGIC}{:032x}", u128::from_be_bytes(id));
    let sum = crc32c::crc32c(line.as_bytes());
    writeln!(line, ":{sum:08x}").expect("a string takes all");
    line
}

fn decode(bytes: &[u8]) -> Option<[u8; 16]> {
    let line = std::str::from_utf8(bytes).ok()?;
    let id = u128::from_str_radix(line.strip_prefix(MAGIC)?.get(..32)?, 16).ok()?.to_be_bytes();
    (encode(id) == line).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is_one() {
        let id = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        let line = encode(id);
        assert!(line.starts_with("sluice-volume/1:000102030405060708090a0b0c0d0eff:"), "{line}");
        assert_eq!(decode(line.as_bytes()), Some(id));
        for at in 0..line.len() {
            let mut other = line.clone().into_bytes();
            *other.get_mut(at).unwrap() ^= 1;
            assert_eq!(decode(&other), None, "{at}");
        }
        assert_eq!(decode(line.trim_end().as_bytes()), None);
        assert_eq!(decode(b""), None);
    }
}
