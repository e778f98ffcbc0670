//! Compiles the C files between this program and librdkafka, and links this package's own tests with them: `src/batch_limit.c` limits the
//! memory of a batch; `src/batch_zstd.c` compresses batches in contexts that are kept; `src/foreign_text.c` converts bytes of other
//! programs to text; `src/own_fence.c` changes requests of a member without an id; `src/steady_wait.c` protects waits from jumps of the
//! machine's clock. They copy signatures and layouts of librdkafka, which `src/librdkafka_layouts.c` compares with its headers.
//! `src/producer_id.c` replaces nothing: it reads librdkafka's state, and is compiled with its headers.

/// Functions of librdkafka, and one that it calls, that these files replace. The packages that link a program ask for this list.
const WRAPPED: [&str; 17] = [
    "rd_gz_decompress",
    "rd_kafka_lz4_decompress",
    "rd_kafka_zstd_decompress",
    "rd_kafka_snappy_uncompressed_length",
    "rd_kafka_snappy_java_uncompress",
    "rd_kafka_msgset_parse",
    "rd_kafka_q_init0",
    "rd_slice_narrow_relative",
    "rd_kafka_consumer_err",
    "rd_kafka_conf_set",
    "rd_kafka_conf_get",
    "rd_kafka_committed",
    "rd_kafka_header_get_all",
    "rd_kafka_HeartbeatRequest",
    "rd_kafka_OffsetCommitRequest",
    "cnd_timedwait",
    "rd_kafka_zstd_compress",
];

fn main() {
    println!("cargo::rerun-if-changed=src/batch_limit.c");
    println!("cargo::rerun-if-changed=src/batch_zstd.c");
    println!("cargo::rerun-if-changed=src/foreign_text.c");
    println!("cargo::rerun-if-changed=src/own_fence.c");
    println!("cargo::rerun-if-changed=src/steady_wait.c");
    // As a whole archive: no code refers to it before the linker wraps, and then the archive is no longer searched.
    cc::Build::new()
        .file("src/batch_limit.c")
        .file("src/batch_zstd.c")
        .file("src/foreign_text.c")
        .file("src/own_fence.c")
        .file("src/steady_wait.c")
        .std("c11")
        .warnings_into_errors(true)
        .link_lib_modifier("+whole-archive")
        .compile("sluice_batch_limit");
    compare_layouts();
    compile_producer_id();
    for name in WRAPPED {
        println!("cargo::rustc-link-arg=-Wl,--wrap={name}");
    }
    // For the packages that link a program of it (Cargo gives them this as DEP_SLUICE_BATCH_LIMIT_WRAPPED).
    println!("cargo::metadata=wrapped={}", WRAPPED.join(","));
}

/// Fails to compile if librdkafka's signatures or layouts are not what the C files copy.
fn compare_layouts() {
    println!("cargo::rerun-if-changed=src/librdkafka_layouts.c");
    // Nothing of the result is linked.
    with_headers_of_librdkafka()
        .file("src/librdkafka_layouts.c")
        .cargo_metadata(false)
        .compile("sluice_librdkafka_layouts");
}

fn compile_producer_id() {
    println!("cargo::rerun-if-changed=src/producer_id.c");
    with_headers_of_librdkafka().file("src/producer_id.c").compile("sluice_producer_id");
}

/// For files that include librdkafka's own headers, which have warnings of their own.
fn with_headers_of_librdkafka() -> cc::Build {
    let root =
        std::env::var("DEP_RDKAFKA_ROOT").expect("rdkafka-sys names the folder that it built librdkafka in");
    let mut build = cc::Build::new();
    build.include(std::path::Path::new(&root).join("src")).std("gnu11").warnings(false);
    build
}
