//! The Secrets that the spec names: whether they are there and complete, never what they say.

use crate::hash;
use k8s_openapi::api::core::v1::Secret;
use sluice_crds::SecretUse;
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
        keys: Vec<&'static str>,
    },
    /// It exists with every key.
    Present {
        /// Changes whenever the Secret does; says nothing about its content.
        version: String,
    },
}

impl SecretSeen {
    /// What there is to see of a Secret for this use, `None` when the server has none.
    pub fn of(usage: SecretUse, secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else { return Self::Missing };
        let has = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
        let keys: Vec<_> = usage.keys().iter().copied().filter(|key| !has(key)).collect();
        if !keys.is_empty() {
            return Self::KeysMissing { keys };
        }
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let seen = format!("{}/{}", of(&secret.metadata.uid), of(&secret.metadata.resource_version));
        Self::Present { version: hash::of_text(&seen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    fn secret(keys: &[&str], resource_version: &str) -> Secret {
        Secret {
            metadata: ObjectMeta { resource_version: Some(resource_version.into()), ..ObjectMeta::default() },
            data: Some(keys.iter().map(|key| ((*key).to_owned(), ByteString(b"x".to_vec()))).collect()),
            ..Secret::default()
        }
    }

    #[test]
    fn a_secret_is_missing_incomplete_or_present() {
        let user = |secret: Option<&Secret>| SecretSeen::of(SecretUse::KafkaUser, secret);
        assert_eq!(user(None), SecretSeen::Missing);
        assert_eq!(
            user(Some(&secret(&["username"], "1"))),
            SecretSeen::KeysMissing { keys: vec!["password"] }
        );
        let present = user(Some(&secret(&["username", "password"], "1")));
        assert!(matches!(present, SecretSeen::Present { .. }), "{present:?}");
        assert_ne!(present, user(Some(&secret(&["username", "password"], "2"))));
    }

    #[test]
    fn each_use_has_its_keys() {
        let both = secret(&["tls.crt", "tls.key"], "1");
        for (usage, expected) in [
            (SecretUse::ClickHouseCertificate, None),
            (SecretUse::KafkaAuthorities, Some(vec!["ca.crt"])),
            (SecretUse::KafkaUser, Some(vec!["username", "password"])),
        ] {
            let seen = SecretSeen::of(usage, Some(&both));
            match expected {
                Some(keys) => assert_eq!(seen, SecretSeen::KeysMissing { keys }),
                None => assert!(matches!(seen, SecretSeen::Present { .. }), "{seen:?}"),
            }
        }
    }
}
