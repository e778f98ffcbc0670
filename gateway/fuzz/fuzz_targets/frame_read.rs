//! See `sluice_gateway_fuzz::frame_read`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::frame_read::check(bytes));
