//! The Secrets of a pipeline as its pods mount them: each use has a folder of its own, with the keys that are read and no others.
//!
//! When the content of a key that is used changes, pods are replaced one by one as by any new revision, because the pod template carries
//! a version of all Secrets. Gateways do not reload the files: they would use new ones at a moment that the operator does not choose, and
//! only their log would report a wrong one. The version is made of uid and resource version, not of the content. With the hash of a
//! password in an annotation, a reader of the annotation could try passwords.

use crate::{
    ground::hash,
    names::secret_volume,
    observed::{KeptVersion, KeptVersions, SecretSeen, Secrets},
};
use sluice_crds::{SecretUse, TracePipelineSpec, status::reason};

/// A Secret that is there and complete, for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub of: SecretUse,
    pub secret: String,
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
    is_of_source: bool,
) -> Result<Vec<Mounted>, Unusable> {
    let named = spec.secrets().into_iter().filter(|(of, _)| of.is_of_source() == is_of_source);
    named.map(|(of, name)| of_one(of, name, seen.get(&of))).collect()
}

fn of_one(of: SecretUse, name: &str, seen: Option<&SecretSeen>) -> Result<Mounted, Unusable> {
    let unusable = |reason, message| Err(Unusable { reason, message });
    match seen {
        Some(SecretSeen::Present { version, object }) => {
            let version = KeptVersion { version: version.clone(), object: object.clone() };
            Ok(Mounted { of, secret: name.to_owned(), version })
        }
        Some(SecretSeen::Missing) => {
            unusable(reason::SECRET_MISSING, format!("the Secret {name:?} does not exist"))
        }
        Some(SecretSeen::KeysMissing { keys }) => {
            let keys = keys.join(" and no ");
            unusable(reason::SECRET_INCOMPLETE, format!("the Secret {name:?} has no {keys}"))
        }
        None => {
            unusable(reason::NOT_PROBED, format!("the operator has not looked for the Secret {name:?} yet"))
        }
    }
}

/// The version of all of them, `None` without any.
pub(crate) fn version(mounted: &[Mounted]) -> Option<String> {
    let each: Vec<_> =
        mounted.iter().map(|one| format!("{}={}", secret_volume(one.of), one.version.version)).collect();
    (!each.is_empty()).then(|| hash::of_text(&each.join(",")))
}

/// What the StatefulSet is to say of versions that outlived their object; `None` when there is no such.
pub(crate) fn kept(mounted: &[Mounted]) -> Option<String> {
    KeptVersions::note(mounted.iter().map(|one| (one.of, &one.version)))
}
