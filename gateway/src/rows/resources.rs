//! A cache of recently encoded resources, in the form that they have in the row.
//!
//! Job: saves a worker the encoding of a resource that it has just encoded. A collector's batch repeats the same few resources for every
//! trace in it. Place in the flow: between the walk and the row, inside [`crate::rows::span_row::Scratch`]. Owner: one worker thread.
//!
//! Limits: [`RESOURCES_MAX`] resources of at most [`RESOURCE_BYTES_MAX`] on the wire and [`ENCODED_BYTES_MAX`] in the row, together
//! 128 KiB; larger ones are encoded each time.

/// Cached resources; the oldest one is replaced. Chosen: a service has about one resource per process, and a collector's batch comes from
/// the processes of one node.
const RESOURCES_MAX: usize = 16;

/// Bytes of a resource on the wire. Chosen: four times what SDKs and the collector's Kubernetes processor write.
const RESOURCE_BYTES_MAX: usize = 2 << 10;

/// Bytes of a resource in the row. Chosen: nested lists repeat their path for every member; others grow little.
const ENCODED_BYTES_MAX: usize = 6 << 10;

/// Memory of all of them.
pub const MEMORY_BYTES_MAX: usize =
    RESOURCES_MAX * (RESOURCE_BYTES_MAX + ENCODED_BYTES_MAX + size_of::<Encoded>());

/// The cache, for one table: its columns decide the encoded form.
#[derive(Debug, Default)]
pub struct EncodedResources {
    kept: Vec<Encoded>,
    /// The one to replace next, once there are [`RESOURCES_MAX`].
    oldest: usize,
}

#[derive(Debug, Default)]
struct Encoded {
    digest: u64,
    /// Its bytes on the wire; equal bytes have equal meaning.
    message: Vec<u8>,
    row_bytes: Vec<u8>,
}

impl EncodedResources {
    /// Appends the cached form of this message, if there is one. A resource in pieces has no message and is never cached.
    pub fn recall(&self, message: Option<&[u8]>, row: &mut Vec<u8>) -> bool {
        let Some(message) = message else { return false };
        let digest = digest(message);
        let known = self.kept.iter().find(|known| known.digest == digest && known.message == message);
        if let Some(known) = known {
            row.extend_from_slice(&known.row_bytes);
        }
        known.is_some()
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        let kept = self.kept.iter().map(|one| one.message.capacity() + one.row_bytes.capacity());
        kept.sum::<usize>() + self.kept.capacity() * size_of::<Encoded>()
    }

    /// Caches the encoded form of a message.
    pub fn keep(&mut self, message: Option<&[u8]>, row_bytes: &[u8]) {
        let Some(message) = message else { return };
        if message.len() > RESOURCE_BYTES_MAX || row_bytes.len() > ENCODED_BYTES_MAX {
            return;
        }
        if self.kept.len() < RESOURCES_MAX {
            self.kept.push(Encoded::default());
            self.oldest = self.kept.len() - 1;
        }
        let room = &mut self.kept[self.oldest];
        room.digest = digest(message);
        replace(&mut room.message, message);
        replace(&mut room.row_bytes, row_bytes);
        self.oldest = (self.oldest + 1) % RESOURCES_MAX;
    }
}

/// Replaces bytes without using more memory than the longest of them: a vector that grows automatically uses up to twice that.
fn replace(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.clear();
    kept.reserve_exact(bytes.len());
    kept.extend_from_slice(bytes);
}

/// A digest of the length and eight bytes of each quarter: resources of one service differ in an id somewhere in the middle. Messages with
/// equal digests are compared in full.
fn digest(message: &[u8]) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let quarters = message.chunks((message.len() / 4).max(1)).filter_map(<[u8]>::last_chunk);
    quarters.fold(message.len() as u64, |digest, bytes| {
        (digest ^ u64::from_le_bytes(*bytes)).wrapping_mul(SPREAD).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(resources: &EncodedResources, message: &[u8]) -> Option<Vec<u8>> {
        let mut row = b"before ".to_vec();
        resources.recall(Some(message), &mut row).then_some(row)
    }

    #[test]
    fn a_resource_is_recalled_by_all_of_its_bytes() {
        let mut resources = EncodedResources::default();
        let alike = |byte| [&[b'x'; 50][..], &[byte], &[b'x'; 50]].concat();
        assert_eq!(digest(&alike(b'1')), digest(&alike(b'2')));
        resources.keep(Some(&alike(b'1')), b"one");
        assert_eq!(recalled(&resources, &alike(b'1')), Some(b"before one".to_vec()));
        assert_eq!(recalled(&resources, &alike(b'2')), None);
        assert_eq!(recalled(&resources, b""), None);
        resources.keep(Some(b""), b"none");
        assert_eq!(recalled(&resources, b""), Some(b"before none".to_vec()));
    }

    #[test]
    fn what_is_kept_takes_no_more_memory_than_its_limits() {
        let mut resources = EncodedResources::default();
        for bytes in (1..=RESOURCE_BYTES_MAX).step_by(7).chain([RESOURCE_BYTES_MAX]) {
            resources.keep(Some(&vec![1; bytes]), &vec![2; bytes * ENCODED_BYTES_MAX / RESOURCE_BYTES_MAX]);
        }
        let memory: usize =
            resources.kept.iter().map(|one| one.message.capacity() + one.row_bytes.capacity()).sum();
        assert!(memory <= RESOURCES_MAX * (RESOURCE_BYTES_MAX + ENCODED_BYTES_MAX), "{memory} bytes");
    }

    #[test]
    fn a_resource_in_pieces_is_not_kept() {
        let mut resources = EncodedResources::default();
        resources.keep(None, b"pieces");
        assert!(!resources.recall(None, &mut Vec::new()));
    }

    #[test]
    fn the_oldest_makes_room_and_what_is_too_large_is_not_kept() {
        let mut resources = EncodedResources::default();
        for number in 0..=20_u8 {
            resources.keep(Some(&[number]), &[number]);
        }
        resources.keep(Some(&[1; RESOURCE_BYTES_MAX + 1]), b"");
        resources.keep(Some(&[100]), &[1; ENCODED_BYTES_MAX + 1]);
        let kept: Vec<u8> = (0..=255).filter(|number| recalled(&resources, &[*number]).is_some()).collect();
        assert_eq!(kept, (5..=20).collect::<Vec<u8>>());
    }
}
