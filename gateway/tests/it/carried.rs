//! What rules for attributes leave of a message, in every layout: the rows are those of a message that was sent without the rest.

use crate::{
    encodes::{Case, attribute, encoded_for, message, resource},
    rows::{any, text},
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, KeyValueList, any_value::Value},
    trace::v1::{ResourceSpans, Span, TracesData, span::Event, span::Link},
};
use proptest::prelude::*;
use prost::Message as _;
use sluice_clickhouse::column::{Layout, TableColumns};
use sluice_gateway::{
    reading::{encode::Encoded, reject::Reason},
    rows::{
        attributes::RowLimit,
        carry::{Carrying, LIST_BYTES_MAX, hash},
    },
};
use sluice_gateway_config::{
    AttributeAction, AttributeRule, Attributes, AttributesOf, ByteSize, UnreadableLetters,
};
use std::collections::BTreeSet;

/// `valueBytesMax` of the tests.
const BYTES_MAX: usize = 1 << 10;

fn rule(action: AttributeAction, keys: &[&str]) -> AttributeRule {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    AttributeRule { action, keys, sets: AttributesOf::ALL.to_vec() }
}

fn rules(rules: Vec<AttributeRule>) -> Attributes {
    Attributes { rules, ..Attributes::default() }
}

/// An attribute whose value is a list of keys and values.
fn list(key: &str, values: Vec<KeyValue>) -> KeyValue {
    attribute(key, Some(any(Value::KvlistValue(KeyValueList { values }))))
}

/// A span with these attributes, an event and a link with the same.
fn span(attributes: &[KeyValue]) -> Span {
    let event = Event {
        attributes: attributes.to_vec(),
        time_unix_nano: 1_700_000_000_000_000_001,
        ..Event::default()
    };
    let link = Link { attributes: attributes.to_vec(), ..Link::default() };
    Span { events: vec![event], links: vec![link], ..crate::encodes::span(attributes.to_vec()) }
}

fn tables() -> impl Iterator<Item = TableColumns> {
    [Layout::Json, Layout::Map, Layout::Nested].into_iter().map(TableColumns::of_layout)
}

fn carried(columns: TableColumns, attributes: &Attributes, message: &[u8]) -> Vec<u8> {
    let mut case = Case::of(64 << 20, columns).carrying(attributes);
    assert!(matches!(case.add(message), Encoded::Whole { .. }));
    case.rows().1
}

/// The rows of a message under rules are those of another message without rules.
fn assert_rows(attributes: &Attributes, sent: &[KeyValue], expected: &[KeyValue]) {
    let of = |attributes: &[KeyValue]| message(resource(attributes.to_vec()), vec![span(attributes)]);
    for columns in tables() {
        let found = carried(columns.clone(), attributes, &of(sent));
        assert_eq!(found, encoded_for(columns.clone(), &of(expected)), "{columns}");
    }
}

fn hashed(value: &Value) -> Option<AnyValue> {
    let value = match value {
        Value::StringValue(text) => sluice_otlp::Value::String(text.as_bytes()),
        Value::IntValue(number) => sluice_otlp::Value::Int(*number),
        Value::BytesValue(bytes) => sluice_otlp::Value::Bytes(bytes),
        other => panic!("{other:?}"),
    };
    let hash = hash::of_value(value).unwrap().unwrap();
    text(std::str::from_utf8(&hash).unwrap())
}

#[test]
fn attributes_are_kept_dropped_and_hashed_by_the_first_rule() {
    let rules = rules(vec![
        rule(AttributeAction::Keep, &["http.method"]),
        rule(AttributeAction::Drop, &["http.*", "secret"]),
        rule(AttributeAction::Hash, &["user.id", "number"]),
    ]);
    let number = Value::IntValue(7);
    assert_rows(
        &rules,
        &[
            attribute("http.method", text("GET")),
            attribute("http.url", text("u")),
            attribute("secret", Some(any(Value::BytesValue(vec![1])))),
            attribute("user.id", text("me")),
            attribute("number", Some(any(number.clone()))),
            attribute("service.name", text("shop")),
        ],
        &[
            attribute("http.method", text("GET")),
            attribute("user.id", hashed(&Value::StringValue("me".into()))),
            attribute("number", hashed(&number)),
            attribute("service.name", text("shop")),
        ],
    );
}

#[test]
fn equal_keys_have_one_fate_and_the_first_of_them_is_stored() {
    let twice = [attribute("k", text("first")), attribute("k", text("second")), attribute("l", text("x"))];
    assert_rows(&rules(vec![rule(AttributeAction::Drop, &["k"])]), &twice, &twice[2..]);
    assert_rows(
        &rules(vec![rule(AttributeAction::Hash, &["k"])]),
        &twice,
        &[attribute("k", hashed(&Value::StringValue("first".into()))), twice[2].clone()],
    );
}

#[test]
fn the_service_name_is_what_is_stored_of_it() {
    let name = [attribute("service.name", text("shop"))];
    assert_rows(&rules(vec![rule(AttributeAction::Drop, &["service.name"])]), &name, &[]);
    let hash = [attribute("service.name", hashed(&Value::StringValue("shop".into())))];
    assert_rows(&rules(vec![rule(AttributeAction::Hash, &["service.*"])]), &name, &hash);
}

#[test]
fn members_of_lists_are_decided_by_their_path_in_every_layout() {
    let user = |members: Vec<KeyValue>| vec![list("user", members)];
    let email = attribute("email", text("a@b"));
    let id = attribute("id", text("me"));
    let deep = list("deep", vec![email.clone(), id.clone()]);
    let drop = |keys: &[&str]| rules(vec![rule(AttributeAction::Drop, keys)]);
    let all = user(vec![email.clone(), id.clone(), deep.clone()]);
    assert_rows(&drop(&["user.email"]), &all, &user(vec![id.clone(), deep.clone()]));
    let left = user(vec![email.clone(), id.clone(), list("deep", vec![id.clone()])]);
    assert_rows(&drop(&["user.deep.email"]), &all, &left);
    assert_rows(&drop(&["user"]), &all, &[]);
    assert_rows(&drop(&["users", "use.r"]), &all, &all);
    let kept = rules(vec![rule(AttributeAction::Keep, &["user"]), rule(AttributeAction::Drop, &["user.*"])]);
    assert_rows(&kept, &all, &all);
    let hash = rules(vec![rule(AttributeAction::Hash, &["user.id"])]);
    let id = attribute("id", hashed(&Value::StringValue("me".into())));
    assert_rows(&hash, &all, &user(vec![email, id, deep]));
}

#[test]
fn a_dropped_value_must_be_readable_all_the_same() {
    // An array of a number without its varint, in a message of the walk's own shape.
    let whole = message(resource(vec![]), vec![crate::encodes::span(vec![attribute("k", text("abcdefg"))])]);
    let at = whole.windows(9).position(|window| window == b"\x0a\x07abcdefg").unwrap();
    let mut broken = whole;
    broken[at..at + 9].copy_from_slice(&[0x2A, 7, 0x0A, 5, 0x18, 0x80, 0x80, 0x80, 0x80]);
    let rules = rules(vec![rule(AttributeAction::Drop, &["k"])]);
    let outcome = Case::of(64 << 20, TableColumns::default()).carrying(&rules).add(&broken);
    assert!(matches!(outcome, Encoded::Rejected(_)), "{outcome:?}");
}

#[test]
fn a_list_that_is_too_large_for_its_rules_is_rejected_as_such_and_stored_without_them() {
    let large = list("user", vec![attribute("name", text(&"n".repeat(LIST_BYTES_MAX)))]);
    let sent = message(resource(vec![]), vec![crate::encodes::span(vec![large])]);
    for columns in tables() {
        let added =
            |attributes: &Attributes| Case::of(64 << 20, columns.clone()).carrying(attributes).add(&sent);
        for ruled in [rule(AttributeAction::Drop, &["user.email"]), rule(AttributeAction::Hash, &["user"])] {
            let expected = Encoded::Rejected(Reason::RowTooLarge(RowLimit::Ruled));
            assert_eq!(added(&rules(vec![ruled])), expected, "{columns}");
        }
        let outcome = added(&rules(vec![rule(AttributeAction::Drop, &["other"])]));
        assert!(matches!(outcome, Encoded::Whole { .. }), "{columns}: {outcome:?}");
    }
}

#[test]
fn a_rule_is_for_the_sets_that_it_names() {
    let secret = vec![attribute("secret", text("x"))];
    let of = |resource_has: bool, event_has: bool| {
        let either = |has: bool| if has { secret.clone() } else { vec![] };
        let event = Event {
            attributes: either(event_has),
            time_unix_nano: 1_700_000_000_000_000_001,
            ..Event::default()
        };
        let span = Span { events: vec![event], ..crate::encodes::span(secret.clone()) };
        message(resource(either(resource_has)), vec![span])
    };
    for (set, expected) in [(AttributesOf::Resource, of(false, true)), (AttributesOf::Event, of(true, false))]
    {
        let rule = AttributeRule { sets: vec![set], ..rule(AttributeAction::Drop, &["secret"]) };
        let found = carried(TableColumns::default(), &rules(vec![rule]), &of(true, true));
        assert_eq!(found, encoded_for(TableColumns::default(), &expected), "{set:?}");
    }
}

#[test]
fn a_letter_has_the_attributes_of_its_row_and_no_others() {
    let attributes = Attributes {
        value_bytes_max: Some(ByteSize::kib(1)),
        rules: vec![
            rule(AttributeAction::Drop, &["secret", "user.email"]),
            rule(AttributeAction::Hash, &["id"]),
        ],
        unreadable_letters: UnreadableLetters::Original,
    };
    let long = "x".repeat(3 * BYTES_MAX);
    let sent = vec![
        attribute("secret", text("hidden")),
        attribute("id", text("hidden")),
        list("user", vec![attribute("email", text("hidden")), attribute("name", text("n"))]),
        attribute("long", text(&long)),
    ];
    let whole = message(resource(sent.clone()), vec![span(&sent)]);
    let carrying = Carrying::of(&attributes).unwrap();
    let letter = carrying.edited(&whole).unwrap();
    assert!(!letter.windows(6).any(|window| window == b"hidden"));
    let decoded = TracesData::decode(&letter[..]).unwrap();
    let ResourceSpans { resource, scope_spans, .. } = &decoded.resource_spans[0];
    let expected = vec![
        attribute("id", hashed(&Value::StringValue("hidden".into()))),
        list("user", vec![attribute("name", text("n"))]),
        attribute("long", text(&long)),
    ];
    assert_eq!(resource.as_ref().unwrap().attributes, expected);
    assert_eq!(scope_spans[0].spans[0], span(&expected));
    // It gives the same row when it is replayed, and it is not hashed twice.
    let rows = carried(TableColumns::default(), &attributes, &whole);
    assert_eq!(carried(TableColumns::default(), &attributes, &letter), rows);
    assert_eq!(carrying.edited(&letter).unwrap(), letter);
}

/// Attributes after rules, one after the other, for values without empty ones.
fn naive(attributes: &Attributes, prefix: &str, sent: &[KeyValue]) -> Vec<KeyValue> {
    let mut seen = BTreeSet::new();
    let mut left = Vec::new();
    for KeyValue { key, value, .. } in sent {
        let path = format!("{prefix}{key}");
        let matches = |rule: &&AttributeRule| {
            rule.keys.iter().any(|key| match key.strip_suffix('*') {
                Some(stem) => path.starts_with(stem),
                None => path == *key,
            })
        };
        let value = value.as_ref().unwrap().value.clone().unwrap();
        match (attributes.rules.iter().find(matches).map(|rule| rule.action), value) {
            (Some(AttributeAction::Drop), _) => {}
            (Some(AttributeAction::Hash), value) => left.push(attribute(key, hashed(&value))),
            (None, Value::KvlistValue(members)) => {
                left.push(list(key, naive(attributes, &format!("{path}."), &members.values)));
            }
            (_, Value::StringValue(value)) if prefix.is_empty() && value.len() > BYTES_MAX => {
                let end = (0..=BYTES_MAX).rev().find(|end| value.is_char_boundary(*end)).unwrap();
                left.push(attribute(key, text(&value[..end])));
                if !seen.contains(key) {
                    let length = Value::IntValue(i64::try_from(value.len()).unwrap());
                    left.push(attribute(&format!("sluice.original_bytes.{key}"), Some(any(length))));
                }
            }
            (_, value) => left.push(attribute(key, Some(any(value)))),
        }
        seen.insert(key.clone());
    }
    left
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_length().prop_map(Value::StringValue),
        (-3i64..3).prop_map(Value::IntValue),
        Just(Value::BytesValue(vec![0xff; 3])),
    ]
}

/// Texts around the limit, of characters of one to four bytes.
fn any_length() -> impl Strategy<Value = String> {
    ("[aé😀]{0,3}", 0..=BYTES_MAX + 8, 1..5usize).prop_map(|(end, bytes, per)| {
        let piece = ["a", "é", "€", "😀"][per - 1];
        piece.repeat(bytes / piece.len()) + &end
    })
}

fn set_of_attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let scalar = ("[abh]", value()).prop_map(|(key, value)| attribute(&key, Some(any(value))));
    let member = ("[ab]", value()).prop_map(|(key, value)| attribute(&key, Some(any(value))));
    // Lists have keys of their own: members of a list, and of two lists under one key, may have equal paths with other attributes.
    let list = (prop_oneof![Just("u"), Just("v")], prop::collection::vec(member, 1..4))
        .prop_map(|(key, members)| list(key, members));
    prop::collection::vec(prop_oneof![4 => scalar, 1 => list], 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under any rules, a message gives the rows of the message that the rules leave, in every layout, and again the same.
    #[test]
    fn rows_under_rules_are_those_of_what_the_rules_leave(
        rules in prop::collection::vec((0..2usize, prop::collection::vec("[abuv](\\.[ab])?\\*?", 1..4)), 0..4),
        sent in set_of_attributes(),
    ) {
        // Lists are not hashed here: their texts are those of each layout.
        let actions = [AttributeAction::Keep, AttributeAction::Drop];
        let rules = rules.into_iter().map(|(action, keys)| AttributeRule {
            action: actions[action], keys, sets: AttributesOf::ALL.to_vec(),
        });
        let hash = rule(AttributeAction::Hash, &["h", "u.b"]);
        let attributes = Attributes {
            value_bytes_max: Some(ByteSize::kib(1)), rules: rules.chain([hash]).collect(), ..Attributes::default()
        };
        let of = |attributes: &[KeyValue]| message(resource(attributes.to_vec()), vec![span(attributes)]);
        let left = naive(&attributes, "", &sent);
        for columns in tables() {
            let found = carried(columns.clone(), &attributes, &of(&sent));
            prop_assert_eq!(&found, &carried(columns.clone(), &attributes, &of(&sent)));
            prop_assert_eq!(found, encoded_for(columns, &of(&left)));
        }
    }

    /// Any bytes under rules are rows or malformed, as without rules.
    #[test]
    fn rules_change_nothing_of_what_is_malformed(
        sent in set_of_attributes(), cut in proptest::arbitrary::any::<prop::sample::Index>(), byte in 0..=255u8,
    ) {
        let attributes = rules(vec![rule(AttributeAction::Drop, &["a", "u.a"]), rule(AttributeAction::Hash, &["b", "v"])]);
        let mut bytes = message(resource(sent.clone()), vec![span(&sent)]);
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        for columns in tables() {
            let plain = Case::of(64 << 20, columns.clone()).add(&bytes);
            let ruled = Case::of(64 << 20, columns).carrying(&attributes).add(&bytes);
            let is_whole = |encoded: &Encoded| matches!(encoded, Encoded::Whole { .. });
            prop_assert_eq!(is_whole(&plain), is_whole(&ruled), "{:?} {:?}", plain, ruled);
        }
    }
}
