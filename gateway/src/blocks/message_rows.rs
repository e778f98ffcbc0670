//! The message of each row of a block: needed when the server refuses a row, to find its span in Kafka.
//!
//! Place in the flow: a worker adds every message of a block; delivery asks after a refusal. Owner: the owner of the block.
//!
//! Offsets ascend; a message without rows is left out. Each other message has two numbers (LEB128, at most 63 bits): the distance of its
//! offset from the one before, or from 0, and its number of rows.
//!
//! Limits: two to four bytes a message, while its rows take ten times as much. A block has at most `sink.clickhouse.insert.maxRows`
//! messages.

use sluice_ranges::OffsetRange;

/// The messages of a block, in order, with their numbers of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageRows {
    bytes: Vec<u8>,
    last: i64,
}

impl MessageRows {
    /// Adds a message: its rows come next.
    pub fn add(&mut self, offset: i64, rows: u64) {
        if rows == 0 {
            return;
        }
        put(&mut self.bytes, offset.abs_diff(self.last));
        put(&mut self.bytes, rows);
        self.last = offset;
    }

    /// Frees unused capacity.
    #[must_use]
    pub fn finished(mut self) -> Self {
        self.bytes.shrink_to_fit();
        self
    }

    /// The offset of a row's message and the number of its span, both rows and spans counted from 0; `None` if there are fewer rows.
    pub fn locate(&self, row: u64) -> Option<(i64, u64)> {
        let mut rest = self.bytes.as_slice();
        let (mut offset, mut first) = (0_u64, 0_u64);
        loop {
            offset = offset.checked_add(take(&mut rest)?)?;
            let rows = take(&mut rest)?;
            match row.checked_sub(first).filter(|span| *span < rows) {
                Some(span) => return Some((i64::try_from(offset).ok()?, span)),
                None => first = first.checked_add(rows)?,
            }
        }
    }

    /// The number of rows of messages at these offsets.
    pub fn rows_within(&self, range: OffsetRange) -> u64 {
        let mut rest = self.bytes.as_slice();
        let (mut offset, mut found) = (0_u64, 0_u64);
        while let Some((gap, rows)) = take(&mut rest).zip(take(&mut rest)) {
            offset = offset.saturating_add(gap);
            let is_within = i64::try_from(offset).is_ok_and(|at| range.first <= at && at < range.next);
            found = found.saturating_add(if is_within { rows } else { 0 });
        }
        found
    }

    /// The bytes to store with the block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// From stored bytes, for questions only. Foreign bytes locate no row, or a wrong one, and have no other effect.
    pub fn kept(bytes: Vec<u8>) -> Self {
        Self { bytes, last: 0 }
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(0x80 | value.to_le_bytes()[0]);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_is_found_in_its_message(
            first in 0..1_i64 << 40, messages in prop::collection::vec((1..300_i64, 0..400_u64), 0..50),
        ) {
            let mut offset = first;
            let mut rows = Vec::new();
            let mut taken = MessageRows::default();
            for (gap, count) in messages {
                offset += gap;
                taken.add(offset, count);
                rows.extend((0..count).map(|span| (offset, span)));
            }
            let kept = MessageRows::kept(taken.clone().finished().bytes().to_vec());
            for (row, place) in (0..).zip(&rows) {
                prop_assert_eq!(taken.locate(row), Some(*place));
                prop_assert_eq!(kept.locate(row), Some(*place));
            }
            prop_assert_eq!(taken.locate(rows.len() as u64), None);
            let range = OffsetRange { first: first + 40, next: first + 4_000 };
            let within = rows.iter().filter(|(at, _)| range.first <= *at && *at < range.next).count();
            prop_assert_eq!(kept.rows_within(range), within as u64);
        }

        #[test]
        fn any_bytes_are_asked_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..60), row in any::<u64>()) {
            let found = MessageRows::kept(bytes).locate(row);
            prop_assert!(found.is_none_or(|(offset, _)| offset >= 0));
        }
    }
}
