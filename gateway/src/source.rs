//! `source.otlp`: OTLP requests become messages of logs on the queue volume, and these are read like partitions of Kafka.
//!
//! ```text
//!  clients -- gRPC, HTTP --> otlp_server (io) --> acceptor --> checking (check-N) --> appender (log) --> logs on the volume
//!     ^                          | permits                       | walk                 | one sync for all        |
//!     `---- answer --------------'<-----------------------------------------------------'                         |
//!                                                  workers <-- messages <-- cursor of a log <---------------------'
//!                                                  commit thread --> keeper --> offsets of a log --> appender removes segments
//! ```
//!
//! | file | is |
//! | --- | --- |
//! | [`opening`] | the volume's id and logs, and what is said of what was found |
//! | [`gate`] | whether requests are taken, and how many are under way |
//! | [`acceptor`] | a request from its body to its answer |
//! | [`checking`] | the threads that check requests, and rewrite JSON |
//! | [`packing`] | a large request takes fewer bytes in a log |
//! | [`appender`] | the thread that owns the logs |
//! | [`keeper`] | what the poll thread and workers see of the logs |
//! | [`messages`] | a log as a queue of messages |
//! | [`letters`] | dead letters on the volume |
//! | [`front`] | builds the parts, starts the server, and ends it |
//! | [`fullness`] | since when the volume has no room |
//! | [`numbers`] | numbers for metrics |
//! | [`unreadable`] | logs that cannot be read |
//!
//! What it promises: `SOURCE_OTLP.md`.

pub mod acceptor;
pub mod appender;
pub mod checking;
pub mod front;
pub mod fullness;
pub mod gate;
pub mod keeper;
pub mod letters;
pub mod messages;
pub mod numbers;
pub mod opening;
pub mod packing;
pub mod unreadable;
