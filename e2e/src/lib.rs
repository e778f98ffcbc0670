//! What end-to-end tests and tests of the manifests share: how tools that sync from Git see our objects.

pub mod gitops;
