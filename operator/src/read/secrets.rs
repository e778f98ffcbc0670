//! The Secrets that pipelines name, as they were last read. The operator asks for a Secret when the watch, which sees the metadata alone,
//! knows another version of it than the one that is here. At rest it asks for none.
//!
//! ```text
//!  metadata is another --> read the Secret --> same content of the keys that are used --> the version that it had
//!                                         `--> another content ------------------------> the version of the object
//!  first look of this process ----------> the version that the StatefulSet notes for this very object, else that of the object
//! ```
//!
//! What is here lives as long as its pipeline names it. Values are kept of the keys that the operator itself asks Kafka with. Of the others
//! there is a keyed hash, whose key this process alone has and does not write anywhere.

use super::kafka::security::KafkaSecrets;
use crate::world::{
    cache::{Cache, find},
    error::Error,
    memory::Key,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, ResourceExt};
use sluice_crds::{SecretUse, TracePipelineSpec, UsedKey};
use sluice_plan::{KeptVersions, SecretSeen, Secrets};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The Secrets of all pipelines.
#[derive(Default)]
pub struct KnownSecrets {
    known: Mutex<HashMap<Key, OfPipeline>>,
    /// Its key is random. Two contents have the same hash of 64 bits once in 10^19.
    hasher: RandomState,
}

/// The Secrets of one pipeline.
#[derive(Default, Clone)]
struct OfPipeline {
    read: BTreeMap<String, Read>,
    /// Of each use of a Secret by its name; also while the Secret is missing or incomplete, and may come back as it was.
    contents: BTreeMap<(SecretUse, String), Content>,
}

/// A Secret as it was read.
#[derive(Clone)]
struct Read {
    secret: Arc<Secret>,
    /// What it was read for, and which keys.
    uses: Uses,
}

/// What a Secret is used for, with the keys of each use.
type Uses = BTreeMap<SecretUse, Vec<UsedKey>>;

/// What gateways use of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    hash: u64,
    version: String,
}

impl KnownSecrets {
    /// Each use that the spec names, and the Secrets that Kafka is asked with. `noted` is what the pipeline's StatefulSet says.
    pub async fn of(
        &self,
        key: &Key,
        spec: &TracePipelineSpec,
        noted: &KeptVersions,
        (client, cache): (&Client, &Cache),
    ) -> Result<(Secrets, KafkaSecrets), Error> {
        let mut before = self.known().get(key).cloned().unwrap_or_default();
        let mut now = OfPipeline::default();
        for (name, uses) in by_name(spec) {
            for of in uses.keys() {
                now.contents.extend(before.contents.remove_entry(&(*of, name.to_owned())));
            }
            let Some(seen) = find(&cache.secrets, &key.namespace, name) else { continue };
            let is_same = |known: &Read| {
                let secret = &known.secret;
                known.uses == uses
                    && secret.uid() == seen.uid()
                    && secret.resource_version() == seen.resource_version()
            };
            let read = match before.read.remove(name).filter(is_same) {
                Some(known) => known,
                None => match read(client, &key.namespace, name).await? {
                    Some(secret) => self.take(secret, uses, &mut now.contents, noted),
                    None => continue,
                },
            };
            now.read.insert(name.to_owned(), read);
        }
        let seen = now.seen(spec);
        if now.read.is_empty() && now.contents.is_empty() {
            self.forget(key);
        } else {
            self.known().insert(key.clone(), now);
        }
        Ok(seen)
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    /// Compares a Secret with what was there before, and keeps of it what is needed later.
    fn take(
        &self,
        mut secret: Secret,
        uses: Uses,
        contents: &mut BTreeMap<(SecretUse, String), Content>,
        noted: &KeptVersions,
    ) -> Read {
        for (of, keys) in &uses {
            let SecretSeen::Present { object, .. } = SecretSeen::of(keys, Some(&secret)) else { continue };
            let values: Vec<&[u8]> = keys.iter().filter_map(|key| value(&secret, &key.key)).collect();
            let hash = self.hasher.hash_one(values);
            let name = (*of, secret.name_any());
            let noted = noted.of(*of).filter(|noted| noted.object == object);
            let version = match (contents.get(&name), noted) {
                (Some(before), _) if before.hash == hash => before.version.clone(),
                (None, Some(noted)) => noted.version.clone(),
                (Some(_) | None, _) => object,
            };
            contents.insert(name, Content { hash, version });
        }
        let asked_with = uses.iter().filter(|(of, _)| of.is_of_source());
        let asked_with: BTreeSet<&str> =
            asked_with.flat_map(|(_, keys)| keys).map(|key| key.key.as_str()).collect();
        for (key, value) in secret.data.iter_mut().flatten() {
            if !asked_with.contains(key.as_str()) {
                *value = ByteString::default();
            }
        }
        Read { secret: Arc::new(secret), uses }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, OfPipeline>> {
        // Each holder puts in or takes out one whole entry, so that one that panicked left whole entries.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfPipeline {
    fn seen(&self, spec: &TracePipelineSpec) -> (Secrets, KafkaSecrets) {
        let (mut seen, mut of_kafka) = (Secrets::new(), KafkaSecrets::new());
        for named in spec.secrets() {
            let (of, secret) = (named.of, self.read.get(named.name).map(|read| &read.secret));
            let found = SecretSeen::of(&named.keys, secret.map(|secret| &**secret));
            let content = self.contents.get(&(of, named.name.to_owned()));
            seen.insert(of, content.map_or(found.clone(), |content| found.since(&content.version)));
            if of.is_of_source() {
                of_kafka.extend(secret.map(|secret| (of, Arc::clone(secret))));
            }
        }
        (seen, of_kafka)
    }
}

/// The names in the spec, each with all that it is used for.
fn by_name(spec: &TracePipelineSpec) -> BTreeMap<&str, Uses> {
    let mut names: BTreeMap<&str, Uses> = BTreeMap::new();
    for named in spec.secrets() {
        names.entry(named.name).or_default().insert(named.of, named.keys);
    }
    names
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|value| value.0.as_slice())
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    api.get_opt(name).await.map_err(|source| Error::request(format!("cannot read the Secret {name}"), source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_crds::KeyUse;

    /// The key that is read where the spec names none.
    fn default_key(of: KeyUse) -> UsedKey {
        UsedKey { of, key: of.default_key().into() }
    }

    fn user_keys() -> Vec<UsedKey> {
        vec![default_key(KeyUse::Username), default_key(KeyUse::Password)]
    }

    fn secret(resource_version: &str, data: &Value) -> Secret {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"name": "both", "uid": "u", "resourceVersion": resource_version},
        }))
        .unwrap()
    }

    #[test]
    fn values_stay_of_those_keys_alone_that_kafka_is_asked_with() {
        let known = KnownSecrets::default();
        let data = json!({"ca.crt": "Y2E=", "username": "dQ==", "password": "cA==", "other": "b3RoZXI="});
        let take = |uses: Uses| {
            let read = known.take(secret("1", &data), uses, &mut BTreeMap::new(), &KeptVersions::default());
            let data = read.secret.data.clone().unwrap_or_default();
            assert_eq!(data.len(), 4, "the names of all");
            data.into_iter().filter(|(_, value)| !value.0.is_empty()).map(|(key, _)| key).collect::<Vec<_>>()
        };
        let authorities = vec![default_key(KeyUse::Authorities)];
        assert_eq!(
            take(
                [
                    (SecretUse::KafkaAuthorities, authorities.clone()),
                    (SecretUse::ClickHouseUser, user_keys())
                ]
                .into()
            ),
            ["ca.crt"]
        );
        assert_eq!(take([(SecretUse::ClickHouseAuthorities, authorities)].into()), [] as [&str; 0]);
        let other = vec![UsedKey { of: KeyUse::Password, key: "other".into() }];
        assert_eq!(take([(SecretUse::KafkaUser, other)].into()), ["other"], "the key that the spec names");
    }

    #[test]
    fn a_value_that_moves_to_the_other_key_is_another_content() {
        let known = KnownSecrets::default();
        let mut contents = BTreeMap::new();
        let mut versions = BTreeSet::new();
        for (at, username, password) in [("1", "YQ==", "YmM="), ("2", "YWI=", "Yw=="), ("3", "", "YWJj")] {
            let secret = secret(at, &json!({"username": username, "password": password}));
            let uses = [(SecretUse::ClickHouseUser, user_keys())].into();
            known.take(secret, uses, &mut contents, &KeptVersions::default());
            let content = &contents[&(SecretUse::ClickHouseUser, "both".to_owned())];
            versions.insert(content.version.clone());
        }
        assert_eq!(versions.len(), 3);
    }

    #[test]
    fn another_key_with_another_value_is_another_content_and_with_the_same_value_is_none() {
        let known = KnownSecrets::default();
        let mut contents = BTreeMap::new();
        let data = json!({"a": "YQ==", "b": "Yg==", "again": "YQ=="});
        let mut version = |at: &str, key: &str| {
            let keys = vec![UsedKey { of: KeyUse::Password, key: key.into() }];
            let uses = [(SecretUse::ClickHouseUser, keys)].into();
            known.take(secret(at, &data), uses, &mut contents, &KeptVersions::default());
            contents[&(SecretUse::ClickHouseUser, "both".to_owned())].version.clone()
        };
        let first = version("1", "a");
        assert_eq!(version("2", "again"), first);
        assert_ne!(version("2", "b"), first);
    }
}
