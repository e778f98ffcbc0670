//! The shared libraries of a program, as the dynamic loader of this machine finds them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::process::{command, output};

/// The libraries and the loader that a program needs, by the paths under which it looks for them; none for a static program.
pub fn of(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_static(program)? {
        return Ok(Vec::new());
    }
    let said = output(command("ldd").arg(program).env("LC_ALL", "C"))?;
    parse(&said).with_context(|| format!("libraries of {}", program.display()))
}

/// A dynamic program contains the name of its loader; a static one does not.
fn is_static(program: &Path) -> anyhow::Result<bool> {
    let said = command("ldd").arg(program).env("LC_ALL", "C").output().context("start ldd")?;
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    Ok(text.contains("not a dynamic executable") || text.contains("statically linked"))
}

/// Reads lines such as
///
/// ```text
///     linux-vdso.so.1 (0x00007ffd)                              made by the kernel, no file
///     libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0a)
///     /lib64/ld-linux-x86-64.so.2 (0x00007f0b)
///     libx.so => not found
/// ```
fn parse(text: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, found) = line.split_once(" => ").unwrap_or((line, line));
        if found.starts_with("not found") {
            bail!("{name} is not on this machine");
        }
        if let Some(path) = found.split(" (").next().filter(|path| path.starts_with('/')) {
            files.push(PathBuf::from(path));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found_and_the_kernels_page_is_not() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_missing_library_is_named() {
        assert_eq!(
            parse("\tlibx.so.1 => not found\n").unwrap_err().to_string(),
            "libx.so.1 is not on this machine"
        );
    }

    #[test]
    fn this_test_needs_the_c_library() {
        let files = of(&std::env::current_exe().unwrap()).unwrap();
        assert!(files.iter().any(|file| file.ends_with("libc.so.6")), "{files:?}");
    }
}
