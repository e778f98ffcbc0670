//! See `sluice_gateway_fuzz::otlp_split`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::otlp_split::check(bytes));
