//! Parses YAML text to a [`GatewayConfig`], with the paths of wrong fields.

mod findings;

use crate::{CONTRACT_VERSION, Commit, EdgeConfig, GatewayConfig, violation::Violations};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _};
use std::path::Path;

/// Maximum size of a config: 1 MiB is the limit of a ConfigMap.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Why a config could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("cannot read the config {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// The file is too large to be a config.
    #[error("the config {path} has {bytes} bytes; the maximum is {CONFIG_BYTES_MAX}")]
    TooLarge { path: String, bytes: u64 },
    /// Fields are unknown, missing or of the wrong type; violations of rules are included.
    #[error("{0}")]
    Fields(Violations),
    /// The text is not YAML, or is not a config at all.
    #[error("{path}: {message}")]
    Field { path: String, message: String },
    /// The config has a contract version that this program does not know.
    #[error(
        "contractVersion: this {program} reads version {CONTRACT_VERSION}, the config has version {found}"
    )]
    ContractVersion { program: &'static str, found: u32 },
    /// The text of a file is not the config that is read.
    #[error("the config {file} cannot be used:\n{error}")]
    Text { file: String, error: Box<Self> },
}

/// Reads and parses a file.
pub fn read(path: &Path) -> Result<GatewayConfig, Error> {
    from_yaml(&read_text(path)?).map_err(|error| of_file(path, error))
}

/// Reads and parses the config of an edge.
pub fn read_edge(path: &Path) -> Result<EdgeConfig, Error> {
    edge_from_yaml(&read_text(path)?).map_err(|error| of_file(path, error))
}

/// An error in the text of a file.
fn of_file(path: &Path, error: Error) -> Error {
    Error::Text { file: path.display().to_string(), error: Box::new(error) }
}

fn read_text(path: &Path) -> Result<String, Error> {
    let named = || path.display().to_string();
    let bytes = std::fs::metadata(path).map_err(|source| Error::Read { path: named(), source })?.len();
    if bytes > CONFIG_BYTES_MAX {
        return Err(Error::TooLarge { path: named(), bytes });
    }
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: named(), source })
}

/// Parses YAML.
///
/// The version is checked first: a config of another version is then reported as such, and not because of an unknown field.
pub fn from_yaml(text: &str) -> Result<GatewayConfig, Error> {
    check_version(text, "gateway")?;
    typed(text).map_err(|first| match findings::findings(text, &first) {
        Some(found) => Error::Fields(found),
        None => first.into_error(),
    })
}

/// Parses the YAML of an edge; the version is checked first here as well. Of fields that are wrong, the first is named.
pub fn edge_from_yaml(text: &str) -> Result<EdgeConfig, Error> {
    check_version(text, "edge")?;
    typed(text).map_err(Wrong::into_error)
}

fn check_version(text: &str, program: &'static str) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        contract_version: u32,
    }
    let Version { contract_version: found } = typed(text).map_err(Wrong::into_error)?;
    if found == CONTRACT_VERSION { Ok(()) } else { Err(Error::ContractVersion { program, found }) }
}

/// The commit mode of a config, whatever its other content and contract version: the field has had this place in every version.
pub fn commit(text: &str) -> Result<Commit, Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        #[expect(dead_code, reason = "a text without it is no config")]
        contract_version: u32,
        delivery: Option<Delivery>,
    }
    #[derive(serde::Deserialize)]
    struct Delivery {
        commit: Option<Commit>,
    }
    let config: Config = typed(text).map_err(Wrong::into_error)?;
    Ok(config.delivery.and_then(|delivery| delivery.commit).unwrap_or_default())
}

/// The ClickHouse servers of a config, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub struct Servers {
    /// The servers of a single shard; empty where there are shards.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// The servers of each shard.
    #[serde(default)]
    pub shards: Vec<Vec<String>>,
}

/// The servers of a config, whatever its other content and contract version: the fields have had this place in every version.
pub fn servers(text: &str) -> Result<Servers, Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        #[expect(dead_code, reason = "a text without it is no config")]
        contract_version: u32,
        sink: Sink,
    }
    #[derive(serde::Deserialize)]
    struct Sink {
        clickhouse: Servers,
    }
    let config: Config = typed(text).map_err(Wrong::into_error)?;
    Ok(config.sink.clickhouse)
}

/// The error at which reading ended.
struct Wrong {
    /// The field, if there is one.
    path: Option<serde_path_to_error::Path>,
    /// What was expected, with line and column.
    message: String,
    /// The message without line and column.
    plain: String,
}

impl Wrong {
    /// The field, `.` for the document itself.
    fn at(&self) -> String {
        self.path.as_ref().map_or_else(|| ".".to_owned(), ToString::to_string)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.plain == other.plain && self.at() == other.at()
    }

    fn into_error(self) -> Error {
        Error::Field { path: self.at(), message: self.message }
    }
}

fn typed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut path = None;
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |de| {
        serde_path_to_error::deserialize(de).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    })
    .map_err(|error| {
        let plain = DefaultMessageFormatter.format_message(error.without_snippet()).into_owned();
        Wrong { path, message: error.to_string(), plain }
    })
}

/// Writes a config as YAML; reading it gives an equal config.
///
/// # Panics
/// Never: every field serialises.
pub fn to_yaml(config: &GatewayConfig) -> String {
    serde_saphyr::to_string(config).expect("a config is plain strings and numbers, which always serialise")
}

/// Writes the config of an edge as YAML; reading it gives an equal config.
///
/// # Panics
/// Never: every field serialises.
pub fn edge_to_yaml(config: &EdgeConfig) -> String {
    serde_saphyr::to_string(config).expect("a config is plain strings and numbers, which always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, fixtures::SMALLEST};

    #[test]
    fn the_smallest_config_is_read_and_round_trips() {
        let config = from_yaml(SMALLEST).unwrap();
        assert_eq!(config.sink.clickhouse.insert.max_rows, 100_000);
        assert_eq!(from_yaml(&to_yaml(&config)).unwrap(), config);
    }

    #[test]
    fn a_layout_is_named_and_left_out_when_it_is_the_usual_one() {
        let mut config = from_yaml(SMALLEST).unwrap();
        assert_eq!(config.sink.clickhouse.schema.layout, None);
        assert!(!to_yaml(&config).contains("layout"), "a gateway that knows no layouts can read it");
        config.sink.clickhouse.schema.layout = Some(Layout::Nested);
        let text = to_yaml(&config);
        assert!(text.contains("layout: Nested"), "{text}");
        assert_eq!(from_yaml(&text).unwrap(), config);
        let error = from_yaml(&text.replace("Nested", "Columns")).unwrap_err().to_string();
        assert!(error.starts_with("sink.clickhouse.schema.layout"), "{error}");
    }

    #[test]
    fn an_unknown_field_is_named_with_its_path_and_what_was_expected() {
        let text = SMALLEST.replace("topics:", "topic:");
        let error = from_yaml(&text).unwrap_err().to_string();
        assert!(error.starts_with("source.kafka.topic"), "{error}");
        assert!(error.contains("topics"), "{error}");
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let error = from_yaml(&SMALLEST.replace("workers: 2", "workers: many")).unwrap_err().to_string();
        assert!(error.starts_with("workers"), "{error}");
        let error = from_yaml(&SMALLEST.replace("192MiB", "192")).unwrap_err().to_string();
        assert!(error.contains("memory.limit") && error.contains("64MiB"), "{error}");
    }

    #[test]
    fn another_contract_version_says_so_whatever_else_it_holds() {
        let text = SMALLEST.replace("contractVersion: 1", "contractVersion: 2") + "\nnovelty: true\n";
        assert!(matches!(from_yaml(&text), Err(Error::ContractVersion { program: "gateway", found: 2 })));
    }

    #[test]
    fn when_gateways_commit_is_read_from_a_config_of_any_version() {
        let enqueue =
            "contractVersion: 9\nnovelty: [1]\ndelivery:\n  commit: AfterEnqueue\n  novelty: true\n";
        assert_eq!(commit(enqueue).unwrap(), Commit::AfterEnqueue);
        assert_eq!(commit(SMALLEST).unwrap(), Commit::AfterInsert);
        for text in ["", "a", "delivery: {commit: AfterInsert}"] {
            assert!(commit(text).is_err(), "{text:?}");
        }
        for delivery in ["1", "{commit: AfterTomorrow}"] {
            assert!(commit(&format!("contractVersion: 1\ndelivery: {delivery}\n")).is_err(), "{delivery}");
        }
    }

    #[test]
    fn the_servers_are_read_from_a_config_of_any_version() {
        let of_shards = "contractVersion: 9\nnovelty: [1]\nsink:\n  clickhouse:\n    novelty: 1\n    shards: [[a, b], [c]]\n";
        let shards = vec![vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]];
        assert_eq!(servers(of_shards).unwrap(), Servers { shards, ..Servers::default() });
        let config = from_yaml(SMALLEST).unwrap().sink.clickhouse;
        assert!(!config.endpoints.is_empty());
        assert_eq!(servers(SMALLEST).unwrap().endpoints, config.endpoints);
        for text in ["", "a", "contractVersion: 1", "sink: {clickhouse: {endpoints: [a]}}"] {
            assert!(servers(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_error_in_a_file_names_the_file() {
        let file = std::env::temp_dir().join(format!("sluice-parse-{}.yaml", std::process::id()));
        std::fs::write(&file, SMALLEST.replace("topics:", "topic:")).unwrap();
        for error in [read(&file).unwrap_err(), read_edge(&file).unwrap_err()] {
            let text = error.to_string();
            assert!(text.starts_with(&format!("the config {} cannot be used:\n", file.display())), "{text}");
        }
        assert!(read(&file).unwrap_err().to_string().contains("source.kafka.topic"));
        std::fs::remove_file(&file).unwrap();
        assert!(read_edge(&file).unwrap_err().to_string().contains("cannot read the config"));
    }

    #[test]
    fn text_that_is_not_yaml_is_refused() {
        for text in ["", "\t", "[1, 2", "a: b: c", "\u{0}"] {
            assert!(from_yaml(text).is_err(), "{text:?}");
        }
    }
}
