//! Prints the `CustomResourceDefinition`: `cargo run -p sluice-crds > crds/tracepipelines.yaml`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().lock().write_all(sluice_crds::crd_yaml().as_bytes())
}
