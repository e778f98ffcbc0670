//! A change of gateways goes to one of them first. If it fails, it is rolled back. After the next edit of the spec it is tried again, and
//! then rolled out to two gateways at a time. Numbered spans flow the whole time.

use crate::deletion::life::told;
use crate::prelude::*;

/// The canary.
const FIRST: &str = "traces-gateway-2";

#[test]
fn a_change_goes_one_first_and_back_when_it_fails() -> Result<()> {
    let body = async |scene: &mut Scene| {
        scene.start(&spec(&json!({}))).await?;
        let load = scene.load(FEW_PER_SECOND);
        let unmanaged = json!({"management": "None"});

        let before = uids(scene).await?;
        scene.pipeline.apply(&spec(&json!({"sink": {"clickhouse": {"schema": unmanaged}}}))).await?;
        let is_canary = |status: &TracePipelineStatus| rollout(status) == Some(RolloutState::Canary);
        reached(&scene.pipeline, "canary", READY, is_canary).await?;
        others_wait_for_the_first(scene, &before).await?;
        let good = wait_complete(scene).await?;
        ensure!(are_others(&good, &before), "not all were replaced: {good:?}");

        let bad = json!({"image": "sluice-gateway:no-such-version", "imagePullPolicy": "Never"});
        scene
            .pipeline
            .apply(&spec(&json!({"sink": {"clickhouse": {"schema": unmanaged}}, "gateway": bad})))
            .await?;
        let said = scene.pipeline.wait_false(kind::READY, reason::ROLLED_BACK, READY).await?;
        ensure!(said.contains("ErrImageNeverPull") && said.contains(FIRST), "Ready says {said:?}");
        assert_state(&scene.pipeline, "rolled-back").await?;
        assert_event(scene, &said).await?;
        scene.pipeline.wait_gateways(3, READY).await.context("after what failed")?;
        let back = uids(scene).await?;
        ensure!(others(&back) == others(&good), "others were touched: {good:?}, then {back:?}");

        let mended = json!({
            "sink": {"clickhouse": {"schema": unmanaged}}, "gateway": {"logLevel": "debug"},
            "rollout": {"maxUnavailable": 2},
        });
        scene.pipeline.apply(&spec(&mended)).await?;
        let healed = wait_complete(scene).await?;
        ensure_others_went_together(scene).await?;
        ensure!(are_others(&healed, &good), "not all were replaced: {healed:?}");

        scene.end(load).await
    };
    scene::run("rollout", Uses::Servers, 6, body)
}

fn spec(change: &Value) -> Value {
    let base = json!({"replicas": 3, "rollout": {"canary": {"duration": "15s"}}});
    merged(&base, change)
}

async fn uids(scene: &Scene) -> Result<Uids> {
    scene.pipeline.gateways().uids().await
}

fn others(uids: &Uids) -> Uids {
    uids.iter().filter(|(name, _)| *name != FIRST).map(|(name, uid)| (name.clone(), uid.clone())).collect()
}

async fn state(scene: &Scene) -> Result<Option<RolloutState>> {
    let object = scene.pipeline.get().await?;
    let is_news =
        object.status.as_ref().and_then(|status| status.observed_generation) == object.metadata.generation;
    let rollout = object.status.and_then(|status| status.rollout);
    Ok(rollout.map(|rollout| rollout.state).filter(|_| is_news))
}

/// While the canary runs, no other gateway is replaced; it ends when the others follow.
async fn others_wait_for_the_first(scene: &Scene, before: &Uids) -> Result<()> {
    let mut looks = 0_u32;
    until("end of the time in which one gateway is tried", READY, async || {
        let now = uids(scene).await?;
        match state(scene).await? {
            // The canary phase also lasted until before the pods were listed, and the others had not changed.
            Some(RolloutState::Canary) => {
                if others(&now) != others(before) {
                    let early = anyhow!("others were replaced too early: {before:?}, then {now:?}");
                    return Ok(Seen::Failed(early));
                }
                looks += 1;
                Ok(Seen::NotYet(format!("{looks} looks")))
            }
            Some(RolloutState::Rolling | RolloutState::Complete) if looks > 0 => Ok(Seen::Done(())),
            other => Ok(Seen::NotYet(format!("{other:?} after {looks} looks"))),
        }
    })
    .await
}

async fn wait_complete(scene: &Scene) -> Result<Uids> {
    let is_complete = |status: &TracePipelineStatus| rollout(status) == Some(RolloutState::Complete);
    scene.pipeline.wait("with the newest revision everywhere", READY, is_complete).await?;
    scene.pipeline.wait_ready(READY).await?;
    uids(scene).await
}

/// One pod was made before the other was ready: Kubernetes replaced the one and the operator the other.
async fn ensure_others_went_together(scene: &Scene) -> Result<()> {
    let pods = scene.pipeline.gateways().list().await?;
    let of =
        |name: &str| pods.iter().find(|pod| pod.name_any() == name).with_context(|| format!("no {name}"));
    let conditions = of("traces-gateway-1")?.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    let ready = ready.and_then(|condition| condition.last_transition_time.clone()).context("never ready")?;
    let made = of("traces-gateway-0")?.creation_timestamp().context("never made")?;
    ensure!(made.0 < ready.0, "the last was made at {}, and the one before was ready at {}", made.0, ready.0);
    Ok(())
}

/// Checks what `kubectl describe` shows.
async fn assert_event(scene: &Scene, said: &str) -> Result<()> {
    until("the event of what failed", READY, async || {
        let told = told(scene).await?.into_iter().find(|(found, _)| found == reason::ROLLED_BACK);
        let note = told.map(|(_, note)| note);
        Ok(match note {
            Some(note) if !note.is_empty() && said.starts_with(&note[..note.len().min(40)]) => Seen::Done(()),
            other => Seen::NotYet(format!("{other:?}")),
        })
    })
    .await
}
