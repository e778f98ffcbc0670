//! A second gateway is started on the volume of the first, as with two pods that have one volume.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{begin, ensure_answered};
use crate::gateway::{Gateway, Orders};
use crate::scene::{Expected, PATIENCE, SPANS_AFTER, Scene, copy_config};
use e2e_stack::process::Port;

/// The exit code of a gateway whose volume is in use.
const EXIT_IN_USE: i32 = 1;

/// What it logs while it waits, and at its end.
const SAYS: [&str; 2] = [
    "another process has the queue volume open; waiting for it",
    "is in use by another process; a volume belongs to one gateway at a time",
];

pub(super) async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let (admin, http) = (Arc::new(Port::hold()?), Port::hold()?);
    let first = scene.gateway(0).orders().clone();
    let config = first.config.with_extension("second.yaml");
    let own = json!({
        "admin": {"listen": admin.address()},
        "source": {"otlp": {"listen": {"http": http.address()}}},
    });
    copy_config(&first.config, &config, &own)?;
    let log = config.with_extension("log");
    let orders = Orders { config, admin, log: log.clone(), member: Some("gateway-1".to_owned()), ..first };
    let code = Gateway::start(orders)?.end_within(PATIENCE).await?;
    ensure!(code == EXIT_IN_USE, "the second one ended with code {code}");
    let said = std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    ensure!(SAYS.iter().all(|words| said.contains(words)), "the second one said: {said}");

    scene.wait_acked(SPANS_AFTER).await?;
    ensure_answered(scene)?;
    Ok(Expected::default())
}
