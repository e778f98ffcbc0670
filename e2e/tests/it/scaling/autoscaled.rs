//! The number of gateways follows the load, does not rise if more gateways would not help, and falls only when the leaving gateways are
//! empty. Or another client sets it, through the scale subresource.
//!
//! A gateway gets so little CPU that one of them cannot process the load that two shared cores can produce. The capacity of one depends on
//! the machine and on the build of its program, so the operator measures it first. Numbered spans flow the whole time, first many and then
//! few: none is lost, none doubled.

use std::convert::Infallible;

use e2e_faults::{Leg, SinkVerdict};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use sluice_crds::DrainStatus;
use tokio::time::interval;

use crate::operator::told::kubectl;
use crate::prelude::*;

/// Partitions: enough for many numbers of gateways, but only a few of these numbers are useful.
const PARTITIONS: i32 = 12;

/// As many gateways as partitions, so that the spec does not limit their number.
const REPLICAS_MAX: u32 = 12;

/// Useful numbers of gateways. With any other number, the gateway with the most partitions has as many as with the next lower useful
/// number.
const USEFUL_STEPS: [u32; 6] = [1, 2, 3, 4, 6, 12];

const CPU_LIMIT: &str = "40m";

const MESSAGE_SPANS: u64 = 100;

/// Load of numbered spans, a kilobyte each, during which the operator measures the capacity of one gateway: a few messages a second.
const MEASURED_SPANS_PER_SECOND: u64 = 500;

/// The load, in percent of one gateway's capacity: more than one gateway can process, and far less than twelve can. While the number is
/// only recommended, a backlog grows that the others must read first.
const LOAD_PERCENT: u64 = 150;

/// The largest load that is produced, spans a second: half a core to produce.
const SPANS_PER_SECOND_MAX: u64 = 24_000;

/// Divides one gateway's capacity: the load after it falls.
const FEW_PER_CAPACITY: u64 = 5;

/// Seconds of the small load that must come after gateways have left.
const SECONDS_AFTER: u64 = 5;

/// How long one insert takes while the server is slow: with few inserts at a time, this is a fraction of the load.
const SLOW: Duration = Duration::from_secs(10);

/// Time until a decision is made and carried out. Up: 30 s of a load, three polls, and pods that start on busy cores. Down: arrivals are
/// averaged over three minutes, and a surplus counts after one or two.
const DECIDED: Duration = Duration::from_mins(5);

/// Time until the number fits the load: one decision up, the backlog, and one down. While gateways read a backlog, each processes less than
/// its capacity, so the operator learns only afterwards that fewer are enough.
const SETTLED: Duration = Duration::from_mins(9);

/// How long a number that must not rise is watched: three polls of the operator, so at least two decisions.
const WATCHED: Duration = Duration::from_secs(45);

/// How often the numbers are polled: a wrong one would last for seconds at least.
const LOOK: Duration = Duration::from_millis(300);

/// A younger backlog than this does not count, seconds.
const CAUGHT_UP_SECONDS: i64 = 30;

#[test]
#[ignore = "group autoscaled"]
fn replicas_follow_the_load_and_leave_when_empty() -> Result<()> {
    let body = async |scene: &mut Scene| {
        let front = scene.front().await?;
        scene.start(&spec("Recommend")).await?;
        let load = scene.load(MEASURED_SPANS_PER_SECOND);
        let one = capacity_of_one(scene).await?;
        let first = load.stop().await?;
        let rate = one * LOAD_PERCENT / 100;
        ensure!(
            rate <= SPANS_PER_SECOND_MAX,
            "one gateway does {one} spans a second, too many to overload it"
        );
        let load = load_after(scene, &first, rate);
        Box::pin(only_recommended(scene, (&load, rate))).await?;
        scene.pipeline.apply(&spec("Auto")).await?;
        let before = more_gateways(scene).await?;
        Box::pin(slow_server(scene, &front, before)).await?;
        let many = first.and(load.stop().await?);
        let few = (one / FEW_PER_CAPACITY).max(MESSAGE_SPANS);
        let load = load_after(scene, &many, few);
        fewer_gateways(scene, before).await?;
        scene.wait_acked(&load, few * SECONDS_AFTER, DECIDED).await?;
        let sent = many.and(load.stop().await?);
        scene.assert_nothing_lost(&sent).await.map(drop)
    };
    scene::run("replicas_follow_the_load", Uses::ServersAlone, PARTITIONS, body)
}

/// The capacity of one gateway in spans a second, as measured by the operator.
async fn capacity_of_one(scene: &Scene) -> Result<u64> {
    let status = seen(scene, "knows what one gateway can do", |status| capacity(status).is_some()).await?;
    let messages = capacity(&status).and_then(|messages| u64::try_from(messages).ok());
    Ok(messages.context("no capacity is known")? * MESSAGE_SPANS)
}

/// The recommendation is reported repeatedly, and not carried out.
async fn only_recommended(scene: &Scene, load: (&Load, u64)) -> Result<()> {
    tokio::select! {
        said = said_for_a_while(scene, load) => said,
        grown = watch_at_most(scene, 1) => grown.map(|never| match never {}),
    }
}

/// More gateways are recommended. The recommendation is still the same after the watched time, with the load of that time.
async fn said_for_a_while(scene: &Scene, (load, rate): (&Load, u64)) -> Result<()> {
    let is_more = |status: &TracePipelineStatus| recommended(status) > Some(1);
    seen(scene, "recommends more", is_more).await?;
    scene.wait_acked(load, rate * WATCHED.as_secs(), DECIDED).await?;
    seen(scene, "still recommends more", is_more).await.map(drop)
}

/// The number of gateways that `Auto` reaches: a useful one that is below the largest.
async fn more_gateways(scene: &Scene) -> Result<u32> {
    let status = seen(scene, "has more gateways", |status| status.ready_replicas > Some(1)).await?;
    useful_step(&status)?;
    let status = scene.pipeline.wait("has caught up", SETTLED, has_caught_up).await?;
    let chosen = useful_step(&status)?;
    ensure!(
        (2..REPLICAS_MAX).contains(&chosen),
        "{chosen} gateways cannot become both more and fewer, which is what is watched next: {status:?}"
    );
    Ok(chosen)
}

/// A slow server never causes more gateways, from its first slow insert on, and the status says why.
async fn slow_server(scene: &Scene, front: &SinkFront, before: u32) -> Result<()> {
    let slow = front.gate().rule(u32::MAX, SinkVerdict::Late(SLOW), |passage| passage.leg == Leg::Head);
    tokio::select! {
        limited = limited_for_a_while(scene) => limited?,
        grown = watch_at_most(scene, before) => match grown? {},
    }
    let status = scene.pipeline.get().await?.status.context("the pipeline has no status")?;
    let cause = status.scaling.as_ref().and_then(|scaling| scaling.cause.as_deref());
    ensure!(cause == Some("SinkLimited"), "the cause is {cause:?} while the server is slow");
    ensure!(
        status.desired_replicas == Some(before),
        "{before} gateways became {:?} while the server was slow",
        status.desired_replicas
    );
    ensure!(slow.applied() > 0, "no insert was slow");
    Ok(())
}

/// The status names the server as the limit. The server stays slow for a while after that.
async fn limited_for_a_while(scene: &Scene) -> Result<()> {
    scene.pipeline.wait_true(kind::SCALING_LIMITED, "SinkLimited", DECIDED).await?;
    // The time with a slow server is the fault itself, so this waits for no condition.
    tokio::time::sleep(WATCHED).await;
    Ok(())
}

/// Gateways leave while spans flow: they are drained, and end when they are empty. The others read on.
async fn fewer_gateways(scene: &Scene, before: u32) -> Result<()> {
    let is_told = |drain: &DrainStatus| drain.state == DrainState::Draining && drain.target < before;
    let status = seen(scene, "drains gateways", |status| drain(status).is_some_and(is_told)).await?;
    useful_step(&status)?;
    seen(scene, "has fewer gateways", |status| {
        status.replicas.is_some_and(|replicas| replicas < before) && drain(status).is_none()
    })
    .await
    .map(drop)
}

/// Ends only with an error: when more gateways than `most` are wanted, requested from Kubernetes, or running.
async fn watch_at_most(scene: &Scene, most: u32) -> Result<Infallible> {
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        let status = scene.pipeline.get().await?.status.context("the pipeline has no status")?;
        let asked_for = scene.pipeline.workload().await?.context("there is no StatefulSet")?;
        let asked_for = asked_for.spec.and_then(|spec| u32::try_from(spec.replicas?).ok());
        let (wanted, there) = (status.desired_replicas, status.replicas);
        ensure!(
            wanted.max(asked_for).max(there) <= Some(most),
            "more than {most} gateways: {wanted:?} are wanted, {asked_for:?} asked for, {there:?} there: {:?}",
            status.scaling
        );
    }
}

/// A load after one that has sent `before` and has ended. The numbers continue, so that both are counted as one.
fn load_after(scene: &Scene, before: &Sent, spans_per_second: u64) -> Load {
    // Messages are sent completely, so the next number begins one.
    let next = before.acked.ranges().last().map_or(0, |range| range.end);
    let feed = scene.feed(Shape::Numbered, Some(spans_per_second));
    Load::start_numbers(&scene.producer, feed, next..u64::MAX)
}

#[test]
#[ignore = "group autoscaled"]
fn the_scale_subresource_is_anybodys_in_external() -> Result<()> {
    let body = async |scene: &mut Scene| {
        scene.start(&json!({"scaling": {"mode": "External"}, "replicas": 1})).await?;
        scene.pipeline.wait_false(kind::SCALING_ACTIVE, "External", READY).await?;
        let load = scene.load(1_000);
        kubectl(scene, &["scale", "tp/traces", "--replicas=3"]).await?;
        seen(scene, "has three gateways", |status| status.ready_replicas == Some(3)).await?;
        // Without metrics, an HPA only keeps its bounds, which is enough to see that it finds and writes the number.
        scene.namespace.apply(&autoscaler(scene.pipeline.name(), [1, 2])).await?;
        scene.pipeline.wait_replicas(2, DECIDED).await?;
        let hpas: Api<HorizontalPodAutoscaler> = scene.namespace.api();
        let hpa = hpas.get("traces").await.context("get the HorizontalPodAutoscaler")?;
        let current = hpa.status.and_then(|status| status.current_replicas);
        ensure!(current.is_some(), "the autoscaler does not see how many gateways there are");
        scene.end(load).await
    };
    scene::run("scale_subresource", Uses::Servers, PARTITIONS, body)
}

/// An HPA without metrics, which only keeps the number within these bounds.
pub fn autoscaler(pipeline: &str, [least, most]: [u32; 2]) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "traces"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "name": pipeline},
            "minReplicas": least, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}],
        },
    })
}

fn spec(mode: &str) -> Value {
    json!({
        "partitionsPerReplica": PARTITIONS,
        "scaling": {
            "mode": mode, "minReplicas": 1, "maxReplicas": REPLICAS_MAX,
            // Long enough that arrivals decide: to work off the backlog sooner would need the largest number of gateways.
            "targetLag": "10m", "scaleDownAfter": "1m", "drain": {"timeout": "2m"},
        },
        // The whole limit is reserved, so that other programs of the machine take none of the CPU of twelve gateways.
        "gateway": {"resources": {"cpuRequest": CPU_LIMIT, "cpuLimit": CPU_LIMIT}},
    })
}

async fn seen(
    scene: &Scene,
    what: &str,
    wanted: impl Fn(&TracePipelineStatus) -> bool,
) -> Result<TracePipelineStatus> {
    scene.pipeline.wait(what, DECIDED, wanted).await
}

/// Whether the gateways process the load with the right number: none is starting or leaving, and no change is due. Otherwise an earlier
/// decision could be carried out while the server is slow.
fn has_caught_up(status: &TracePipelineStatus) -> bool {
    let is_active = condition(status, kind::SCALING_ACTIVE)
        .is_some_and(|active| active.status == "True" && active.reason == "Active");
    let counts = [status.replicas, status.ready_replicas, recommended(status)];
    is_active
        && counts == [status.desired_replicas; 3]
        && drain(status).is_none()
        && lag_seconds(status).is_some_and(|lag| lag <= CAUGHT_UP_SECONDS)
}

/// The number of wanted gateways, or an error if it is not a useful one.
fn useful_step(status: &TracePipelineStatus) -> Result<u32> {
    let wanted = status.desired_replicas.context("no number of gateways is wanted")?;
    ensure!(
        USEFUL_STEPS.contains(&wanted),
        "{wanted} gateways are wanted, which is none of {USEFUL_STEPS:?}"
    );
    Ok(wanted)
}

fn capacity(status: &TracePipelineStatus) -> Option<i64> {
    status.scaling.as_ref()?.capacity_per_replica.filter(|messages| *messages > 0)
}

fn recommended(status: &TracePipelineStatus) -> Option<u32> {
    status.scaling.as_ref()?.recommended_replicas
}

fn lag_seconds(status: &TracePipelineStatus) -> Option<i64> {
    status.scaling.as_ref()?.lag_seconds
}
