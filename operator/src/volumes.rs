//! Does what `sluice_plan::volumes` decides about the queue volumes.
//!
//! Claims belong to Kubernetes and to the user. The operator writes only these parts of a claim, each under its own field manager:
//!
//! | module | does | writes |
//! | --- | --- | --- |
//! | [`grow`] | grows volumes | the size ([`grow::SIZES`]) |
//! | [`orphans`] | drains volumes without a gateway | the mark that a volume is empty ([`orphans::MARKS`]) |
//! | [`replace`] | replaces volumes, one gateway at a time | nothing: it deletes claims |
//! | [`owner_references`] | makes claims outlive the StatefulSet | owner references ([`owner_references::OWNERS`]) |
//! | [`argo_cd`] | keeps Argo CD from deleting claims | annotations ([`argo_cd::OPTIONS`]) |

pub mod argo_cd;
mod claims;
pub mod grow;
pub mod orphans;
pub mod owner_references;
pub mod replace;
