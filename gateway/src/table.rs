//! The table, and the servers that have it.
//!
//! Job: everything between the config's `sink.clickhouse` and statements, except the inserts of blocks, which belong to
//! [delivery](crate::delivery). Has no thread of its own.
//!
//! | file | used by | answers |
//! | --- | --- | --- |
//! | [`sink`] | all code that talks to ClickHouse | how are its servers reached, and does the table fit? |
//! | [`schema`] | `ddl`, `check` | how should the table be created, and what differs? |
//! | [`row_expiry`] | workers, `audit` | how old may a row be before the table's TTL deletes it? |
//! | [`ttl_watch`] | a task of its own | does the table's TTL delete new rows at once? |
//! | [`parts_watch`] | a task of its own | are merges behind? |
//! | [`table_watch`] | inserts after a refusal | does the table still have the columns that blocks were encoded for? |

pub mod sink;

pub mod schema;

pub mod row_expiry;

pub mod table_watch;

pub mod ttl_watch;

pub mod parts_watch;
