//! See `sluice_gateway_fuzz::frame_round_trip`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::frame_round_trip::check(bytes));
