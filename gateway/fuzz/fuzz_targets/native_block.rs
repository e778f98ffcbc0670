//! See `sluice_gateway_fuzz::native_block`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::native_block::check(bytes));
