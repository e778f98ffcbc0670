//! Failed reconciles are reported: in the status, in events, and in the metrics that the alerts use.

use crate::{
    api_server::ApiServer,
    bench::{Bench, NAMESPACE},
    scaling::break_clock,
};
use futures::{FutureExt as _, channel::mpsc};
use kube::{
    core::Status,
    runtime::{
        controller::Action,
        reflector::{self, ObjectRef},
        watcher,
    },
};
use serde_json::json;
use sluice_operator::{
    reconcile::reconcile,
    run::{
        Listing,
        admin::{Readiness, WaitsFor},
        ready_once_listed,
    },
    watch::{Scope, Watches, state::WatchState},
    world::{World, api_error::ErrorClass, cache::Pipeline},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::timeout};

#[tokio::test]
async fn a_refusal_stands_in_the_status_at_once_and_is_told_once() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.server.refuse("statefulsets/prod-gateway PATCH", 422);
    bench.fail("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
    assert_eq!(bench.condition("prod", "Reconciling"), "False ApplyFailed");
    assert_eq!(bench.condition("prod", "Stalled"), "True ApplyFailed");
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(words.contains("cannot apply the StatefulSet prod-gateway: scripted (status 422)"), "{words}");
    bench.fail("prod").await;
    let writes = bench.server.take_writes();
    let count = |what: &str| writes.iter().filter(|write| write.what == what).count();
    // One event says that the pipeline is not ready, the other one what failed.
    assert_eq!((count("events"), count("tracepipelines/prod/status")), (2, 1));
    assert!(
        bench.exports("sluice_operator_pipeline_failed_reconciles{name=\"prod\",namespace=\"tracing\"} 2")
    );
    bench.server.relent();
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False Progressing");
    assert_eq!(bench.condition("prod", "Stalled"), "False Ok");
    assert!(
        bench.exports("sluice_operator_pipeline_failed_reconciles{name=\"prod\",namespace=\"tracing\"} 0")
    );
}

/// A watch that the API server has refused since a minute ago.
fn refuse_watch(bench: &Bench, kind: &str) {
    let refusal = Status { code: 403, ..Status::failure("it is forbidden", "Forbidden") };
    let error = watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(refusal)));
    let since = Instant::now().checked_sub(Duration::from_mins(1)).unwrap();
    bench.watches.failed_at(kind, &error, since);
}

/// The copies of that kind stay as they were: another content of a Secret would not be seen.
#[tokio::test]
async fn a_pipeline_whose_secrets_may_not_be_watched_does_not_look_well() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let well = bench.condition("prod", "Ready");
    // Nothing but pipelines with a connection needs it, and those say so.
    refuse_watch(&bench, "TraceConnection");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), well);
    refuse_watch(&bench, "Secret");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
    assert_eq!(bench.condition("prod", "Stalled"), "True ApplyFailed");
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        words.contains("cannot watch Secret: it is forbidden (status 403); grant its ServiceAccount"),
        "{words}"
    );
    bench.watches.works("Secret");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), well);
}

#[tokio::test]
async fn a_kind_that_may_not_be_listed_stands_in_the_status_and_nothing_is_made() {
    let bench = Bench::start().await;
    bench.create("prod");
    let reconcile_unlisted = async || {
        let mut world = bench.world();
        let pipeline = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
        world.cache.secrets = reflector::store().0;
        reconcile(pipeline, bench.reconciler(world)).await.unwrap();
    };
    reconcile_unlisted().await;
    assert_eq!(bench.condition("prod", "Ready"), "", "the list may still come");
    refuse_watch(&bench, "Secret");
    reconcile_unlisted().await;
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), None);
}

#[tokio::test]
async fn what_may_pass_by_itself_is_told_after_some_tries_and_by_an_operator_that_starts_at_once() {
    let mut bench = Bench::start().await;
    bench.create("prod");
    bench.server.refuse("configmaps", 500);
    for _ in 0..4 {
        bench.fail("prod").await;
        assert_eq!(bench.condition("prod", "Ready"), "False Progressing");
    }
    bench.fail("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
    assert_eq!(bench.condition("prod", "Reconciling"), "True ApplyFailed");
    assert_eq!(bench.condition("prod", "Stalled"), "False Ok", "it may pass");
    bench.restart();
    bench.server.take_writes();
    bench.fail("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False ApplyFailed");
    assert!(!bench.server.take_writes().iter().any(|write| write.what == "tracepipelines/prod/status"));
}

/// A token, a Role, a quota or a namespace that is made anew at this moment.
#[tokio::test]
async fn what_is_denied_or_missing_for_a_moment_is_not_said_to_stay_so() {
    for code in [401, 403, 404] {
        let mut bench = Bench::start().await;
        bench.create("prod");
        bench.server.refuse("statefulsets/prod-gateway PATCH", code);
        for _ in 0..4 {
            bench.fail("prod").await;
            assert_eq!(bench.condition("prod", "Stalled"), "False Ok", "{code}");
        }
        bench.fail("prod").await;
        assert_eq!(bench.condition("prod", "Stalled"), "True ApplyFailed", "{code}");
        // An operator that starts takes nothing back that may still be so.
        bench.restart();
        bench.server.take_writes();
        bench.fail("prod").await;
        assert_eq!(bench.condition("prod", "Stalled"), "True ApplyFailed", "{code}");
        assert!(!bench.server.take_writes().iter().any(|write| write.what == "tracepipelines/prod/status"));
        bench.server.relent();
        bench.settle("prod").await;
        assert_eq!(bench.condition("prod", "Stalled"), "False Ok", "{code}");
    }
}

#[tokio::test]
async fn a_look_that_sees_nothing_is_told_too_and_the_rest_of_the_status_stays() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["credentials"] = json!({"secretRef": {"name": "clickhouse"}});
    pipeline["status"] = json!({"consumerGroup": "tracing.prod", "laterVersion": {"says": 1}});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.server.put(
        "secrets/clickhouse",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clickhouse", "namespace": NAMESPACE}}),
    );
    bench.server.refuse("secrets/clickhouse", 403);
    for _ in 0..4 {
        assert_eq!(bench.fail("prod").await.0, ErrorClass::Forbidden);
        assert_eq!(bench.condition("prod", "Stalled"), "", "it may pass");
    }
    bench.fail("prod").await;
    assert_eq!(bench.condition("prod", "Stalled"), "True ApplyFailed");
    let status = bench.server.get("tracepipelines/prod").unwrap()["status"].clone();
    assert_eq!(status["conditions"].as_array().unwrap().len(), 12, "all of them always");
    assert_eq!(
        (&status["consumerGroup"], &status["laterVersion"]),
        (&json!("tracing.prod"), &json!({"says": 1}))
    );
    bench.server.take_writes();
    bench.fail("prod").await;
    assert_eq!(bench.server.take_writes(), [], "nothing new to say");
}

#[tokio::test]
async fn a_write_that_another_client_forestalled_is_no_event() {
    for (code, class, is_told) in [(409, ErrorClass::Conflict, false), (422, ErrorClass::Refused, true)] {
        let bench = Bench::start().await;
        bench.create("prod");
        bench.server.refuse("configmaps/prod-", code);
        assert_eq!(bench.fail("prod").await, (class, 1));
        let events = bench.server.take_events();
        let told = events.iter().any(|event| event["reason"] == "ReconcileFailed");
        assert_eq!(told, is_told, "{code}: {events:?}");
    }
}

#[tokio::test]
async fn a_panic_ends_one_look_at_one_pipeline() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.create("other");
    break_clock(true);
    assert_eq!(bench.fail("prod").await, (ErrorClass::Panicked, 1));
    assert_eq!(bench.fail("prod").await, (ErrorClass::Panicked, 2));
    break_clock(false);
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(words.contains("a defect of the operator") && words.contains("the clock is broken"), "{words}");
    assert!(bench.exports("sluice_operator_errors_total{reason=\"panicked\"} 2"));
    let events = bench.server.take_events();
    assert!(events.iter().any(|event| event["reason"] == "ReconcileFailed"), "{events:?}");
    for name in ["other", "prod"] {
        bench.settle(name).await;
        assert!(bench.server.get(&format!("statefulsets/{name}-gateway")).is_some(), "{name}");
    }
}

#[tokio::test]
pub async fn pods_that_kubernetes_does_not_make_are_told_in_its_words() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    let quota = "create Pod prod-gateway-0 in StatefulSet prod-gateway failed error: exceeded quota: small";
    let event = |of: &str, words: &str, at: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": of, "namespace": NAMESPACE},
            "involvedObject": {"kind": "StatefulSet", "name": of}, "reason": "FailedCreate", "type": "Warning",
            "message": words, "lastTimestamp": at,
        })
    };
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    bench.server.put("events/a", event("prod-gateway", quota, &now));
    bench.server.put("events/b", event("prod-gateway", "of an hour before", "2026-01-01T00:00:00Z"));
    bench.server.put("events/c", event("other-gateway", "of another one", &now));
    bench.server.change("statefulsets/prod-gateway", |workload| {
        let generation = workload["metadata"]["generation"].clone();
        workload["status"] = json!({"observedGeneration": generation, "replicas": 0});
    });
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False Progressing", "they may be about to be made");
    bench.server.change("tracepipelines/prod", |pipeline| {
        for condition in pipeline["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z".into();
        }
    });
    bench.server.refuse("events GET", 403);
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False Progressing", "whoever may not ask goes on");
    bench.server.relent();
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "False PodsRefused");
    let words = bench.written("prod", "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(words, format!("0 of 2 gateways exist; Kubernetes does not create the others: {quota}"));
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
}

#[tokio::test]
async fn a_pipeline_that_cannot_be_read_says_so_and_does_not_stop_the_others() {
    let bench = Bench::start().await;
    bench.create("malformed");
    bench.settle("malformed").await;
    bench.gateways_become_ready("malformed");
    bench.settle("malformed").await;
    assert_eq!(bench.condition("malformed", "Ready"), "True Running");
    let before = bench.server.get("tracepipelines/malformed").unwrap()["status"].clone();
    bench.server.change("tracepipelines/malformed", |pipeline| {
        pipeline["spec"]["source"]["kafka"]["topics"] = "not a list".into();
        pipeline["metadata"]["generation"] = 7.into();
    });
    bench.create("prod");
    bench.server.take_events();
    bench.server.refuse("tracepipelines/malformed/status", 500);
    let again = bench.reconcile("malformed").await.unwrap();
    assert_ne!(again, Action::await_change(), "nobody was told");
    bench.server.take_writes();
    bench.server.take_events();
    bench.server.relent();
    for _ in 0..2 {
        assert_eq!(bench.reconcile("malformed").await.unwrap(), Action::await_change());
    }
    let writes = bench.server.take_writes();
    let writes: Vec<_> = writes.iter().map(|write| write.what.as_str()).collect();
    assert_eq!(writes, ["tracepipelines/malformed/status", "events"]);
    assert_eq!(bench.server.take_events()[0]["reason"], "Malformed");
    assert_eq!(bench.condition("malformed", "Ready"), "False Malformed");
    assert_eq!(bench.condition("malformed", "Stalled"), "True Malformed");
    assert_eq!(bench.written("malformed", "Ready").unwrap()["observedGeneration"], 7);
    let after = bench.server.get("tracepipelines/malformed").unwrap()["status"].clone();
    assert_eq!((&after["observedGeneration"], &after["derived"]), (&json!(7), &before["derived"]));
    assert!(bench.exports(
        "sluice_operator_pipeline_condition{name=\"malformed\",namespace=\"tracing\",reason=\"Malformed\",\
         status=\"True\",type=\"Stalled\"} 1"
    ));
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
}

/// The watches of the bench's server, with what they say of pipelines.
fn watching(
    bench: &Bench,
    server: &ApiServer,
    tasks: &mut JoinSet<()>,
) -> (World, mpsc::Receiver<ObjectRef<Pipeline>>, Listing) {
    let (concerned, events) = mpsc::channel(100);
    let world = bench.world();
    let config = kube::Config::new(server.url.parse().unwrap());
    let (client, scope) = (kube::Client::try_from(config).unwrap(), Scope(Some(NAMESPACE.to_owned())));
    let state = Arc::new(WatchState::new(Arc::clone(&world.shared.metrics)));
    let cache = Watches {
        client: &client,
        scope: &scope,
        tasks,
        concerned,
        state: Arc::clone(&state),
        all: Arc::default(),
    }
    .start();
    let listing = Listing { scope, cache: cache.clone(), state };
    (World { cache, ..world }, events, listing)
}

#[tokio::test]
async fn who_leads_is_ready_once_every_watch_has_listed_what_there_is() {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.server.refuse("secrets GET", 403);
    let mut tasks = JoinSet::new();
    let (world, _events, listing) = watching(&bench, &bench.server, &mut tasks);
    let readiness = Readiness::default();
    readiness.set(WaitsFor::Watches);
    let listings = [listing];
    let ready = || ready_once_listed(&listings, &readiness, Duration::ZERO);
    assert!(ready().now_or_never().is_none());
    let pipeline = bench.world().cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    let cache = world.cache.clone();
    let ended = reconcile(pipeline, bench.reconciler(world)).await.unwrap();
    assert_eq!(ended, Action::requeue(Duration::from_secs(5)));
    let waits = readiness.waits().unwrap();
    assert!(
        waits.contains("\nwatch of Secret in namespace tracing is not ready: scripted (status 403)\n"),
        "{waits}"
    );
    assert!(bench.exports("sluice_operator_watch_failing{kind=\"Secret\"} 1"));
    assert!(bench.exports("sluice_operator_reconcile_total{result=\"unlisted\"} 1"));
    bench.server.relent();
    timeout(Duration::from_mins(1), cache.ready()).await.unwrap().unwrap();
    assert!(ready().now_or_never().is_none(), "it never ends");
    assert_eq!(readiness.waits(), None);
}

/// One that is deleted takes the operator's Role along.
#[tokio::test]
async fn a_namespace_in_which_nothing_may_be_seen_keeps_who_leads_from_no_other() {
    let (bench, deleted) = (Bench::start().await, ApiServer::start().await);
    deleted.refuse("GET", 403);
    let mut tasks = JoinSet::new();
    let (_world, _events, gone) = watching(&bench, &deleted, &mut tasks);
    let readiness = Readiness::default();
    readiness.set(WaitsFor::Watches);
    let listings = [gone];
    // Long enough for what may come of it.
    let refused = async || {
        timeout(Duration::from_mins(1), listings[0].state.sees_nothing(Duration::ZERO)).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        never = ready_once_listed(&listings, &readiness, Duration::ZERO) => match never {},
        () = refused() => {}
    }
    assert!(readiness.waits().is_some(), "there is nothing else to look after");
    let (world, _events, there) = watching(&bench, &bench.server, &mut tasks);
    timeout(Duration::from_mins(1), world.cache.ready()).await.unwrap().unwrap();
    let [gone] = listings;
    let listings = [gone, there];
    let long = Duration::from_hours(1);
    assert!(ready_once_listed(&listings, &readiness, long).now_or_never().is_none());
    assert!(readiness.waits().is_some(), "its Role may be on its way");
    let is_ready = async {
        while readiness.waits().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        never = ready_once_listed(&listings, &readiness, Duration::ZERO) => match never {},
        ended = timeout(Duration::from_mins(1), is_ready) => ended.unwrap(),
    }
}

#[tokio::test]
async fn kafka_that_is_away_is_asked_later_and_later_until_something_happens() {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    // No broker listens there.
    pipeline["spec"]["source"]["kafka"]["bootstrapServers"] = json!(["127.0.0.1:1"]);
    pipeline["spec"]["scaling"] = json!({"mode": "Auto"});
    bench.server.put("tracepipelines/prod", pipeline);
    let after = async |seconds: [u64; 2]| {
        for seconds in seconds {
            let ended = bench.reconcile("prod").await.unwrap();
            assert_eq!(ended, Action::requeue(Duration::from_secs(seconds)));
        }
    };
    after([5, 10]).await;
    after([20, 40]).await;
    after([60, 60]).await;
    bench.world().concerned(&ObjectRef::new("prod").within(NAMESPACE));
    after([5, 10]).await;
    bench.server.change("tracepipelines/prod", |pipeline| pipeline["metadata"]["generation"] = 2.into());
    after([5, 10]).await;
}
