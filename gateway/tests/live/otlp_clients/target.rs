//! What clients send to: an edge, whose topic a gateway reads, or a gateway with `source.otlp`. Behind both is a table that has every span.

use super::{PARTITIONS, SPANS, Sent, found, rows, spans};
use crate::{
    broker::Topic,
    edge::{Edge, Found, key_of},
    otlp_source::{Gateway, Scene},
};
use sluice_kafka::producer::partition_of;

/// A kind of process that accepts OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Edge,
    Source,
}

/// Every client is tested with each of them.
pub const ROLES: [Role; 2] = [Role::Edge, Role::Source];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Source => "source",
        }
    }
}

/// A process of a role with all that is behind it.
pub enum Target {
    Edge(Edge, Box<Topic>),
    Source(Gateway, Box<Scene>),
}

impl Target {
    /// Starts one that accepts requests; `test` tells its topic or its table from others.
    pub async fn start(role: Role, test: &str) -> Self {
        match role {
            Role::Edge => {
                let topic = Topic::create(&format!("clients_{test}"), 6).await;
                let mut edge = Edge::start(&topic, &topic.kafka().bootstrap_servers.join(","), "");
                edge.wait_ready().await;
                Self::Edge(edge, Box::new(topic))
            }
            Role::Source => {
                let scene = Scene::open(&format!("otlp_clients_{test}")).await;
                rows::add_columns(&scene.database).await;
                let gateway = scene.start(|_| {});
                gateway.listens("grpc").await;
                Self::Source(gateway, Box::new(scene))
            }
        }
    }

    /// Where it listens for `grpc` or `http`.
    pub async fn address(&self, name: &str) -> String {
        match self {
            Self::Edge(edge, _) => edge.address(name).unwrap(),
            Self::Source(gateway, _) => gateway.listens(name).await,
        }
    }

    /// Ends it, and checks that each span of these clients became this many rows, with every field, and that there is no other row. Of an edge,
    /// the messages are checked, too.
    pub async fn read_back(self, test: &str, sent: &[Sent], copies: usize) {
        let spans_in_all = sent.len() * usize::try_from(SPANS).unwrap() * copies;
        match self {
            Self::Edge(edge, topic) => {
                drop(edge);
                let found = found(&topic);
                keyed_as_by_an_edge(&found);
                let received = spans::received(&found);
                assert_eq!(received.len(), spans_in_all);
                for sent in sent {
                    spans::compare(sent, &received, copies);
                }
                rows::compare(*topic, test, &found, &received).await;
            }
            Self::Source(mut gateway, scene) => {
                scene.wait_for_rows(spans_in_all.try_into().unwrap()).await;
                gateway.ends().await;
                let stored = rows::of(&scene.database).await;
                let wanted = sent.iter().map(|sent| spans::with_ids(sent, &rows::ids(sent, &stored)));
                let wanted: Vec<_> = wanted.flatten().flat_map(|span| vec![span; copies]).collect();
                rows::same(&stored, &wanted);
                drop(gateway);
                scene.close().await;
            }
        }
    }
}

/// Checks that each trace of messages has the key and the partition that an edge gives it.
pub fn keyed_as_by_an_edge(found: &[Found]) {
    for Found { partition, key, data } in found {
        let scopes = data.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let ids: Vec<_> = scopes.flat_map(|scope| &scope.spans).map(|span| &*span.trace_id).collect();
        assert!(ids.iter().any(|id| key_of(id) == *key), "{key:?} is no id of its traces");
        for id in ids {
            let wanted = partition_of(&key_of(id), PARTITIONS);
            assert_eq!(i32::try_from(wanted).unwrap(), *partition, "{id:?}");
        }
    }
}
