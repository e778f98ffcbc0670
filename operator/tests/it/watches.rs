//! What is watched, and how little of it.

use crate::{
    asked::Request,
    bench::{Bench, NAMESPACE},
    rights,
};
use futures::channel::mpsc;
use kube::{Client, Config};
use sluice_operator::{
    watch::{Scope, Watches},
    watch_state::WatchState,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::timeout};

/// What each watch asks for: group and plural, labels, and how much of an object.
type Seen = BTreeSet<(String, String, String)>;

/// The table of RIGHTS.md.
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
        }
        .start();
        cache.ready().await.unwrap();
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
