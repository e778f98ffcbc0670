//! Drives everything from outside: demo, verify, the local stack, end-to-end tests
fn main() {}
