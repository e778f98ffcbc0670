//! A body that is cut off in transit is never accepted as part of a block, and never uses up its token.

use crate::{
    messages::{attribute, message, span, string},
    native::columns_of,
    server::{Database, frames, send_body},
};
use bytes::Bytes;
use sluice_clickhouse::{
    body::{InsertBody, WireFormat},
    column::TableColumns,
    insert::InsertError,
    outcome::Class,
};
use sluice_gateway::table::sink::Sink;
use sluice_gateway_config::Layout;
use std::collections::BTreeSet;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What a proxy does with the Content-Length of a body that it cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// It is made to fit what is left.
    Fits,
    /// It is left as it was, and the connection closed early.
    TooLong,
}

/// Listens, and passes one request on to `upstream` with the body, which has `whole` bytes, cut to `bytes`. Returns its address, and the
/// task, which panics where the body is another one.
async fn cutting_proxy(
    upstream: &str,
    bytes: usize,
    whole: usize,
    length: Length,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let upstream = upstream.to_owned();
    let passing = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let (head, body) = request(&mut client).await;
        assert_eq!(body.len(), whole, "the cut is not where it is said to be");
        let kept = if length == Length::Fits { bytes } else { whole };
        let head: Vec<String> = head
            .lines()
            .filter(|line| !line.to_lowercase().starts_with("content-length:"))
            .chain([format!("Content-Length: {kept}").as_str(), "Connection: close"])
            .map(str::to_owned)
            .collect();
        let mut server = TcpStream::connect(upstream).await.unwrap();
        server.write_all(format!("{}\r\n\r\n", head.join("\r\n")).as_bytes()).await.unwrap();
        server.write_all(&body[..bytes]).await.unwrap();
        if length == Length::TooLong {
            server.shutdown().await.unwrap();
        }
        let mut answer = Vec::new();
        // A server that resets the connection has said all that it says.
        let _end = server.read_to_end(&mut answer).await;
        client.write_all(&answer).await.unwrap();
    });
    (address, passing)
}

/// Head, without its end, and body of a request.
async fn request(client: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.to_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
            });
            if read.len() - end - 4 >= length.unwrap() {
                return (head, read.split_off(end + 4));
            }
        }
        let mut piece = vec![0; 1 << 16];
        let bytes = client.read(&mut piece).await.unwrap();
        assert!(bytes > 0, "the request ends early");
        read.extend_from_slice(&piece[..bytes]);
    }
}

/// A block of several frames, of a few hundred rows with texts that do not compress to nothing.
fn block(columns: &TableColumns) -> Vec<u8> {
    let mut dice: u64 = 7;
    let spans = (0..600).map(|_| {
        let noise = (0..120).map(|_| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{dice:016x}")
        });
        span(vec![attribute("noise", string(&noise.collect::<String>()))])
    });
    frames(columns, &message(spans.collect())).concat()
}

/// Where each frame begins, and the end.
fn edges(body: &[u8]) -> Vec<usize> {
    let mut edges = vec![0];
    while edges[edges.len() - 1] < body.len() {
        let start = edges[edges.len() - 1];
        // Method and sizes follow the checksum of 16 bytes; the size counts from there.
        let size = u32::from_le_bytes(body[start + 17..start + 21].try_into().unwrap()) as usize;
        edges.push(start + 16 + size);
    }
    edges
}

/// Every edge and a byte on either side of it, and places within frames; not the whole.
fn cuts(sent: &[u8]) -> BTreeSet<usize> {
    let edges = edges(sent);
    assert!(edges.len() > 4, "{} frames", edges.len() - 1);
    assert_eq!(*edges.last().unwrap(), sent.len());
    let around = edges.iter().flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1]);
    let within = edges.windows(2).flat_map(|frame| {
        let bytes = frame[1] - frame[0];
        [frame[0] + 16, frame[0] + 25, frame[0] + bytes / 2, frame[0] + bytes - 16]
    });
    around.chain(within).filter(|cut| *cut < sent.len()).collect()
}

/// A block in a format: its body, and all bytes that an INSERT of it sends.
fn made(format: WireFormat, table: &(Sink, TableColumns)) -> (InsertBody, Vec<u8>) {
    let (sink, columns) = table;
    let rows = Bytes::from(block(columns));
    match format {
        WireFormat::RowBinary => {
            let header = sink.targets(columns).unwrap().at(0).header().clone();
            let sent = [&header[..], &rows].concat();
            // The edge that a block's own frames do not have: where its rows would begin.
            assert!(!header.is_empty() && cuts(&sent).contains(&header.len()));
            (InsertBody::new(vec![rows]), sent)
        }
        WireFormat::Native => {
            let columns: Bytes = columns_of(columns, &[rows]).chunks().unwrap().concat().into();
            (InsertBody::native(vec![columns.clone()]), columns.to_vec())
        }
    }
}

/// What a refusal must say. If the body ends before the first row and its length fits, the server inserts no row and succeeds. If columns
/// are refused, their rows may still be good: the shipment sends them as rows next.
fn check(error: &InsertError, cut: usize, sent: &[u8], (format, length): (WireFormat, Length)) {
    let has_no_row = match format {
        // Names and types that are missing are none.
        WireFormat::RowBinary => cut == edges(sent)[1],
        WireFormat::Native => cut == 0,
    };
    if has_no_row && length == Length::Fits {
        assert_eq!((error.class, error.code), (Class::Retry, None), "cut at {cut}: {error}");
    } else {
        assert!(format == WireFormat::Native || error.class != Class::Poison, "cut at {cut}: {error}");
    }
}

async fn every_cut_stores_nothing_and_leaves_the_token(test: &str, length: Length, format: WireFormat) {
    let database = Database::new(test).await;
    let table = database.with_table().await;
    let (insert, sent) = made(format, &table);
    let (sink, columns) = &table;
    let mut whole = 0;
    let rows = 601;
    for cut in cuts(&sent) {
        let token = format!("token-{cut}");
        let (proxy, passing) = cutting_proxy(database.authority(), cut, sent.len(), length).await;
        let through = database.sink_at(Layout::Json, &format!("http://{proxy}"));
        let query_id = format!("{}-{cut}", database.name);
        let cut_off = send_body((&through, columns), &insert, &token, &format!("{query_id}-0")).await;
        let error = cut_off.unwrap_err();
        passing.await.unwrap();
        check(&error, cut, &sent, (format, length));
        assert_eq!(database.count().await, whole, "cut at {cut}: {error}");
        send_body((sink, columns), &insert, &token, &format!("{query_id}-1")).await.unwrap();
        whole += rows;
        assert_eq!(database.count().await, whole, "the whole after a cut at {cut}: {error}");
    }
    database.drop().await;
}

#[tokio::test]
async fn a_body_that_a_proxy_cuts_stores_nothing_and_leaves_the_token() {
    every_cut_stores_nothing_and_leaves_the_token("cut", Length::Fits, WireFormat::RowBinary).await;
}

#[tokio::test]
async fn a_connection_that_closes_early_stores_nothing_and_leaves_the_token() {
    every_cut_stores_nothing_and_leaves_the_token("closed", Length::TooLong, WireFormat::RowBinary).await;
}

#[tokio::test]
async fn columns_that_a_proxy_cuts_store_nothing_and_leave_the_token() {
    every_cut_stores_nothing_and_leaves_the_token("cut_native", Length::Fits, WireFormat::Native).await;
}

#[tokio::test]
async fn columns_on_a_connection_that_closes_early_store_nothing_and_leave_the_token() {
    every_cut_stores_nothing_and_leaves_the_token("closed_native", Length::TooLong, WireFormat::Native).await;
}
