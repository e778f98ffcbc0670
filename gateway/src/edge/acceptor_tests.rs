//! Requests in front of librdkafka's mock cluster, which can be away on demand.

use super::*;
use crate::{
    edge::{
        samples::{field, request, splitting},
        splitting::{Splitting, key},
    },
    intake::tenants::TenantRates,
};
use bytes::Bytes;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
};
use sluice_gateway_config::{Kafka, parse};
use sluice_kafka::producer::{ProducerLimits, partition_of};
use sluice_otlp_server::{ByteBudget, Encoding};
use tokio::runtime::Handle;

/// A mock takes milliseconds; a busy machine some seconds.
const PATIENCE: Duration = Duration::from_mins(1);

const PARTITIONS: u32 = 4;

const CONFIG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                      source: {kafka: {bootstrapServers: ['k:9092'], topics: [spans], consumerGroup: g}}, \
                      sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";

/// Bytes of all permits.
const BUDGET: u64 = 40 << 20;

struct Scene {
    mock: MockCluster<'static, DefaultProducerContext>,
    edge: Edge,
    budget: ByteBudget,
}

impl Scene {
    async fn open(rates: TenantRates, timeout: Duration) -> Self {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 4, 1).unwrap();
        let config = parse::from_yaml(CONFIG).unwrap();
        let kafka =
            Kafka { bootstrap_servers: vec![mock.bootstrap_servers()], ..config.source.kafka.unwrap() };
        let limits = ProducerLimits { queue_bytes: 1 << 20, batch_bytes_max: 64 << 10, timeout };
        let producer = Producer::start(&kafka, "spans", "edge", limits, &Handle::current()).unwrap();
        let splitting = splitting(&producer);
        let edge = Edge {
            producer,
            splitting,
            tenants: SharedTenants::new(rates),
            metrics: EdgeMetrics::new(&[]),
            timeout: timeout + Duration::from_secs(2),
            json_bytes_max: 1 << 20,
        };
        let begun = Instant::now();
        while edge.producer.partitions() != Some(PARTITIONS) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", edge.producer.problem());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self { mock, edge, budget: ByteBudget::new(BUDGET) }
    }

    async fn take(&self, body: Vec<u8>, tenant: &str) -> Result<Taken, Untaken> {
        self.take_in(body, Encoding::Protobuf, tenant).await
    }

    async fn take_in(&self, body: Vec<u8>, encoding: Encoding, tenant: &str) -> Result<Taken, Untaken> {
        let permit = self.budget.try_take(body.len()).unwrap();
        let tenant = Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty());
        let taken = self.edge.take(Request { body: Bytes::from(body), encoding, tenant, permit }).await;
        assert_eq!(self.budget.used_bytes(), 0, "the permit is free again");
        taken
    }

    fn refused(&self, reason: &str) -> u64 {
        self.edge.metrics.refused.with_label_values(&[reason]).get()
    }

    /// Values of this many messages, each with its key and partition.
    fn read(&self, messages: usize) -> Vec<(Vec<u8>, i32, Vec<u8>)> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.mock.bootstrap_servers())
            .set("group.id", "test")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..4 {
            list.add_partition_offset("spans", partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let (mut found, begun) = (Vec::new(), Instant::now());
        while found.len() < messages {
            assert!(begun.elapsed() < PATIENCE, "{} of {messages} messages", found.len());
            let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
            let of = |bytes: Option<&[u8]>| bytes.unwrap_or_default().to_vec();
            found.push((of(message.key()), message.partition(), of(message.payload())));
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_answered_once_kafka_has_all_of_its_messages() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(30)).await;
    let traces: Vec<_> = (1..=40).map(|trace| (trace, 200)).collect();
    let taken = scene.take(request(&traces), "").await.unwrap();
    assert_eq!(taken, Taken { rejected_spans: 0, message: String::new() });
    let messages = usize::try_from(scene.edge.metrics.messages.get()).unwrap();
    let found = scene.read(messages);
    let mut spans = 0;
    for (key_found, partition, value) in found {
        assert!(value.len() <= 1_000);
        assert_eq!(partition_of(&key_found, PARTITIONS), u32::try_from(partition).unwrap());
        spans += sluice_otlp::validate(&value).unwrap();
    }
    assert_eq!((spans, scene.edge.metrics.spans.get()), (40, 40));
    assert_eq!(scene.edge.metrics.requests_in_flight.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_becomes_protobuf_and_a_request_without_spans_is_a_success() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(30)).await;
    let json = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0B0B0B0B0B0B0B0B0B0B0B0B0B0B0B0B","spanId":"0000000000000001"}]}]}]}"#;
    scene.take_in(json.to_vec(), Encoding::Json, "").await.unwrap();
    let found = scene.read(1);
    assert_eq!((found[0].0.as_slice(), sluice_otlp::validate(&found[0].2)), (&key(&[11; 16])[..], Ok(1)));
    for (body, encoding) in
        [(&b""[..], Encoding::Protobuf), (b"{}", Encoding::Json), (b"\x0A\x00", Encoding::Protobuf)]
    {
        let taken = scene.take_in(body.to_vec(), encoding, "").await;
        assert_eq!(taken, Ok(Taken { rejected_spans: 0, message: String::new() }));
    }
    assert_eq!(scene.edge.metrics.messages.get(), 1);
    let large = vec![b' '; (1 << 20) + 1];
    let refused = scene.take_in(large, Encoding::Json, "").await;
    assert!(matches!(&refused, Err(Untaken::TooLarge(why)) if why.contains("send protobuf")), "{refused:?}");
    let permit = scene.budget.try_take(json.len()).unwrap();
    let _rest = scene.budget.try_take(usize::try_from(BUDGET - scene.budget.used_bytes()).unwrap()).unwrap();
    let request = Request { body: Bytes::from_static(json), encoding: Encoding::Json, tenant: None, permit };
    assert!(matches!(scene.edge.take(request).await, Err(Untaken::Retry { after: BUSY_AFTER, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_whole_and_a_span_that_is_too_large_alone() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(30)).await;
    let mut cut_short = request(&[(1, 10), (2, 10)]);
    cut_short.pop();
    let refused = scene.take(cut_short, "").await.unwrap_err();
    assert!(matches!(&refused, Untaken::Malformed(why) if why.contains("malformed OTLP")), "{refused:?}");
    assert_eq!((scene.refused("malformed"), scene.edge.metrics.messages.get()), (1, 0));
    let taken = scene.take(request(&[(1, 10), (2, 70_000), (3, 10)]), "").await.unwrap();
    assert_eq!(taken.rejected_spans, 1);
    for said in ["1 span is larger than the 64512 bytes", "max.message.bytes", "recordBatchBytesMax"] {
        assert!(taken.message.contains(said), "{}", taken.message);
    }
    assert_eq!(scene.edge.metrics.spans.get(), 2);
    let many =
        field(1, &field(2, &field(2, &[field(1, &[1; 16]), field(2, &[1; 8])].concat()).repeat(300_000)));
    assert!(matches!(scene.take(many, "").await, Err(Untaken::TooLarge(why)) if why.contains("fewer spans")));
    assert_eq!(scene.refused("too_large"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_over_its_limit_gets_an_answer_that_says_so_and_others_are_taken() {
    let rates = TenantRates { spans: Some(1), bytes: None };
    let scene = Scene::open(rates, Duration::from_secs(30)).await;
    scene.take(request(&[(1, 1); 20]), "a").await.unwrap();
    let Err(Untaken::TenantLimit(over)) = scene.take(request(&[(1, 1)]), "a").await else {
        panic!("it was taken")
    };
    assert!(over.to_string().starts_with("tenant \"a\": more than the limit of 1 spans a second"), "{over}");
    assert_eq!(scene.refused("tenant_spans"), 1);
    scene.take(request(&[(1, 1)]), "b").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_which_no_thread_is_free_costs_its_tenant_nothing() {
    let rates = TenantRates { spans: None, bytes: Some(1) };
    let mut scene = Scene::open(rates, Duration::from_secs(30)).await;
    let threads = std::mem::replace(&mut scene.edge.splitting, Splitting::without_threads());
    for _ in 0..2 {
        let refused = scene.take(request(&[(1, 1); 20]), "a").await;
        assert!(matches!(&refused, Err(Untaken::Retry { after: BUSY_AFTER, .. })), "{refused:?}");
    }
    scene.edge.splitting = threads;
    scene.take(request(&[(1, 1); 20]), "a").await.unwrap();
    assert_eq!((scene.refused("busy"), scene.refused("tenant_bytes")), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_request_in_json_gets_its_memory_although_small_ones_come_all_the_time() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(30)).await;
    let text = [&b"{}"[..], &vec![b' '; (1 << 20) - 2]].concat();
    let mut permit = scene.budget.try_take(text.len()).unwrap();
    let small = 256 << 10;
    let mut held: Vec<_> = std::iter::from_fn(|| scene.budget.try_take(small).ok()).collect();
    // As small requests do that end, and others that begin.
    let others = async {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            held.pop();
            held.extend(scene.budget.take_within(small, Duration::from_millis(1)).await.ok());
            tokio::task::yield_now().await;
        }
    };
    permit.shrink_to(text.len());
    let request = Request { body: Bytes::from(text), encoding: Encoding::Json, tenant: None, permit };
    let taken = tokio::select! {
        taken = scene.edge.take(request) => taken,
        () = others => panic!("it got no memory beside small requests"),
    };
    assert_eq!(taken, Ok(Taken { rejected_spans: 0, message: String::new() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_away_get_no_success_and_nothing_is_held_for_ever() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(1)).await;
    scene.mock.broker_down(1).unwrap();
    let refused = scene.take(request(&[(1, 10)]), "").await.unwrap_err();
    let names_it = |why: &str| why.contains("topic spans") && why.contains(&scene.mock.bootstrap_servers());
    assert!(
        matches!(&refused, Untaken::Retry { after: NOT_STORED_AFTER, why } if names_it(why)),
        "{refused:?}"
    );
    assert_eq!(scene.refused("kafka_timed_out"), 1);
    // Once it is known that no broker answers, clients learn it without waiting.
    let begun = Instant::now();
    while scene.refused("no_broker") == 0 {
        let refused = scene.take(request(&[(1, 10)]), "").await;
        assert!(
            matches!(&refused, Err(Untaken::Retry { after: NOT_STORED_AFTER, why }) if names_it(why)),
            "{refused:?}"
        );
        assert!(begun.elapsed() < PATIENCE, "requests still wait");
    }
    let begun = Instant::now();
    scene.take(request(&[(1, 10)]), "").await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    // A message gives its room back after its request was answered.
    let begun = Instant::now();
    while scene.edge.producer.queued_bytes() > 0 {
        assert!(begun.elapsed() < PATIENCE, "its room is not free again");
        tokio::task::yield_now().await;
    }
    scene.mock.broker_up(1).unwrap();
    let begun = Instant::now();
    while scene.take(request(&[(1, 10)]), "").await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "it does not recover");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_holds_nothing_and_what_was_sent_is_stored() {
    let scene = Scene::open(TenantRates::default(), Duration::from_secs(30)).await;
    let body = request(&[(1, 10)]);
    let permit = scene.budget.try_take(body.len()).unwrap();
    let request = Request { body: Bytes::from(body), encoding: Encoding::Protobuf, tenant: None, permit };
    // Polled once: its task has split it, and waits for Kafka.
    let taken = tokio::time::timeout(Duration::ZERO, scene.edge.take(request)).await;
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!((scene.budget.used_bytes(), scene.edge.metrics.requests_in_flight.get()), (0, 0));
    assert_eq!(sluice_otlp::validate(&scene.read(1)[0].2), Ok(1));
}

#[test]
fn an_answer_says_how_many_spans_were_rejected_and_what_helps() {
    assert_eq!(too_large(0, 0, 7), "");
    let text = too_large(2, 1_100_000, 1_047_552);
    for said in ["2 spans are larger than the 1047552 bytes", "up to 1100000 bytes", "max.message.bytes"] {
        assert!(text.contains(said), "{text}");
    }
}
