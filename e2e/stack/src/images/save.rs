//! `cargo run -p e2e-verify -- images`: writes the images as files in the docker-archive format, which `kind load image-archive`,
//! `ctr images import`, `docker load` and `skopeo copy docker-archive:` read.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use super::{Programs, build_image};
use crate::paths::create_folder;
use crate::process::interrupt;
use crate::programs::Form;
use crate::say;

#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ImagesArgs {
    /// Folder for operator.tar and gateway.tar; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    output: PathBuf,

    /// The programs in the images.
    #[command(flatten)]
    programs: ProgramArgs,
}

/// The programs for the images, if they are not compiled here.
#[derive(Args, Clone, Debug)]
pub struct ProgramArgs {
    /// Operator program; default: compiled from this checkout
    #[arg(long, value_name = "FILE", requires = "gateway")]
    pub operator: Option<PathBuf>,

    /// Gateway program; default: compiled from this checkout
    #[arg(long, value_name = "FILE", requires = "operator")]
    pub gateway: Option<PathBuf>,
}

impl ProgramArgs {
    /// The programs, compiled if none are named.
    pub fn programs(&self) -> Result<Programs> {
        match (&self.operator, &self.gateway) {
            (Some(operator), Some(gateway)) => {
                Ok(Programs { operator: operator.clone(), gateway: gateway.clone() })
            }
            _ => Programs::compiled(Form::Release),
        }
    }
}

const AFTER_HELP: &str = "\
Needs no container engine. An image contains the program, its shared libraries from this machine, and the CA
certificates that this machine trusts, as `docker build` with the Dockerfiles does on Debian 12. Its tag is a hash of
its contents. For kind: kind load image-archive FOLDER/operator.tar, and the same with gateway.tar.";

/// Builds the images, and prints their references and files.
pub fn run(args: &ImagesArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let programs = args.programs.programs()?;
    create_folder(&args.output)?;
    for (name, program) in [("operator", &programs.operator), ("gateway", &programs.gateway)] {
        let image = build_image(name, program)?;
        let file = args.output.join(format!("{name}.tar"));
        fs::copy(&image.archive, &file).with_context(|| format!("write {}", file.display()))?;
        say::line(&format!("{}  {}", image.reference, file.display()));
    }
    Ok(ExitCode::SUCCESS)
}
