//! What the server counts. The program shows it as metrics; all sets are closed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which protocol a request came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP.
    Http,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Grpc, Self::Http];

    /// As a label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, or without spans.
    Accepted,
    /// Stored, but for spans that were rejected for good.
    Partial,
    /// The body, its compression or its framing cannot be read.
    Malformed,
    /// More bytes than a limit, as received or decompressed.
    TooLarge,
    /// No permit for its bytes.
    NoMemory,
    /// More requests than [`crate::Limits::requests_max`].
    Busy,
    /// The acceptor wants it again later.
    Retry,
    /// Its tenant's limit.
    TenantLimit,
    /// No credentials, or wrong ones.
    Unauthenticated,
    /// A path, service or method of gRPC that is not served.
    NotFound,
    /// An HTTP method other than `POST`.
    WrongMethod,
    /// A content type or compression that is not served, or the other protocol's port.
    WrongType,
    /// The body took longer than [`crate::Limits::body_read_timeout`].
    Slow,
    /// The client went away, or cancelled it.
    Cancelled,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Accepted,
        Self::Partial,
        Self::Malformed,
        Self::TooLarge,
        Self::NoMemory,
        Self::Busy,
        Self::Retry,
        Self::TenantLimit,
        Self::Unauthenticated,
        Self::NotFound,
        Self::WrongMethod,
        Self::WrongType,
        Self::Slow,
        Self::Cancelled,
    ];

    /// As a label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Partial => "partial",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::NoMemory => "no_memory",
            Self::Busy => "busy",
            Self::Retry => "retry",
            Self::TenantLimit => "tenant_limit",
            Self::Unauthenticated => "unauthenticated",
            Self::NotFound => "not_found",
            Self::WrongMethod => "wrong_method",
            Self::WrongType => "wrong_type",
            Self::Slow => "slow",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client closed it, or both were done.
    Closed,
    /// It was [`crate::Limits::connection_age_max`] old.
    Aged,
    /// It had no request for [`crate::Limits::idle_timeout`].
    Idle,
    /// There were [`crate::Limits::connections_max`] others.
    Full,
    /// No first byte in time, or the TLS handshake failed.
    Handshake,
    /// More resets than [`crate::Limits::resets_max`].
    Resets,
    /// It broke HTTP's rules or limits, or the network failed.
    Broken,
    /// The server ended.
    Shutdown,
    /// Its client was sent elsewhere ([`crate::Refusal::Elsewhere`]).
    Elsewhere,
}

impl ConnectionEnd {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Closed,
        Self::Aged,
        Self::Idle,
        Self::Full,
        Self::Handshake,
        Self::Resets,
        Self::Broken,
        Self::Shutdown,
        Self::Elsewhere,
    ];

    /// As a label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Aged => "aged",
            Self::Idle => "idle",
            Self::Full => "full",
            Self::Handshake => "handshake",
            Self::Resets => "resets",
            Self::Broken => "broken",
            Self::Shutdown => "shutdown",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// What a server has counted since its start. Read by the program when it is scraped.
#[derive(Debug, Default)]
pub struct Counters {
    requests: [[AtomicU64; Outcome::ALL.len()]; 2],
    received_bytes: [AtomicU64; 2],
    decompressed_bytes: [AtomicU64; 2],
    requests_in_flight: AtomicU64,
    connection_ends: [AtomicU64; ConnectionEnd::ALL.len()],
    connections_open: AtomicU64,
    files_reloaded: AtomicU64,
    files_failed: AtomicU64,
}

impl Counters {
    /// Requests that ended so.
    pub fn requests(&self, protocol: Protocol, outcome: Outcome) -> u64 {
        read(&self.requests[protocol as usize][outcome as usize])
    }

    /// Bytes of bodies, as received.
    pub fn received_bytes(&self, protocol: Protocol) -> u64 {
        read(&self.received_bytes[protocol as usize])
    }

    /// Bytes of bodies that the acceptor was given, decompressed.
    pub fn decompressed_bytes(&self, protocol: Protocol) -> u64 {
        read(&self.decompressed_bytes[protocol as usize])
    }

    /// Requests between their headers and their answer.
    pub fn requests_in_flight(&self) -> u64 {
        read(&self.requests_in_flight)
    }

    /// Connections that ended so.
    pub fn connection_ends(&self, end: ConnectionEnd) -> u64 {
        read(&self.connection_ends[end as usize])
    }

    /// Connections that are open.
    pub fn connections_open(&self) -> u64 {
        read(&self.connections_open)
    }

    /// How often changed files of certificates or credentials were taken over.
    pub fn files_reloaded(&self) -> u64 {
        read(&self.files_reloaded)
    }

    /// How often such files could not be read or used; the former ones are used on.
    pub fn files_failed(&self) -> u64 {
        read(&self.files_failed)
    }

    pub(crate) fn end_request(&self, protocol: Protocol, outcome: Outcome) {
        self.requests[protocol as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.requests_in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_request(&self) {
        self.requests_in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn receive(&self, protocol: Protocol, bytes: usize) {
        self.received_bytes[protocol as usize].fetch_add(wide(bytes), Ordering::Relaxed);
    }

    pub(crate) fn decompress(&self, protocol: Protocol, bytes: usize) {
        self.decompressed_bytes[protocol as usize].fetch_add(wide(bytes), Ordering::Relaxed);
    }

    pub(crate) fn open_connection(&self) {
        self.connections_open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_connection(&self, end: ConnectionEnd) {
        self.refuse_connection(end);
        self.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection that was never open.
    pub(crate) fn refuse_connection(&self, end: ConnectionEnd) {
        self.connection_ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reload(&self) {
        self.files_reloaded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fail_reload(&self) {
        self.files_failed.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_label_and_each_place_is_one_of_its_own() {
        let labels: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.label()).collect();
        assert_eq!(labels.len(), Outcome::ALL.len());
        assert!(Outcome::ALL.iter().enumerate().all(|(place, outcome)| *outcome as usize == place));
        let labels: BTreeSet<_> = ConnectionEnd::ALL.iter().map(|end| end.label()).collect();
        assert_eq!(labels.len(), ConnectionEnd::ALL.len());
        assert!(ConnectionEnd::ALL.iter().enumerate().all(|(place, end)| *end as usize == place));
        assert!(Protocol::ALL.iter().enumerate().all(|(place, protocol)| *protocol as usize == place));
    }
}
