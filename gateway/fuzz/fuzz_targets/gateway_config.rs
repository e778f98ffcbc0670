//! See `sluice_gateway_fuzz::gateway_config`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::gateway_config::check(bytes));
