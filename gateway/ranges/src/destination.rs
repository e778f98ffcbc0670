//! Where the ranges of a partition are sent: one shard's servers and a table, as a number that plans and blocks on queue volumes carry.
//!
//! A server knows the tokens of what was sent to it, and of nothing else. A range that an owner before may have sent to another server,
//! or into another table, may be stored twice although its token is relied on: by this number the next owner notices.

use crate::short_hash::ShortHash;

/// Where ranges are sent: 24 bits of a hash over database, table and one server, never 0.
///
/// One server of a shard represents all of them. A reader of the number compares it with those of all servers of its shard. So a shard
/// that keeps this server is the same shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination(ShortHash);

impl Destination {
    /// Of this table on this server, which is named as `host:port`.
    pub fn of(database: &str, table: &str, server: &str) -> Self {
        let mut bytes = Vec::with_capacity(database.len() + table.len() + server.len() + 24);
        for text in [database, table, server] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Self(ShortHash::of(&bytes))
    }

    /// The number, from 1 to 2^24 − 1.
    pub fn number(self) -> u32 {
        self.0.number()
    }

    /// From such a number; `None` for any other.
    pub fn of_number(number: u32) -> Option<Self> {
        ShortHash::of_number(number).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_differs_with_each_of_its_parts_and_never_changes() {
        let one = Destination::of("otel", "otel_traces", "clickhouse:8123");
        let others = [
            Destination::of("otel2", "otel_traces", "clickhouse:8123"),
            Destination::of("otel", "traces", "clickhouse:8123"),
            Destination::of("otel", "otel_traces", "clickhouse:8124"),
            Destination::of("otelotel", "_traces", "clickhouse:8123"),
        ];
        assert!(!others.contains(&one));
        // What plans and volumes hold: another number would report each range in flight as sent elsewhere.
        assert_eq!(one.number(), 10_609_178);
        assert_eq!(Destination::of_number(one.number()), Some(one));
        assert_eq!([0, 1 << 24].map(Destination::of_number), [None, None]);
    }
}
