//! The node's network: the pod bridge with the node's address, a route to Services, masquerading, and the kernel settings that this file
//! and the kubelet change. The old settings are saved first, so that [`remove`] can restore them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{BRIDGE, NODE_ADDRESS, POD_CIDR, SERVICE_CIDR, rendered};
use crate::paths::put;
use crate::process::{command, output};

/// Kernel settings that the kubelet or this file change.
const SETTINGS: [&str; 8] = [
    "net/ipv4/ip_forward",
    BRIDGE_FILTER,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Packets between pods of one bridge pass the firewall rules. Otherwise the answer of a pod behind a Service is not translated back.
const BRIDGE_FILTER: &str = "net/bridge/bridge-nf-call-iptables";

pub(super) const MASQUERADE: &str = include_str!("../../kubernetes/masquerade.nft");

/// nftables tables of kube-proxy and of ours.
const TABLES: [[&str; 2]; 3] = [["ip", "kube-proxy"], ["ip6", "kube-proxy"], ["ip", BRIDGE]];

/// Makes what is missing of bridge, route, rules and settings.
pub fn ensure(state: &Path) -> anyhow::Result<()> {
    if !setting(BRIDGE_FILTER).exists() {
        // If it is built into the kernel or absent, there is nothing to load; the next step fails if it is absent.
        output(command("modprobe").arg("br_netfilter")).ok();
    }
    save_settings(state)?;
    if !bridge_exists() {
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    }
    ip(&["link", "set", BRIDGE, "up"])?;
    if !output(command("ip").args(["address", "show", "dev", BRIDGE]))?
        .contains(&format!("inet {NODE_ADDRESS}/"))
    {
        let mask = POD_CIDR.split_once('/').map_or("24", |(_, mask)| mask);
        ip(&["address", "add", &format!("{NODE_ADDRESS}/{mask}"), "dev", BRIDGE])?;
    }
    // Service addresses need a route. Without one, the host's own connections to them fail before kube-proxy's rules see them, and a
    // machine may have no default route.
    ip(&["route", "replace", SERVICE_CIDR, "dev", BRIDGE])?;
    write_setting("net/ipv4/ip_forward", "1")?;
    if setting(BRIDGE_FILTER).exists() {
        write_setting(BRIDGE_FILTER, "1")?;
    }
    let rules = state.join("masquerade.nft");
    put(&rules, &rendered(MASQUERADE, state))?;
    delete_table(TABLES[2]);
    output(command("nft").arg("-f").arg(&rules)).map(drop).context("load the masquerade rules")
}

/// Removes bridge and rules, and restores the kernel settings. It may run after a crash, and more than once.
pub fn remove(state: &Path) -> anyhow::Result<()> {
    for table in TABLES {
        delete_table(table);
    }
    if bridge_exists() {
        ip(&["link", "delete", BRIDGE])?;
    }
    restore_settings(state)
}

fn bridge_exists() -> bool {
    Path::new("/sys/class/net").join(BRIDGE).exists()
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    output(command("ip").args(arguments)).map(drop).context("set up the pod bridge")
}

fn delete_table([family, name]: [&str; 2]) {
    // Usually the table is absent; and without nft there is no table.
    output(command("nft").args(["delete", "table", family, name])).ok();
}

fn setting(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

fn write_setting(name: &str, value: &str) -> anyhow::Result<()> {
    fs::write(setting(name), value).with_context(|| format!("set {name} to {value}"))
}

fn saved(state: &Path) -> PathBuf {
    state.join("kernel-settings.saved")
}

fn save_settings(state: &Path) -> anyhow::Result<()> {
    // An earlier `up` saved the machine's own settings; the current ones may be ours.
    if saved(state).exists() {
        return Ok(());
    }
    let line = |name: &&str| {
        fs::read_to_string(setting(name)).ok().map(|value| format!("{name} {}\n", value.trim()))
    };
    let lines: String = SETTINGS.iter().filter_map(line).collect();
    put(&saved(state), &lines).map(drop)
}

fn restore_settings(state: &Path) -> anyhow::Result<()> {
    let Ok(lines) = fs::read_to_string(saved(state)) else { return Ok(()) };
    for (name, value) in lines.lines().filter_map(|line| line.split_once(' ')) {
        // The setting is gone if its module was unloaded.
        if setting(name).exists() {
            write_setting(name, value)?;
        }
    }
    fs::remove_file(saved(state)).with_context(|| format!("remove {}", saved(state).display()))
}
