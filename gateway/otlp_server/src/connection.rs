//! One connection: from its first byte until it is closed.
//!
//! | it ends | because |
//! | --- | --- |
//! | at once | there are too many others; no first byte, or no TLS handshake, in [`Limits::handshake_timeout`]; no whole headers, or no whole frame of HTTP/2, in [`Limits::header_read_timeout`] after their first byte; a flood of resets |
//! | once its requests are answered, at most after [`Limits::connection_grace`] | it is old, or idle, or its client is sent elsewhere |
//! | the same, at most after [`Limits::shutdown_timeout`] | the server ends |
//!
//! The server says with GOAWAY, or `Connection: close`, that it takes no more requests. [`crate::lifetime`] has the steps. Owner: one task a
//! connection.

use crate::{
    activity::Activity,
    counters::{ConnectionEnd, Counters, Protocol},
    exchange::{Desk, answer},
    files::Live,
    lifetime::{LINGER, Lifetime, Step},
    limits::{
        AGE_JITTER_DIVISOR, HEADER_BYTES_MIN, Limits, WIDE_FRAME_BYTES, WIDE_READ_BYTES, WIDE_WINDOW_BYTES,
        WINDOW_BYTES_MIN,
    },
    notices::NoticeKind,
    read_ahead::ReadAhead,
    reading::Reading,
    request::Acceptor,
    tls::Tls,
};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use std::{
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::{BuildHasher as _, Hasher as _},
    io::Error,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Streams that an HTTP/2 client may reset before they are taken up; with more the connection is closed. h2's own default.
const PENDING_RESETS_MAX: usize = 20;

/// Streams that are reset because the client broke the rules, of one HTTP/2 connection; with more it is closed. Chosen: none is normal.
const ERROR_RESETS_MAX: usize = 128;

/// Unsent bytes of one answer. Answers have less than 8 KiB.
const SEND_BYTES_MAX: usize = 16 << 10;

/// Counts a connection.
struct Open {
    counters: Arc<Counters>,
    end: ConnectionEnd,
}

impl Open {
    fn begin(counters: Arc<Counters>) -> Self {
        counters.open_connection();
        // If the task is aborted, the server did not wait any longer.
        Self { counters, end: ConnectionEnd::Shutdown }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counters.end_connection(self.end);
    }
}

/// A connection on which a request may follow.
enum Begun {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// The client closed it without a byte, as probes do.
    Nothing,
}

/// Serves a connection to the port of this protocol.
pub(crate) async fn serve<A: Acceptor>(
    desk: Arc<Desk<A>>,
    protocol: Protocol,
    (stream, tls): (TcpStream, Option<Live<Tls>>),
    mut closing: watch::Receiver<bool>,
) {
    let mut open = Open::begin(desk.counters.clone());
    let beginning = timeout(desk.limits.handshake_timeout, begin(stream, tls, protocol));
    tokio::pin!(beginning);
    let begun = tokio::select! {
        biased;
        begun = &mut beginning => begun,
        () = server_ends(&mut closing) => {
            // The client may have sent its first request before the sockets were closed.
            match timeout(LINGER.min(desk.limits.shutdown_timeout), beginning).await {
                Ok(begun) => begun,
                Err(_) => return,
            }
        }
    };
    open.end = match begun {
        Ok(Ok(Begun::Plain(stream))) => run(&desk, protocol, stream, closing).await,
        Ok(Ok(Begun::Tls(stream))) => run(&desk, protocol, stream, closing).await,
        Ok(Ok(Begun::Nothing)) => ConnectionEnd::Closed,
        Ok(Err(error)) => refused(&desk, || format!("the TLS handshake failed: {error}")),
        Err(_) => refused(&desk, || "a client connected and did not begin in time".to_owned()),
    };
    if open.end == ConnectionEnd::Resets {
        desk.notices.tell(NoticeKind::Connection(open.end), || {
            let max = desk.limits.resets_max;
            format!("a client cancelled {max} requests more than were answered: its connection is closed")
        });
    }
}

fn refused<A>(desk: &Desk<A>, words: impl FnOnce() -> String) -> ConnectionEnd {
    desk.notices.tell(NoticeKind::Connection(ConnectionEnd::Handshake), words);
    ConnectionEnd::Handshake
}

/// Waits until the server ends. If its sender has gone, it has.
async fn server_ends(closing: &mut watch::Receiver<bool>) {
    drop(closing.wait_for(|is_closing| *is_closing).await);
}

/// Waits for the first byte, and for the TLS handshake.
async fn begin(stream: TcpStream, tls: Option<Live<Tls>>, protocol: Protocol) -> Result<Begun, Error> {
    // Answers are written whole; without this they would wait for the client's acknowledgement of the one before. It fails, like the peek,
    // if the client has gone.
    if stream.set_nodelay(true).is_err() || stream.peek(&mut [0]).await.unwrap_or_default() == 0 {
        return Ok(Begun::Nothing);
    }
    let Some(tls) = tls else { return Ok(Begun::Plain(stream)) };
    let tls = tls.get();
    let config = match protocol {
        Protocol::Grpc => tls.grpc.clone(),
        Protocol::Http => tls.http.clone(),
    };
    let accepted = TlsAcceptor::from(config).accept(stream).await?;
    Ok(Begun::Tls(Box::new(accepted)))
}

/// Serves requests until the connection ends.
async fn run<A: Acceptor>(
    desk: &Arc<Desk<A>>,
    protocol: Protocol,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut closing: watch::Receiver<bool>,
) -> ConnectionEnd {
    let limits = &desk.limits;
    let activity = Arc::new(Activity::new(limits.resets_max));
    let service = service_fn(|request| {
        let answered = answer(desk.clone(), activity.clone(), protocol, request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // Held until the connection ends. Not at the port of HTTP: most of its clients use HTTP/1.1, which has no window.
    let wide = match protocol {
        Protocol::Grpc => desk.wide_windows.try_acquire().ok(),
        Protocol::Http => None,
    };
    let builder = builder(limits, wide.is_some());
    let header_bytes = limits.header_bytes_max.max(HEADER_BYTES_MIN);
    let ahead = ReadAhead::new(if wide.is_some() { WIDE_READ_BYTES } else { 0 });
    let reading =
        Reading::new((stream, ahead), activity.clone(), header_bytes, window(limits, wide.is_some()));
    let connection = builder.serve_connection(TokioIo::new(reading), service);
    tokio::pin!(connection);
    let age = jittered(limits.connection_age_max, RandomState::new().build_hasher().finish());
    let mut lifetime = Lifetime::begin(activity.clone(), limits, age, Instant::now());
    loop {
        let step = tokio::select! {
            // What the client has sent is read before a step is taken.
            biased;
            ended = connection.as_mut() => return match (lifetime.end(), ended) {
                (Some(end), _) => end,
                (None, Ok(())) => ConnectionEnd::Closed,
                (None, Err(_)) => ConnectionEnd::Broken,
            },
            () = activity.flooded() => return ConnectionEnd::Resets,
            () = activity.left() => lifetime.sends_away(limits, Instant::now()),
            () = server_ends(&mut closing), if !lifetime.is_server_ending() => lifetime.server_ends(limits, Instant::now()),
            () = sleep_until(lifetime.wake_at()) => lifetime.wake(limits, Instant::now()),
        };
        match step {
            Step::Wait => {}
            Step::Close => connection.as_mut().graceful_shutdown(),
            Step::End(end) => return end,
        }
    }
}

/// The window of a connection, and of each of its requests.
fn window(limits: &Limits, is_wide: bool) -> u32 {
    limits.http2_window_bytes.max(if is_wide { WIDE_WINDOW_BYTES } else { WINDOW_BYTES_MIN })
}

fn builder(limits: &Limits, is_wide: bool) -> Builder<TokioExecutor> {
    let header_bytes = limits.header_bytes_max.max(HEADER_BYTES_MIN);
    let window = window(limits, is_wide);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Its time would also run while the client has no request to send.
        .header_read_timeout(None)
        .max_buf_size(usize::try_from(header_bytes).unwrap_or(usize::MAX));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.concurrent_streams_max)
        .max_header_list_size(header_bytes)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_interval);
    if is_wide {
        builder.http2().max_frame_size(WIDE_FRAME_BYTES);
    }
    builder
}

/// An age that differs by up to a part ([`AGE_JITTER_DIVISOR`]) either way.
fn jittered(age: Duration, random: u64) -> Duration {
    let spread = age / AGE_JITTER_DIVISOR;
    let thousandths = u32::try_from(random % 1_000).unwrap_or_default();
    age.saturating_sub(spread) + spread * 2 / 1_000 * thousandths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ages_differ_by_a_tenth_at_most(seconds in 10_u64..100_000, random: u64) {
            let age = Duration::from_secs(seconds);
            let differing = jittered(age, random);
            prop_assert!(differing >= age * 9 / 10 && differing <= age * 11 / 10, "{differing:?}");
        }
    }
}
