//! The agent: a thread that has a token ready, and asks for the next one before the last one expires.
//!
//! Owner: the thread, which ends when the last [`Tokens`] is dropped. Clients read the last token under a lock that is held for a copy of a
//! pointer. Limits: see [`crate::schedule`].

use crate::{
    Error, Login, Source, Text, Token, aws, client_credentials,
    file::{self, Content},
    http_client::{Server, without_user},
    schedule::{FILE_LOOK, refresh_in, retry_in},
    token::now_ms,
};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How often the thread checks whether a client still wants tokens. So it also bounds how long the thread outlives the last client.
const ALIVE_LOOK: Duration = Duration::from_secs(1);

/// Where a token is that is in no file.
const IN_MEMORY: &str = "the operator's memory";

/// The agents of this process.
static AGENTS: Mutex<Vec<Weak<Tokens>>> = Mutex::new(Vec::new());

/// The tokens of a login.
#[derive(Debug)]
pub struct Tokens {
    login: Login,
    state: Mutex<State>,
    /// Each try that has ended: those who wait for the first token look again.
    tried: Condvar,
    version: AtomicU64,
    granted: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Arc<Token>>,
    failure: Option<Error>,
    failures_in_a_row: u32,
}

/// How many tokens there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were got.
    pub granted: u64,
    /// Tries that failed.
    pub failed: u64,
    /// When the last token expires, in milliseconds since 1970; `None` before the first.
    pub expires_ms: Option<i64>,
}

impl Tokens {
    /// The tokens of this login. The first caller starts the agent; those who come later share it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn of(login: &Login) -> std::io::Result<Arc<Self>> {
        let mut agents = AGENTS.lock().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|agent| agent.strong_count() > 0);
        let known = agents.iter().filter_map(Weak::upgrade).find(|tokens| tokens.login == *login);
        if let Some(tokens) = known {
            return Ok(tokens);
        }
        let tokens = Arc::new(Self::new(login.clone()));
        let (weak, login) = (Arc::downgrade(&tokens), login.clone());
        std::thread::Builder::new().name("kafka-tokens".to_owned()).spawn(move || run(&weak, &login))?;
        agents.push(Arc::downgrade(&tokens));
        Ok(tokens)
    }

    fn new(login: Login) -> Self {
        let zero = || AtomicU64::new(0);
        let (state, tried) = (Mutex::default(), Condvar::new());
        Self { login, state, tried, version: zero(), granted: zero(), failed: zero() }
    }

    /// Changes with each token; 0 before the first. Cheap: a client may ask at each poll.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The last token; `None` before the first.
    pub fn latest(&self) -> Option<Arc<Token>> {
        self.state().token.clone()
    }

    /// Why the last try failed; `None` after one that did not.
    pub fn failure(&self) -> Option<Error> {
        self.state().failure.clone()
    }

    /// Waits until there is a token, or until the last try has failed, and no longer than to the deadline.
    pub fn wait(&self, deadline: Instant) {
        self.wait_while(deadline, |state| state.token.is_none() && state.failure.is_none());
    }

    fn wait_while(&self, deadline: Instant, mut is_early: impl FnMut(&State) -> bool) {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.tried.wait_timeout_while(self.state(), left, |state| is_early(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Why there is no next token, once the last one has expired: no client can log in any more. `None` before the first token too.
    pub fn overdue(&self) -> Option<Error> {
        self.overdue_at(now_ms())
    }

    fn overdue_at(&self, now_ms: i64) -> Option<Error> {
        let state = self.state();
        let is_over = state.token.as_ref().is_some_and(|token| token.expires_ms <= now_ms);
        state.failure.clone().filter(|_| is_over)
    }

    /// Why there is no token yet although no try has failed: the first one takes longer than the caller waits.
    pub fn slow(&self, seconds: u64) -> Error {
        let late = |path: &str| {
            let reason = format!("it is not read within {seconds} s");
            Error::File { what: Content::Token, path: path.to_owned(), reason }
        };
        match &self.login.source {
            Source::ClientCredentials(credentials) => {
                let endpoint = without_user(&credentials.endpoint);
                Error::Slow { server: Server::TokenEndpoint, endpoint, seconds }
            }
            Source::AwsMskIam(login) => aws::slow(login, seconds),
            Source::Given(Text::File(path)) => late(path),
            Source::Given(Text::Value(_)) => late(IN_MEMORY),
        }
    }

    /// The numbers for metrics.
    pub fn counts(&self) -> Counts {
        Counts {
            granted: self.granted.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            expires_ms: self.state().token.as_ref().map(|token| token.expires_ms),
        }
    }

    /// Takes what came of a try, and says how long to wait until the next.
    fn learn(&self, got: Result<Token, Error>, now_ms: i64) -> Duration {
        let is_given = matches!(self.login.source, Source::Given(_));
        let mut state = self.state();
        // They get the lock once it is released here.
        self.tried.notify_all();
        match got {
            Ok(mut token) => {
                token.extensions.clone_from(&self.login.extensions);
                let left = u64::try_from(token.expires_ms.saturating_sub(now_ms)).unwrap_or(0);
                if std::mem::take(&mut state.failures_in_a_row) > 0 {
                    tracing::info!("there is a token for Kafka again");
                }
                state.failure = None;
                if state.token.as_deref() != Some(&token) {
                    state.token = Some(Arc::new(token));
                    self.granted.fetch_add(1, Ordering::Relaxed);
                    self.version.fetch_add(1, Ordering::Release);
                }
                let wait = refresh_in(Duration::from_millis(left));
                if is_given { wait.min(FILE_LOOK) } else { wait }
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if state.failure.as_ref() != Some(&error) {
                    tracing::warn!(%error, "no token for Kafka; trying again");
                }
                state.failure = Some(error);
                state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
                retry_in(state.failures_in_a_row)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is harmless: each holder leaves whole values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(tokens: &Weak<Tokens>, login: &Login) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime that asks for tokens");
            return;
        }
    };
    runtime.block_on(async {
        loop {
            let got = fetch(login).await;
            let Some(alive) = tokens.upgrade() else { return };
            let wait = alive.learn(got, now_ms());
            drop(alive);
            let next = tokio::time::Instant::now() + wait;
            while tokio::time::Instant::now() < next {
                if tokens.strong_count() == 0 {
                    return;
                }
                let left = next.saturating_duration_since(tokio::time::Instant::now());
                tokio::time::sleep(left.min(ALIVE_LOOK)).await;
            }
        }
    });
}

async fn fetch(login: &Login) -> Result<Token, Error> {
    match &login.source {
        Source::ClientCredentials(credentials) => client_credentials::fetch(credentials).await,
        Source::AwsMskIam(login) => aws::fetch(login).await,
        Source::Given(text) => {
            let (value, path) = match text {
                Text::Value(value) => (value.clone(), IN_MEMORY),
                Text::File(path) => (file::read(Content::Token, path)?, path.as_str()),
            };
            let refused = |reason| Error::Token { path: path.to_owned(), reason };
            Token::new(&value, None, now_ms()).map_err(refused)
        }
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
pub(crate) mod tests;
