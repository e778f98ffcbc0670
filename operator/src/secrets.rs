//! The Secrets that pipelines name, as they were last read. A Secret is asked for when the watch, which sees the metadata alone, knows
//! another version of it than the one that is here, and not otherwise: at rest nothing is asked.
//!
//! What is here lives as long as its pipeline names it. Values are kept of those that the operator itself asks Kafka with; of the others
//! the names of the keys.

use crate::{
    cache::{Cache, find},
    memory::Key,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, ResourceExt};
use sluice_crds::TracePipelineSpec;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Secrets by name, of one pipeline.
type Named = BTreeMap<String, Arc<Secret>>;

/// The Secrets of all pipelines.
#[derive(Default)]
pub struct KnownSecrets {
    known: Mutex<HashMap<Key, Named>>,
}

/// A Secret that could not be read.
#[derive(Debug)]
pub struct Failed {
    /// Its name.
    pub name: String,
    /// What the API server said.
    pub source: kube::Error,
}

impl KnownSecrets {
    /// Those that the spec names and that exist.
    pub async fn of(
        &self,
        key: &Key,
        spec: &TracePipelineSpec,
        (client, cache): (&Client, &Cache),
    ) -> Result<BTreeMap<String, Arc<Secret>>, Failed> {
        let uses = spec.secrets();
        let with_values: BTreeSet<&str> =
            uses.iter().filter(|(usage, _)| usage.is_of_source()).map(|(_, name)| *name).collect();
        let names: BTreeSet<&str> = uses.iter().map(|(_, name)| *name).collect();
        let before = self.known().get(key).cloned().unwrap_or_default();
        let mut now = Named::new();
        for name in names {
            let Some(seen) = find(&cache.secrets, &key.namespace, name) else { continue };
            let needs_values = with_values.contains(name);
            let is_same = |known: &&Arc<Secret>| {
                known.uid() == seen.uid()
                    && known.resource_version() == seen.resource_version()
                    && (!needs_values || has_values(known))
            };
            let secret = match before.get(name).filter(is_same) {
                Some(known) => Some(Arc::clone(known)),
                None => read(client, &key.namespace, name, needs_values).await?,
            };
            now.extend(secret.map(|secret| (name.to_owned(), secret)));
        }
        if now.is_empty() {
            self.forget(key);
        } else {
            self.known().insert(key.clone(), now.clone());
        }
        Ok(now)
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Named>> {
        // Whatever the thread that held it died of: at worst a Secret is read once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    with_values: bool,
) -> Result<Option<Arc<Secret>>, Failed> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|source| Failed { name: name.to_owned(), source })?;
    Ok(found.map(|mut secret| {
        if !with_values {
            secret.data.iter_mut().flatten().for_each(|(_, value)| *value = ByteString::default());
        }
        Arc::new(secret)
    }))
}

/// Whether the values are here, too: no Secret of use has none but empty ones.
fn has_values(secret: &Secret) -> bool {
    secret.data.iter().flatten().any(|(_, value)| !value.0.is_empty())
}
