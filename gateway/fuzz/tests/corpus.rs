//! Every input that is checked in keeps the promises of its targets, also when the stable compiler has built them.

use std::fs;
use std::path::Path;

use sluice_gateway_fuzz as fuzz;

/// A target, and the folder of its inputs.
type Target = (fn(&[u8]), &'static str);

const TARGETS: [Target; 11] = [
    (fuzz::otlp_walk::check, "otlp"),
    (fuzz::otlp_json::check, "otlp_json"),
    (fuzz::otlp_framing::check, "otlp_framing"),
    (fuzz::otlp_rows::check, "otlp"),
    (fuzz::otlp_split::check, "otlp"),
    (fuzz::frame_read::check, "frame_read"),
    (fuzz::frame_round_trip::check, "frame_round_trip"),
    (fuzz::native_block::check, "native_block"),
    (fuzz::rowbinary_skip::check, "rowbinary_skip"),
    (fuzz::spool_log::check, "spool_log"),
    (fuzz::gateway_config::check, "gateway_config"),
];

#[test]
fn every_input_that_is_checked_in_keeps_the_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (check, folder) in TARGETS {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            let file = entry.unwrap().path();
            let bytes = fs::read(&file).unwrap();
            // Named before it is read: what panics says which input it was.
            println!("{}", file.display());
            check(&bytes);
            inputs += 1;
        }
        assert!(inputs > 0, "no input in {folder}");
    }
}

#[test]
fn every_target_is_replayed() {
    let programs = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets")).unwrap();
    assert_eq!(programs.count(), TARGETS.len());
}
