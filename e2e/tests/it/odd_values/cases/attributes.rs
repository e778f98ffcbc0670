//! Cases of attributes: what becomes of a value, and of its key.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::messages::{array, list, message, span, text};
use super::{Case, PATHS};

pub fn scalars() -> Vec<Case> {
    let double = |name, value, printed: &str| {
        Case::attributes(
            name,
            vec![("k", Value::DoubleValue(value))],
            &[("dynamicType(SpanAttributes.k)", "Float64"), ("SpanAttributes.k.:Float64", printed)],
        )
    };
    let int = |name, value: i64| {
        Case::attributes(
            name,
            vec![("k", Value::IntValue(value))],
            &[("dynamicType(SpanAttributes.k)", "Int64"), ("SpanAttributes.k.:Int64", &value.to_string())],
        )
    };
    let string = |name, value: &str, hexadecimal: &str| {
        Case::attributes(
            name,
            vec![("k", text(value))],
            &[
                ("dynamicType(SpanAttributes.k)", "String"),
                ("hex(assumeNotNull(SpanAttributes.k.:String))", hexadecimal),
            ],
        )
    };
    vec![
        string("string", "hi", "6869"),
        string("string, empty", "", ""),
        string("string, with zero byte", "a\0b", "610062"),
        // Texts that the server's own JSON parser would take for a date.
        string("string, like a date", "2024-01-01", "323032342D30312D3031"),
        Case::attributes(
            "bool",
            vec![("yes", Value::BoolValue(true)), ("no", Value::BoolValue(false))],
            &[
                ("dynamicType(SpanAttributes.yes)", "Bool"),
                ("SpanAttributes.yes.:Bool", "true"),
                ("SpanAttributes.no.:Bool", "false"),
            ],
        ),
        int("int, smallest", i64::MIN),
        int("int, largest", i64::MAX),
        double("double, NaN", f64::NAN, "nan"),
        double("double, infinity", f64::INFINITY, "inf"),
        double("double, negative infinity", f64::NEG_INFINITY, "-inf"),
        double("double, negative zero", -0.0, "-0"),
        double("double, smallest", 5e-324, "5e-324"),
        double("double, whole", 2.0, "2"),
        Case::attributes(
            "bytes",
            vec![("k", Value::BytesValue(vec![0xff, 0xee])), ("none", Value::BytesValue(vec![]))],
            &[("SpanAttributes.k.:String", "/+4="), ("SpanAttributes.none.:String", "")],
        ),
        Case::new(
            "empty value",
            message(Span {
                attributes: vec![KeyValue { key: "k".into(), value: None, ..KeyValue::default() }],
                ..span("empty value", vec![])
            }),
            &[(PATHS, "[]")],
        ),
    ]
}

pub fn arrays() -> Vec<Case> {
    let int = |value| Some(Value::IntValue(value));
    let string = |value| Some(text(value));
    let nested = |depth| (0..depth).fold(Value::IntValue(7), |inner, _| array(vec![Some(inner)]));
    let of = |name, elements, results: &[(&'static str, &str)]| {
        Case::attributes(name, vec![("k", array(elements))], results)
    };
    vec![
        of(
            "array, strings",
            vec![string("a"), string("")],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "['a','']")],
        ),
        of(
            "array, bools",
            vec![Some(Value::BoolValue(true)), Some(Value::BoolValue(false))],
            &[("SpanAttributes.k.:`Array(Nullable(Bool))`", "[true,false]")],
        ),
        of(
            "array, ints and an empty value",
            vec![int(1), None, int(-1)],
            &[("SpanAttributes.k.:`Array(Nullable(Int64))`", "[1,NULL,-1]")],
        ),
        of(
            "array, doubles",
            vec![Some(Value::DoubleValue(0.5)), Some(Value::DoubleValue(f64::NAN))],
            &[("SpanAttributes.k.:`Array(Nullable(Float64))`", "[0.5,nan]")],
        ),
        of(
            "array, bytes",
            vec![Some(Value::BytesValue(vec![0xff]))],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "['/w==']")],
        ),
        of("array, empty", vec![], &[("SpanAttributes.k.:`Array(Nullable(String))`", "[]")]),
        of(
            "array, empty values",
            vec![None, None],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "[NULL,NULL]")],
        ),
        of(
            "array, mixed",
            vec![int(1), string("s"), None, Some(Value::BoolValue(true)), Some(array(vec![int(2)]))],
            &[
                (
                    "arrayMap(x -> dynamicType(x), SpanAttributes.k.:`Array(Dynamic)`)",
                    "['Int64','String','None','Bool','Array(Nullable(Int64))']",
                ),
                ("SpanAttributes.k.:`Array(Dynamic)`", "[1,'s',NULL,true,[2]]"),
            ],
        ),
        of(
            "array, lists",
            vec![Some(list(vec![("x", Value::IntValue(1))])), Some(list(vec![("y", text("z"))]))],
            &[
                ("dynamicType(SpanAttributes.k)", "Array(JSON(max_dynamic_types=16, max_dynamic_paths=16))"),
                ("SpanAttributes.k[].x.:Int64", "[1,NULL]"),
                ("SpanAttributes.k[].y.:String", "[NULL,'z']"),
            ],
        ),
        of(
            "array, as deep as values nest",
            vec![Some(nested(7))],
            &[("toString(SpanAttributes.k)", "[[[[[[[[7]]]]]]]]")],
        ),
        of(
            "array, deeper",
            vec![Some(nested(10))],
            &[("toString(SpanAttributes.k)", "[[[[[[[['[[[7]]]']]]]]]]]")],
        ),
    ]
}

pub fn lists() -> Vec<Case> {
    let nested = |depth| (0..depth).fold(Value::IntValue(7), |inner, _| list(vec![("k", inner)]));
    vec![
        Case::attributes(
            "list, nested",
            vec![("a", list(vec![("b", list(vec![("c", Value::IntValue(1))])), ("d", text("x"))]))],
            &[
                (PATHS, "['a.b.c','a.d']"),
                ("SpanAttributes.a.b.c.:Int64", "1"),
                ("SpanAttributes.a.d.:String", "x"),
            ],
        ),
        Case::attributes(
            "list, empty",
            vec![("a", list(vec![])), ("b", list(vec![("c", list(vec![]))]))],
            &[(PATHS, "[]")],
        ),
        Case::attributes(
            "list, as deep as paths go",
            vec![("a", nested(8))],
            &[(PATHS, "['a.k.k.k.k.k.k.k.k']"), ("SpanAttributes.a.k.k.k.k.k.k.k.k.:Int64", "7")],
        ),
        Case::attributes(
            "list, deeper",
            vec![("a", nested(10))],
            &[
                (PATHS, "['a.k.k.k.k.k.k.k.k']"),
                ("SpanAttributes.a.k.k.k.k.k.k.k.k.:String", r#"{"k":{"k":7}}"#),
            ],
        ),
        // Each list is two messages more, and the span's attribute is at depth five of a hundred.
        Case::attributes(
            "list, almost too deep",
            vec![("a", nested(30))],
            &[("length(JSONAllPaths(SpanAttributes))", "1")],
        ),
    ]
}

pub fn keys() -> Vec<Case> {
    vec![
        Case::attributes(
            "keys, equal",
            vec![("k", text("first")), ("k", Value::IntValue(2)), ("k", text("third"))],
            &[(PATHS, "['k']"), ("SpanAttributes.k.:String", "first")],
        ),
        Case::attributes(
            "keys, empty",
            vec![("", text("v"))],
            &[(PATHS, "['']"), ("toJSONString(SpanAttributes)", r#"{"":"v"}"#)],
        ),
        Case::attributes(
            "keys, dotted",
            vec![("a.b.c", Value::IntValue(1)), (".d", Value::IntValue(2)), ("e.", Value::IntValue(3))],
            &[(PATHS, "['.d','a.b.c','e.']"), ("SpanAttributes.a.b.c.:Int64", "1")],
        ),
        Case::attributes(
            "keys, dotted and nested",
            vec![("a", list(vec![("b", text("nested"))])), ("a.b", text("literal"))],
            &[(PATHS, "['a.b']"), ("SpanAttributes.a.b.:String", "literal")],
        ),
        Case::attributes(
            "keys, a value and a path through it",
            vec![("a", text("value")), ("a.b", text("below"))],
            &[
                (PATHS, "['a','a.b']"),
                ("SpanAttributes.a.:String", "value"),
                ("SpanAttributes.a.b.:String", "below"),
            ],
        ),
        Case::attributes(
            "keys, lists of equal keys",
            vec![
                ("a", list(vec![("b", text("first")), ("b", text("second"))])),
                ("a", list(vec![("b", text("third")), ("c", text("own"))])),
            ],
            &[(PATHS, "['a.b','a.c']"), ("SpanAttributes.a.b.:String", "first")],
        ),
    ]
}
