//! Questions to Kafka: to a mock of a cluster, and to what is none.

use super::*;
use crate::read::kafka::{
    own_logins::OwnLogins,
    security::{KafkaSecrets, KafkaSecurity},
};
use cluster::tests::cluster;
use rdkafka::{
    consumer::CommitMode,
    mocking::{MockCluster, MockCoordinator},
    producer::{BaseProducer, BaseRecord, Producer},
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use serde_json::json;
use sluice_crds::SecretUse;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn client(servers: &str) -> Client {
    Client::new(&cluster(servers, &[]), "of-another").unwrap()
}

fn commit(servers: &str, group: &str, partition: i32, offset: i64) {
    let mut config = ClientConfig::new();
    let consumer: BaseConsumer =
        config.set("bootstrap.servers", servers).set("group.id", group).create().unwrap();
    let mut commit = TopicPartitionList::new();
    commit.add_partition_offset("spans", partition, Offset::Offset(offset)).unwrap();
    consumer.commit(&commit, CommitMode::Sync).unwrap();
}

fn spans(partitions: u32) -> Vec<(String, u32)> {
    vec![("spans".to_owned(), partitions)]
}

fn produce(servers: &str, topic: &str, partition: i32, count: usize) {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
    for _ in 0..count {
        let record = BaseRecord::<(), str>::to(topic).partition(partition).payload("x");
        producer.send(record).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_topic_has_partitions() {
    let kafka = MockCluster::new(1).unwrap();
    kafka.create_topic("spans", 3, 1).unwrap();
    let client = client(&kafka.bootstrap_servers());
    assert_eq!(client.partitions("spans", soon()).unwrap(), Some(3));
}

#[test]
fn positions_are_committed_begin_and_end_of_whichever_group() {
    let kafka = MockCluster::new(2).unwrap();
    let servers = kafka.bootstrap_servers();
    kafka.create_topic("spans", 2, 1).unwrap();
    produce(&servers, "spans", 0, 5);
    produce(&servers, "spans", 1, 2);
    commit(&servers, "one", 0, 3);
    commit(&servers, "other", 1, 1);
    let client = client(&servers);
    let of = |committed, end| Position { committed, begin: Some(0), end: Some(end) };
    for (group, committed) in [("one", [Some(3), None]), ("other", [None, Some(1)]), ("none", [None, None])] {
        let positions = client.positions(group, &spans(2), soon()).unwrap();
        assert_eq!(positions, [of(committed[0], 5), of(committed[1], 2)], "{group}");
    }
    assert_eq!(client.positions("one", &[], soon()).unwrap(), []);
}

#[test]
fn a_coordinator_that_has_moved_ends_the_client_and_not_the_process() {
    let kafka = MockCluster::new(1).unwrap();
    let servers = kafka.bootstrap_servers();
    kafka.create_topic("spans", 1, 1).unwrap();
    let client = client(&servers);
    for (error, is_end) in [
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR, true),
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, false),
    ] {
        kafka.request_errors(RDKafkaApiKey::OffsetFetch, &[error]);
        let found = client.positions("one", &spans(1), soon()).unwrap_err();
        assert_eq!((found.code(), found.is_clients_end()), (Some(error.into()), is_end), "{found}");
    }
    client.positions("one", &spans(1), soon()).unwrap();
}

#[test]
fn an_answer_that_comes_too_late_ends_the_client_and_not_the_process() {
    let kafka = MockCluster::new(2).unwrap();
    let servers = kafka.bootstrap_servers();
    kafka.create_topic("spans", 1, 1).unwrap();
    kafka.partition_leader("spans", 0, Some(1)).unwrap();
    kafka.coordinator(MockCoordinator::Group("one".to_owned()), 2).unwrap();
    kafka.broker_down(2).unwrap();
    let client = client(&servers);
    assert_eq!(client.partitions("spans", soon()).unwrap(), Some(1));
    let in_a_moment = || Instant::now() + Duration::from_millis(300);
    for _ in 0..3 {
        let found = client.positions("one", &spans(1), in_a_moment()).unwrap_err();
        assert!(found.is_clients_end(), "{found}");
    }
    // What was asked is still there, and finds its coordinator.
    kafka.broker_up(2).unwrap();
    let positions = client.positions("one", &spans(1), soon()).unwrap();
    assert_eq!(positions.len(), 1);
    // And a client closes with requests that got no answer.
    kafka.broker_down(2).unwrap();
    let again = Client::new(&cluster(&servers, &[]), "one").unwrap();
    again.positions("one", &spans(1), in_a_moment()).unwrap_err();
}

#[test]
fn a_group_that_has_no_name_is_an_error() {
    let kafka = MockCluster::new(1).unwrap();
    kafka.create_topic("spans", 1, 1).unwrap();
    let client = client(&kafka.bootstrap_servers());
    let found = client.positions("a\0b", &spans(1), soon()).unwrap_err();
    assert_eq!((found.code(), found.is_clients_end()), (None, false));
}

#[test]
fn kafka_away_is_an_error_in_time() {
    let begun = Instant::now();
    let client = client("127.0.0.1:1");
    let found = client.partitions("spans", begun + Duration::from_millis(300)).unwrap_err();
    assert!(!found.is_answer());
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_connection_that_comes_to_nothing_is_told_in_the_same_words_each_time() {
    let answers = |stream: &mut TcpStream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
    };
    // As a listener of Kafka without TLS.
    let closes = |stream: &mut TcpStream| {
        stream.shutdown(Shutdown::Both).ok();
    };
    let (cut, late) = (RDKafkaErrorCode::BrokerTransportFailure, RDKafkaErrorCode::OperationTimedOut);
    let is_silent = |_: &mut TcpStream| {};
    let cases = [
        (json!({}), answers as fn(&mut TcpStream), RDKafkaErrorCode::SSL, false, "SSL handshake failed"),
        (json!({}), closes, cut, true, "SSL handshake failed"),
        // As one that wants TLS, or a login.
        (json!(null), closes, cut, false, "Disconnected"),
        // As a load balancer without a broker behind it.
        (json!({}), is_silent, late, false, "timed out in state SSL_HANDSHAKE"),
        (json!(null), is_silent, late, false, "timed out in state APIVERSION_QUERY"),
    ];
    std::thread::scope(|scope| {
        for (tls, speaks, code, is_cut, reason) in cases {
            scope.spawn(move || {
                let client = client_of(&without_tls(speaks), &tls);
                let asked =
                    || client.partitions("spans", Instant::now() + Duration::from_secs(6)).unwrap_err();
                let found = [asked(), asked()];
                assert_eq!(found[0].to_string(), found[1].to_string());
                assert_eq!((found[0].code(), found[0].is_cut_handshake()), (Some(code), is_cut), "{found:?}");
                assert_eq!(found[0].is_closed(), code == cut, "{found:?}");
                assert!(found[0].to_string().contains(reason), "{found:?}");
                assert!(!found[0].to_string().contains("ms in state"), "{found:?}");
            });
        }
    });
}

/// A client that waits for a connection as shortly as librdkafka allows.
fn client_of(address: &str, tls: &serde_json::Value) -> Client {
    let properties = json!({"socket.connection.setup.timeout.ms": "1000"});
    let spec =
        json!({"bootstrapServers": [address], "topics": ["spans"], "tls": tls, "properties": properties});
    let spec = serde_json::from_value(spec).unwrap();
    let security = KafkaSecurity::of(&spec, &KafkaSecrets::new(), &OwnLogins::default()).unwrap();
    Client::new(&Cluster::of(&spec, security), "one").unwrap()
}

/// The address of a listener that speaks no TLS, and does this with each connection once it has read.
fn without_tls(speaks: fn(&mut TcpStream)) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        // What is closed before its bytes were read is reset, and the client does not see the answer.
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read(&mut [0; 4_096]).is_ok_and(|bytes| bytes > 0) {
                speaks(&mut stream);
            }
            open.push(stream);
        }
    });
    address
}

#[test]
fn why_no_connection_can_be_made_is_told_in_the_same_words_each_time() {
    // The port of a listener that is gone.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (address, words) in [
        (address.as_str(), "Connection refused"),
        ("broker.invalid:9092", "Failed to resolve 'broker.invalid:9092'"),
    ] {
        let client = client_of(address, &json!(null));
        let asked = || client.partitions("spans", Instant::now() + Duration::from_secs(6)).unwrap_err();
        let found = [asked(), asked()];
        assert!(found[0].to_string().contains(words) && !found[0].is_closed(), "{found:?}");
        assert_eq!(found[0].to_string(), found[1].to_string());
    }
}

#[test]
fn a_listener_that_accepted_no_connection_is_not_silent() {
    for (reason, expected) in [
        (
            "a:9092/bootstrap: Connection setup timed out in state APIVERSION_QUERY (after 3001ms in state X)",
            true,
        ),
        ("a:9092/bootstrap: Connection setup timed out in state AUTH_HANDSHAKE", true),
        (
            "a:9092/bootstrap: ApiVersionRequest failed: Local: Timed out: probably due to broker version",
            true,
        ),
        (
            "a:9092/bootstrap: Connection setup timed out in state CONNECT (after 3001ms in state CONNECT)",
            false,
        ),
        ("a:9092/bootstrap: Disconnected (after 1ms in state APIVERSION_QUERY)", false),
    ] {
        assert_eq!(is_silence(reason), expected, "{reason}");
    }
}

#[test]
fn a_token_endpoint_that_does_not_answer_is_told_and_kafka_is_not_asked() {
    // The system accepts connections, and no program reads them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
    let spec = serde_json::from_value(json!({
        "bootstrapServers": ["127.0.0.1:1"], "topics": ["spans"],
        "sasl": {"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {
            "tokenEndpoint": endpoint, "clientId": "me", "secretRef": {"name": "client"},
        }}},
    }))
    .unwrap();
    let secret = json!({"data": {"client-secret": "czNjcmV0"}});
    let secret = Arc::new(serde_json::from_value(secret).unwrap());
    let secrets: KafkaSecrets = [(SecretUse::KafkaClient, secret)].into();
    let security = KafkaSecurity::of(&spec, &secrets, &OwnLogins::default()).unwrap();
    let client = Client::new(&Cluster::of(&spec, security), "one").unwrap();
    let found = client.partitions("spans", Instant::now() + Duration::from_secs(1)).unwrap_err();
    assert!(matches!(found, Error::Token { .. }), "{found}");
    let said = found.to_string();
    assert!(said.contains("the token endpoint http://127.0.0.1:") && said.contains("within 1 s"), "{said}");
}

#[test]
fn a_setting_that_librdkafka_does_not_take_is_left_out() {
    let properties = [("socket.receive.bufer.bytes", "65536"), ("socket.send.buffer.bytes", "many")];
    assert!(Client::new(&cluster("127.0.0.1:1", &properties), "one").is_ok());
    assert!(is_accepted("socket.send.buffer.bytes", "65536"));
}

#[test]
fn a_property_that_librdkafka_does_not_take_is_named_with_why() {
    let spec = serde_json::from_value(json!({
        "bootstrapServers": ["127.0.0.1:1"], "topics": ["spans"],
        "properties": {
            "socket.receive.bufer.bytes": "65536", "socket.send.buffer.bytes": "many",
            "broker.address.family": "v4", "debug": "cgrp", "plugin.library.paths": "/no/such/library",
        },
    }))
    .unwrap();
    assert!(!is_accepted("plugin.library.paths", "/no/such/library"), "the plan refuses it");
    let found = refused_properties(&spec);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["socket.receive.bufer.bytes", "socket.send.buffer.bytes"]);
    for (name, why) in &found {
        assert_eq!(why.matches(name.as_str()).count(), 1, "{why}");
    }
}
