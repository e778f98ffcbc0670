//! The Secrets of a pipeline as its pods mount them: each use has a folder of its own, with only the keys that are read.
//!
//! The pod template carries a version of all Secrets. So when the content of a used key changes, the operator replaces the pods one by one,
//! as for any new revision. Gateways do not reload the files. Otherwise they would use new files at a moment that the operator does not
//! choose, and only their log would report a wrong file. The version is made of uid and resource version, not of the content. With the hash
//! of a password in an annotation, a reader of the annotation could try passwords.

use crate::{
    ground::hash,
    names::secret_volume,
    observed::{KeptVersion, KeptVersions, SecretSeen, Secrets},
    pipeline::connections::located,
};
use sluice_crds::{KeyUse, NamedSecret, SecretUse, Side, TracePipelineSpec, UsedKey, status::reason};

/// Keys of a Secret that a message lists. Chosen: a Secret of Strimzi or cert-manager has up to six, and a message stays readable.
const KEYS_SHOWN_MAX: usize = 8;

/// A Secret that is there and complete, for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub of: SecretUse,
    pub secret: String,
    pub keys: Vec<UsedKey>,
    pub version: KeptVersion,
}

/// What keeps a Secret from being used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The reason in a condition of Kafka or ClickHouse.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The Secrets of one side as pods mount them, or what is wrong with the first that cannot be.
pub(crate) fn mounted(
    spec: &TracePipelineSpec,
    seen: &Secrets,
    side: Side,
) -> Result<Vec<Mounted>, Unusable> {
    let named = spec.secrets().into_iter().filter(|named| named.of.side() == side);
    named.map(|named| of_one(named, spec, seen)).collect()
}

fn of_one(named: NamedSecret<'_>, spec: &TracePipelineSpec, seen: &Secrets) -> Result<Mounted, Unusable> {
    let unusable = |reason, message| Err(Unusable { reason, message });
    let (of, name, seen) = (named.of, named.name, seen.get(&named.of));
    let field = located(spec, of.field());
    match seen {
        Some(SecretSeen::Present { version, object }) => {
            let version = KeptVersion { version: version.clone(), object: object.clone() };
            Ok(Mounted { of, secret: name.to_owned(), keys: named.keys, version })
        }
        Some(SecretSeen::Missing) => {
            let message = format!("the Secret {name:?} does not exist ({field}): create it, or name another");
            unusable(reason::SECRET_MISSING, message)
        }
        Some(SecretSeen::KeysMissing { keys, found }) => {
            let message = incomplete(|field| located(spec, field), (of, name), keys, found);
            unusable(reason::SECRET_INCOMPLETE, message)
        }
        None => {
            let message = format!("the operator has not looked for the Secret {name:?} yet ({field})");
            unusable(reason::NOT_PROBED, message)
        }
    }
}

/// What a Secret lacks, what it has instead, and what to do. Names of keys, never values. `place` says where a field of the spec stands.
fn incomplete(
    place: impl Fn(&str) -> String,
    (of, name): (SecretUse, &str),
    keys: &[UsedKey],
    found: &[String],
) -> String {
    let lacks: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let has = if found.is_empty() {
        "it has no keys at all".to_owned()
    } else {
        let shown: Vec<&str> = found.iter().take(KEYS_SHOWN_MAX).map(String::as_str).collect();
        let left = found.len().saturating_sub(KEYS_SHOWN_MAX);
        let more = if left > 0 { format!(" and {left} more") } else { String::new() };
        format!("it has {}{more}", shown.join(", "))
    };
    let fields: Vec<String> =
        keys.iter().map(|key| place(&format!("{}.{}", of.field(), key.of.field()))).collect();
    let lacks_any = |of| keys.iter().any(|key| key.of == of);
    let beside = match (lacks_any(KeyUse::Username), lacks_any(KeyUse::ClientId)) {
        (true, _) => ", or write the name into username beside secretRef",
        (false, true) => ", or write the id into clientId beside secretRef",
        (false, false) => "",
    };
    format!(
        "the Secret {name:?} has no {}; {has}: add the key, or name another in {}{beside}",
        lacks.join(" and no "),
        fields.join(" and "),
    )
}

/// The version of all of them, `None` without any. Keys that the spec names are part of it: another key of the same object is another
/// content. Where it names none, the version is what it was before keys could be named. Secrets of OTLP clients are left out: pods read
/// their files again, so that a renewed certificate or another token restarts no pod.
pub(crate) fn version(mounted: &[Mounted]) -> Option<String> {
    let each: Vec<_> = mounted
        .iter()
        .filter(|one| !one.of.is_of_clients())
        .map(|one| format!("{}={}{}", secret_volume(one.of), one.version.version, named_keys(&one.keys)))
        .collect();
    (!each.is_empty()).then(|| hash::of_text(&each.join(",")))
}

fn named_keys(keys: &[UsedKey]) -> String {
    keys.iter()
        .filter(|key| !key.is_default())
        .fold(String::new(), |text, key| format!("{text};{}={}", key.of.default_key(), key.key))
}

/// What the StatefulSet is to say of versions that outlived their object; `None` when there is no such.
pub(crate) fn kept(mounted: &[Mounted]) -> Option<String> {
    KeptVersions::note(mounted.iter().map(|one| (one.of, &one.version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(of: KeyUse, key: &str) -> UsedKey {
        UsedKey { of, key: key.into() }
    }

    fn mounted(keys: Vec<UsedKey>) -> Mounted {
        let version = KeptVersion { version: "1".into(), object: "1".into() };
        Mounted { of: SecretUse::KafkaUser, secret: "u".into(), keys, version }
    }

    #[test]
    fn a_missing_key_is_told_with_those_that_there_are() {
        let keys = [key(KeyUse::Username, "username")];
        let found = ["password".to_owned(), "sasl.jaas.config".to_owned()];
        assert_eq!(
            incomplete(str::to_owned, (SecretUse::KafkaUser, "sluice"), &keys, &found),
            "the Secret \"sluice\" has no username; it has password, sasl.jaas.config: add the key, or name another in \
             spec.source.kafka.sasl.secretRef.usernameKey, or write the name into username beside secretRef"
        );
        let keys = [key(KeyUse::Certificate, "tls.crt"), key(KeyUse::PrivateKey, "tls.key")];
        assert_eq!(
            incomplete(str::to_owned, (SecretUse::ClickHouseCertificate, "c"), &keys, &[]),
            "the Secret \"c\" has no tls.crt and no tls.key; it has no keys at all: add the key, or name another in \
             spec.sink.clickhouse.tls.clientCertificateSecretRef.certificateKey and \
             spec.sink.clickhouse.tls.clientCertificateSecretRef.privateKeyKey"
        );
        let many: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let text = incomplete(
            str::to_owned,
            (SecretUse::KafkaAuthorities, "ca"),
            &[key(KeyUse::Authorities, "ca.crt")],
            &many,
        );
        assert!(text.contains("it has k0, k1, k2, k3, k4, k5, k6, k7 and 92 more:"), "{text}");
    }

    #[test]
    fn another_key_of_the_same_object_is_another_version_and_the_default_by_its_name_is_none() {
        let version = |keys| version(&[mounted(keys)]);
        let defaults = [key(KeyUse::Username, "username"), key(KeyUse::Password, "password")];
        let by_default = version(defaults.to_vec());
        assert_eq!(by_default, Some(hash::of_text("kafka-user=1")), "what it was before keys could be named");
        let other = version(vec![key(KeyUse::Username, "username"), key(KeyUse::Password, "secret")]);
        assert_ne!(other, by_default);
        let swapped = version(vec![key(KeyUse::Username, "secret"), key(KeyUse::Password, "password")]);
        assert!(swapped != by_default && swapped != other);
    }
}
