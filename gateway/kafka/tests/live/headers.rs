//! Headers as any program may write them: their names are bytes.
//!
//! Why here is unsafe code: the Rust client accepts only names that are text. So the message is put into its producer's queue through
//! librdkafka's public interface.

#![expect(unsafe_code, reason = "the Rust client writes no header whose name is not text")]

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    bindings as rd,
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    message::{Headers as _, Message as _},
    producer::{BaseProducer, Producer as _},
};
use sluice_gateway_config::Format;
use sluice_kafka::dead_letter::Letter;
use std::{ffi::CString, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Names of headers, and what is read of each.
const NAMES: [(&[u8], &str); 5] = [
    (b"tenant", "tenant"),
    ("größe €𝄞".as_bytes(), "größe €𝄞"),
    (b"\xff", "?"),
    // Cut off within a character; half of a pair of UTF-16; more bytes than it takes.
    (b"a\xe2\x82", "a??"),
    (b"\xed\xa0\x80\xc0\xaf", "?????"),
];

/// Sends a message without a value and with these headers.
fn produce(producer: &BaseProducer, topic: &str) {
    let topic = CString::new(topic).unwrap();
    let mut parts = vec![rd::rd_kafka_vu_t {
        vtype: rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
        u: rd::rd_kafka_vu_s__bindgen_ty_1 { cstr: topic.as_ptr() },
    }];
    let names: Vec<CString> = NAMES.iter().map(|(name, _)| CString::new(*name).unwrap()).collect();
    parts.extend(names.iter().map(|name| rd::rd_kafka_vu_t {
        vtype: rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER,
        u: rd::rd_kafka_vu_s__bindgen_ty_1 {
            header: rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 {
                name: name.as_ptr(),
                val: b"v".as_ptr().cast(),
                size: 1,
            },
        },
    }));
    // SAFETY: the producer lives as long as its reference. The number and kinds of the parts are as passed; texts are zero-terminated and
    // copied before the call returns. It returns null if it accepted the message.
    let refused =
        unsafe { rd::rd_kafka_produceva(producer.client().native_ptr(), parts.as_ptr(), parts.len()) };
    assert!(refused.is_null());
    producer.flush(TIMEOUT).unwrap();
}

#[tokio::test]
async fn a_header_whose_name_is_not_text_is_read_and_goes_into_a_letter() {
    let brokers = std::env::var("SLUICE_KAFKA").unwrap_or_else(|_| "127.0.0.1:29092".to_owned());
    let topic = format!("sluice-live-headers-{}", std::process::id());
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &brokers).set("group.id", &topic);
    let admin: AdminClient<DefaultClientContext> = settings.create().unwrap();
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
    admin.create_topics([&new], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();

    produce(&settings.create().unwrap(), &topic);
    let consumer: BaseConsumer = settings.set("auto.offset.reset", "earliest").create().unwrap();
    consumer.subscribe(&[&topic]).unwrap();
    let begin = std::time::Instant::now();
    let message = loop {
        assert!(begin.elapsed() < TIMEOUT, "the message is not read");
        if let Some(read) = consumer.poll(Duration::from_millis(100)) {
            break read.unwrap();
        }
    };
    let names: Vec<_> = message.headers().unwrap().iter().map(|header| header.key).collect();
    assert_eq!(names, NAMES.map(|(_, read)| read));
    // Also for a message that owns its content.
    let owned = message.detach();
    let letter = Letter::of_message(&owned, Format::OtlpProto, "malformed", "no trace message");
    let carried: Vec<_> = letter.headers.iter().map(|(name, value)| (*name, value.unwrap())).collect();
    assert_eq!(carried, NAMES.map(|(_, read)| (read, &b"v"[..])));
    for deleted in admin.delete_topics(&[&topic], &AdminOptions::new()).await.unwrap() {
        deleted.unwrap();
    }
}
