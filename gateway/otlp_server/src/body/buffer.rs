//! The bytes of one body, with the permit for them.
//!
//! The permit is for the capacity, and is taken before the memory is. While a buffer moves to a larger one, it has permits for both.

use crate::byte_budget::{ByteBudget, BytePermit, NoRoom};
use bytes::Bytes;
use std::time::Duration;

/// The first step of a body of unknown length. Chosen: small requests of clients that send chunks have 1 to 8 KiB. Each further step
/// doubles it.
pub(crate) const STEP_BYTES: usize = 8 << 10;

/// Why a buffer cannot take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// It has reached its maximum.
    Limit,
    /// The budget has no room.
    Budget(NoRoom),
}

#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    permit: BytePermit,
    bytes_max: usize,
}

impl Buffer {
    /// An empty buffer with room for this many bytes, that may grow. Waits for its permit.
    pub async fn within(
        budget: &ByteBudget,
        bytes: usize,
        bytes_max: usize,
        wait: Duration,
    ) -> Result<Self, Full> {
        let permit = budget.take_within(bytes.min(bytes_max), wait).await.map_err(Full::Budget)?;
        Ok(Self::of(permit, bytes_max))
    }

    /// The same without waiting.
    pub fn now(budget: &ByteBudget, bytes: usize, bytes_max: usize) -> Result<Self, NoRoom> {
        Ok(Self::of(budget.try_take(bytes.min(bytes_max))?, bytes_max))
    }

    /// An empty buffer as large as its permit.
    pub fn of(permit: BytePermit, bytes_max: usize) -> Self {
        Self { bytes: Vec::with_capacity(permit.bytes()), permit, bytes_max }
    }

    /// Bytes of its permit.
    pub fn held(&self) -> usize {
        self.permit.bytes()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn spare(&self) -> usize {
        self.bytes.capacity().saturating_sub(self.bytes.len())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// For decoders, which append within the capacity and never beyond.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Frees the memory, and gives its permit back.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
        self.permit.shrink_to(0);
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The same, and waits for its permit as a request that has one already.
    pub async fn append_within(&mut self, bytes: &[u8], wait: Duration) -> Result<(), Full> {
        if let Some(capacity) = self.larger(bytes.len())? {
            let permit = self.permit.budget().take_more_within(capacity, wait).await.map_err(Full::Budget)?;
            self.move_to(permit);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes room for this many bytes more.
    pub fn reserve(&mut self, more: usize) -> Result<(), Full> {
        if let Some(capacity) = self.larger(more)? {
            let permit = self.permit.budget().try_take(capacity).map_err(Full::Budget)?;
            self.move_to(permit);
        }
        Ok(())
    }

    /// The capacity that this many bytes more need; `None` if there is room.
    fn larger(&self, more: usize) -> Result<Option<usize>, Full> {
        if more <= self.spare() {
            return Ok(None);
        }
        let needed = self.len().saturating_add(more);
        if needed > self.bytes_max {
            return Err(Full::Limit);
        }
        let doubled = self.bytes.capacity().saturating_mul(2).max(STEP_BYTES);
        Ok(Some(doubled.max(needed).min(self.bytes_max)))
    }

    /// Moves to memory as large as this permit.
    fn move_to(&mut self, permit: BytePermit) {
        let mut larger = Vec::with_capacity(permit.bytes());
        larger.extend_from_slice(&self.bytes);
        // In this order: the former memory is free before its permit is.
        self.bytes = larger;
        self.permit = permit;
    }

    /// The bytes, and the permit for the memory that they are in. What they do not need is given back.
    pub fn into_parts(self) -> (Bytes, BytePermit) {
        let Self { mut bytes, mut permit, .. } = self;
        bytes.shrink_to_fit();
        permit.shrink_to(bytes.capacity());
        (Bytes::from(bytes), permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_a_permit_for_all_of_its_memory_while_it_grows() {
        let budget = ByteBudget::new(100_000);
        let mut buffer = Buffer::now(&budget, 10, 50_000).unwrap();
        buffer.append(&[1; 10]).unwrap();
        assert_eq!(budget.used_bytes(), 10);
        buffer.append(&[2; 10]).unwrap();
        assert_eq!((budget.used_bytes(), buffer.spare()), (8_192, 8_172));
        buffer.append(&vec![3; 20_000]).unwrap();
        assert_eq!((buffer.len(), budget.used_bytes()), (20_020, 20_020));
        // 50,000 would fit, and 50,000 + 40,040 would as well; 101,000 would not.
        assert_eq!(buffer.append(&vec![4; 30_000]), Err(Full::Limit));
        let (bytes, permit) = buffer.into_parts();
        assert_eq!((bytes.len(), permit.bytes()), (20_020, 20_020));
    }

    #[test]
    fn what_a_buffer_does_not_need_it_gives_back_at_its_end() {
        let budget = ByteBudget::new(100_000);
        let mut buffer = Buffer::now(&budget, 60_000, 90_000).unwrap();
        buffer.append(&vec![1; 20_000]).unwrap();
        let (bytes, permit) = buffer.into_parts();
        assert_eq!((bytes.len(), permit.bytes(), budget.used_bytes()), (20_000, 20_000, 20_000));
    }

    #[test]
    fn a_buffer_that_cannot_grow_within_the_budget_is_as_before() {
        let budget = ByteBudget::new(10_000);
        let mut buffer = Buffer::now(&budget, 4_000, 50_000).unwrap();
        buffer.append(&[1; 4_000]).unwrap();
        assert_eq!(buffer.append(&[1]), Err(Full::Budget(NoRoom(8_192))));
        assert_eq!((buffer.len(), budget.used_bytes()), (4_000, 4_000));
    }
}
