//! The rules of `sink.clickhouse`.

use super::{host, in_range, is_host_and_port};
use crate::{
    ByteSize, Duration, durability, gateway_config::ClickHouse, insert_settings, violation::Violations,
};
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// Maximum number of shards. Chosen: each has its own inserts, whose memory is reserved at the start.
const SHARDS_MAX: usize = 64;

/// Checks every rule.
pub(super) fn check(clickhouse: &ClickHouse, found: &mut Violations) {
    let at = |field: &str| format!("sink.clickhouse.{field}");
    check_endpoints(clickhouse, found);
    check_tls(clickhouse, found);
    clickhouse.schema.check(&at("schema"), found);
    durability::check(clickhouse, "sink.clickhouse", found);
    for (field, name) in [("database", &clickhouse.database), ("table", &clickhouse.table)] {
        found.add_if(!is_identifier(name), &at(field), || {
            format!("{name:?} is not a name: 1 to 128 of a-z, A-Z, 0-9, '_', '-' and '.'")
        });
    }
    if let Some(credentials) = &clickhouse.credentials {
        credentials.check(&at("credentials"), found);
    }
    check_insert(clickhouse, found);
}

fn check_endpoints(clickhouse: &ClickHouse, found: &mut Violations) {
    let (at, at_shards) = ("sink.clickhouse.endpoints", "sink.clickhouse.shards");
    let has_shards = !clickhouse.shards.is_empty();
    found.add_if(clickhouse.endpoints.is_empty() && !has_shards, at, || "at least one endpoint".into());
    found.add_if(!clickhouse.endpoints.is_empty() && has_shards, at_shards, || {
        "is set together with endpoints, which are those of a single shard: remove one of them".into()
    });
    found.add_if(clickhouse.shards.len() > SHARDS_MAX, at_shards, || format!("at most {SHARDS_MAX} shards"));
    for (number, shard) in clickhouse.shards.iter().enumerate() {
        found.add_if(shard.is_empty(), &format!("{at_shards}[{number}]"), || "at least one endpoint".into());
    }
    let at = if has_shards { at_shards } else { at };
    let mut spelt = BTreeSet::new();
    for shard in clickhouse.shards() {
        let mut addresses = BTreeMap::new();
        for endpoint in shard {
            found.add_if(!is_url(endpoint), at, || {
                format!(
                    "{endpoint:?} is not http://host:port or https://host:port, such as http://clickhouse:8123"
                )
            });
            let is_elsewhere = !spelt.insert(endpoint);
            let first = addresses.insert(address(endpoint), endpoint);
            if let Some(first) = first.or(is_elsewhere.then_some(endpoint)) {
                found.add(at, twice(first, endpoint, has_shards));
            }
        }
    }
}

/// The endpoints of one list without later spellings of the same address: a server is one replica, however often it is listed.
pub fn each_once(endpoints: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    endpoints.iter().filter(|endpoint| seen.insert(address(endpoint))).cloned().collect()
}

/// The endpoints that [`each_once`] leaves out, each behind the one that it keeps.
pub fn left_out(endpoints: &[String]) -> Vec<(&str, &str)> {
    let (mut kept, mut left_out) = (BTreeMap::<String, &str>::new(), Vec::new());
    for endpoint in endpoints {
        match kept.entry(address(endpoint)) {
            Entry::Occupied(kept) => left_out.push((*kept.get(), endpoint.as_str())),
            Entry::Vacant(entry) => {
                entry.insert(endpoint);
            }
        }
    }
    left_out
}

/// A server that stands in two shards, spelt differently: rows that are to be spread over two servers go to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedServer<'a> {
    /// The first shard with it, by its position from 0, and how it is spelt there.
    pub first: (usize, &'a str),
    /// A later shard, likewise.
    pub other: (usize, &'a str),
}

impl SharedServer<'_> {
    /// What is wrong with the later shard.
    pub fn words(&self) -> String {
        let ((number, first), (_, other)) = (self.first, self.other);
        format!("{other:?} and {first:?} of shards[{number}] are one address, so two shards share one server")
    }
}

/// The servers that stand in several shards in different spellings. [`GatewayConfig::check`] refuses only the same text in two shards: earlier
/// versions took other spellings, and what runs with them must start again.
///
/// [`GatewayConfig::check`]: crate::GatewayConfig::check
pub fn in_two_shards<'a>(shards: impl IntoIterator<Item = &'a [String]>) -> Vec<SharedServer<'a>> {
    // By address: the first shard with it, how it is spelt there, and the last shard with it.
    let (mut seen, mut found) = (BTreeMap::<String, (usize, &str, usize)>::new(), Vec::new());
    for (number, shard) in shards.into_iter().enumerate() {
        for endpoint in shard {
            let endpoint = endpoint.as_str();
            let (first, spelt, last) = seen.entry(address(endpoint)).or_insert((number, endpoint, number));
            if *last != number && *spelt != endpoint {
                found.push(SharedServer { first: (*first, *spelt), other: (number, endpoint) });
            }
            *last = number;
        }
    }
    found
}

/// Whether both are one address.
pub fn is_same_address(one: &str, other: &str) -> bool {
    one == other || address(one) == address(other)
}

/// What an endpoint connects to, however that is spelt: a slash at the end is no path, and a port is a number.
fn address(endpoint: &str) -> String {
    let text = endpoint.trim_end_matches('/').to_ascii_lowercase();
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text.as_str()));
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
    match port.parse::<u16>() {
        Ok(port) => format!("{scheme}://{}:{port}", host::canonical(host)),
        Err(_) => text,
    }
}

/// A server that is listed twice would count as two replicas, and the gateway would promise less than it keeps.
fn twice(first: &str, endpoint: &str, has_shards: bool) -> String {
    let what = if first == endpoint {
        format!("{endpoint:?} is listed twice")
    } else {
        format!("{first:?} and {endpoint:?} are one address")
    };
    let rule = if has_shards { "list each server in one shard" } else { "list each server" };
    format!("{what}: {rule}, and once")
}

/// One scheme for all: otherwise a replica without TLS would get the password in clear text.
fn check_tls(clickhouse: &ClickHouse, found: &mut Violations) {
    let is_https = |endpoint: &String| endpoint.starts_with("https://");
    let all: Vec<&String> = clickhouse.shards().into_iter().flatten().collect();
    let (some, all) = (all.iter().any(|e| is_https(e)), all.iter().all(|e| is_https(e)));
    let has_shards = !clickhouse.shards.is_empty();
    let at = if has_shards { "sink.clickhouse.shards" } else { "sink.clickhouse.endpoints" };
    found.add_if(some && !all, at, || "some are https and some are http: use one scheme for all".into());
    let Some(tls) = &clickhouse.tls else { return };
    found.add_if(!some, "sink.clickhouse.tls", || {
        "is set, but the endpoints are http: write them as https://host:port, or leave tls out".into()
    });
    tls.check("sink.clickhouse.tls", found);
}

fn check_insert(clickhouse: &ClickHouse, found: &mut Violations) {
    let insert = &clickhouse.insert;
    let at = |field: &str| format!("sink.clickhouse.insert.{field}");
    in_range(found, &at("maxRows"), insert.max_rows, 1, 1_000_000);
    in_range(found, &at("maxBytes"), insert.max_bytes, ByteSize::kib(64), ByteSize::mib(16));
    in_range(found, &at("maxInterval"), insert.max_interval, Duration::millis(50), Duration::secs(300));
    in_range(found, &at("timeout"), insert.timeout, Duration::secs(2), Duration::secs(600));
    in_range(found, &at("concurrency"), insert.concurrency, 1, 64);
    insert_settings::check(&insert.settings, &at("settings"), found);
}

fn is_url(endpoint: &str) -> bool {
    let address = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    address.map(|rest| rest.trim_end_matches('/')).is_some_and(is_host_and_port)
}

/// ClickHouse accepts any text in backticks; usual table names are enough here, and need no escaping.
fn is_identifier(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=128).contains(&text.len()) && text.bytes().all(legal)
}
