//! The Secret with user and password: whether it is there and complete, never what it says.

use crate::{
    hash,
    names::{PASSWORD_KEY, USERNAME_KEY},
};
use k8s_openapi::api::core::v1::Secret;

/// The Secret that `spec.sink.clickhouse.credentials` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretSeen {
    /// The spec names none.
    #[default]
    NotNamed,
    /// It does not exist.
    Missing {
        /// Its name.
        name: String,
    },
    /// It exists and lacks keys.
    KeysMissing {
        /// Its name.
        name: String,
        /// The keys that it lacks.
        keys: Vec<&'static str>,
    },
    /// It exists with both keys.
    Present {
        /// Its name.
        name: String,
        /// Changes whenever the Secret does; says nothing about its content.
        version: String,
    },
}

impl SecretSeen {
    /// What there is to see of the Secret called `name`, `None` when the server has none.
    pub fn of(name: &str, secret: Option<&Secret>) -> Self {
        let name = name.to_owned();
        let Some(secret) = secret else { return Self::Missing { name } };
        let has = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
        let keys: Vec<_> = [USERNAME_KEY, PASSWORD_KEY].into_iter().filter(|key| !has(key)).collect();
        if !keys.is_empty() {
            return Self::KeysMissing { name, keys };
        }
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let seen = format!("{}/{}", of(&secret.metadata.uid), of(&secret.metadata.resource_version));
        Self::Present { name, version: hash::of_text(&seen) }
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
        assert_eq!(SecretSeen::of("s", None), SecretSeen::Missing { name: "s".into() });
        let keys = vec!["password"];
        assert_eq!(
            SecretSeen::of("s", Some(&secret(&["username"], "1"))),
            SecretSeen::KeysMissing { name: "s".into(), keys }
        );
        let present = SecretSeen::of("s", Some(&secret(&["username", "password"], "1")));
        assert!(matches!(present, SecretSeen::Present { .. }), "{present:?}");
        assert_ne!(present, SecretSeen::of("s", Some(&secret(&["username", "password"], "2"))));
    }
}
