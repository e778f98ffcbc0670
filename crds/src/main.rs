//! Prints the `CustomResourceDefinition` of `TracePipeline`, with `connections` that of `TraceConnection`, or with `reference` the reference
//! of their fields: `cargo run -p sluice-crds > crds/tracepipelines.yaml`, `cargo run -p sluice-crds connections >
//! crds/traceconnections.yaml`, `cargo run -p sluice-crds reference > crds/REFERENCE.md`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let text = match std::env::args().nth(1).as_deref() {
        Some("connections") => sluice_crds::connection_crd_yaml(),
        Some("reference") => sluice_crds::reference_markdown(),
        _ => sluice_crds::crd_yaml(),
    };
    std::io::stdout().lock().write_all(text.as_bytes())
}
