//! The sockets that a server listens on.

use std::{
    io::{Error, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// Listens at an address. `0.0.0.0` and `[::]` mean all addresses of IPv6 and IPv4, or only of IPv4 if the kernel has no IPv6: then
/// `ipv4_only` gets the reason.
pub(crate) async fn listen(address: SocketAddr, ipv4_only: impl FnOnce(Error)) -> Result<TcpListener, Error> {
    if !address.ip().is_unspecified() {
        return TcpListener::bind(address).await;
    }
    let port = address.port();
    or_at_ipv4(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await, port, ipv4_only).await
}

/// Falls back to all IPv4 addresses if IPv6 is not available: no such sockets (EAFNOSUPPORT, a kernel with `ipv6.disable=1`), or no such
/// address (EADDRNOTAVAIL).
async fn or_at_ipv4(
    both: Result<TcpListener, Error>,
    port: u16,
    ipv4_only: impl FnOnce(Error),
) -> Result<TcpListener, Error> {
    match both {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
            ipv4_only(error);
            Ok(listener)
        }
        both => both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kernel_without_ipv6_is_listened_on_at_ipv4() {
        let mut told = None;
        let without = Err(ErrorKind::AddrNotAvailable.into());
        let listener = or_at_ipv4(without, 0, |error| told = Some(error.kind())).await.unwrap();
        assert!(listener.local_addr().unwrap().is_ipv4());
        assert_eq!(told, Some(ErrorKind::AddrNotAvailable));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_not_looked_for_at_ipv4() {
        let taken = Err(ErrorKind::AddrInUse.into());
        let refused = or_at_ipv4(taken, 0, |_| unreachable!("IPv6 is there")).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
