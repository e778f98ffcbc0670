//! OTLP over HTTP/1.1 and HTTP/2.

use crate::{
    body::{
        buffer::STEP_BYTES,
        decompression::Compression,
        intake::{BoxedError, Intake},
    },
    counters::Protocol,
    exchange::{Desk, Form, Handled, Received},
    failure::{Failure, shown},
    grpc::is_grpc,
    request::{Accepted, Acceptor, Encoding},
};
use ::http::{
    HeaderMap, Method, Version,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    request::Parts,
};
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::OwnedSemaphorePermit;

/// Where traces go.
const TRACES: &str = "/v1/traces";

/// Handles a request that came to the port of HTTP. Its headers are free before its body is read, as those of gRPC.
pub(crate) async fn handle<A, B>(desk: &Desk<A>, parts: Parts, intake: &mut Intake<B>) -> Handled
where
    A: Acceptor,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxedError>,
{
    if is_grpc(&parts) {
        let other = desk.grpc_port.map_or_else(String::new, |port| format!("; OTLP/gRPC is on port {port}"));
        let failure = Failure::wrong_type(format!("this port takes OTLP/HTTP, as POST {TRACES}{other}"));
        return Handled { form: Form::Grpc, result: Err(failure) };
    }
    let encoding = encoding(&parts.headers);
    let admitted = admit(desk, &parts, encoding);
    drop(parts);
    let result = match admitted {
        Ok(admitted) => take(desk, admitted, intake).await,
        Err(failure) => Err(failure),
    };
    // A body that is neither is answered in what people read.
    Handled { form: Form::Http(encoding.unwrap_or(Encoding::Json)), result }
}

/// What is known of a request by its headers.
struct Admitted {
    tenant: Option<String>,
    encoding: Encoding,
    compression: Option<Compression>,
    length: Option<u64>,
    _turn: OwnedSemaphorePermit,
}

fn admit<A: Acceptor>(
    desk: &Desk<A>,
    parts: &Parts,
    encoding: Option<Encoding>,
) -> Result<Admitted, Failure> {
    check_path(parts)?;
    let tenant = desk.admit(&parts.headers)?;
    let encoding = encoding.ok_or_else(|| {
        Failure::wrong_type("the content type is neither application/x-protobuf nor application/json")
    })?;
    let compression = compression(&parts.headers)?;
    // HTTP/2 says it with the end of the stream.
    let says_length = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
    if parts.version < Version::HTTP_2 && !says_length {
        return Err(Failure::length_required());
    }
    let turn = desk.turn()?;
    let (length, bytes_max) = (length(&parts.headers)?, desk.limits.body_bytes_max);
    if length.is_some_and(|bytes| bytes > u64::from(bytes_max)) {
        return Err(Failure::body_too_large(length, bytes_max));
    }
    Ok(Admitted { tenant, encoding, compression, length, _turn: turn })
}

async fn take<A, B>(desk: &Desk<A>, admitted: Admitted, intake: &mut Intake<B>) -> Result<Accepted, Failure>
where
    A: Acceptor,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxedError>,
{
    let Admitted { tenant, encoding, compression, length, _turn } = admitted;
    let bytes = length.map_or(STEP_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut body = desk.buffer(bytes).await?;
    while let Some(chunk) = intake.next().await? {
        let appended = body.append_within(&chunk, desk.limits.permit_wait).await;
        appended.map_err(|full| desk.full(full, body.held()))?;
    }
    desk.store(Received { body, compression, encoding, tenant, protocol: Protocol::Http }).await
}

fn check_path(parts: &Parts) -> Result<(), Failure> {
    let path = parts.uri.path();
    if path == TRACES && parts.method == Method::POST {
        return Ok(());
    }
    Err(match path {
        TRACES => Failure::wrong_method(format!(
            "traces are sent with POST, and not with {}",
            shown(parts.method.as_str())
        )),
        "/v1/logs" | "/v1/metrics" | "/v1development/profiles" => Failure::not_found(format!(
            "this server takes traces (POST {TRACES}), and not {path}: send them elsewhere, or switch their exporter off"
        )),
        _ => Failure::not_found(format!("there is nothing at {}; traces go to POST {TRACES}", shown(path))),
    })
}

fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let name = content_type.split(';').next().unwrap_or_default().trim();
    match () {
        () if name.eq_ignore_ascii_case("application/x-protobuf") => Some(Encoding::Protobuf),
        () if name.eq_ignore_ascii_case("application/json") => Some(Encoding::Json),
        () => None,
    }
}

fn compression(headers: &HeaderMap) -> Result<Option<Compression>, Failure> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let name = shown(value.to_str().unwrap_or("?"));
    let unknown = || {
        Failure::wrong_type(format!(
            "the content encoding {name:?} is not known, or one of several; use one of {}",
            Compression::ACCEPTED
        ))
    };
    if values.next().is_some() {
        return Err(unknown());
    }
    Compression::of(name).map_err(|_| unknown())
}

/// The length that the client says, if it does.
fn length(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(value) = headers.get(CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    length.map(Some).ok_or_else(|| Failure::malformed("the header Content-Length is not a number"))
}
