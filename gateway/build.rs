//! Links the program, its tests and benchmarks with the limit of what librdkafka decompresses (`kafka/src/batch_limit.c`).

fn main() {
    let wrapped = std::env::var("DEP_SLUICE_BATCH_LIMIT_WRAPPED").expect("sluice-kafka names what it wraps");
    for name in wrapped.split(',') {
        println!("cargo::rustc-link-arg=-Wl,--wrap={name}");
    }
}
