//! What many tests name: how it waits and checks, its scene, and the objects that it looks at.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Stdio};
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::time::Duration;

pub use anyhow::{Context as _, Result, anyhow, bail, ensure};
pub use e2e_faults::{SinkFront, Way};
pub use e2e_fixtures::cluster::{
    Cluster, Namespace, Pods, Seen, kind_of, metric_sum, pipeline_kinds, pipeline_selector, until,
};
pub use e2e_fixtures::expect::{drain, has, is_complete, merge, merge_status, rollout, wait_gone};
pub use e2e_fixtures::files;
pub use e2e_fixtures::local_operator::{LocalOperator, Write, ensure_definition};
pub use e2e_fixtures::oracle::{Database, Oracle, Server};
pub use e2e_fixtures::pipeline::{CREDENTIALS, Pipeline, Settings, TABLE, at, condition, merged};
pub use e2e_fixtures::produce::{Compression, Feed, Load, Producer, Sent, Topic};
pub use e2e_fixtures::spans::{Generator, Run, Shape};
pub use e2e_stack::kubernetes::NODE_ADDRESS;
pub use e2e_stack::paths::Paths;
pub use e2e_stack::process::{Port, command, output};
pub use e2e_stack::say;
pub use e2e_stack::target::Resolved;
pub use k8s_openapi::api::apps::v1::StatefulSet;
pub use k8s_openapi::api::batch::v1::Job;
pub use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
pub use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
pub use kube::{CustomResourceExt as _, ResourceExt as _};
pub use serde_json::{Value, json};
pub use sluice_crds::status::{condition as kind, reason};
pub use sluice_crds::{DrainState, RolloutState, TraceConnection, TracePipeline, TracePipelineStatus};
pub use tokio::net::{TcpListener, TcpStream};
pub use tokio::task::JoinSet;

pub use crate::deletion::life::{assert_event, assert_event_says};
pub use crate::delivery::malformed::good;
pub use crate::environment::{
    READY, block_on, blocking, in_namespace, while_operator_rests, with_objects, without_operator,
};
pub use crate::gitops::health::{assert_in_sync, assert_state, reached};
pub use crate::operator::foreign_kinds::with_definitions;
pub(crate) use crate::scene;
pub use crate::scene::{FEW_BETWEEN, FEW_PER_SECOND, FLOW, PATIENCE, SPANS_BETWEEN, SPANS_PER_SECOND};
pub use crate::scene::{Scene, Uids, are_others};
pub use crate::spec::unharmed::assert_kept;
pub use crate::turns::Uses;
