//! Kafka: consumer, assignment, ledger and the settings they need
