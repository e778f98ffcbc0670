//! `sluice-operator ready`: asks the admin server of an operator (`admin.rs`) for `/readyz`. The image has no other program that could.
//!
//! Blocking, on the main thread. One question takes [`WAIT`] at most.

use crate::args::ReadyArgs;
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

/// Longest wait for a connection, and for each part of an answer. Chosen: the operator answers from memory.
const WAIT: Duration = Duration::from_secs(2);
/// Time between two questions.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Bytes of an answer that are read: headers and a dozen lines.
const ANSWER_BYTES_MAX: u64 = 8_192;

/// Why an operator is not known to be ready.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{address}: the name has no address: {source}")]
    Resolve { address: String, source: io::Error },
    #[error("{socket}: cannot connect: {source}")]
    Connect { socket: SocketAddr, source: io::Error },
    #[error("{socket}: no answer to GET /readyz: {source}")]
    Exchange { socket: SocketAddr, source: io::Error },
    #[error("{socket}: not ready: {answer}")]
    NotReady { socket: SocketAddr, answer: String },
}

/// Waits for the operator, and prints the outcome.
pub fn run(args: &ReadyArgs) -> ExitCode {
    // If the outcome cannot be printed, the exit code still tells it.
    match wait(&args.address, Duration::from_secs(args.timeout)) {
        Ok(()) => {
            writeln!(io::stdout(), "{}: ready", args.address).ok();
            ExitCode::SUCCESS
        }
        Err(error) => {
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Asks until the operator is ready or the time is over; then returns the last error.
fn wait(address: &str, timeout: Duration) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match ask(address) {
            Err(_) if start.elapsed() + AGAIN_AFTER < timeout => thread::sleep(AGAIN_AFTER),
            outcome => return outcome,
        }
    }
}

/// Asks once: the first address of the name that lets us connect.
fn ask(address: &str) -> Result<(), Error> {
    let resolve = |source| Error::Resolve { address: address.to_owned(), source };
    let mut last = resolve(io::ErrorKind::NotFound.into());
    for socket in address.to_socket_addrs().map_err(resolve)? {
        match TcpStream::connect_timeout(&socket, WAIT) {
            Ok(stream) => return answer(socket, address, stream),
            Err(source) => last = Error::Connect { socket, source },
        }
    }
    Err(last)
}

fn answer(socket: SocketAddr, host: &str, mut stream: TcpStream) -> Result<(), Error> {
    let text = exchange(host, &mut stream).map_err(|source| Error::Exchange { socket, source })?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(Error::NotReady { socket, answer: format!("{status}: {}", body.trim()) })
}

fn exchange(host: &str, stream: &mut TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut text = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        run::admin::{Admin, Readiness, WaitsFor},
        world::metrics::Metrics,
    };
    use std::sync::Arc;

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.unwrap()
    }

    #[tokio::test]
    async fn an_operator_is_ready_when_it_says_so() {
        let readiness = Arc::<Readiness>::default();
        let metrics = Arc::new(Metrics::new("1", &[]).unwrap());
        let admin =
            Admin::bind("127.0.0.1:0".parse().unwrap(), metrics, Arc::clone(&readiness)).await.unwrap();
        let address = admin.address().to_string();
        let served = tokio::spawn(admin.serve());
        let asked = address.clone();
        let error = blocking(move || ask(&asked)).await.unwrap_err().to_string();
        assert!(error.contains("503") && error.ends_with("waiting for the API server"), "{error}");
        readiness.set(WaitsFor::Nothing);
        blocking(move || wait(&address, WAIT)).await.unwrap();
        served.abort();
    }

    #[test]
    fn who_does_not_answer_is_not_ready() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let closes = thread::spawn(move || listener.accept().map(drop));
        let error = ask(&address).unwrap_err();
        assert!(matches!(error, Error::Exchange { .. } | Error::NotReady { .. }), "{error}");
        closes.join().unwrap().unwrap();
        let error = wait(&address, Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(matches!(ask("no port"), Err(Error::Resolve { .. })));
    }
}
