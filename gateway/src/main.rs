//! The Sluice gateway: OTLP traces from Kafka into ClickHouse
fn main() {}
