//! What is watched, and how little of it; and that a watch outlives a panic of its own.

use crate::{
    api_server::ApiServer,
    asked::Request,
    bench::{Bench, NAMESPACE},
    rights,
};
use futures::{StreamExt as _, channel::mpsc};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Client, Config,
    runtime::{reflector::ObjectRef, watcher},
};
use serde_json::json;
use sluice_operator::watch::{Scope, Watches, state::WatchState};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinSet, time::timeout};

/// What each watch asks for: group and plural, labels, and how much of an object.
type Seen = BTreeSet<(String, String, String)>;

/// The table of SECURITY.md.
fn expected() -> Seen {
    let rows = rights::rows("watched").into_iter();
    let rows = rows.map(|row| {
        let [resource, labels, of, _] = row.as_slice() else { panic!("{row:?}") };
        let labels = if labels == "all" { "" } else { labels };
        (resource.clone(), labels.to_owned(), of.clone())
    });
    rows.collect()
}

fn seen(asked: &[Request], verb: &str) -> Seen {
    let of_verb = asked.iter().filter(|asked| asked.right.verb == verb);
    let seen = of_verb.map(|asked| {
        let of = if asked.is_metadata { "metadata" } else { "object" };
        (asked.right.resource.clone(), asked.labels.clone(), of.to_owned())
    });
    seen.collect()
}

#[tokio::test]
pub async fn each_watch_sees_what_the_table_says_and_no_more() {
    for namespace in [None, Some(NAMESPACE.to_owned())] {
        let bench = Bench::start().await;
        let (concerned, _events) = mpsc::channel(100);
        let (mut tasks, scope) = (JoinSet::new(), Scope(namespace.clone()));
        let cache = Watches {
            client: &Client::try_from(Config::new(bench.server.url.parse().unwrap())).unwrap(),
            scope: &scope,
            tasks: &mut tasks,
            concerned,
            state: Arc::new(WatchState::new(Arc::clone(&bench.world().shared.metrics))),
            all: Arc::default(),
        }
        .start();
        cache.ready().await.unwrap();
        cache.connections.wait_until_ready().await.unwrap();
        cache.deployments.wait_until_ready().await.unwrap();
        cache.autoscalers.wait_until_ready().await.unwrap();
        let watches = tasks.len();
        let mut asked = Vec::new();
        // Each lists first, and watches from there.
        let all = async {
            while seen(&asked, "watch").len() < watches {
                tokio::task::yield_now().await;
                asked.extend(bench.server.take_asked());
            }
        };
        timeout(Duration::from_mins(1), all).await.unwrap();
        for verb in ["list", "watch"] {
            assert_eq!(seen(&asked, verb), expected(), "{verb}");
        }
        let is_elsewhere = |asked: &&Request| asked.namespace != namespace;
        assert_eq!(asked.iter().find(is_elsewhere), None, "no more than {scope:?}");
    }
}

/// Whether a watch has met its defect.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

fn panics_once(_: &mut Service) {
    assert!(HAS_PANICKED.swap(true, Ordering::Relaxed), "a defect");
}

#[tokio::test]
async fn a_watch_that_panics_lists_anew_and_is_said_to_fail_until_it_works() {
    let server = ApiServer::start().await;
    let bench = Bench::start().await;
    server.put("services/a", json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}));
    let (concerned, mut events) = mpsc::channel(100);
    let metrics = Arc::clone(&bench.world().shared.metrics);
    let failing = {
        let metrics = Arc::clone(&metrics);
        move || {
            let text = String::from_utf8(metrics.render().unwrap()).unwrap();
            let line = text.lines().find(|line| line.starts_with("sluice_operator_watch_failing"));
            line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
        }
    };
    let (courses, failing_now) = (Arc::new(Mutex::new(Vec::new())), failing.clone());
    let noted = Arc::clone(&courses);
    let mut tasks = JoinSet::new();
    let store = Watches {
        client: &Client::try_from(Config::new(server.url.parse().unwrap())).unwrap(),
        scope: &Scope(Some(NAMESPACE.to_owned())),
        tasks: &mut tasks,
        concerned,
        state: Arc::new(WatchState::new(metrics)),
        all: Arc::default(),
    }
    .watch::<Service, _>(watcher::Config::default(), panics_once, move || {
        noted.lock().unwrap().extend(failing());
        |_: &Service, _: bool| vec![ObjectRef::new("prod").within(NAMESPACE)]
    });
    let concerned = timeout(Duration::from_mins(1), events.next()).await.unwrap();
    assert_eq!(concerned, Some(ObjectRef::new("prod").within(NAMESPACE)));
    store.wait_until_ready().await.unwrap();
    assert_eq!(store.len(), 1);
    assert_eq!(*courses.lock().unwrap(), ["0", "1"], "it begins, and begins again");
    assert_eq!(failing_now().as_deref(), Some("0"));
    assert!(tasks.try_join_next().is_none(), "the task goes on");
}
