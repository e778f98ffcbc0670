//! Checks what compiling and the local stack need from the machine before any work begins, and reports everything missing at once. It
//! installs Debian packages. It only reports missing compilers and package managers, because users choose how to install these.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::part::PartStatus;
use crate::paths::Paths;
use crate::process::{self, Job, command, find_program};
use crate::say;
use crate::{clickhouse, helm, images, kafka, kubernetes};

/// Folders in which distributions put the CNI plugins, Debian's first.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Oldest Go that compiles Kubernetes 1.34 (its go.mod).
const GO_MINOR_MIN: u32 = 24;

/// Oldest Go that compiles the clients of OTLP (clients/go/go.mod).
const GO_MINOR_MIN_CLIENTS: u32 = 25;

/// Oldest Java that runs a Kafka 4 broker (its upgrade notes).
const JAVA_MAJOR_MIN: u32 = 17;

/// Least free disk space of the file systems of state and cache. The kubelet evicts all pods below 1 GiB (kubelet.yaml). Builds, loaded
/// images, and the data of Kafka and `ClickHouse` during the tests take 3 to 4 GiB.
const DISK_FREE_MIN: u64 = 6 << 30;

/// A Debian package, and the programs that show that it is installed.
struct Package {
    name: &'static str,
    programs: &'static [&'static str],
}

/// Packages to compile the project's programs. The headers of OpenSSL are separate, because no program comes with them: see
/// [`HEADERS_PACKAGE`].
const COMPILER_PACKAGES: [Package; 3] = [
    Package { name: "gcc", programs: &["cc"] },
    Package { name: "pkg-config", programs: &["pkg-config"] },
    Package { name: "make", programs: &["make"] },
];

/// The package of OpenSSL's headers, with which librdkafka is compiled for TLS.
const HEADERS_PACKAGE: &str = "libssl-dev";

/// Packages to compile libFuzzer.
const FUZZING_PACKAGES: [Package; 1] = [Package { name: "g++", programs: &["g++"] }];

/// Packages to count instructions.
const VALGRIND_PACKAGES: [Package; 1] = [Package { name: "valgrind", programs: &["valgrind"] }];

const PACKAGES: [Package; 7] = [
    Package { name: "containerd", programs: &["containerd", "ctr", "containerd-shim-runc-v2"] },
    Package { name: "runc", programs: &["runc"] },
    Package { name: "nftables", programs: &["nft"] },
    Package { name: "iproute2", programs: &["ip"] },
    Package { name: "openssl", programs: &["openssl"] },
    Package { name: "mount", programs: &["mount", "umount"] },
    Package { name: "util-linux", programs: &["setsid"] },
];

/// The package of the CNI plugins, which are not on any `PATH`.
const CNI_PACKAGE: &str = "containernetworking-plugins";

/// The folder with the CNI plugins, if they are installed.
pub fn cni_programs() -> Option<PathBuf> {
    let complete = |folder: &&str| CNI_PLUGINS.iter().all(|plugin| Path::new(folder).join(plugin).is_file());
    CNI_FOLDERS.into_iter().find(complete).map(PathBuf::from)
}

/// Checks that everything is there to compile the project, and to build and run the stack. Installs what is missing, or lists it. Call it
/// before a long build. The error lists everything missing: rights, tools with the part that needs them, packages with the command to
/// install them.
pub fn ensure(paths: &Paths) -> anyhow::Result<()> {
    let mut packages = compiler_missing();
    packages.extend(packages_missing());
    let mut missing = tools_missing(paths);
    if !rustix::process::geteuid().is_root() {
        missing.push(NEEDS_ROOT.into());
    }
    missing.extend(disk_missing(&paths.state));
    missing.extend(disk_missing(&paths.cache));
    // Without root the status may fail; the missing right is in the list already.
    missing.extend(crate::status().map(|parts| ports_taken(&parts)).unwrap_or_default());
    missing.dedup();
    install_or_name("the local stack cannot start on this machine", &packages, missing)
}

/// Checks that the project can be compiled, which needs no stack.
pub fn ensure_compiler() -> anyhow::Result<()> {
    install_or_name("the project cannot be compiled on this machine", &compiler_missing(), Vec::new())
}

/// Checks that fuzz targets can be compiled. rustup fetches the nightly compiler during that build.
pub fn ensure_fuzzing() -> anyhow::Result<()> {
    let rustup = find_program("rustup").is_none();
    let missing =
        rustup.then(|| "rustup: https://rustup.rs (a nightly compiler builds the fuzz targets)".to_owned());
    let what = "fuzz targets cannot be compiled on this machine";
    install_or_name(what, &missing_of(&FUZZING_PACKAGES), missing.into_iter().collect())
}

pub fn ensure_valgrind() -> anyhow::Result<()> {
    let what = "instructions cannot be counted on this machine";
    install_or_name(what, &missing_of(&VALGRIND_PACKAGES), Vec::new())
}

pub fn ensure_clients() -> anyhow::Result<()> {
    let needed = [
        ("python3", "python3: apt-get install python3 python3-pip"),
        ("npm", "npm: apt-get install npm"),
        ("node", "node 20 or newer: apt-get install nodejs if the release has it"),
        ("mvn", "mvn: apt-get install maven"),
        ("javac", "javac 17 or newer: apt-get install openjdk-17-jdk-headless"),
    ];
    let mut missing: Vec<String> = needed
        .into_iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, words)| words.to_owned())
        .collect();
    if !go_suffices(GO_MINOR_MIN_CLIENTS) {
        missing.push(format!("go 1.{GO_MINOR_MIN_CLIENTS} or newer: https://go.dev/dl"));
    }
    install_or_name("clients of OTLP cannot be made on this machine", &[], missing)
}

/// Installs packages as root on Debian and derived systems; on others, adds them to the list of what is missing.
fn install_or_name(what: &str, packages: &[&str], mut missing: Vec<String>) -> anyhow::Result<()> {
    let may_install = rustix::process::geteuid().is_root() && find_program("apt-get").is_some();
    if !packages.is_empty() && !may_install {
        missing.push(format!("packages: as root, apt-get install -y {}", packages.join(" ")));
    }
    if !missing.is_empty() {
        bail!("{what}; missing:\n  - {}", missing.join("\n  - "));
    }
    if packages.is_empty() { Ok(()) } else { install(packages) }
}

/// The packages that lack a program.
fn missing_of(packages: &[Package]) -> Vec<&'static str> {
    let incomplete =
        |package: &&Package| package.programs.iter().any(|program| find_program(program).is_none());
    packages.iter().filter(incomplete).map(|package| package.name).collect()
}

/// The packages that the compiler lacks, OpenSSL's headers among them.
fn compiler_missing() -> Vec<&'static str> {
    let mut missing = missing_of(&COMPILER_PACKAGES);
    if process::output(command("pkg-config").args(["--exists", "openssl"])).is_err() {
        missing.push(HEADERS_PACKAGE);
    }
    missing
}

const NEEDS_ROOT: &str = "root: Kubernetes needs it (containers, mounts, the pod bridge, nftables), and Kafka and ClickHouse listen on that \
     bridge; run as root (sudo -E), or use a cluster you have with --kubeconfig FILE or --kind NAME";

/// The message for too little free disk space at the (future) path `folder`. A file system that reports no size is accepted.
fn disk_missing(folder: &Path) -> Option<String> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < DISK_FREE_MIN).then(|| too_little_disk(free))
}

fn too_little_disk(free: u64) -> String {
    format!(
        "disk space: {} GiB, but only {} MiB are free; below 1 GiB Kubernetes evicts all pods \
         (`cargo clean` frees space)",
        DISK_FREE_MIN >> 30,
        free >> 20,
    )
}

/// A message for every port that another program uses while its part does not run.
fn ports_taken(parts: &[PartStatus]) -> Vec<String> {
    let down = parts.iter().filter(|part| part.pid.is_none());
    let taken = down.filter(|part| {
        // Parts without a port have no address, or the path of a socket. The pod bridge has its address once it is up.
        let bound = part.address.parse::<SocketAddr>().map(TcpListener::bind);
        bound.is_ok_and(|bound| bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse))
    });
    taken
        .map(|part| format!("{} for {}: another program listens there; stop it", part.address, part.name))
        .collect()
}

fn packages_missing() -> Vec<&'static str> {
    let mut missing = missing_of(&PACKAGES);
    if cni_programs().is_none() {
        missing.push(CNI_PACKAGE);
    }
    missing
}

/// Missing tools: the tools for parts that are not built yet, and Java, which is always needed.
fn tools_missing(paths: &Paths) -> Vec<String> {
    let has = |program: &str| find_program(program).is_some();
    let clickhouse = clickhouse::is_built(paths);
    let go = "go 1.24 or newer: https://go.dev/dl, or apt-get install golang-1.24 if the release has it";
    let go_parts = [
        ("Kubernetes", kubernetes::programs::module().is_built(paths)),
        ("helm", helm::module().is_built(paths)),
    ];
    let cc_parts =
        [("the pause image", images::pause::is_built(paths)), ("ClickHouse's launcher", clickhouse)];
    let java = "java 17 or newer: apt-get install openjdk-17-jre-headless";
    let needed = [
        (unbuilt(&go_parts), go_suffices(GO_MINOR_MIN), go),
        (Some("the Kafka broker".to_owned()), java_suffices(), java),
        (unbuilt(&[("Kafka's jars", kafka::is_built(paths))]), has("mvn"), "mvn: apt-get install maven"),
        (unbuilt(&[("ClickHouse's package", clickhouse)]), has("npm"), "npm: apt-get install npm"),
        (unbuilt(&cc_parts), has("cc"), "cc: apt-get install gcc libc6-dev"),
    ];
    let missing = needed.into_iter().filter(|(_, found, _)| !found);
    let mut missing: Vec<String> =
        missing.filter_map(|(parts, _, what)| Some(format!("{what} (for {})", parts?))).collect();
    if !cfg!(target_arch = "x86_64") {
        missing.push("an x86-64 machine (ClickHouse's package is for x86-64)".into());
    }
    missing
}

fn unbuilt(parts: &[(&str, bool)]) -> Option<String> {
    let names: Vec<_> = parts.iter().filter(|(_, built)| !built).map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn go_suffices(minor_min: u32) -> bool {
    let said = process::output(command("go").args(["env", "GOVERSION"])).unwrap_or_default();
    go_minor(&said).is_some_and(|minor| minor >= minor_min)
}

/// The 26 of "go1.26.8".
fn go_minor(version: &str) -> Option<u32> {
    let minor = version.trim().strip_prefix("go1.")?;
    minor.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn java_suffices() -> bool {
    // `java -version` prints to standard error. `--version` prints to standard output and exists since Java 9.
    let said = process::output(command("java").arg("--version")).unwrap_or_default();
    java_major(&said).is_some_and(|major| major >= JAVA_MAJOR_MIN)
}

/// The 17 of "openjdk 17.0.15 2025-04-15".
fn java_major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().nth(1)?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    let paths = Paths::from_environment()?;
    let apt = |doing: &str, arguments: &[&str]| {
        let mut apt = command("apt-get");
        // RUNLEVEL=1 keeps the packages from starting services: the stack starts its own containerd.
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        Job { part: "packages", doing, log: paths.build_log("apt-get") }.run(&mut apt)
    };
    let doing = format!("install {}", packages.join(" "));
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    if apt(&doing, &arguments).is_err() {
        process::interrupt::check()?;
        say::progress("packages", "that failed; trying again with new package lists");
        apt("fetch package lists", &["update"])?;
        apt(&doing, &arguments)?;
    }
    let all = [&PACKAGES[..], &COMPILER_PACKAGES, &FUZZING_PACKAGES, &VALGRIND_PACKAGES];
    let mut still: Vec<&str> = all.into_iter().flat_map(missing_of).collect();
    still.retain(|name| packages.contains(name));
    anyhow::ensure!(
        still.is_empty(),
        "installed, but programs of these packages are still not found: {}",
        still.join(" ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::State;

    #[test]
    fn versions_are_read_from_what_the_tools_print() {
        assert_eq!(go_minor("go1.26.8\n"), Some(26));
        assert_eq!(go_minor("go1.24rc1"), Some(24));
        assert_eq!(go_minor(""), None);
        assert_eq!(java_major("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime"), Some(17));
        assert_eq!(java_major("java 21-ea 2023-09-19"), Some(21));
        assert_eq!(java_major(""), None);
    }

    #[test]
    fn too_little_disk_is_said_with_what_is_there_and_what_is_needed() {
        let said = too_little_disk(3 << 29);
        assert!(said.starts_with("disk space: 6 GiB, but only 1536 MiB are free"), "{said}");
    }

    #[test]
    fn a_port_where_another_program_listens_is_named() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let part = |address: String, pid| PartStatus {
            name: "clickhouse",
            pid,
            address,
            state: State::Down,
            reason: None,
        };
        let address = other.local_addr().unwrap().to_string();
        let named = format!("{address} for clickhouse: another program listens there; stop it");
        assert_eq!(ports_taken(&[part(address.clone(), None)]), [named]);
        assert!(ports_taken(&[part(address.clone(), Some(1)), part(String::new(), None)]).is_empty());
        drop(other);
        assert!(ports_taken(&[part(address, None)]).is_empty());
    }

    #[test]
    fn parts_that_are_built_need_no_tool() {
        assert_eq!(unbuilt(&[("a", true), ("b", false), ("c", false)]).as_deref(), Some("b, c"));
        assert_eq!(unbuilt(&[("a", true)]), None);
    }
}
