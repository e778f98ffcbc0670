//! OTLP over gRPC.
//!
//! Written on hyper, and not on tonic: tonic hands over a message once its whole body is in memory, and a permit must come before. Its
//! length is in the first five bytes ([`crate::body::message_head`]).

use crate::{
    body::{
        decompression::Compression,
        intake::{BoxedError, Intake},
    },
    counters::Protocol,
    exchange::{Desk, Form, Handled, Received},
    failure::{Failure, shown},
    request::{Accepted, Acceptor, Encoding},
};
use bytes::Bytes;
use http::{Method, Version, header::CONTENT_TYPE, request::Parts};
use hyper::body::Body;
use tokio::sync::OwnedSemaphorePermit;

/// The service of OpenTelemetry's traces, and its only method.
const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// What all services of OpenTelemetry begin with.
const COLLECTOR: &str = "/opentelemetry.proto.collector.";

/// The header that says how messages are compressed.
const ENCODING: &str = "grpc-encoding";

/// Whether a content type is that of gRPC with messages in protobuf.
pub(crate) fn is_grpc(parts: &Parts) -> bool {
    let content_type =
        parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = content_type.split(';').next().unwrap_or_default().trim();
    name.eq_ignore_ascii_case("application/grpc") || name.eq_ignore_ascii_case("application/grpc+proto")
}

/// Handles a request that came to the port of gRPC. Its headers are free before its body is read: they may be as large as many a body.
pub(crate) async fn handle<A, B>(desk: &Desk<A>, parts: Parts, intake: &mut Intake<B>) -> Handled
where
    A: Acceptor,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxedError>,
{
    if let Err(failure) = check_protocol(&parts, desk.http_port) {
        return Handled { form: Form::Http(Encoding::Json), result: Err(failure) };
    }
    let admitted = admit(desk, &parts);
    drop(parts);
    let result = match admitted {
        Ok(admitted) => take(desk, admitted, intake).await,
        Err(failure) => Err(failure),
    };
    Handled { form: Form::Grpc, result }
}

/// What is known of a request by its headers.
struct Admitted {
    tenant: Option<String>,
    compression: Option<Compression>,
    _turn: OwnedSemaphorePermit,
}

fn admit<A: Acceptor>(desk: &Desk<A>, parts: &Parts) -> Result<Admitted, Failure> {
    let path = parts.uri.path();
    if path != TRACES {
        return Err(unknown(path));
    }
    let tenant = desk.admit(&parts.headers)?;
    let compression = compression(parts)?;
    Ok(Admitted { tenant, compression, _turn: desk.turn()? })
}

/// What gRPC answers with a status of HTTP.
fn check_protocol(parts: &Parts, http_port: Option<u16>) -> Result<(), Failure> {
    if parts.version != Version::HTTP_2 || !is_grpc(parts) {
        let other = http_port.map_or_else(String::new, |port| format!("; OTLP/HTTP is on port {port}"));
        return Err(Failure::wrong_type(format!(
            "this port takes OTLP/gRPC: HTTP/2 with the content type application/grpc{other}"
        )));
    }
    if parts.method != Method::POST {
        return Err(Failure::wrong_method("gRPC uses POST"));
    }
    Ok(())
}

async fn take<A, B>(desk: &Desk<A>, admitted: Admitted, intake: &mut Intake<B>) -> Result<Accepted, Failure>
where
    A: Acceptor,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxedError>,
{
    let Admitted { tenant, compression: named, _turn } = admitted;
    let Some(head) = intake.message_head().await? else {
        return Err(Failure::malformed("the request has no message"));
    };
    let compression = match (head.is_compressed, named) {
        (false, _) => None,
        (true, Some(compression)) => Some(compression),
        (true, None) => return Err(Failure::compressed_without_name()),
    };
    let limits = &desk.limits;
    if head.bytes > limits.body_bytes_max {
        return Err(Failure::body_too_large(Some(u64::from(head.bytes)), limits.body_bytes_max));
    }
    let bytes = usize::try_from(head.bytes).unwrap_or(usize::MAX);
    let mut body = desk.buffer(bytes).await?;
    while let Some(chunk) = intake.next().await? {
        if chunk.len() > bytes.saturating_sub(body.len()) {
            return Err(Failure::second_message());
        }
        body.append(&chunk).map_err(|full| desk.full(full, body.held()))?;
    }
    if body.len() < bytes {
        let read = body.len();
        return Err(Failure::malformed(format!("the message ended after {read} of its {bytes} bytes")));
    }
    let (encoding, protocol) = (Encoding::Protobuf, Protocol::Grpc);
    desk.store(Received { body, compression, encoding, tenant, protocol }).await
}

/// How the client compresses its messages, if it does.
fn compression(parts: &Parts) -> Result<Option<Compression>, Failure> {
    let Some(value) = parts.headers.get(ENCODING) else { return Ok(None) };
    let name = shown(value.to_str().unwrap_or("?"));
    Compression::of(name).map_err(|_| {
        Failure::wrong_type(format!("grpc-encoding {name:?} is not known; use {}", Compression::ACCEPTED))
    })
}

fn unknown(path: &str) -> Failure {
    let service = path.strip_prefix(COLLECTOR).and_then(|rest| rest.split('.').next());
    match service {
        Some(signal @ ("logs" | "metrics" | "profiles")) => Failure::not_found(format!(
            "this server takes traces, and no {signal}: send them elsewhere, or switch their exporter off"
        )),
        _ => Failure::not_found(format!("there is no method {}; traces go to {TRACES}", shown(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_signal_names_the_path_of_traces() {
        let words = |path| unknown(path).words;
        assert!(words("/opentelemetry.proto.collector.logs.v1.LogsService/Export").contains("no logs"));
        assert!(
            words("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export").contains("no metrics")
        );
        assert!(words("/grpc.health.v1.Health/Check").contains("TraceService/Export"));
    }
}
