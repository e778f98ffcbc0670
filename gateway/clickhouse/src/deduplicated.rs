//! Rows that a server dropped because it knows the token of their block.
//!
//! Job: one query of `system.part_log`, where such a part has the error 389 (`INSERT_WAS_DEDUPLICATED`) with its rows. No other source
//! reports it: the answer to an INSERT counts all rows as written (tested with ClickHouse 26.7). Place in the flow: the gateway's
//! `deduplicated` asks periodically. Limits: one query, over the log of the time since the last one.

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::{PROBE_TIMEOUT, Probe};
use crate::probe_error::ProbeError;
use crate::zones::ZONE_DAYS_APART_MAX;

/// Time after which a server has written its part log, seconds. Chosen: twice the default of `part_log`'s `flush_interval_milliseconds`;
/// a server with a longer interval is only partly counted.
const FLUSHED_AFTER_SECONDS: u32 = 15;

/// The rows that a server dropped in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Row, Deserialize)]
pub struct Deduplicated {
    /// The end of the period, in seconds since 1970 by the server's clock: the next one starts there.
    pub until_seconds: u32,
    pub rows: u64,
}

impl Probe {
    /// Rows of the table that this server dropped since then (seconds since 1970 by its clock) under query ids that contain
    /// `query_id_part`. Without a start none are counted, and the answer says where to start.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, the part log is missing, or the user may not read it.
    pub async fn deduplicated(
        &self,
        table: &str,
        query_id_part: &str,
        since_seconds: Option<u32>,
    ) -> Result<Deduplicated, ProbeError> {
        // The log is sorted by date and time. Its dates are in the zone that the server had when it wrote them, which may differ from the
        // server's and the user's of now.
        let question = format!(
            "WITH toUInt32(now()) - ? AS until, if(? = 0, until, ?) AS since \
                        SELECT toUInt32(until) AS until_seconds, sum(rows) AS rows FROM system.part_log \
                        WHERE event_date >= toDate(toDateTime(since)) - {ZONE_DAYS_APART_MAX} \
                        AND event_date <= toDate(toDateTime(until)) + {ZONE_DAYS_APART_MAX} \
                        AND event_time > toDateTime(since) AND event_time <= toDateTime(until) \
                        AND event_type = 'NewPart' AND error = 389 AND database = ? AND table = ? \
                        AND position(query_id, ?) > 0"
        );
        let since = since_seconds.unwrap_or(0);
        let answer = self
            .whole(&question)
            .bind(FLUSHED_AFTER_SECONDS)
            .bind(since)
            .bind(since)
            .bind(&self.database)
            .bind(table)
            .bind(query_id_part)
            .fetch_one::<Deduplicated>();
        self.within(PROBE_TIMEOUT, "reading system.part_log for dropped rows", answer).await
    }
}
