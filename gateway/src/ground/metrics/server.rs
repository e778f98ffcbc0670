//! What the OTLP server counts, of the edge and of a gateway with `source.otlp`. Each scrape copies it.

use super::Maker;
use prometheus::{IntCounter, IntCounterVec, IntGauge};
use sluice_otlp_server::{ConnectionEnd, Counters, Outcome, Protocol};

/// What the OTLP server counts: also requests whose body was never read.
#[derive(Debug, Clone)]
pub struct ServerMetrics {
    /// Answers of the server, by protocol and outcome.
    answers: IntCounterVec,
    /// Bytes of bodies as received.
    received: IntCounterVec,
    /// The same decompressed.
    decompressed: IntCounterVec,
    connections: IntGauge,
    connections_ended: IntCounterVec,
    files_reloaded: IntCounter,
    files_failed: IntCounter,
}

impl ServerMetrics {
    pub(crate) fn new(make: &Maker) -> Self {
        let files = make.counters(
            "server_files_total",
            "Times that changed files of certificates or credentials were read, by result.",
            &["result"],
        );
        Self {
            answers: make.counters(
                "server_answers_total",
                "Requests that the OTLP server has answered, by outcome.",
                &["protocol", "outcome"],
            ),
            received: make.counters(
                "server_received_bytes_total",
                "Bytes of bodies, as received.",
                &["protocol"],
            ),
            decompressed: make.counters(
                "server_decompressed_bytes_total",
                "Bytes of bodies, decompressed.",
                &["protocol"],
            ),
            connections: make.gauge("server_connections", "Connections that are open."),
            connections_ended: make.counters(
                "server_connections_ended_total",
                "Connections that have ended, by reason.",
                &["reason"],
            ),
            files_reloaded: files.with_label_values(&["reloaded"]),
            files_failed: files.with_label_values(&["failed"]),
        }
    }

    /// Raises the counters to those of the server, one scrape at a time.
    pub fn show(&self, counters: &Counters) {
        for protocol in Protocol::ALL {
            let label = protocol.label();
            for outcome in Outcome::ALL {
                let answers = self.answers.with_label_values(&[label, outcome.label()]);
                catch_up(&answers, counters.requests(protocol, outcome));
            }
            catch_up(&self.received.with_label_values(&[label]), counters.received_bytes(protocol));
            catch_up(&self.decompressed.with_label_values(&[label]), counters.decompressed_bytes(protocol));
        }
        for end in ConnectionEnd::ALL {
            let ended = self.connections_ended.with_label_values(&[end.label()]);
            catch_up(&ended, counters.connection_ends(end));
        }
        self.connections.set(i64::try_from(counters.connections_open()).unwrap_or(i64::MAX));
        catch_up(&self.files_reloaded, counters.files_reloaded());
        catch_up(&self.files_failed, counters.files_failed());
    }
}

/// Raises a counter to a sum that is kept elsewhere.
fn catch_up(counter: &IntCounter, sum: u64) {
    counter.inc_by(sum.saturating_sub(counter.get()));
}
