//! Tokens for clients of librdkafka. A client has one [`Renewal`]; its own thread gives librdkafka each new token.
//!
//! The Rust client has a callback for tokens. It passes no SASL extensions, and it runs only where a client is polled, which those that ask
//! questions are not. So the public function is called that the callback would call. It copies what it is given and waits for no server.
//! Until the first token, librdkafka's connections wait for one.

#![expect(unsafe_code, reason = "the Rust client has no call that gives librdkafka a token with extensions")]

use crate::{Counts, Error, Login, Token, Tokens, http_client::REQUEST_TIMEOUT};
use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    types::RDKafkaRespErr,
};
use std::{
    ffi::{CStr, CString, c_char},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Room for librdkafka's reason, in bytes, as in its examples.
const REASON_BYTES: usize = 512;

/// How often a new token is looked for beside work that keeps the client's own thread. Chosen: tokens come seconds before the last one expires.
const MEANWHILE_LOOK: Duration = Duration::from_millis(200);

/// How long a client that asks questions may wait for its first token: a request, and its way there.
const FIRST_TOKEN_WAIT: Duration = REQUEST_TIMEOUT.saturating_add(Duration::from_secs(1));

/// The tokens of one client; none for a client that logs in in another way.
#[derive(Debug, Default)]
pub struct Renewal {
    tokens: Option<Arc<Tokens>>,
    /// The version of the token that the client has.
    applied: AtomicU64,
}

impl Renewal {
    /// Starts the agent of a login, or shares it. Waits for nothing.
    pub fn of(login: Option<&Login>) -> Self {
        let tokens = login.and_then(|login| match Tokens::of(login) {
            Ok(tokens) => Some(tokens),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that asks for tokens");
                None
            }
        });
        Self { tokens, applied: AtomicU64::new(0) }
    }

    /// Gives the client the last token, unless the client got it before. Cheap enough for each poll.
    pub fn renew<C: ClientContext>(&self, client: &Client<C>) {
        let Some(tokens) = &self.tokens else { return };
        let version = tokens.version();
        if version == self.applied.load(Ordering::Relaxed) {
            return;
        }
        self.applied.store(version, Ordering::Relaxed);
        let Some(token) = tokens.latest() else { return };
        if let Err(reason) = set_token(client, &token) {
            tracing::warn!(reason, "librdkafka does not take the token");
        }
    }

    /// For a client that has just been made in place of another one.
    pub fn begin<C: ClientContext>(&self, client: &Client<C>) {
        self.applied.store(0, Ordering::Relaxed);
        self.renew(client);
    }

    /// For a client that asks questions: waits up to 11 s for the first token, and blocks its thread for that.
    pub fn wait<C: ClientContext>(&self, client: &Client<C>) {
        self.wait_until(client, Instant::now() + FIRST_TOKEN_WAIT);
    }

    /// The same, for a client that can do nothing without a token.
    ///
    /// # Errors
    /// Why there is no token at the end of the wait.
    pub fn first<C: ClientContext>(&self, client: &Client<C>) -> Result<(), Error> {
        let began = Instant::now();
        self.wait(client);
        self.missing_after(began.elapsed()).map_or(Ok(()), Err)
    }

    /// As [`Self::wait`], with a deadline of its own.
    pub fn wait_until<C: ClientContext>(&self, client: &Client<C>, deadline: Instant) {
        if let Some(tokens) = &self.tokens {
            tokens.wait(deadline);
        }
        self.renew(client);
    }

    /// Why there is no token: the client cannot log in. `None` where none is needed, or none is missing yet.
    pub fn missing(&self) -> Option<Error> {
        self.failure().filter(|_| self.has_none_yet())
    }

    /// The same after a wait of this length, when it is also told that nothing has come yet.
    pub fn missing_after(&self, waited: Duration) -> Option<Error> {
        let tokens = self.tokens.as_ref().filter(|tokens| tokens.version() == 0)?;
        // To the nearest second, and never 0: the same wait has the same words each time.
        let seconds = waited.saturating_add(Duration::from_millis(500)).as_secs().max(1);
        Some(tokens.failure().unwrap_or_else(|| tokens.slow(seconds)))
    }

    /// Why there is no next token, once the last one has expired.
    pub fn overdue(&self) -> Option<Error> {
        self.tokens.as_ref().and_then(|tokens| tokens.overdue())
    }

    /// Does this work, and gives the client each new token meanwhile: for work that keeps the thread which does it otherwise.
    pub fn meanwhile<C: ClientContext, T>(&self, client: &Client<C>, work: impl FnOnce() -> T) -> T {
        if self.tokens.is_none() {
            return work();
        }
        std::thread::scope(|scope| {
            // It is dropped when the work ends, even in a panic. The thread ends by that at once.
            let (_works, ends) = mpsc::sync_channel::<()>(0);
            let renew = move || {
                while ends.recv_timeout(MEANWHILE_LOOK) == Err(RecvTimeoutError::Timeout) {
                    self.renew(client);
                }
            };
            let started = std::thread::Builder::new().name("kafka-renewal".to_owned());
            if let Err(error) = started.spawn_scoped(scope, renew) {
                tracing::warn!(%error, "cannot start the thread that gives librdkafka new tokens; the last one stays");
            }
            work()
        })
    }

    /// The tokens, for metrics.
    pub fn counts(&self) -> Option<Counts> {
        self.tokens.as_ref().map(|tokens| tokens.counts())
    }

    /// The same tokens for what reads the numbers.
    pub fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.clone()
    }

    fn has_none_yet(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.version() == 0)
    }

    fn failure(&self) -> Option<Error> {
        self.tokens.as_ref().and_then(|tokens| tokens.failure())
    }
}

fn set_token<C: ClientContext>(client: &Client<C>, token: &Token) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|_| "a part of it has a NUL character".to_owned());
    let (value, principal) = (text(&token.value)?, text(&token.principal)?);
    let parts = token.extensions.iter().flat_map(|(name, value)| [name, value]);
    let parts: Vec<CString> = parts.map(|part| text(part)).collect::<Result<_, _>>()?;
    let mut extensions: Vec<*const c_char> = parts.iter().map(|part| part.as_ptr()).collect();
    let mut reason = [c_char::default(); REASON_BYTES];
    // SAFETY: the client lives as long as its reference. Every text ends with NUL and outlives the call, which copies them. librdkafka
    // writes its reason, with NUL, and never more bytes than the call names.
    let code = unsafe {
        rd::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            value.as_ptr(),
            token.expires_ms,
            principal.as_ptr(),
            extensions.as_mut_ptr(),
            extensions.len(),
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: it was zero, and librdkafka ends what it writes with NUL.
    let reason = unsafe { CStr::from_ptr(reason.as_ptr()) };
    Err(reason.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientCredentials, ClientProof, Source, Text};
    use rdkafka::{
        ClientConfig,
        consumer::{BaseConsumer, Consumer as _},
    };

    fn client(mechanism: &str) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1").set("security.protocol", "sasl_plaintext");
        config.set("sasl.mechanism", mechanism).set("sasl.username", "u").set("sasl.password", "p");
        config.create().unwrap()
    }

    fn token(value: &str) -> Token {
        let extensions = vec![("logicalCluster".to_owned(), "lkc-1".to_owned())];
        Token { value: value.into(), expires_ms: i64::MAX / 1_000_000, principal: "p".into(), extensions }
    }

    #[test]
    fn librdkafka_takes_a_token_with_extensions_and_says_why_it_takes_none() {
        let consumer = client("OAUTHBEARER");
        set_token(consumer.client(), &token("t")).unwrap();
        let over = Token { expires_ms: 1, ..token("t") };
        assert!(set_token(consumer.client(), &over).unwrap_err().contains("unexpired"));
        let reserved = Token { extensions: vec![("auth".into(), "x".into())], ..token("t") };
        assert!(set_token(consumer.client(), &reserved).unwrap_err().contains("auth"));
        assert!(set_token(consumer.client(), &token("a\0b")).unwrap_err().contains("NUL"));
        let other = client("PLAIN");
        assert!(set_token(other.client(), &token("t")).unwrap_err().contains("not the configured"));
    }

    #[test]
    fn a_client_has_each_token_once_and_says_what_is_missing() {
        let consumer = client("OAUTHBEARER");
        let none = Renewal::of(None);
        none.wait(consumer.client());
        assert_eq!((none.missing(), none.counts()), (None, None));
        let source = Source::Given(Text::Value("opaque".into()));
        let renewal = Renewal::of(Some(&Login { source, extensions: Vec::new() }));
        renewal.wait(consumer.client());
        assert_eq!((renewal.applied.load(Ordering::Relaxed), renewal.missing()), (1, None));
        let source = Source::Given(Text::File("/nowhere/token".into()));
        let renewal = Renewal::of(Some(&Login { source, extensions: Vec::new() }));
        renewal.wait(consumer.client());
        let missing = renewal.missing().unwrap().to_string();
        assert!(missing.contains("cannot read the token from /nowhere/token"), "{missing}");
    }

    #[test]
    fn an_endpoint_that_does_not_answer_in_time_is_told() {
        let consumer = client("OAUTHBEARER");
        // The system accepts connections, and no program reads from them.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let credentials = ClientCredentials {
            endpoint: format!("http://{}/token", listener.local_addr().unwrap()),
            client_id: Text::Value("me".into()),
            proof: ClientProof::Secret { value: Text::Value("s3cret".into()), in_body: false },
            parameters: Vec::new(),
            authorities: None,
        };
        let source = Source::ClientCredentials(Box::new(credentials));
        let renewal = Renewal::of(Some(&Login { source, extensions: Vec::new() }));
        renewal.wait_until(consumer.client(), Instant::now() + Duration::from_millis(100));
        assert_eq!((renewal.missing(), renewal.overdue()), (None, None), "no try has ended");
        for (millis, words) in [(4_900, "within 5 s"), (0, "within 1 s")] {
            let missing = renewal.missing_after(Duration::from_millis(millis)).unwrap().to_string();
            assert!(missing.contains(&format!("does not answer {words}")), "{missing}");
        }
        assert_eq!(Renewal::of(None).missing_after(Duration::from_secs(5)), None);
    }

    #[test]
    fn a_client_has_new_tokens_while_its_thread_works() {
        let consumer = client("OAUTHBEARER");
        let source = Source::Given(Text::Value("another".into()));
        let renewal = Renewal::of(Some(&Login { source, extensions: Vec::new() }));
        let applied = || renewal.applied.load(Ordering::Relaxed);
        let begun = Instant::now();
        let done = renewal.meanwhile(consumer.client(), || {
            while applied() == 0 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::park_timeout(MEANWHILE_LOOK / 10);
            }
            7
        });
        assert_eq!((done, applied()), (7, 1));
        let ends_with_the_work = |_| {
            let begun = Instant::now();
            renewal.meanwhile(consumer.client(), || ());
            begun.elapsed() < MEANWHILE_LOOK
        };
        // A busy machine may be slow once.
        assert!((0..10).any(ends_with_the_work));
        assert_eq!(Renewal::of(None).meanwhile(consumer.client(), || 7), 7);
    }
}
