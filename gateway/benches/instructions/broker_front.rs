//! In front of librdkafka's mock cluster: makes its one broker the controller.
//!
//! Job: the mock names broker 0 as controller and has none of this id, so that no client finds the controller and the gateway's
//! `DescribeTopics` waits for ever. This front forwards each byte, except in short answers that name the broker's address: there it
//! puts its own port and, in `Metadata`, the broker's id as controller. Owner: two threads per connection, which are not counted.
//!
//! | answer | bytes from the address on |
//! | --- | --- |
//! | `Metadata`, from version 9 | host, port (4), rack (1: none), tags (1: none), length of the cluster's id + 1 (1), id, controller (4) |
//! | `FindCoordinator` | host, port (4), at most tags (1) |
//!
//! Source: Kafka's protocol guide. Numbers are big-endian.

use anyhow::{Context as _, Result};
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
};

/// The host of every mock.
const HOST: &[u8] = b"127.0.0.1";

/// The id of a mock cluster's only broker.
const BROKER: i32 = 1;

/// Longer answers name no address: `Metadata` of eight partitions has 400 bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Listens on a free port of this machine, and forwards to the mock. Ends with the process.
pub fn start(mock: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen on a free port for the front")?;
    let address = listener.local_addr().context("ask for the front's port")?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // If the mock takes no connection, the client's is closed, and the gateway logs that.
            forward(client, mock, address.port()).ok();
        }
    });
    Ok(address)
}

fn forward(client: TcpStream, mock: SocketAddr, port: u16) -> io::Result<()> {
    let broker = TcpStream::connect(mock)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let (mut requests, mut requests_out) = (client.try_clone()?, broker.try_clone()?);
    std::thread::spawn(move || {
        io::copy(&mut requests, &mut requests_out).ok();
        requests_out.shutdown(Shutdown::Both).ok();
    });
    std::thread::spawn(move || {
        answers(&broker, &client, mock.port(), port).ok();
        client.shutdown(Shutdown::Both).ok();
    });
    Ok(())
}

/// Forwards answers, each 4 bytes of length and this many bytes, until one side closes.
fn answers(mut broker: &TcpStream, mut client: &TcpStream, from: u16, to: u16) -> io::Result<()> {
    let mut answer = Vec::new();
    loop {
        let mut length = [0; 4];
        broker.read_exact(&mut length)?;
        answer.clear();
        answer.extend_from_slice(&length);
        broker.take(u32::from_be_bytes(length).into()).read_to_end(&mut answer)?;
        if answer.len() <= ANSWER_BYTES_MAX {
            change(&mut answer, from, to);
        }
        client.write_all(&answer)?;
    }
}

fn change(answer: &mut [u8], from: u16, to: u16) {
    let address = [HOST, &u32::from(from).to_be_bytes()].concat();
    let Some(at) = answer.windows(address.len()).position(|bytes| bytes == address) else { return };
    let (port, behind) = answer[at + HOST.len()..].split_at_mut(4);
    port.copy_from_slice(&u32::from(to).to_be_bytes());
    if let [0, 0, id_length, behind @ ..] = behind {
        let controller = usize::from(*id_length).saturating_sub(1);
        if let Some(controller) = behind.get_mut(controller..controller + 4) {
            controller.copy_from_slice(&BROKER.to_be_bytes());
        }
    }
}
