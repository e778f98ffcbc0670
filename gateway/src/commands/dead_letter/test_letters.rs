//! Volumes with dead letters, for tests.

use crate::source::{
    letters::LetterLog,
    numbers::SourceNumbers,
    opening::{self, OpenedVolume},
};
use sluice_gateway_config::GatewayConfig;
use sluice_kafka::dead_letter::{DeadLetters, Letter, LetterValue};
use sluice_otlp_server::ByteBudget;
use std::{path::Path, sync::Arc};

/// The config of a gateway whose volume is here.
pub(super) fn config(path: &Path) -> GatewayConfig {
    let config = format!(
        "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 256MiB}}, \
         source: {{otlp: {{listen: {{grpc: '127.0.0.1:0'}}}}}}, queue: {{path: {}, maxBytes: 1GiB}}, \
         sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t}}}}}}",
        path.display()
    );
    sluice_gateway_config::parse::from_yaml(&config).unwrap()
}

/// The volume of a config.
pub(super) fn opened(config: &GatewayConfig) -> OpenedVolume {
    opening::open(config, config.source.otlp.as_ref().unwrap(), 1 << 30).unwrap()
}

/// Writes a letter for the first row of each of these messages: its offset in log 1, and its span.
pub(super) fn write(config: &GatewayConfig, spans: &[(i64, &[u8])]) {
    let numbers = Arc::new(SourceNumbers::new(ByteBudget::new(1)));
    let bytes_max = config.source.otlp.as_ref().unwrap().dead_letter_bytes_max;
    let on_fatal = Arc::new(|fatal| panic!("{fatal}"));
    let store = LetterLog::new(opened(config).letters, bytes_max, "/queue", (numbers, on_fatal));
    let writer = DeadLetters::start_log(Box::new(store)).unwrap();
    for (offset, span) in spans {
        let letter = Letter {
            topic: "otlp",
            partition: 1,
            offset: *offset,
            row: Some(0),
            reason: "row_refused",
            text: "no such type",
            code: Some(53),
            timestamp_millis: None,
            key: None,
            headers: Vec::new(),
            value: LetterValue::Span(span),
        };
        let mut receipt = writer.send(&letter).unwrap();
        while receipt.try_get().is_none() {
            std::thread::yield_now();
        }
    }
}
