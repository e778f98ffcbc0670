//! The threads that check requests: the walk reads every field, JSON becomes protobuf, and a large request is packed.
//!
//! A request waits in a queue of [`CHECKS_MAX`] until a thread takes it; it holds its permit meanwhile. A request that passes goes on to the
//! appender, which answers it.

use crate::{
    intake::tenants::SharedTenants,
    source::{
        appender::{Append, Unstored},
        gate::Entered,
        packing::Packer,
    },
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use sluice_otlp_json::JsonRewriter;
use sluice_otlp_server::{Encoding, Request};
use std::{sync::Arc, thread, time::Instant};
use tokio::sync::oneshot;

/// Requests that wait for a thread. Chosen: more than the server has under way.
const CHECKS_MAX: usize = 1_024;

/// A request on its way to a thread.
#[derive(Debug)]
pub struct Check {
    pub request: Request,
    pub entered: Entered,
    /// When its body was complete.
    pub begun: Instant,
    pub answer: oneshot::Sender<Result<(), Unstored>>,
}

/// Starts the threads. They end once the sender is dropped, and drop the appender's then.
///
/// # Errors
/// If a thread cannot be started.
pub fn start(
    workers: u32,
    message_bytes_max: usize,
    tenants: &Arc<SharedTenants>,
    appends: &Sender<Append>,
) -> std::io::Result<Sender<Check>> {
    let (checks, checks_in) = bounded(CHECKS_MAX);
    for number in 0..workers {
        let (checks_in, tenants, appends) = (checks_in.clone(), tenants.clone(), appends.clone());
        let run = move || run(&checks_in, message_bytes_max, &tenants, &appends);
        thread::Builder::new().name(format!("check-{number}")).spawn(run)?;
    }
    Ok(checks)
}

fn run(
    checks: &Receiver<Check>,
    message_bytes_max: usize,
    tenants: &SharedTenants,
    appends: &Sender<Append>,
) {
    let mut packer = Packer::default();
    while let Ok(check) = checks.recv() {
        if check.answer.is_closed() {
            // The client has gone, or has another answer already.
            continue;
        }
        let Check { request, entered, begun, answer } = check;
        let Request { body, encoding, tenant, mut permit } = request;
        let unstored = match message(body, encoding, message_bytes_max) {
            // Nothing is to be stored.
            Ok((_, 0)) => Ok(()),
            Ok((message, spans)) => {
                let tenant = tenant.as_deref().unwrap_or_default();
                tenants.count_spans(tenant, spans);
                let (message, raw_bytes) = packer.pack(message);
                // Others need the memory while this one waits for the disk.
                permit.shrink_to(message.len());
                let append = Append { message, raw_bytes, spans, permit, entered, begun, answer };
                let (append, why) = match appends.try_send(append) {
                    Ok(()) => continue,
                    Err(TrySendError::Full(append)) => (append, "too many requests wait for the disk"),
                    Err(TrySendError::Disconnected(append)) => (append, "the gateway is ending"),
                };
                // The acceptor gives the bytes back.
                tenants.give_back(tenant, 0, spans);
                refuse(append, why);
                continue;
            }
            Err(unstored) => Err(unstored),
        };
        if answer.send(unstored).is_err() {
            // The client has gone.
        }
    }
}

fn refuse(append: Append, why: &'static str) {
    if append.answer.send(Err(Unstored::Busy(why))).is_err() {
        // The client has gone.
    }
}

/// A request as protobuf, and the number of its spans. Its memory is that of the permit.
fn message(body: Bytes, encoding: Encoding, bytes_max: usize) -> Result<(Bytes, u64), Unstored> {
    let message = match encoding {
        Encoding::Protobuf => body,
        Encoding::Json => {
            // Its buffer is as large as the text, so it is not kept.
            let mut rewriter = JsonRewriter::new(body.len());
            let malformed =
                |malformed: sluice_otlp_json::Malformed| Unstored::Malformed(malformed.to_string());
            let message = rewriter.rewrite(&body).map_err(malformed)?;
            // Before the copy: the permit has room for three of them.
            drop(body);
            Bytes::copy_from_slice(message)
        }
    };
    if message.len() > bytes_max {
        return Err(Unstored::TooLarge(format!(
            "the request has {} bytes as protobuf, more than the {bytes_max} of source.otlp.limits.decompressedBytesMax; send fewer spans in a \
             request",
            message.len()
        )));
    }
    let spans =
        sluice_otlp::validate(&message).map_err(|malformed| Unstored::Malformed(malformed.to_string()))?;
    Ok((message, spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &[u8] = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"a"}]}]}]}"#;

    #[test]
    fn json_becomes_the_protobuf_that_is_kept_and_what_cannot_be_read_says_why() {
        let (made, spans) = message(Bytes::from_static(JSON), Encoding::Json, 1_000).unwrap();
        assert_eq!((sluice_otlp::validate(&made), spans), (Ok(1), 1));
        let again = message(made.clone(), Encoding::Protobuf, 1_000).unwrap();
        assert_eq!(again, (made, 1));
        let small = message(Bytes::from_static(JSON), Encoding::Json, 10).unwrap_err();
        assert!(
            matches!(&small, Unstored::TooLarge(why) if why.contains("decompressedBytesMax")),
            "{small:?}"
        );
        for (body, encoding) in [(&b"{"[..], Encoding::Json), (b"\x0a\xff", Encoding::Protobuf)] {
            let refused = message(Bytes::from_static(body), encoding, 1_000).unwrap_err();
            assert!(matches!(refused, Unstored::Malformed(_)), "{refused:?}");
        }
    }
}
