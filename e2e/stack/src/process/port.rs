//! A port for a server that cannot report a port of its own choice, such as Kafka's brokers and `ClickHouse`, or that needs the same port after
//! a restart.
//!
//! Job: reserves the port, also while the server is down. Without this, another program could take the port between its choice and its use.
//! Limits: Linux.
//!
//! ```text
//! bound here, not listening -> bind(0) and connect() of other programs choose another port; connections are refused
//!                          `-> a server that binds this port with SO_REUSEADDR can listen, as Java, ClickHouse and Rust do
//! ```

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// A port on all addresses of this machine. Other programs can use it again after this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Bound, but never listening: otherwise no other process could bind the port.
    _held: TcpSocket,
}

impl Port {
    pub fn hold() -> anyhow::Result<Port> {
        let held = TcpSocket::new_v4().context("make a socket")?;
        held.set_reuseaddr(true).context("let a server bind beside it")?;
        held.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).context("find a free port")?;
        Ok(Port { number: held.local_addr().context("ask for the free port")?.port(), _held: held })
    }

    pub fn hold_all<const COUNT: usize>() -> anyhow::Result<[Port; COUNT]> {
        let ports = (0..COUNT).map(|_| Port::hold()).collect::<anyhow::Result<Vec<Port>>>()?;
        Ok(ports.try_into().expect("as many as were asked for"))
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// `host:port` on loopback.
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_port_is_its_servers_alone_also_while_that_is_down() {
        let port = Port::hold().unwrap();
        let refused = |address: &str| TcpStream::connect(address).unwrap_err().kind();
        assert_eq!(refused(&port.address()), ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            // A server that binds the port by number with SO_REUSEADDR, as the standard library does.
            let server = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            drop(server);
            // If another test starts a program at this time, its child process also has the listener, until it calls exec.
            let closed = Instant::now();
            while TcpStream::connect(port.address()).is_ok() {
                assert!(closed.elapsed() < Duration::from_secs(10), "a program still listens");
            }
            assert_eq!(refused(&port.address()), ErrorKind::ConnectionRefused);
        }
        let other = TcpSocket::new_v4().unwrap();
        let taken = other.bind(port.address().parse().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse, "without SO_REUSEADDR the bind fails");
    }

    #[test]
    fn nobody_who_asks_for_any_port_gets_one_that_is_held() {
        let ports = Port::hold_all::<8>().unwrap();
        let held: Vec<u16> = ports.iter().map(Port::number).collect();
        let others: Vec<TcpListener> = (0..500).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let got: Vec<u16> = others.iter().map(|other| other.local_addr().unwrap().port()).collect();
        assert!(got.iter().all(|port| !held.contains(port)), "{held:?} in {got:?}");
    }
}
