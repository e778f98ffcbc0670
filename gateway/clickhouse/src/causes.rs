//! An error's text with its causes.
//!
//! Job: HTTP libraries only say "client error (Connect)" themselves; the reason is in the causes. Place in the flow: the insert client
//! and the probe, when a connection fails.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::tls::{advice, tls_error};

/// The error and all its causes, joined by colons; with advice after a TLS failure, and if what answers is no server of HTTP.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if let Some(tls) = tls_error(error) {
        // An I/O error displays the error inside it, so rustls' own words are already in the text.
        text.push_str("; ");
        text.push_str(advice(tls));
    } else if let Some(advice) = of_protocol(error) {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
}

/// What a user should check if a connection ended as one to a listener of another protocol does.
fn of_protocol(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let is_parse = cause_of::<hyper::Error>(error).is_some_and(hyper::Error::is_parse);
    let is_incomplete = cause_of::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message);
    let is_reset =
        cause_of::<io::Error>(error).is_some_and(|error| error.kind() == ErrorKind::ConnectionReset);
    if is_parse {
        Some("what listens there does not answer in HTTP: for a listener of TLS, write https in the endpoint")
    } else if is_incomplete || is_reset {
        Some(
            "what listens there closed the connection without an answer: a server that ended, a listener that wants TLS (write https in \
             the endpoint), one of another protocol, or a proxy without a server",
        )
    } else {
        None
    }
}

/// The first of the causes that is an error of this type.
fn cause_of<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    error.downcast_ref().or_else(|| cause_of(error.source()?))
}

#[cfg(test)]
mod tests {
    use crate::endpoint::{Credentials, Endpoint};
    use crate::probe::Probe;
    use crate::tls::Tls;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_listener_of_another_protocol_is_told_from_one_that_is_away() {
        // A TLS server's alert about a handshake that is none.
        for (answer, words) in
            [(&[0x15, 3, 3, 0, 2, 2, 10][..], "does not answer in HTTP"), (&[], "without an answer")]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
            let credentials = Credentials { user: "u".into(), password: "p".into(), token: None };
            let probe = Probe::new(&endpoint, &credentials, "otel", &Tls::unused()).unwrap();
            let answers = async {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut head = Vec::new();
                    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                        assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
                    }
                    stream.write_all(answer).await.unwrap();
                }
            };
            let error = tokio::select! {
                () = answers => unreachable!("it listens on"),
                found = probe.describe("t") => found.unwrap_err().to_string(),
            };
            assert!(error.contains(words) && error.contains("write https"), "{error}");
        }
    }
}
