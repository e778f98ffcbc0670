//! The server with real sockets: clients of gRPC and HTTP, and what they are answered.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod bodies;
mod certificates;
mod client;
mod connections;
mod grpc;
mod hostile;
mod http;
mod memory;
mod permits;
mod tls;
mod world;
