//! The agent against a server of the test's own.

use super::*;
use crate::{ClientCredentials, token::tests::jwt};
use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
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
        client_secret: Text::Value("s3cret".into()),
        in_body: false,
        parameters: Vec::new(),
        authorities: None,
    };
    let extensions = vec![("logicalCluster".to_owned(), "lkc-1".to_owned())];
    Login { source: Source::ClientCredentials(Box::new(credentials)), extensions }
}

/// A server that gives each connection this answer, byte by byte, and its address.
fn server(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4_096];
            let _bytes = stream.read(&mut request);
            stream.write_all(&answer).ok();
        }
    });
    endpoint
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn wait(tokens: &Tokens, is_there: impl Fn(&Tokens) -> bool) {
    let begun = Instant::now();
    while !is_there(tokens) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{tokens:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_token_comes_with_the_extensions_of_its_login_and_is_shared() {
    let body = format!(r#"{{"access_token":"{}","expires_in":3600}}"#, jwt(r#"{"sub":"me"}"#));
    let login = asking(server(http("200 OK", &body)));
    let tokens = Tokens::of(&login).unwrap();
    assert!(Arc::ptr_eq(&tokens, &Tokens::of(&login).unwrap()), "one agent for each login");
    wait(&tokens, |tokens| tokens.version() == 1);
    let token = tokens.latest().unwrap();
    assert_eq!((token.principal.as_str(), token.extensions.len()), ("me", 1));
    assert_eq!(tokens.counts().granted, 1);
    assert_eq!(tokens.failure(), None);
}

#[test]
fn an_endpoint_that_refuses_or_talks_nonsense_is_told_and_counted() {
    for (answer, part) in [
        (http("500 Internal Server Error", "out of order"), "answered 500: no error of OAuth 2.0"),
        (http("200 OK", "<html>"), "6 bytes without a usable token"),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "does not answer"),
        (http("200 OK", &"x".repeat(1 << 20)), "its answer goes on behind them"),
    ] {
        let tokens = Tokens::of(&asking(server(answer))).unwrap();
        wait(&tokens, |tokens| tokens.failure().is_some());
        let said = tokens.failure().unwrap().to_string();
        assert!(said.contains(part), "{said}");
        assert_eq!((tokens.version(), tokens.counts().granted), (0, 0));
        assert!(tokens.counts().failed >= 1);
    }
    let tokens = Tokens::of(&asking("http://127.0.0.1:1/token".into())).unwrap();
    wait(&tokens, |tokens| tokens.failure().is_some());
    assert!(tokens.failure().unwrap().to_string().contains("does not answer"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_the_bound() {
    // Connections are taken by the system, and nobody reads them. The clock jumps to the bound while everything waits.
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
    let failed = || Err(Error::Slow { endpoint: "e".into(), seconds: 10 });
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
    let failure = Error::Slow { endpoint: "e".into(), seconds: 10 };
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
    wait(&tokens, |tokens| tokens.version() == 1);
    assert_eq!(tokens.latest().unwrap().principal, "pod");
    assert!(!format!("{:?}", asking("http://login/token".into())).contains("s3cret"));
    std::fs::remove_file(&path).unwrap();
}
