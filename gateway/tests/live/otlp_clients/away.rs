//! Clients that the edge asks to retry: because no broker is there at first, and because their tenant is over its limit. What the SDK sends
//! again is stored, and the SDK reports what it gives up.

use super::{Language, Program, SPANS, Sent, found, spans};
use crate::{
    broker::Topic,
    edge::{Edge, get, post, request},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// In front of a broker: closes connections until it may let them through. Later connections go to the broker itself, which names its address.
struct Front {
    address: String,
    is_open: Arc<AtomicBool>,
    _serving: JoinSet<()>,
}

impl Front {
    async fn before(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_open = Arc::new(AtomicBool::new(false));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, broker.to_owned(), Arc::clone(&is_open)));
        Self { address, is_open, _serving: serving }
    }
}

async fn serve(listener: TcpListener, broker: String, is_open: Arc<AtomicBool>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        if is_open.load(Ordering::Acquire) {
            let broker = broker.clone();
            connections.spawn(async move {
                let mut behind = TcpStream::connect(broker).await.unwrap();
                // Either side may close whenever it wants to.
                copy_bidirectional(&mut stream, &mut behind).await.ok();
            });
        }
    }
}

/// An edge whose brokers are away until [`Away::come`].
pub struct Away {
    pub edge: Edge,
    pub topic: Topic,
    front: Front,
}

impl Away {
    pub async fn start(test: &str) -> Self {
        let topic = Topic::create(test, 6).await;
        let front = Front::before(&topic.kafka().bootstrap_servers[0]).await;
        let edge = Edge::start(&topic, &front.address, "");
        let begun = Instant::now();
        while edge.address("http").is_none() {
            assert!(begun.elapsed() < super::PATIENCE, "{}", edge.said());
            sleep(super::ASK_AGAIN).await;
        }
        Self { edge, topic, front }
    }

    /// Waits until the edge has told clients so often to come again; then brokers are there.
    pub async fn come(&self, refused: u64) {
        wait_until_told(&self.edge, "retry", refused).await;
        self.front.is_open.store(true, Ordering::Release);
    }
}

/// Waits until the edge has given this many answers of a kind.
async fn wait_until_told(edge: &Edge, outcome: &str, count: u64) {
    let begun = Instant::now();
    while told(edge, outcome).await < count {
        assert!(begun.elapsed() < super::PATIENCE, "nobody is told {outcome}: {}", edge.said());
        sleep(super::ASK_AGAIN).await;
    }
}

/// Answers of a kind so far.
async fn told(edge: &Edge, outcome: &str) -> u64 {
    let (_, metrics) = get(&edge.address("listen").unwrap(), "/metrics").await.unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    let answers = metrics.lines().filter(|line| {
        line.starts_with("sluice_edge_server_answers_total{")
            && line.contains(&format!("outcome=\"{outcome}\""))
    });
    answers.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The spans that a client says were confirmed: all if it succeeded.
fn confirmed(client: &Program, succeeded: bool) -> i64 {
    if succeeded {
        return SPANS;
    }
    let said = client.said();
    let line = said.lines().find(|line| line.contains(" spans are confirmed"));
    let words = line.and_then(|line| line.split_once(&format!(" of {SPANS} spans")));
    let number = words.and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("it does not say how many are confirmed: {said}"))
}

/// Checks what a client did after the edge asked it to retry. The exporter for gRPC of the SDK for JavaScript never sends again
/// (EDGE.md): it loses what is refused, and says so. All others lose nothing.
async fn ends_well(sent: &Sent, client: &mut Program, topic: &Topic) {
    let succeeded = client.ends().await.success();
    let received = spans::received(&found(topic));
    let stored = spans::of_run(sent, &received);
    let confirmed = confirmed(client, succeeded);
    let gives_up = sent.language == Language::JavaScript && sent.protocol == "grpc";
    assert_eq!(succeeded, !gives_up, "{sent:?}: {}", client.said());
    assert!(i64::try_from(stored.len()).unwrap() >= confirmed, "{sent:?}: {} of {confirmed}", stored.len());
    if gives_up {
        assert!(confirmed < SPANS, "{sent:?}: {confirmed}");
    }
    // A request that got an error may be stored, and is there twice then.
    spans::same(sent, &stored);
}

async fn brokers_come_late(language: Language) {
    let mut all = JoinSet::new();
    for way in language.ways() {
        all.spawn(async move {
            let sent = Sent::new(language, *way);
            let away = Away::start(&format!("clients_late_{}", sent.run)).await;
            let begun = Instant::now();
            let mut client = sent.to(&away.edge);
            away.come(1).await;
            let refused = begun.elapsed();
            ends_well(&sent, &mut client, &away.topic).await;
            let took = begun.elapsed();
            eprintln!(
                "{language:?} {}: told to come again after {refused:.1?}, done after {took:.1?}",
                way.0
            );
            away.topic.delete().await;
        });
    }
    all.join_all().await;
}

/// The tenant has already sent what is allowed in ten seconds. A quiet tenant may send that of five seconds at once.
async fn tenants_are_limited(language: Language) {
    let mut all = JoinSet::new();
    for way in language.ways() {
        all.spawn(async move {
            let sent = Sent::new(language, *way);
            let topic = Topic::create(&format!("clients_limited_{}", sent.run), 6).await;
            let listen = "}\ntenants: {header: x-tenant, spansPerSecond: 20";
            let brokers = topic.kafka().bootstrap_servers.join(",");
            let mut edge = Edge::start_listening(&topic, &brokers, listen, "");
            edge.wait_ready().await;
            let http = edge.address("http").unwrap();
            let before = post(&http, "application/x-protobuf", &request(0, 100, 2)).await;
            assert_eq!(before.unwrap().0, 200);
            let begun = Instant::now();
            let mut client = sent.to(&edge);
            ends_well(&sent, &mut client, &topic).await;
            let (told, took) = (told(&edge, "tenant_limit").await, begun.elapsed());
            assert!(told > 0, "{sent:?}: {}", edge.said());
            eprintln!("{language:?} {}: told {told} times to come again, done after {took:.1?}", way.0);
            topic.delete().await;
        });
    }
    all.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_python_sends_again_when_brokers_come_late() {
    brokers_come_late(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_go_sends_again_when_brokers_come_late() {
    brokers_come_late(Language::Go).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_javascript_sends_again_when_brokers_come_late() {
    brokers_come_late(Language::JavaScript).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_java_sends_again_when_brokers_come_late() {
    brokers_come_late(Language::Java).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_python_waits_while_its_tenant_is_over_the_limit() {
    tenants_are_limited(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_go_waits_while_its_tenant_is_over_the_limit() {
    tenants_are_limited(Language::Go).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_javascript_waits_while_its_tenant_is_over_the_limit() {
    tenants_are_limited(Language::JavaScript).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn the_sdk_for_java_waits_while_its_tenant_is_over_the_limit() {
    tenants_are_limited(Language::Java).await;
}
