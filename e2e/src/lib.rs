//! Shared by end-to-end tests and tests of the manifests: how other programs see our objects.

pub mod asked;
pub mod gitops;
