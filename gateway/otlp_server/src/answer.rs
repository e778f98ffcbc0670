//! Answers: what a client gets for a request that was accepted, or not.

use crate::{
    body::decompression::Compression,
    counters::Outcome,
    failure::{Code, Failure},
    request::{Accepted, Encoding},
    status::{digits, response_json, response_protobuf, status_json, status_protobuf},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use hyper::body::{Body, Frame, SizeHint};
use std::{
    convert::Infallible,
    fmt::Write as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
pub(crate) const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The names of compression that gRPC accepts.
const GRPC_ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,zstd");

/// The body of an answer: bytes, and trailers of gRPC.
#[derive(Debug, Default)]
pub(crate) struct AnswerBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// The answer of gRPC to a request that was accepted.
pub(crate) fn grpc_accepted(accepted: &Accepted) -> Response<AnswerBody> {
    let message = response_protobuf(accepted);
    let mut data = BytesMut::with_capacity(5 + message.len());
    data.put_u8(0);
    data.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    data.put_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static(digits(Code::Ok)));
    grpc(AnswerBody { data: Some(data.freeze()), trailers: Some(trailers) })
}

/// The answer of gRPC to one that was not: headers alone.
pub(crate) fn grpc_failed(failure: &Failure) -> Response<AnswerBody> {
    let mut answer = grpc(AnswerBody::default());
    let headers = answer.headers_mut();
    headers.insert(GRPC_STATUS, HeaderValue::from_static(digits(failure.code)));
    if let Ok(words) = HeaderValue::try_from(percent_encoded(&failure.words)) {
        headers.insert(GRPC_MESSAGE, words);
    }
    if failure.after.is_some() {
        let details = STANDARD_NO_PAD.encode(status_protobuf(failure));
        if let Ok(details) = HeaderValue::try_from(details) {
            headers.insert(GRPC_DETAILS, details);
        }
    }
    answer
}

fn grpc(body: AnswerBody) -> Response<AnswerBody> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, GRPC);
    answer.headers_mut().insert(GRPC_ACCEPT_ENCODING, GRPC_ENCODINGS);
    answer
}

/// As gRPC writes a message into a header: all but visible ASCII is percent-encoded, and so is the percent sign.
fn percent_encoded(words: &str) -> String {
    let mut encoded = String::with_capacity(words.len());
    for byte in words.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").expect("a string takes every text"),
        }
    }
    encoded
}

/// The answer of HTTP to a request that was accepted.
pub(crate) fn http_accepted(accepted: &Accepted, encoding: Encoding) -> Response<AnswerBody> {
    let body = match encoding {
        Encoding::Protobuf => response_protobuf(accepted),
        Encoding::Json => response_json(accepted).into_bytes(),
    };
    http(StatusCode::OK, encoding, body)
}

/// The answer of HTTP to one that was not.
pub(crate) fn http_failed(failure: &Failure, encoding: Encoding) -> Response<AnswerBody> {
    let body = match encoding {
        Encoding::Protobuf => status_protobuf(failure),
        Encoding::Json => status_json(failure).into_bytes(),
    };
    let mut answer = http(failure.http, encoding, body);
    let headers = answer.headers_mut();
    if let Some(after) = failure.after {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
    }
    match failure.outcome {
        Outcome::WrongMethod => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        Outcome::WrongType => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(Compression::ACCEPTED));
        }
        _ => {}
    }
    if let Some(challenge) = failure.challenge {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge.header()));
    }
    answer
}

fn http(status: StatusCode, encoding: Encoding, body: Vec<u8>) -> Response<AnswerBody> {
    let data = Some(Bytes::from(body)).filter(|body| !body.is_empty());
    let mut answer = Response::new(AnswerBody { data, trailers: None });
    *answer.status_mut() = status;
    let content_type = match encoding {
        Encoding::Protobuf => PROTOBUF,
        Encoding::Json => JSON,
    };
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

/// `Retry-After` has seconds only: never less than was asked for, and never none.
fn whole_seconds(after: Duration) -> u64 {
    let more = u64::from(after.subsec_nanos() > 0);
    after.as_secs().saturating_add(more).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_in_headers_are_visible_ascii(words in ".{0,200}") {
            let encoded = percent_encoded(&words);
            prop_assert!(HeaderValue::try_from(&encoded).unwrap().to_str().is_ok());
            let decoded: Vec<u8> = form_bytes(&encoded);
            prop_assert_eq!(decoded, words.into_bytes());
        }
    }

    fn form_bytes(encoded: &str) -> Vec<u8> {
        let mut bytes = encoded.bytes();
        let mut decoded = Vec::new();
        while let Some(byte) = bytes.next() {
            if byte == b'%' {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            } else {
                decoded.push(byte);
            }
        }
        decoded
    }

    #[test]
    fn seconds_are_never_fewer_than_asked_for() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([0, 1, 1_000, 1_001, 2_500].map(seconds), [1, 1, 1, 2, 3]);
    }
}
