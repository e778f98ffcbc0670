//! The Secrets that the spec names: whether they exist and are complete, never their content.
//!
//! A version is what the API server calls the object when gateways are given its content first: uid and resource version, hashed. The
//! operator keeps the version while the keys that are used keep their content, whatever else of the object changes. It compares contents
//! in its memory. An annotation of the StatefulSet ([`SECRETS_KEPT`]) has the object's present version, [`SecretSeen::Present::object`],
//! beside the version that is kept. So the next operator keeps it, too.

use crate::{
    ground::hash,
    names::{SECRETS_KEPT, secret_volume},
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Secret};
use serde::{Deserialize, Serialize};
use sluice_crds::{SecretUse, UsedKey};
use std::collections::BTreeMap;

/// Each use of a Secret that the spec names. One Secret may have several.
pub type Secrets = BTreeMap<SecretUse, SecretSeen>;

/// A Secret, as one use of it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSeen {
    /// It does not exist.
    Missing,
    /// It exists and lacks keys.
    KeysMissing {
        /// The keys that it lacks.
        keys: Vec<UsedKey>,
        /// The names of the keys that it has.
        found: Vec<String>,
    },
    /// It exists with every key.
    Present {
        /// Changes whenever the content of a key that is used does; says nothing about the content.
        version: String,
        /// Changes whenever the object does; the version that it begins with.
        object: String,
    },
}

/// A version that outlived its object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptVersion {
    /// The version that gateways have.
    pub version: String,
    /// The object that has the same content.
    pub object: String,
}

/// The versions that were kept, by use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptVersions(BTreeMap<String, KeptVersion>);

impl KeptVersions {
    /// What a StatefulSet says of them; nothing when it says nothing that can be read.
    pub fn noted_by(workload: &StatefulSet) -> Self {
        let annotations = workload.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(SECRETS_KEPT));
        noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// That of this use.
    pub fn of(&self, usage: SecretUse) -> Option<&KeptVersion> {
        self.0.get(secret_volume(usage))
    }

    /// What a StatefulSet is to say of these; `None` where each version still is its object's own.
    pub(crate) fn note<'a>(all: impl Iterator<Item = (SecretUse, &'a KeptVersion)>) -> Option<String> {
        let kept = all.filter(|(_, one)| one.version != one.object);
        let kept = Self(kept.map(|(of, one)| (secret_volume(of).to_owned(), one.clone())).collect());
        let text = || serde_json::to_string(&kept).expect("texts serialise");
        (!kept.0.is_empty()).then(text)
    }
}

impl SecretSeen {
    /// What is observed of a Secret from which these keys are read. `secret` is `None` when it does not exist. The version is that of the
    /// object.
    pub fn of(keys: &[UsedKey], secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else { return Self::Missing };
        let has = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
        let keys: Vec<_> = keys.iter().filter(|key| !has(&key.key)).cloned().collect();
        if !keys.is_empty() {
            let found = secret.data.iter().flat_map(|data| data.keys().cloned()).collect();
            return Self::KeysMissing { keys, found };
        }
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let seen = format!("{}/{}", of(&secret.metadata.uid), of(&secret.metadata.resource_version));
        let object = hash::of_text(&seen);
        Self::Present { version: object.clone(), object }
    }

    /// With the version that its content was first seen with.
    #[must_use]
    pub fn since(self, version: &str) -> Self {
        match self {
            Self::Present { object, .. } => Self::Present { version: version.to_owned(), object },
            Self::Missing | Self::KeysMissing { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use sluice_crds::KeyUse;

    fn default_key(of: KeyUse) -> UsedKey {
        UsedKey { of, key: of.default_key().into() }
    }

    fn user_keys() -> Vec<UsedKey> {
        vec![default_key(KeyUse::Username), default_key(KeyUse::Password)]
    }

    fn authorities() -> Vec<UsedKey> {
        vec![default_key(KeyUse::Authorities)]
    }

    fn secret(keys: &[&str], resource_version: &str) -> Secret {
        Secret {
            metadata: ObjectMeta { resource_version: Some(resource_version.into()), ..ObjectMeta::default() },
            data: Some(keys.iter().map(|key| ((*key).to_owned(), ByteString(b"x".to_vec()))).collect()),
            ..Secret::default()
        }
    }

    #[test]
    fn a_secret_is_missing_incomplete_or_present() {
        let user = |secret: Option<&Secret>| SecretSeen::of(&user_keys(), secret);
        assert_eq!(user(None), SecretSeen::Missing);
        assert_eq!(
            user(Some(&secret(&["username"], "1"))),
            SecretSeen::KeysMissing {
                keys: vec![default_key(KeyUse::Password)],
                found: vec!["username".into()],
            }
        );
        let present = user(Some(&secret(&["username", "password"], "1")));
        assert!(matches!(present, SecretSeen::Present { .. }), "{present:?}");
        assert_ne!(present, user(Some(&secret(&["username", "password"], "2"))));
    }

    #[test]
    fn each_use_has_its_keys() {
        let both = secret(&["tls.crt", "tls.key"], "1");
        let certificate = vec![default_key(KeyUse::Certificate), default_key(KeyUse::PrivateKey)];
        let of_strimzi = vec![UsedKey { of: KeyUse::Certificate, key: "user.crt".into() }];
        for (keys, is_complete) in
            [(certificate, true), (authorities(), false), (user_keys(), false), (of_strimzi, false)]
        {
            let seen = SecretSeen::of(&keys, Some(&both));
            if is_complete {
                assert!(matches!(seen, SecretSeen::Present { .. }), "{seen:?}");
            } else {
                let found = vec!["tls.crt".to_owned(), "tls.key".to_owned()];
                assert_eq!(seen, SecretSeen::KeysMissing { keys, found });
            }
        }
    }

    #[test]
    fn a_version_outlives_its_object_and_a_stateful_set_notes_that() {
        let seen = SecretSeen::of(&authorities(), Some(&secret(&["ca.crt"], "1")));
        let SecretSeen::Present { version, object } = seen.clone() else { panic!("{seen:?}") };
        assert_eq!(version, object, "it begins as its object's");
        let later = SecretSeen::of(&authorities(), Some(&secret(&["ca.crt"], "2")));
        let SecretSeen::Present { version, object } = later.since(&version) else { panic!() };
        let kept = KeptVersion { version, object };
        assert_ne!(kept.version, kept.object);
        let own = KeptVersion { version: "1".into(), object: "1".into() };
        let all = [(SecretUse::KafkaAuthorities, &kept), (SecretUse::KafkaUser, &own)];
        let text = KeptVersions::note(all.into_iter()).unwrap();
        assert_eq!(KeptVersions::note(all.into_iter().skip(1)), None, "nothing is noted of the others");
        let metadata = |text: &str| ObjectMeta {
            annotations: Some([(SECRETS_KEPT.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let noted = |text| {
            KeptVersions::noted_by(&StatefulSet { metadata: metadata(text), ..StatefulSet::default() })
        };
        assert_eq!(noted(&text).of(SecretUse::KafkaAuthorities), Some(&kept));
        assert_eq!(noted(&text).of(SecretUse::ClickHouseAuthorities), None);
        assert_eq!(noted("what a person wrote"), KeptVersions::default());
        assert_eq!(SecretSeen::Missing.since("1"), SecretSeen::Missing);
    }
}
