//! Why the spans of a message make no rows.

use crate::rows::{
    attributes::{self, RowLimit},
    raw_limit::RawLimitPassed,
};
use sluice_clickhouse::room::NoRoom;
use sluice_otlp::Malformed;

/// Why a message has no rows.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError<E> {
    /// It is not OTLP.
    #[error("{0}")]
    Malformed(Malformed),
    /// One of its spans makes a row that is too large.
    #[error("a span {0}")]
    RowTooLarge(RowLimit),
    /// Its rows together have more bytes than the message may write.
    #[error("the rows of the spans have more bytes than the message may write")]
    MessageTooLarge,
    /// The row buffer did not accept the rows.
    #[error("the row buffer does not accept the rows")]
    Store(E),
}

impl<E> From<Malformed> for RowError<E> {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl<E> From<NoRoom> for RowError<E> {
    fn from(NoRoom: NoRoom) -> Self {
        Self::RowTooLarge(RowLimit::Bytes)
    }
}

impl<E> From<RawLimitPassed> for RowError<E> {
    fn from(RawLimitPassed: RawLimitPassed) -> Self {
        Self::MessageTooLarge
    }
}

impl<E> From<attributes::Error> for RowError<E> {
    fn from(error: attributes::Error) -> Self {
        match error {
            attributes::Error::Malformed(malformed) => Self::Malformed(malformed),
            attributes::Error::RowTooLarge(limit) => Self::RowTooLarge(limit),
        }
    }
}
