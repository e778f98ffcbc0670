//! One HTTP request over a connection of its own. The caller opens the connection and sets the timeout. Limit: an answer has at most
//! [`ANSWER_BYTES_MAX`].

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1,
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use sluice_gateway_config::{STATE_BYTES_MAX, pod_uid::POD_UID_HEADER};
use tokio::io::{AsyncRead, AsyncWrite};

/// Largest answer in bytes. The metrics of a gateway without `/state` have two lines of 100 bytes for each of 10,000 partitions, and the rest.
const ANSWER_BYTES_MAX: usize = STATE_BYTES_MAX;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The answer was cut off.
    #[error("the answer cannot be read: {0}")]
    Unread(String),
    /// The rest of it is not read.
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
}

/// Sends a request and reads the whole answer. `pod_uid` names the pod, for connections to an address that another pod may have meanwhile.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: String,
    method: Method,
    path: &str,
    pod_uid: Option<&HeaderValue>,
) -> Result<(StatusCode, Bytes), Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::Broken)?;
    let mut request = Request::builder().method(method).uri(path).header(HOST, host);
    if let Some(uid) = pod_uid {
        request = request.header(POD_UID_HEADER, uid);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .expect("the parts of a request are constants, but for an address, which is a valid header");
    let exchange = async {
        let response = sender.send_request(request).await.map_err(Error::Broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Error::TooLarge,
            None => Error::Unread(error.to_string()),
        })?;
        Ok((status, body.to_bytes()))
    };
    // The connection ends with the exchange, also after an error.
    tokio::select! {
        answer = exchange => answer,
        Err(source) = connection => Err(Error::Broken(source)),
    }
}
