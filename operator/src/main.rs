//! The Sluice operator: keeps gateways in line with TracePipelines
fn main() {}
