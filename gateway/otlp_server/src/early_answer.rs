//! Answers that hyper itself gives over HTTP/1.1, to requests whose headers it cannot read: they have no body, and get one here.
//!
//! Our own answers other than 200 always have a body, so one of these is known by its status and by `content-length: 0`. Pure.

use crate::{failure::Failure, status::status_json};
use http::StatusCode;

const NO_BODY: &[u8] = b"content-length: 0\r\n";

/// The answer with a body, if it is one of hyper's own.
pub(crate) fn with_body(answer: &[u8], header_bytes_max: u32) -> Option<Vec<u8>> {
    let line = answer.strip_prefix(b"HTTP/1.1 ").or_else(|| answer.strip_prefix(b"HTTP/1.0 "))?;
    let status = StatusCode::from_bytes(line.get(..3)?).ok()?;
    let failure = match status {
        StatusCode::BAD_REQUEST => {
            Failure::malformed("the request is no HTTP: its method, path, version or headers cannot be read")
        }
        StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            Failure::headers_too_large(status, header_bytes_max)
        }
        _ => return None,
    };
    let at = answer.windows(NO_BODY.len()).position(|window| window.eq_ignore_ascii_case(NO_BODY))?;
    // Nothing may follow its headers.
    let (before, after) = (answer.get(..at)?, answer.get(at + NO_BODY.len()..)?);
    let whole = after.strip_suffix(b"\r\n").filter(|after| after.is_empty() || after.ends_with(b"\r\n"))?;
    let body = status_json(&failure);
    let fields = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    Some([before, fields.as_bytes(), whole, b"\r\n", body.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_hyper_gets_a_status_as_its_body() {
        let plain = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        let text = String::from_utf8(with_body(plain, 16_384).unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 ") && head.contains("connection: close"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(status["code"], 8);
        assert!(status["message"].as_str().unwrap().contains("16384 bytes"), "{status}");
        let bad = with_body(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", 1).unwrap();
        assert!(bad.ends_with(b"}") && bad.windows(8).any(|window| window == b"\"code\":3"));
    }

    #[test]
    fn other_answers_stay_as_they_are() {
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 10\r\n\r\n0123456789",
            b"HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n",
            b"HTTP/1.1 4",
            b"\0\0\0\x04",
            b"",
        ] {
            assert_eq!(with_body(other, 1), None);
        }
    }
}
