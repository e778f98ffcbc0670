//! The agent against a server of the test's own.

use super::*;
use crate::{ClientCredentials, ClientProof, token::tests::jwt};
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

const NOW: i64 = 1_700_000_000_000;

fn given(path: &str) -> Login {
    Login { source: Source::Given(Text::File(path.into())), extensions: Vec::new() }
}

fn asking(endpoint: String) -> Login {
    let credentials = ClientCredentials {
        endpoint,
        client_id: Text::Value("me".into()),
        proof: ClientProof::Secret { value: Text::Value("s3cret".into()), in_body: false },
        parameters: Vec::new(),
        authorities: None,
    };
    let extensions = vec![("logicalCluster".to_owned(), "lkc-1".to_owned())];
    Login { source: Source::ClientCredentials(Box::new(credentials)), extensions }
}

/// A server that gives each connection this answer, byte by byte, and its address.
fn server(answer: Vec<u8>) -> String {
    issuer(move |_| answer.clone())
}

/// A server that answers what it is asked, and its address.
pub(crate) fn issuer(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = request(&mut stream);
            stream.write_all(&answer(&request)).ok();
        }
    });
    endpoint
}

/// Head and body of a request, as far as it comes.
fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4_096];
    while !is_whole(&text) {
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
        }
    }
    text
}

fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

pub(crate) fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// Waits for the end of the first try, or of one that was before.
fn wait(tokens: &Tokens) {
    tokens.wait(Instant::now() + Duration::from_secs(20));
}

#[test]
fn a_token_comes_with_the_extensions_of_its_login_and_is_shared() {
    let body = format!(r#"{{"access_token":"{}","expires_in":3600}}"#, jwt(r#"{"sub":"me"}"#));
    let login = asking(server(http("200 OK", &body)));
    let tokens = Tokens::of(&login).unwrap();
    assert!(Arc::ptr_eq(&tokens, &Tokens::of(&login).unwrap()), "one agent for each login");
    wait(&tokens);
    let token = tokens.latest().unwrap();
    assert_eq!((token.principal.as_str(), token.extensions.len()), ("me", 1));
    assert_eq!(tokens.counts().granted, 1);
    assert_eq!(tokens.failure(), None);
}

#[test]
fn an_endpoint_that_refuses_or_talks_nonsense_is_told_and_counted() {
    for (answer, part) in [
        (
            http("500 Internal Server Error", "out of order"),
            "answered 500: an answer without an error of OAuth 2.0",
        ),
        (http("200 OK", "<html>"), "6 bytes without a usable token"),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "does not answer"),
        (http("200 OK", &"x".repeat(1 << 20)), "its answer goes on behind them"),
    ] {
        let tokens = Tokens::of(&asking(server(answer))).unwrap();
        wait(&tokens);
        let said = tokens.failure().unwrap().to_string();
        assert!(said.contains(part), "{said}");
        assert_eq!((tokens.version(), tokens.counts().granted), (0, 0));
        assert!(tokens.counts().failed >= 1);
    }
    let tokens = Tokens::of(&asking("http://127.0.0.1:1/token".into())).unwrap();
    wait(&tokens);
    assert!(tokens.failure().unwrap().to_string().contains("does not answer"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_the_bound() {
    // The system accepts connections, and no thread reads from them. The clock jumps to the bound while everything waits.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let login = asking(format!("http://{}/token", listener.local_addr().unwrap()));
    let said = fetch(&login).await.unwrap_err().to_string();
    assert!(said.contains("does not answer within 10 s"), "{said}");
}

#[test]
fn a_file_that_is_rotated_is_read_again_and_one_that_is_the_same_is_no_other_token() {
    let tokens = Tokens::new(given("/token"));
    let token = |value: &str, seconds: i64| Token::new(value, Some(seconds), NOW).unwrap();
    assert_eq!(tokens.learn(Ok(token("a", 3_600)), NOW), FILE_LOOK);
    assert_eq!(tokens.learn(Ok(token("a", 3_600)), NOW), FILE_LOOK);
    assert_eq!((tokens.version(), tokens.counts().granted), (1, 1));
    assert_eq!(tokens.learn(Ok(token("b", 30)), NOW), Duration::from_secs(20));
    assert_eq!(tokens.version(), 2);
}

#[test]
fn a_failure_keeps_the_last_token_and_the_next_token_forgets_the_failure() {
    let tokens = Tokens::new(asking("http://login/token".into()));
    let failed = || Err(Error::Slow { server: Server::TokenEndpoint, endpoint: "e".into(), seconds: 10 });
    assert_eq!(tokens.learn(failed(), NOW), Duration::from_secs(1));
    assert_eq!(tokens.learn(failed(), NOW), Duration::from_secs(2));
    let wait = tokens.learn(Ok(Token::new("a", Some(300), NOW).unwrap()), NOW);
    assert_eq!((wait, tokens.failure()), (Duration::from_secs(200), None));
    assert_eq!(tokens.learn(failed(), NOW), Duration::from_secs(1));
    assert!(tokens.latest().is_some() && tokens.failure().is_some());
    let counts = Counts { granted: 1, failed: 3, expires_ms: Some(NOW + 300_000) };
    assert_eq!(tokens.counts(), counts);
}

#[test]
fn once_the_last_token_has_expired_it_is_told_why_there_is_no_next_one() {
    let tokens = Tokens::new(asking("http://login/token".into()));
    let failure = Error::Slow { server: Server::TokenEndpoint, endpoint: "e".into(), seconds: 10 };
    tokens.learn(Err(failure.clone()), NOW);
    assert_eq!(tokens.overdue_at(NOW + 400_000), None, "there was none to expire");
    let token = || Token::new("a", Some(300), NOW).unwrap();
    tokens.learn(Ok(token()), NOW);
    assert_eq!(tokens.overdue_at(NOW + 400_000), None, "nothing has failed");
    tokens.learn(Err(failure.clone()), NOW + 200_000);
    assert_eq!(tokens.overdue_at(NOW + 299_999), None, "the last one still holds");
    assert_eq!(tokens.overdue_at(NOW + 300_000), Some(failure));
    tokens.learn(Ok(token()), NOW);
    assert_eq!(tokens.overdue_at(NOW + 400_000), None);
}

#[test]
fn who_is_slow_is_named_without_a_user() {
    let said = |login| Tokens::new(login).slow(5).to_string();
    let endpoint = said(asking("https://user:pass@login/token".into()));
    assert!(
        endpoint.contains("login/token does not answer within 5 s") && !endpoint.contains("pass"),
        "{endpoint}"
    );
    assert!(said(given("/token")).contains("from /token: it is not read within 5 s"));
}

#[test]
fn a_token_in_a_file_is_got_and_its_secret_is_in_no_text() {
    let path = std::env::temp_dir().join(format!("sluice-login-agent-{}", std::process::id()));
    std::fs::write(&path, format!("{}\n", jwt(r#"{"sub":"pod"}"#))).unwrap();
    let tokens = Tokens::of(&given(path.to_str().unwrap())).unwrap();
    wait(&tokens);
    assert_eq!(tokens.latest().unwrap().principal, "pod");
    assert!(!format!("{:?}", asking("http://login/token".into())).contains("s3cret"));
    std::fs::remove_file(&path).unwrap();
}

/// The issuer trusts one assertion at a time, as the kubelet replaces it.
#[test]
fn an_assertion_is_read_again_for_each_token_and_is_in_no_text() {
    let path = std::env::temp_dir().join(format!("sluice-login-assertion-{}", std::process::id()));
    let (first, second) = (jwt(r#"{"sub":"first"}"#), jwt(r#"{"sub":"second"}"#));
    std::fs::write(&path, format!("{first}\n")).unwrap();
    let trusted = second.clone();
    let endpoint = issuer(move |request| {
        let kind = "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
        let (_, sent) = request.rsplit_once("client_assertion=").unwrap();
        let is_alone = !request.contains("client_secret") && !request.contains("authorization:");
        if is_alone && request.contains("client_id=me") && request.contains(kind) && sent == trusted {
            return http("200 OK", r#"{"access_token":"granted","expires_in":3600}"#);
        }
        let said = format!(r#"{{"error":"invalid_client","error_description":"{sent} is not trusted"}}"#);
        http("401 Unauthorized", &said)
    });
    let credentials = ClientCredentials {
        endpoint,
        client_id: Text::Value("me".into()),
        proof: ClientProof::Assertion(Text::File(path.to_str().unwrap().into())),
        parameters: Vec::new(),
        authorities: None,
    };
    let source = Source::ClientCredentials(Box::new(credentials));
    let login = Login { source, extensions: Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let said = runtime.block_on(fetch(&login)).unwrap_err().to_string();
    assert!(said.contains("answered 401: invalid_client: … is not trusted; check"), "{said}");
    assert!(said.contains("issuer, subject and audience"), "{said}");
    std::fs::write(&path, &second).unwrap();
    assert_eq!(runtime.block_on(fetch(&login)).unwrap().value, "granted");
    std::fs::remove_file(&path).unwrap();
    let said = runtime.block_on(fetch(&login)).unwrap_err().to_string();
    assert!(said.contains("cannot read the client assertion from"), "{said}");
}

#[test]
fn whoever_waits_for_a_token_is_woken_by_a_try_and_by_the_deadline() {
    let tokens = Arc::new(Tokens::new(asking("http://login/token".into())));
    let begun = Instant::now();
    tokens.wait(begun + Duration::from_millis(50));
    assert!(begun.elapsed() >= Duration::from_millis(50) && tokens.failure().is_none());
    let other = tokens.clone();
    let waits = std::thread::spawn(move || {
        other.wait(Instant::now() + Duration::from_secs(20));
        other.version()
    });
    tokens.learn(Ok(Token::new("a", Some(300), NOW).unwrap()), NOW);
    assert_eq!(waits.join().unwrap(), 1);
    // There is a token: no caller waits any more, whatever the deadline is.
    tokens.wait(Instant::now() + Duration::from_secs(20));
}
