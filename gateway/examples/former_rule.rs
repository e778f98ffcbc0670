//! The gateway with the size rule of one version ago: what `cargo faults --only rule-versions` runs beside the program, as while an upgrade is
//! rolled out. It knows `run --config FILE`; everything but the rule is the program's own, which has no way to make ranges by another rule.

use clap::Parser as _;
use sluice_gateway::{
    app,
    args::{Arguments, Command},
};
use sluice_gateway_config::parse;
use sluice_ranges::Version;

// The program's: the budget of a config is reckoned for it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> anyhow::Result<()> {
    openssl_sys::init();
    let Command::Run(file) = Arguments::parse().command else { anyhow::bail!("it only runs") };
    let config = parse::read(&file.config)?.check()?;
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    app::run(&config, Version::After)
}
