//! What a request, a connection and the server may have. Every limit has a name, a unit and a reason.
//!
//! Bodies of requests are counted by the [`crate::ByteBudget`]. What connections hold beside it is bounded by
//! [`Limits::outside_budget_bytes_max`], which the budget of the program must leave room for.

use std::time::Duration;

/// Part of [`Limits::connection_age_max`] by which ages of connections differ: 1/10 less to 1/10 more. Chosen: connections that began
/// together, after a restart, do not all end together.
pub const AGE_JITTER_DIVISOR: u32 = 10;

/// The smallest window of HTTP/2: a client may send this much before it knows the server's settings (RFC 9113, 6.9.2).
pub const WINDOW_BYTES_MIN: u32 = 65_535;

/// The window of a connection with a wide one, and of its requests. Chosen: a request of 200 to 500 spans comes without a wait in the middle;
/// one of 92 KB does not fit into 64 KiB.
pub const WIDE_WINDOW_BYTES: u32 = 256 << 10;

/// The largest frame that a client may send on a connection with a wide window. Chosen: 92 KB come in 2 frames instead of 6, if the client
/// uses it (h2, C++ and Java do; Go sends 16 KiB at most). A frame is read as a whole before anything is made of it.
pub const WIDE_FRAME_BYTES: u32 = 64 << 10;

/// Bytes that are read from a connection with a wide window at once. Chosen: the largest frame. h2 asks for 8 KiB, and for the rest of a
/// frame: a request of 92 KB in frames of 16 KiB was read in 12 calls.
pub(crate) const WIDE_READ_BYTES: u32 = 64 << 10;

/// The largest frame of other connections: what every client may send (RFC 9113, 4.2). It is part of what headers are read from.
const FRAME_BYTES: u32 = 16 << 10;

/// The smallest buffer for headers that hyper accepts.
pub const HEADER_BYTES_MIN: u32 = 8_192;

/// TLS records and unsent answers of one connection: rustls holds one record in each direction and up to 64 KiB of what is to be sent, of
/// which answers use little. Chosen: two records of 16 KiB with their overhead.
const CONNECTION_TLS_BYTES: u64 = 36 << 10;

/// What an HTTP/2 connection holds of a request that has no turn yet, or whose answer the client has not taken yet. Chosen: h2's stream (0.5
/// KiB), and the headers of an answer, which repeats little of what the client sent.
const STREAM_BYTES: u64 = 2 << 10;

/// What a request with a turn holds beside its body; its headers are free by then. Chosen: its task and its answer. The answer has up to
/// [`crate::WORDS_BYTES_MAX`] of words, twice in gRPC.
const REQUEST_BYTES: u64 = 8 << 10;

/// Limits of a server. `Default` has a value for each, with the reason beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body before decompression. More is answered with 413 or `RESOURCE_EXHAUSTED`. Default: 16 MiB, four times gRPC's own.
    pub body_bytes_max: u32,
    /// Bytes of a body after decompression, as before. Default: 64 MiB, what OTLP recommends.
    pub decompressed_bytes_max: u32,
    /// How many times larger than received a body may become, once it has more than 1 MiB. Default: 1,000, about the most that gzip can do;
    /// telemetry has 5 to 100.
    pub decompression_ratio_max: u32,
    /// Bodies that are decompressed at the same time on threads of their own; the others wait. Smaller ones (64 KiB) need no thread.
    /// Default: 2. More than the number of cores makes no decompression faster.
    pub decompressions_max: usize,
    /// Requests between their headers and their answer. More are answered with `UNAVAILABLE` or 503. Default: 1,024: each costs up to 8 KiB
    /// beside its body.
    pub requests_max: usize,
    /// Connections of both ports. More are closed at once, so that the client goes to another pod. Default: 1,024.
    pub connections_max: usize,
    /// Requests of one HTTP/2 connection at the same time. Clients wait with more. Default: 100, as other servers of gRPC have.
    pub concurrent_streams_max: u32,
    /// Bytes of the headers of one request, at least [`HEADER_BYTES_MIN`]. More is answered with 431. Default: 32 KiB: tokens with many
    /// claims have 16 KiB.
    pub header_bytes_max: u32,
    /// Bytes of a connection, and of each of its requests, that an HTTP/2 client may send before they are read; at least
    /// [`WINDOW_BYTES_MIN`]. Default: 64 KiB, which fills a network of 1 ms and 500 Mbit/s.
    pub http2_window_bytes: u32,
    /// Connections to the port of gRPC whose window is at least [`WIDE_WINDOW_BYTES`], with frames of up to [`WIDE_FRAME_BYTES`]: so many of
    /// those that are open, the first to come. Default: 16, the Collectors of a cluster. Their requests are the large ones.
    pub wide_windows_max: usize,
    /// Requests of one HTTP/2 connection that the client has cancelled, less those that were answered. With more, the connection is closed:
    /// a client that only opens and resets streams costs time, and is never refused otherwise (CVE-2023-44487). Default: 200.
    pub resets_max: u32,
    /// Time for the first byte of a connection, and for the TLS handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Time for the headers of a request, for the preface of HTTP/2, and for each of its frames but those of bodies, from their first byte.
    /// Default: 10 s. Before that byte it is [`Limits::idle_timeout`].
    pub header_read_timeout: Duration,
    /// Time for a whole body: a slow client holds a permit for all of it. Default: 30 s, which is 4.5 Mbit/s for the largest body.
    pub body_read_timeout: Duration,
    /// The longest time in which nothing comes of a body: a client that has vanished holds a permit for what it announced. Default: 10 s.
    pub body_pause_max: Duration,
    /// Time without a request after which a connection is closed. Default: 300 s: exporters send every 5 to 60 s.
    pub idle_timeout: Duration,
    /// Time between two pings to an HTTP/2 client, and for its answer to one: a client that has vanished is found while it has requests.
    /// Default: 30 s.
    pub ping_interval: Duration,
    /// Age after which a connection takes no more requests, so that clients connect again, also to new pods. It differs by up to a tenth
    /// ([`AGE_JITTER_DIVISOR`]). Default: 600 s.
    pub connection_age_max: Duration,
    /// How long a connection that takes no more requests may still answer those it has. Default: 60 s: more than a body may take, and the
    /// acceptor after it.
    pub connection_grace: Duration,
    /// How long [`crate::Server::serve`] waits for requests after the shutdown began. Default: 25 s, less than the 30 s of a pod.
    pub shutdown_timeout: Duration,
    /// How long a request waits for a permit, each time that it needs one, before it is refused. Requests get theirs in turn: while one waits,
    /// no smaller one that came later takes what it waits for. Zero refuses at once, and has no turns. Default: zero.
    pub permit_wait: Duration,
    /// When a client that the server itself refused should come again. Default: 1 s.
    pub retry_after: Duration,
    /// How often files of certificates and credentials are read. Default: 10 s: the kubelet takes up to a minute to replace them.
    pub reload_interval: Duration,
    /// The shortest time between two notices of one kind. Default: 30 s.
    pub notice_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 16 << 20,
            decompressed_bytes_max: 64 << 20,
            decompression_ratio_max: 1_000,
            decompressions_max: 2,
            requests_max: 1_024,
            connections_max: 1_024,
            concurrent_streams_max: 100,
            header_bytes_max: 32 << 10,
            http2_window_bytes: 64 << 10,
            wide_windows_max: 16,
            resets_max: 200,
            handshake_timeout: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(10),
            body_read_timeout: Duration::from_secs(30),
            body_pause_max: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            ping_interval: Duration::from_secs(30),
            connection_age_max: Duration::from_mins(10),
            connection_grace: Duration::from_mins(1),
            shutdown_timeout: Duration::from_secs(25),
            permit_wait: Duration::ZERO,
            retry_after: Duration::from_secs(1),
            reload_interval: Duration::from_secs(10),
            notice_interval: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The most that one connection without a wide window holds beside the permits of its requests: a window or a read buffer, the headers
    /// that are being read and what they are read from, its streams, and TLS records.
    pub fn connection_bytes_max(&self) -> u64 {
        let window = u64::from(self.http2_window_bytes.max(WINDOW_BYTES_MIN));
        let headers = u64::from(self.header_bytes_max.max(HEADER_BYTES_MIN));
        let streams = u64::from(self.concurrent_streams_max).saturating_mul(STREAM_BYTES);
        [headers, headers, streams, CONNECTION_TLS_BYTES]
            .into_iter()
            .fold(window.max(headers), u64::saturating_add)
    }

    /// The most that all connections and requests hold beside the permits. Few come near it: bodies are read as they arrive.
    pub fn outside_budget_bytes_max(&self) -> u64 {
        let times = |count: usize, bytes: u64| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(bytes);
        let window = self.http2_window_bytes.max(WINDOW_BYTES_MIN);
        // Frames other than of bodies count in no window, and neither does what is read ahead of them.
        let others = (WIDE_FRAME_BYTES - FRAME_BYTES) + WIDE_READ_BYTES;
        let wider = u64::from(WIDE_WINDOW_BYTES.saturating_sub(window) + others);
        times(self.connections_max, self.connection_bytes_max())
            .saturating_add(times(self.wide_windows_max.min(self.connections_max), wider))
            .saturating_add(times(self.requests_max, REQUEST_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_connection_are_part_of_what_it_holds() {
        let of = |concurrent_streams_max| Limits { concurrent_streams_max, ..Limits::default() };
        assert!(of(100).connection_bytes_max() >= of(10).connection_bytes_max() + 90 * 1_024);
    }

    #[test]
    fn wide_windows_are_part_of_what_connections_hold_and_no_more_of_them_than_connections() {
        let of = |wide_windows_max, connections_max| {
            Limits { connections_max, wide_windows_max, ..Limits::default() }.outside_budget_bytes_max()
        };
        // 192 KiB of a window, 48 of a frame, and 64 that are read ahead.
        assert_eq!(of(16, 200) - of(0, 200), 16 * (304 << 10));
        assert_eq!(of(16, 2), of(2, 2));
        let wide = Limits { http2_window_bytes: 1 << 20, ..Limits::default() };
        let narrow = Limits { wide_windows_max: 0, ..wide.clone() };
        let others = wide.outside_budget_bytes_max() - narrow.outside_budget_bytes_max();
        assert_eq!(others, 16 * (112 << 10), "all windows are as wide");
    }
}
