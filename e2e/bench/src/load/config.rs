//! The gateway's config: as the operator writes it for a pipeline with `source.otlp` and defaults, in a pod with [`LIMIT_MIB`].
//!
//! Only two things differ: the addresses, which are those of this machine, and `insert.maxInterval` in some cases. No field of a pipeline
//! sets the latter.

use std::path::Path;

use serde_json::{Value, json};

use super::case::Case;
use e2e_fixtures::gateway::{ANY_PORT, Orders};
use e2e_fixtures::pipeline::merged;

/// Memory limit of the pod, MiB: the one of the published benchmark.
pub const LIMIT_MIB: u64 = 1_000;

/// The default CPU request in whole cores; at least one.
const WORKERS: u32 = 1;

/// The default grace period of 60 s, minus the time that the operator reserves for the exit and for endpoints.
const SHUTDOWN: &str = "45s";

pub fn config(case: &Case, sink: &str, database: &str, queue: &Path) -> Value {
    let setting = &case.setting;
    // The operator leaves maxBytes out, which means 95 % of the volume; here the volume is a folder of this machine's disk.
    let queue_mib = setting.volume_mib - setting.volume_mib / 20;
    let insert = setting.flush.map_or_else(|| json!({}), |age| json!({"maxInterval": age}));
    let orders = Orders { broker: "", topic: "", group: "", sink, database };
    let change = json!({
        "pipeline": {"name": "load"},
        "source": {"kafka": null, "otlp": {"listen": {"grpc": ANY_PORT, "http": ANY_PORT}}},
        "sink": {"clickhouse": {"insert": insert}},
        "queue": {"mode": "Spill", "path": queue, "maxBytes": format!("{queue_mib}MiB")},
        "workers": WORKERS,
        "memory": {"limit": format!("{LIMIT_MIB}MiB")},
        "shutdown": {"deadline": SHUTDOWN},
    });
    merged(&orders.config(), &change)
}

#[cfg(test)]
mod tests {
    use sluice_gateway_config::{ByteSize, CheckedConfig, Duration, parse::from_yaml};

    use super::*;

    fn checked(case: &Case) -> CheckedConfig {
        let config = config(case, "http://127.0.0.1:1", "load", Path::new("/queue"));
        from_yaml(&config.to_string()).unwrap().check().unwrap()
    }

    #[test]
    fn every_case_has_a_config_that_gateways_accept() {
        for case in Case::all() {
            let checked = checked(&case);
            assert_eq!(checked.budget().limit, ByteSize::mib(LIMIT_MIB), "{}", case.name());
            assert_eq!(checked.config().logs(), WORKERS);
        }
    }

    #[test]
    fn cases_differ_in_what_they_are_about() {
        let of = |name: &str| checked(&Case::all().into_iter().find(|case| case.name() == name).unwrap());
        let age = |name| of(name).config().sink.clickhouse.insert.max_interval;
        assert_eq!((age("heavy"), age("light-100ms")), (Duration::secs(1), Duration::millis(100)));
        let bytes = |name| of(name).config().queue.max_bytes.unwrap();
        assert_eq!((bytes("light"), bytes("heavy-small-volume")), (ByteSize::mib(9_728), ByteSize::mib(487)));
    }
}
