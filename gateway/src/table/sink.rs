//! ClickHouse as the config describes it: endpoints, credentials, and whether the table fits.

mod error;
mod obstacles;

pub use error::Error;
pub use obstacles::NarrowMemory;

use crate::table::schema;
use error::{ACCESS_DENIED, READONLY, refused_setting};
use sluice_clickhouse::{
    bearer::BearerFile,
    client::InsertClient,
    column::TableColumns,
    ddl::{TableSpec, missing},
    deduplicated::Deduplicated,
    deduplication::Deduplication,
    durability::Durability,
    endpoint::{Credentials, Endpoint},
    fate::{Fate, Lost, Said},
    insert::{InsertTarget, TargetSpec},
    lookup::{Lookup, LookupError},
    parts::TableParts,
    probe::{Probe, TableEngine},
    probe_error::ProbeError,
    table::{self, DescribedColumn, Mismatch, TableFit},
    tls::{Tls, TlsFiles},
    ttl::AtOnce,
};
use sluice_gateway_config::ClickHouse;
use sluice_ranges::Destination;
use std::{collections::BTreeMap, time::Duration};
use twox_hash::XxHash3_64;

/// The servers of one shard, and their table.
#[derive(Debug, Clone)]
pub struct Sink {
    endpoints: Vec<Endpoint>,
    credentials: Credentials,
    tls: Tls,
    probes: Vec<Probe>,
    database: String,
    table: String,
    spec: TableSpec,
    insert_timeout: Duration,
    insert_settings: BTreeMap<String, String>,
}

/// A target per endpoint, for rows of certain columns, and the settings of their connections.
#[derive(Debug, Clone)]
pub struct Targets {
    of_endpoints: Vec<InsertTarget>,
    tls: Tls,
}

impl Targets {
    /// A client that can connect to each of them. Must be created on a tokio runtime.
    pub fn client(&self) -> InsertClient {
        InsertClient::secured(&self.tls)
    }

    /// The target of the endpoint at this position in the config.
    pub fn at(&self, endpoint: usize) -> &InsertTarget {
        &self.of_endpoints[endpoint % self.of_endpoints.len()]
    }

    /// The columns that rows are sent for, as a number: blocks of others do not fit.
    pub fn columns(&self) -> u64 {
        XxHash3_64::oneshot(self.at(0).header())
    }

    /// The number of endpoints.
    pub fn len(&self) -> usize {
        self.of_endpoints.len()
    }

    /// Whether there is none; no config allows that.
    pub fn is_empty(&self) -> bool {
        self.of_endpoints.is_empty()
    }
}

/// One for each shard of the config, in its order. Reads credentials and certificates; sends nothing.
pub fn shards(config: &ClickHouse) -> Result<Vec<Sink>, Error> {
    config.shards().into_iter().map(|endpoints| Sink::of_shard(config, endpoints)).collect()
}

/// Compares the tables of all shards with what rows need, and with each other. Optional columns are filled if all of them have them. A shard
/// that cannot be reached is left out if another one answers, so that the gateway can still read for the others.
pub async fn check_shards(shards: &[Sink]) -> Result<TableFit, Error> {
    let (mut first, mut away) = (None::<(&Sink, TableFit)>, None);
    for sink in shards {
        match (sink.check_table().await, &first) {
            (Ok(fit), None) => first = Some((sink, fit)),
            (Ok(fit), Some((known, known_fit))) => match known_fit.columns.common(&fit.columns) {
                Some(columns) => first = Some((*known, TableFit { columns, ..known_fit.clone() })),
                None => {
                    return Err(Error::ShardsDiffer {
                        table: sink.table_name(),
                        first_servers: known.servers_named(),
                        first_columns: known_fit.columns.to_string(),
                        servers: sink.servers_named(),
                        columns: fit.columns.to_string(),
                    });
                }
            },
            // A person must fix certificates before anything is read.
            (Err(Error::Probe(error)), _)
                if error.is_unanswered() && !matches!(error, ProbeError::Tls { .. }) =>
            {
                away = Some(Error::Probe(error));
            }
            (Err(error), _) => return Err(error),
        }
    }
    first.map(|(_, fit)| fit).ok_or_else(|| away.expect("the config names at least one shard"))
}

impl Sink {
    /// With all servers of the config, regardless of their shard, for questions to each or any of them. Reads credentials and
    /// certificates; sends nothing.
    pub fn new(config: &ClickHouse) -> Result<Self, Error> {
        Self::of_shard(config, &config.shards().concat())
    }

    fn of_shard(config: &ClickHouse, endpoints: &[String]) -> Result<Self, Error> {
        let credentials = credentials(config)?;
        let endpoints: Result<Vec<Endpoint>, _> =
            endpoints.iter().map(|text| Endpoint::parse(text)).collect();
        let endpoints = endpoints.map_err(Error::Endpoint)?;
        let tls = tls(config, &endpoints)?;
        let probe = |endpoint| Probe::new(endpoint, &credentials, &config.database, &tls);
        let probes = endpoints.iter().map(probe).collect::<Result<_, _>>().map_err(Error::User)?;
        let sink = Self {
            endpoints,
            credentials,
            tls,
            probes,
            database: config.database.clone(),
            table: config.table.clone(),
            spec: schema::table_spec(config),
            insert_timeout: config.insert.timeout.to_std(),
            insert_settings: schema::insert_settings(config),
        };
        // Finds credentials that cannot be sent; the columns do not matter for that.
        sink.targets(&TableColumns::default())?;
        Ok(sink)
    }

    /// Prepares inserts of rows of these columns.
    pub fn targets(&self, columns: &TableColumns) -> Result<Targets, Error> {
        let target = |endpoint| {
            InsertTarget::new(&TargetSpec {
                endpoint,
                credentials: &self.credentials,
                database: &self.database,
                table: &self.table,
                columns,
                timeout: self.insert_timeout,
                settings: &self.insert_settings,
            })
        };
        let targets: Result<Vec<_>, _> = self.endpoints.iter().map(target).collect();
        let of_endpoints = targets.map_err(Error::Target)?;
        Ok(Targets { of_endpoints, tls: self.tls.clone() })
    }

    /// Prepares counting the rows of spans: one lookup for each endpoint. `nests_seconds` is the answer of [`Self::nests_seconds`].
    pub fn lookups(&self, nests_seconds: bool) -> Result<Vec<Lookup>, LookupError> {
        let lookup = |endpoint| {
            let lookup = Lookup::new(endpoint, &self.credentials, &self.database, &self.table, &self.tls)?;
            Ok(lookup.nesting_seconds(nests_seconds))
        };
        self.endpoints.iter().map(lookup).collect()
    }

    /// Whether a key of the table applies a function to the seconds of `Timestamp`, from the first server that answers.
    pub async fn nests_seconds(&self) -> Result<bool, Error> {
        self.ask(|probe| async move { probe.nests_seconds(&self.table).await }).await
    }

    /// Asks the servers, one after another, for the table's columns and compares them. The first answer counts.
    pub async fn check_table(&self) -> Result<TableFit, Error> {
        let described = self.ask(|probe| async move {
            // A user that may insert into a table may also read its definition.
            Ok((probe.describe(&self.table).await?, probe.engine(&self.table).await?))
        });
        let (described, engine) = described.await.map_err(|error| self.named_grant(error))?;
        if let Some(why) = engine.unfit() {
            return Err(Error::Engine { table: self.table_name(), engine: engine.name, why });
        }
        table::check(&described).map_err(|mismatches| self.misfit(mismatches, &described, &engine.name))
    }

    /// The error for a table of this engine whose columns do not fit.
    pub(super) fn misfit(
        &self,
        mismatches: Vec<Mismatch>,
        described: &[DescribedColumn],
        engine: &str,
    ) -> Error {
        let remedy = missing::remedy(&self.spec, described, engine);
        Error::Table { table: self.table_name(), mismatches, remedy }
    }

    /// The table's engine, from the first server that answers.
    pub async fn engine(&self) -> Result<TableEngine, Error> {
        self.ask(|probe| async move { probe.engine(&self.table).await }).await
    }

    /// The rules of the table's TTL that act on new rows at once, from every server that answers. `None` if none does.
    pub async fn acting_at_once(&self) -> Option<Vec<AtOnce>> {
        let mut found = None::<Vec<AtOnce>>;
        for probe in &self.probes {
            match probe.acting_at_once(&self.table).await {
                Ok(rules) => {
                    let found = found.get_or_insert_default();
                    for rule in rules {
                        if found.iter().all(|known| known.rule != rule.rule) {
                            found.push(rule);
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "a server cannot evaluate the table's TTL"),
            }
        }
        found
    }

    /// The parts of the table as the server with this position in the config counts them. `None`: the table has none of its own.
    pub async fn parts(&self, place: usize) -> Result<Option<TableParts>, ProbeError> {
        self.probes[place].parts(&self.table, &self.insert_settings).await
    }

    /// Whether row policies hide rows from the user at any server that answers.
    pub async fn hides_rows(&self) -> Result<bool, Error> {
        let (mut hides, mut is_answered, mut away) = (false, false, None);
        for probe in &self.probes {
            match probe.hides_rows(&self.table).await {
                Ok(hidden) => (hides, is_answered) = (hides | hidden, true),
                Err(error) if error.is_unanswered() => away = Some(error),
                Err(error) => return Err(Error::Probe(error)),
            }
        }
        away.filter(|_| !is_answered).map_or(Ok(hides), |error| Err(Error::Probe(error)))
    }

    /// The server names only the grant that a statement lacks, so a user without any grant would get one after another.
    fn named_grant(&self, error: Error) -> Error {
        match error {
            Error::Probe(source @ ProbeError::Refused { code: ACCESS_DENIED, .. }) => Error::Columns {
                table: self.table_name(),
                user: self.credentials.user.clone(),
                source: Box::new(source),
            },
            Error::Probe(source @ ProbeError::Refused { code: READONLY, .. }) => refused_setting(source),
            error => error,
        }
    }

    /// Compares the table with these columns, whatever new rows are encoded for.
    pub async fn check_encoded(&self, encoded: &TableColumns) -> Result<TableColumns, Error> {
        let described = self.ask(|probe| async move { probe.describe(&self.table).await }).await;
        let described = described.map_err(|error| self.named_grant(error))?;
        let mismatches = match table::check_encoded(encoded, &described) {
            Ok(columns) => return Ok(columns),
            Err(mismatches) => mismatches,
        };
        let engine = self.engine().await.map(|engine| engine.name).unwrap_or_default();
        let remedy = missing::remedy_for_encoded(&self.spec, encoded, &described, &engine);
        Err(Error::Table { table: self.table_name(), mismatches, remedy })
    }

    /// Its endpoints, as text.
    pub fn servers_named(&self) -> String {
        self.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// `database.table`.
    pub fn table_name(&self) -> String {
        format!("{}.{}", self.database, self.table)
    }

    /// The version of the first server that answers.
    pub async fn server_version(&self) -> Result<String, Error> {
        Ok(self.ask(|probe| async move { probe.server_version().await }).await?.text)
    }

    /// The number of servers in the config.
    pub fn servers(&self) -> usize {
        self.probes.len()
    }

    /// The longest duration of a try.
    pub fn insert_timeout(&self) -> Duration {
        self.insert_timeout
    }

    /// Each server's answer about deduplication, in the order of the config.
    pub async fn deduplication(&self) -> Vec<Result<Deduplication, ProbeError>> {
        let mut answers = Vec::with_capacity(self.probes.len());
        for probe in &self.probes {
            answers.push(probe.deduplication(&self.table).await);
        }
        answers
    }

    /// The failures that acknowledged rows survive: the weakest of the servers that answer. `None`: one server does not know; an error:
    /// none answers.
    pub async fn durability(&self) -> Result<Option<Durability>, ProbeError> {
        let (mut least, mut unanswered) = (None::<Option<Durability>>, None);
        for probe in &self.probes {
            match probe.durability(&self.table, &self.insert_settings).await {
                Ok(found) => least = Some(least.map_or(found, |least| least.min(found))),
                Err(error) if error.is_unanswered() => unanswered = Some(error),
                Err(error) => return Err(error),
            }
        }
        least.ok_or_else(|| unanswered.expect("the config names at least one endpoint"))
    }

    /// Blocks inserted into the table so far, from the first server that knows.
    pub async fn blocks_written(&self) -> Option<u64> {
        self.ask(|probe| async move { probe.blocks_written(&self.table).await }).await.ok()
    }

    /// Rows that a server, given by its position in the config, dropped since then under query ids that contain `query_id_part`.
    pub async fn deduplicated(
        &self,
        place: usize,
        query_id_part: &str,
        since_seconds: Option<u32>,
    ) -> Result<Deduplicated, ProbeError> {
        self.probes[place].deduplicated(&self.table, query_id_part, since_seconds).await
    }

    /// Whether a block is in the table, as far as all replicas together know. `None` if no replica answers.
    pub async fn fate(&self, lost: &Lost<'_>) -> Option<Fate> {
        let (mut evidence, mut is_answered) = (Vec::with_capacity(self.probes.len()), false);
        for probe in &self.probes {
            let (found, error) = match probe.evidence(&self.table, lost).await {
                Ok(Said::Evidence(found)) => (Some(found), None),
                Ok(Said::Nothing(error)) => (None, Some((true, error))),
                Err(error) => (None, Some((!error.is_unanswered(), error))),
            };
            is_answered |= error.as_ref().is_none_or(|(is_answered, _)| *is_answered);
            if let Some((_, error)) = error {
                tracing::debug!(%error, "a server cannot look up the outcome of a block");
            }
            evidence.push(found);
        }
        is_answered.then(|| Fate::of(lost, &evidence))
    }

    /// Its database and its table.
    pub fn names(&self) -> (&str, &str) {
        (&self.database, &self.table)
    }

    /// Where its blocks are sent, as plans and volumes say it: its first server stands for all of them.
    pub fn destination(&self) -> Destination {
        self.destinations().next().expect("the config names at least one endpoint")
    }

    /// Whether this is one of its servers, and its table.
    pub fn is_at(&self, destination: Destination) -> bool {
        self.destinations().any(|own| own == destination)
    }

    fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.endpoints.iter().map(|at| Destination::of(&self.database, &self.table, at.authority()))
    }

    /// The table that the config asks for.
    pub fn table_spec(&self) -> &TableSpec {
        &self.spec
    }

    /// Every server, in the order of the config.
    pub(crate) fn probes(&self) -> &[Probe] {
        &self.probes
    }

    async fn ask<'a, T, F: Future<Output = Result<T, ProbeError>>>(
        &'a self,
        question: impl Fn(&'a Probe) -> F,
    ) -> Result<T, Error> {
        let mut unreachable = None;
        for probe in &self.probes {
            match question(probe).await {
                Err(error) if error.is_unanswered() => unreachable = Some(error),
                answer => return answer.map_err(Error::Probe),
            }
        }
        Err(Error::Probe(unreachable.expect("the config names at least one endpoint")))
    }
}

fn credentials(config: &ClickHouse) -> Result<Credentials, Error> {
    let Some(files) = &config.credentials else {
        return Ok(Credentials { user: "default".to_owned(), password: String::new(), token: None });
    };
    if let Some(path) = &files.token_file {
        let token = BearerFile::open(path).map_err(Error::Token)?;
        return Ok(Credentials {
            user: "<user of the token>".to_owned(),
            password: String::new(),
            token: Some(token),
        });
    }
    Ok(Credentials {
        token: None,
        user: files.user().map_err(Error::Credentials)?,
        password: files.password().map_err(Error::Credentials)?,
    })
}

/// Reads certificates only if an endpoint needs one.
fn tls(config: &ClickHouse, endpoints: &[Endpoint]) -> Result<Tls, Error> {
    if !endpoints.iter().any(Endpoint::is_https) {
        return Ok(Tls::unused());
    }
    let named = config.tls.clone().unwrap_or_default();
    let client = named.client_certificate().map(|(certificate, key)| (certificate.into(), key.into()));
    Tls::load(&TlsFiles { client, ca: named.ca_file.map(Into::into) }).map_err(Error::Tls)
}
