//! Shared by end-to-end tests and tests of the manifests: how tools that sync from Git see our objects.

pub mod gitops;
