//! A walk over OTLP trace messages on the wire, without materialising them
