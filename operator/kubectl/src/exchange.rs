//! One HTTP request over a connection that is already open. The caller sets the timeout. Limit: an answer has at most
//! [`ANSWER_BYTES_MAX`].

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, StatusCode, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Largest answer in bytes. A gateway answers a command with one line of JSON.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The answer was cut off, or is too large.
    #[error("the answer cannot be read: {0}")]
    Unread(String),
}

/// Sends a POST without a body, and reads the whole answer.
pub async fn post(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
) -> Result<(StatusCode, Bytes), Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::Broken)?;
    let request = Request::post(path).header(HOST, "localhost").body(Empty::<Bytes>::new());
    let request = request.expect("paths of commands are constants");
    let exchange = async {
        let response = sender.send_request(request).await.map_err(Error::Broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Error::Unread(error.to_string()))?;
        Ok((status, body.to_bytes()))
    };
    // The connection ends with the exchange, also after an error.
    tokio::select! {
        answer = exchange => answer,
        Err(source) = connection => Err(Error::Broken(source)),
    }
}
