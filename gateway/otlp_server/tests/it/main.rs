//! The server with real sockets: clients of gRPC and HTTP, and what they are answered.
