//! The client against a scripted server, for answers and faults that a real server does not give on demand.

use super::*;
use crate::column::TableColumns;
use crate::endpoint::{Credentials, Endpoint};
use crate::insert::TargetSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
enum Reply {
    /// Reads it whole, then writes this.
    Answer(String),
    /// Reads it whole, then closes the connection.
    Close,
    /// Closes the connection before reading anything.
    CloseUnread,
    /// Reads it whole, then writes nothing.
    Silence,
}

/// A server that gives the requests of each connection the same replies, and keeps what it read.
struct Server {
    target: InsertTarget,
    requests: tokio::task::JoinHandle<Vec<(String, Vec<u8>)>>,
}

async fn serve(replies: Vec<Reply>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target(&listener.local_addr().unwrap().to_string());
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        let mut connection = None;
        for reply in replies {
            let mut stream = match connection.take() {
                Some(stream) => stream,
                None => listener.accept().await.unwrap().0,
            };
            if matches!(reply, Reply::CloseUnread) {
                continue;
            }
            requests.push(read_request(&mut stream).await);
            match reply {
                Reply::Answer(answer) => {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    connection = Some(stream);
                }
                Reply::Silence => connection = Some(stream),
                Reply::Close | Reply::CloseUnread => {}
            }
        }
        drop(listener);
        // Kept open until the client is done.
        if let Some(mut stream) = connection {
            let _at_end = stream.read(&mut [0; 1]).await;
        }
        requests
    });
    Server { target, requests }
}

/// Head and body of one request, which must have a Content-Length.
async fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.to_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
            });
            let body = &read[end + 4..];
            if body.len() >= length.expect("a Content-Length") {
                return (head, body.to_vec());
            }
        }
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece).await.unwrap();
        assert!(bytes > 0, "the request ends early");
        read.extend_from_slice(&piece[..bytes]);
    }
}

fn target(authority: &str) -> InsertTarget {
    InsertTarget::new(&TargetSpec {
        endpoint: &Endpoint::parse(&format!("http://{authority}")).unwrap(),
        credentials: &Credentials { user: "gateway".into(), password: "s3cret".into(), token: None },
        database: "otel",
        table: "otel_traces",
        columns: &TableColumns::default(),
        timeout: crate::insert::INSERT_TIMEOUT_MIN,
        settings: &std::collections::BTreeMap::new(),
    })
    .unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> Reply {
    Reply::Answer(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()))
}

fn body() -> InsertBody {
    InsertBody::new(vec![Bytes::from_static(b"frame-1"), Bytes::from_static(b"frame-2")])
}

/// The server's summary of an INSERT after it has read this number of rows.
fn summary(rows: u32) -> String {
    format!("X-ClickHouse-Summary: {{\"read_rows\":\"{rows}\",\"written_rows\":\"{rows}\"}}\r\n")
}

/// The server's answer when the rows are stored.
fn stored() -> Reply {
    answer("200 OK", &summary(10), "")
}

const ID: InsertId<'_> = InsertId { token: Some("t"), query_id: "q" };

async fn insert(client: &InsertClient, server: &Server) -> Result<Inserted, InsertError> {
    client.insert(&server.target, &body(), ID).await
}

/// The class, code and status of the error that one reply gives.
async fn failure(reply: Reply) -> InsertError {
    let server = serve(vec![reply]).await;
    insert(&InsertClient::new(), &server).await.unwrap_err()
}

#[tokio::test(flavor = "current_thread")]
async fn a_request_has_a_length_and_credentials_and_the_frames() {
    let server = serve(vec![stored()]).await;
    let header = server.target.header().clone();
    insert(&InsertClient::new(), &server).await.unwrap();
    let (head, body) = server.requests.await.unwrap().swap_remove(0);
    assert!(head.starts_with("POST /?database=otel&query=INSERT%20INTO%20"), "{head}");
    assert!(head.lines().next().unwrap().ends_with("&query_id=q&insert_deduplication_token=t HTTP/1.1"));
    let head = head.to_lowercase();
    let length = format!("\r\ncontent-length: {}", header.len() + 14);
    // gateway:s3cret
    for line in [&length, "\r\nauthorization: basic z2f0zxdhetpzm2nyzxq="] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(!head.contains("transfer-encoding"));
    assert_eq!(body, [&header[..], b"frame-1frame-2"].concat());
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_is_used_again() {
    let (server, client) = (serve(vec![stored(), stored()]).await, InsertClient::new());
    insert(&client, &server).await.unwrap();
    insert(&client, &server).await.unwrap();
    drop(client);
    assert_eq!(server.requests.await.unwrap().len(), 2);
}

#[tokio::test(flavor = "current_thread")]
async fn an_exception_is_classed_by_its_code() {
    let text = "Code: 60. DB::Exception: Table otel.otel_traces does not exist. (UNKNOWN_TABLE)\n";
    let error = failure(answer("404 Not Found", "X-ClickHouse-Exception-Code: 60\r\n", text)).await;
    assert_eq!((error.class, error.code, error.http_status), (Class::Halt, Some(60), Some(404)));
    assert_eq!(error.table, "`otel`.`otel_traces`");
    assert!(error.to_string().ends_with(text.trim()), "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_code_is_read_from_the_text_when_the_header_is_missing() {
    let error = failure(answer("500 Internal Server Error", "", "Code: 241. DB::Exception: Memory")).await;
    assert_eq!((error.class, error.code), (Class::BackPressure, Some(241)));
}

#[tokio::test(flavor = "current_thread")]
async fn an_exception_after_a_200_is_no_success() {
    let error = failure(answer("200 OK", "", "Code: 319. DB::Exception: Unknown status")).await;
    assert_eq!((error.class, error.code, error.http_status), (Class::InDoubt, Some(319), Some(200)));
    let error = failure(answer("200 OK", "X-ClickHouse-Exception-Code: 241\r\n", "")).await;
    assert_eq!((error.class, error.code), (Class::BackPressure, Some(241)));
    let error = failure(answer("200 OK", &summary(10), "what is this")).await;
    assert_eq!((error.class, error.code), (Class::InDoubt, None));
}

/// A refusal, and the answer to the INSERT without rows that follows it.
async fn refused_twice(code: u32, without_rows: Reply) -> (InsertError, Vec<(String, Vec<u8>)>) {
    let refusal =
        answer("500 Oops", &format!("X-ClickHouse-Exception-Code: {code}\r\n"), "Cannot read all data");
    let server = serve(vec![refusal, without_rows]).await;
    let client = InsertClient::new();
    let error = insert(&client, &server).await.unwrap_err();
    drop(client);
    (error, server.requests.await.unwrap())
}

#[tokio::test(flavor = "current_thread")]
async fn rows_are_the_cause_only_if_an_insert_without_rows_is_read() {
    for code in UNREADABLE {
        let (error, requests) = refused_twice(code, answer("200 OK", &summary(0), "")).await;
        assert_eq!((error.class, error.code), (classify(Some(code), 500, ""), Some(code)));
        let (head, body) = &requests[1];
        assert!(head.lines().next().unwrap().ends_with("&query_id=no-rows-q HTTP/1.1"), "no token: {head}");
        assert!(!body.is_empty() && requests[0].1.starts_with(body), "it is the header alone");
    }
    let (error, _) =
        refused_twice(33, answer("500 Oops", "X-ClickHouse-Exception-Code: 131\r\n", "Too large")).await;
    assert_eq!((error.class, error.code, error.http_status), (Class::Retry, None, Some(500)));
    assert!(error.message.contains("a proxy removes the parameter decompress"), "{error}");
    assert!(error.message.ends_with("The server said: Too large"), "{error}");
    let (error, _) = refused_twice(33, Reply::Close).await;
    assert_eq!((error.class, error.code), (Class::Retry, None), "it is not known whether rows are the cause");
    let (error, _) =
        refused_twice(33, answer("404", "X-ClickHouse-Exception-Code: 60\r\n", "no table")).await;
    assert_eq!((error.class, error.code), (Class::Retry, None));
    // The table has other types: no row is looked at, and none is to blame.
    let text =
        "Code: 117. DB::Exception: Type of 'Duration' must be Float64, not UInt64: (while reading header)";
    let types = || answer("500 Oops", "X-ClickHouse-Exception-Code: 117\r\n", text);
    assert_eq!(failure(types()).await.class, Class::RefreshSchema);
    let (error, _) = refused_twice(33, types()).await;
    assert_eq!((error.class, error.code), (Class::RefreshSchema, Some(117)));
}

#[tokio::test(flavor = "current_thread")]
async fn a_success_without_a_summary_is_none_and_says_whose_answer_it_is_not() {
    let table = [
        ("200 OK", "", ""),
        ("200 OK", "", "<html>welcome</html>"),
        ("200 OK", "X-ClickHouse-Query-Id: q\r\n", ""),
        ("200 OK", "X-ClickHouse-Summary: {}\r\n", ""),
        ("202 Accepted", "", ""),
        ("204 No Content", "", ""),
    ];
    for (status, headers, body) in table {
        let error = failure(answer(status, headers, body)).await;
        assert_eq!((error.class, error.code), (Class::InDoubt, Some(NOT_THE_SERVERS)), "{status} {headers}");
        assert!(
            error.message.contains("X-ClickHouse-Summary, so it is not from ClickHouse; it says "),
            "{error}"
        );
        assert!(error.message.contains(body), "{error}");
    }
    let long = failure(answer("200 OK", "", &"é".repeat(1_000_000))).await;
    assert_eq!(long.message.chars().count(), MESSAGE_CHARS_MAX);
}

#[tokio::test(flavor = "current_thread")]
async fn a_body_of_which_no_row_was_read_is_sent_again() {
    let error = failure(answer("200 OK", &summary(0), "")).await;
    assert_eq!((error.class, error.code, error.http_status), (Class::Retry, None, Some(200)));
    insert(&InsertClient::new(), &serve(vec![stored()]).await).await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_dropped_duplicate_is_a_success() {
    let server = serve(vec![answer("500 x", "X-ClickHouse-Exception-Code: 389\r\n", "Code: 389.")]).await;
    insert(&InsertClient::new(), &server).await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn only_the_beginning_of_a_long_answer_is_kept() {
    let error = failure(answer("500 x", "", &"é".repeat(1_000_000))).await;
    assert_eq!(error.message.chars().count(), MESSAGE_CHARS_MAX);
    assert_eq!(error.class, Class::InDoubt);
    let error = failure(answer("502 Bad Gateway", "", "")).await;
    assert_eq!(error.message, "HTTP status 502 without a message");
}

#[tokio::test(flavor = "current_thread")]
async fn without_a_server_nothing_is_in_doubt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target(&listener.local_addr().unwrap().to_string());
    drop(listener);
    let error = InsertClient::new().insert(&target, &body(), ID).await.unwrap_err();
    assert_eq!((error.class, error.http_status), (Class::Retry, None));
    assert!(error.message.contains("refused"), "{}", error.message);
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_lost_after_sending_is_in_doubt() {
    for reply in [Reply::Close, Reply::Answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab".into())] {
        let replies = vec![reply, Reply::CloseUnread];
        let server = serve(replies).await;
        let error = insert(&InsertClient::new(), &server).await.unwrap_err();
        assert_eq!(error.class, Class::InDoubt, "{error}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn no_answer_in_time_is_in_doubt() {
    let error = failure(Reply::Silence).await;
    assert_eq!(error.class, Class::InDoubt);
    assert_eq!(error.message, "no answer within 2s");
}

#[tokio::test(flavor = "current_thread")]
async fn a_proxy_that_gave_up_leaves_the_rows_in_doubt() {
    for status in
        ["408 Request Timeout", "500 x", "502 Bad Gateway", "503 Unavailable", "504 Gateway Timeout"]
    {
        let error = failure(answer(status, "", "<html>the server did not answer</html>")).await;
        assert_eq!((error.class, error.code), (Class::InDoubt, None), "{status}");
    }
}
