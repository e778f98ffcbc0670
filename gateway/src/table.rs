//! The table, and the servers that have it.
//!
//! Job: everything between the config's `sink.clickhouse` and statements, but for the inserts of blocks, which are
//! [delivery's](crate::delivery). Has no thread of its own.
//!
//! | file | asked by | answers |
//! | --- | --- | --- |
//! | [`sink`] | whoever talks to ClickHouse | how are its servers reached, and does the table fit? |
//! | [`schema`] | `ddl`, `check` | how should it be made, and what differs? |
//! | [`row_expiry`] | workers, `audit` | how old may a row be before the table's TTL deletes it? |
//! | [`table_watch`] | inserts that were refused | is it still what blocks were encoded for? |

pub mod sink;

pub mod schema;

pub mod row_expiry;

pub mod table_watch;
