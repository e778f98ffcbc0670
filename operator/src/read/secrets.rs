//! The Secrets that pipelines name, as they were last read. The operator asks for a Secret when the watch, which sees the metadata alone,
//! knows another version of it than the one that is here. At rest it asks for none.
//!
//! ```text
//!  metadata is another --> read the Secret --> same content of the keys that are used --> the version that it had
//!                                         |--> the content before that, which all
//!                                         |    gateways still run with ----------------> the version that it had
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
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, Client, ResourceExt};
use sluice_crds::{SecretUse, Side, TracePipelineSpec, UsedKey};
use sluice_plan::{KeptVersions, SecretSeen, Secrets, Unresolved, names::GATEWAY_CONTAINER};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
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
    /// What it was before, the latest last.
    former: Vec<Former>,
}

/// A content that was replaced by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Former {
    hash: u64,
    version: String,
    /// When the operator read the next one.
    left: Timestamp,
}

/// Contents of one use that are remembered: a person who corrects a wrong password goes back by one, or by two. Chosen.
const FORMER_MAX: usize = 4;

/// A gateway that began this long before the operator read another content has the former one. Chosen: the watch brings a change within
/// seconds, and clocks of nodes differ by less.
const READ_LATE_MAX: Duration = Duration::from_mins(5);

impl Content {
    /// The next content, in the object of this version.
    fn replaced_by(self, hash: u64, object: String, now: Timestamp) -> Self {
        let Self { hash: before, version, mut former } = self;
        former.push(Former { hash: before, version, left: now });
        former.drain(..former.len().saturating_sub(FORMER_MAX));
        Self { hash, version: object, former }
    }

    /// Goes back to the version of a former content that is the same, if all gateways run with it: each began before the operator read another
    /// one. `newest` is when the last of them began, `None` without gateways that run.
    fn go_back(&mut self, newest: Option<Timestamp>) {
        let Some(at) = self.former.iter().rposition(|former| former.hash == self.hash) else { return };
        // Since the first of the contents that came after it, a gateway that began may have read that.
        let left = self.former[at].left;
        let is_read = |began: Timestamp| began.checked_add(READ_LATE_MAX).is_ok_and(|late| late < left);
        if newest.is_none_or(is_read) {
            self.version.clone_from(&self.former[at].version);
            self.former.truncate(at);
        } else {
            // Decided once: gateways that begin later do not change it.
            let hash = self.hash;
            self.former.retain(|former| former.hash != hash);
        }
    }
}

impl KnownSecrets {
    /// Each use that the spec names, and the Secrets that Kafka is asked with. `noted` is what the pipeline's StatefulSet says. What is known of
    /// the Secrets of a side whose connection leads nowhere stays, for when the connection comes back.
    pub async fn of(
        &self,
        key: &Key,
        (spec, unresolved): (&TracePipelineSpec, &Unresolved),
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
        let is_unresolved = |of: SecretUse| {
            match of.side() {
                Side::Source => unresolved.source.is_some(),
                Side::Sink => unresolved.sink.is_some(),
                // Its Secrets are in the spec.
                Side::Edge => false,
            }
        };
        now.contents.extend(before.contents.into_iter().filter(|((of, _), _)| is_unresolved(*of)));
        let newest = newest_start(cache, key);
        for content in now.contents.values_mut() {
            content.go_back(newest);
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
            let content = match (contents.remove(&name), noted) {
                (Some(before), _) if before.hash == hash => before,
                (Some(before), _) => before.replaced_by(hash, object, Timestamp::now()),
                (None, Some(noted)) => Content { hash, version: noted.version.clone(), former: Vec::new() },
                (None, None) => Content { hash, version: object, former: Vec::new() },
            };
            contents.insert(name, content);
        }
        // The operator does not connect to Kafka with the credentials of the pods' clients.
        let is_asked_with = |of: &SecretUse| of.side() == Side::Source && !of.is_of_clients();
        let asked_with = uses.iter().filter(|(of, _)| is_asked_with(of));
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
            if of.side() == Side::Source && !of.is_of_clients() {
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

/// When the gateway of a pipeline began that began last; `None` without gateways that run.
fn newest_start(cache: &Cache, key: &Key) -> Option<Timestamp> {
    let pods = cache.pods_of(&key.namespace, &key.name);
    let starts = pods.iter().filter_map(|pod| {
        let containers = pod.status.as_ref()?.container_statuses.iter().flatten();
        let gateway = containers.into_iter().find(|one| one.name == GATEWAY_CONTAINER)?;
        let running = gateway.state.as_ref()?.running.as_ref()?;
        // A server that does not say when: just now.
        Some(running.started_at.as_ref().map_or_else(Timestamp::now, |time| time.0))
    });
    starts.max()
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
    fn a_content_that_comes_back_has_its_version_again_unless_a_gateway_may_have_read_another_one() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let late = i64::try_from(READ_LATE_MAX.as_secs()).unwrap();
        let first = Content { hash: 1, version: "1".into(), former: Vec::new() };
        let back = |first: Content| {
            let wrong = first.replaced_by(2, "2".into(), at(10_000));
            wrong.replaced_by(3, "3".into(), at(20_000)).replaced_by(1, "4".into(), at(30_000))
        };
        for (newest, expected) in [
            (None, "1"),
            (Some(9_999 - late), "1"),
            (Some(10_000 - late), "4"),
            (Some(15_000), "4"),
            (Some(40_000), "4"),
        ] {
            let mut content = back(first.clone());
            content.go_back(newest.map(at));
            assert_eq!(content.version, expected, "{newest:?}");
            content.go_back(None);
            assert_eq!(content.version, expected, "decided once");
        }
        let mut other = first.clone().replaced_by(2, "2".into(), at(10_000));
        other.go_back(None);
        assert_eq!(other.version, "2", "it was never there before");
        let many =
            (2..20).fold(first, |content, hash| content.replaced_by(hash, hash.to_string(), at(10_000)));
        assert_eq!(many.former.len(), FORMER_MAX);
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
