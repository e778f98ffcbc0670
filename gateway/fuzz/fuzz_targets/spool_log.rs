//! See `sluice_gateway_fuzz::spool_log`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_gateway_fuzz::spool_log::check(bytes));
