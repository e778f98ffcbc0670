//! The server in front of real clients. Its tests come with what it serves.
