//! See `sluice_gateway_fuzz::rowbinary_skip`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::rowbinary_skip::check(bytes));
