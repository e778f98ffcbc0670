//! What almost every test names: how it waits and checks, its scene, and the objects that it looks at.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::path::{Path, PathBuf};
pub use std::time::Duration;

pub use anyhow::{Context as _, Result, anyhow, bail, ensure};
pub use e2e_faults::{SinkFront, Way};
pub use e2e_fixtures::cluster::{Cluster, Namespace, Pods, Seen, kind_of, pipeline_kinds, until};
pub use e2e_fixtures::expect::{drain, has, is_complete, rollout, wait_gone};
pub use e2e_fixtures::files;
pub use e2e_fixtures::pipeline::{CREDENTIALS, Pipeline, Settings, TABLE, condition, merged};
pub use e2e_fixtures::produce::{Compression, Feed, Load, Producer, Sent, Topic};
pub use e2e_fixtures::spans::{Run, Shape};
pub use e2e_stack::say;
pub use k8s_openapi::api::apps::v1::StatefulSet;
pub use k8s_openapi::api::batch::v1::Job;
pub use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
pub use kube::ResourceExt as _;
pub use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
pub use serde_json::{Value, json};
pub use sluice_crds::status::{condition as kind, reason};
pub use sluice_crds::{DrainState, RolloutState, TracePipeline, TracePipelineStatus};

pub use crate::environment::{READY, blocking};
pub use crate::gitops::health::{assert_state, reached};
pub(crate) use crate::scene;
pub use crate::scene::{FEW_BETWEEN, FEW_PER_SECOND, FLOW, PATIENCE, SPANS_BETWEEN, SPANS_PER_SECOND};
pub use crate::scene::{Scene, Uids, are_others};
pub use crate::turns::Uses;
