//! Cases of attributes: the stored form of a value, and of its key.

use opentelemetry_proto::tonic::common::v1::any_value::Value::{
    self, BoolValue, BytesValue, DoubleValue, IntValue,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::messages::{array, list, message, span, text};
use super::{Case, PATHS};

pub fn scalars() -> Vec<Case> {
    let double = |name, value, printed: &str, text: &str| {
        Case::attributes(name, [("k", DoubleValue(value))])
            .json(&[("dynamicType(SpanAttributes.k)", "Float64"), ("SpanAttributes.k.:Float64", printed)])
            .span_as_text(&format!("{{'k':'{text}'}}"), &format!("Double {{'k':{printed}}}"))
    };
    let int = |name, value: i64| {
        Case::attributes(name, [("k", IntValue(value))])
            .json(&[
                ("dynamicType(SpanAttributes.k)", "Int64"),
                ("SpanAttributes.k.:Int64", &value.to_string()),
            ])
            .span_as_text(&format!("{{'k':'{value}'}}"), &format!("Int {{'k':{value}}}"))
    };
    // The server prints a backslash before a zero byte.
    let string = |name, value: &str, hexadecimal: &str, printed: &str| {
        Case::attributes(name, [("k", text(value))])
            .json(&[
                ("dynamicType(SpanAttributes.k)", "String"),
                ("hex(assumeNotNull(SpanAttributes.k.:String))", hexadecimal),
            ])
            .span_as_text(&format!("{{'k':'{printed}'}}"), &format!("String {{'k':'{printed}'}}"))
    };
    let empty = |name, value| {
        let attributes = vec![KeyValue { key: "k".into(), value, ..KeyValue::default() }];
        Case::new(name, message(Span { attributes, ..span(name, vec![]) }))
            .json(&[(PATHS, "[]")])
            .span_as_text("{'k':''}", "")
    };
    vec![
        string("string", "hi", "6869", "hi"),
        string("string, empty", "", "", ""),
        string("string, with zero byte", "a\0b", "610062", r"a\0b"),
        // Texts that the server's own JSON parser would read as a date.
        string("string, like a date", "2024-01-01", "323032342D30312D3031", "2024-01-01"),
        Case::attributes("bool", [("yes", BoolValue(true)), ("no", BoolValue(false))])
            .json(&[
                ("dynamicType(SpanAttributes.yes)", "Bool"),
                ("SpanAttributes.yes.:Bool", "true"),
                ("SpanAttributes.no.:Bool", "false"),
            ])
            .span_as_text("{'yes':'true','no':'false'}", "Bool {'yes':true,'no':false}"),
        int("int, smallest", i64::MIN),
        int("int, largest", i64::MAX),
        double("double, NaN", f64::NAN, "nan", "NaN"),
        double("double, infinity", f64::INFINITY, "inf", "Infinity"),
        double("double, negative infinity", f64::NEG_INFINITY, "-inf", "-Infinity"),
        double("double, negative zero", -0.0, "-0", "-0"),
        double("double, smallest", 5e-324, "5e-324", "5e-324"),
        double("double, large", 1e21, "1e21", "1e+21"),
        double("double, whole", 2.0, "2", "2"),
        Case::attributes("bytes", [("k", BytesValue(vec![0xff, 0xee])), ("none", BytesValue(vec![]))])
            .json(&[("SpanAttributes.k.:String", "/+4="), ("SpanAttributes.none.:String", "")])
            .span_as_text("{'k':'/+4=','none':''}", "Complex {'@bytes@k':'/+4=','@bytes@none':''}"),
        empty("no value", None),
        empty("empty value", Some(AnyValue::default())),
    ]
}

/// An attribute `k` that is text where the layout has no types for it: in groups, with `prefix` before its key.
fn complex(name: &'static str, value: Value, prefix: &str, text: &str) -> Case {
    let text = text.replace('\'', r"\'");
    Case::attributes(name, [("k", value)])
        .span_as_text(&format!("{{'k':'{text}'}}"), &format!("Complex {{'@{prefix}@k':'{text}'}}"))
}

pub fn arrays() -> Vec<Case> {
    let int = |value| Some(IntValue(value));
    let string = |value| Some(text(value));
    let nested = |depth| (0..depth).fold(IntValue(7), |inner, _| array(vec![Some(inner)]));
    let of = |name, elements, text: &str| complex(name, array(elements), "slice", text);
    vec![
        of("array, strings", vec![string("a"), string("")], r#"["a",""]"#)
            .json(&[("SpanAttributes.k.:`Array(Nullable(String))`", "['a','']")]),
        of("array, bools", vec![Some(BoolValue(true)), Some(BoolValue(false))], "[true,false]")
            .json(&[("SpanAttributes.k.:`Array(Nullable(Bool))`", "[true,false]")]),
        of("array, ints and an empty value", vec![int(1), None, int(-1)], "[1,null,-1]")
            .json(&[("SpanAttributes.k.:`Array(Nullable(Int64))`", "[1,NULL,-1]")]),
        of("array, doubles", vec![Some(DoubleValue(0.5)), Some(DoubleValue(f64::NAN))], r#"[0.5,"NaN"]"#)
            .json(&[("SpanAttributes.k.:`Array(Nullable(Float64))`", "[0.5,nan]")]),
        of("array, bytes", vec![Some(BytesValue(vec![0xff]))], r#"["/w=="]"#)
            .json(&[("SpanAttributes.k.:`Array(Nullable(String))`", "['/w==']")]),
        of("array, empty", vec![], "[]").json(&[("SpanAttributes.k.:`Array(Nullable(String))`", "[]")]),
        of("array, empty values", vec![None, None], "[null,null]")
            .json(&[("SpanAttributes.k.:`Array(Nullable(String))`", "[NULL,NULL]")]),
        of(
            "array, mixed",
            vec![int(1), string("s"), None, Some(BoolValue(true)), Some(array(vec![int(2)]))],
            r#"[1,"s",null,true,[2]]"#,
        )
        .json(&[
            (
                "arrayMap(x -> dynamicType(x), SpanAttributes.k.:`Array(Dynamic)`)",
                "['Int64','String','None','Bool','Array(Nullable(Int64))']",
            ),
            ("SpanAttributes.k.:`Array(Dynamic)`", "[1,'s',NULL,true,[2]]"),
        ]),
        of(
            "array, lists",
            vec![Some(list([("x", IntValue(1))])), Some(list([("y", text("z"))]))],
            r#"[{"x":1},{"y":"z"}]"#,
        )
        .json(&[
            ("dynamicType(SpanAttributes.k)", "Array(JSON(max_dynamic_types=16, max_dynamic_paths=16))"),
            ("SpanAttributes.k[].x.:Int64", "[1,NULL]"),
            ("SpanAttributes.k[].y.:String", "[NULL,'z']"),
        ]),
        of("array, as deep as values nest", vec![Some(nested(7))], "[[[[[[[[7]]]]]]]]")
            .json(&[("SpanAttributes.k", "[[[[[[[[7]]]]]]]]")]),
        of("array, deeper", vec![Some(nested(10))], "[[[[[[[[[[[7]]]]]]]]]]]")
            .json(&[("SpanAttributes.k", "[[[[[[[['[[[7]]]']]]]]]]]")]),
    ]
}

pub fn lists() -> Vec<Case> {
    let nested = |depth| (0..depth).fold(IntValue(7), |inner, _| list([("k", inner)]));
    let text_of = |depth| format!("{}7{}", r#"{"k":"#.repeat(depth), "}".repeat(depth));
    let deep = |name, depth| complex(name, nested(depth), "map", &text_of(depth));
    vec![
        complex(
            "list, nested",
            list([("b", list([("c", IntValue(1))])), ("d", text("it's"))]),
            "map",
            r#"{"b":{"c":1},"d":"it's"}"#,
        )
        .json(&[
            (PATHS, "['k.b.c','k.d']"),
            ("SpanAttributes.k.b.c.:Int64", "1"),
            ("SpanAttributes.k.d.:String", "it's"),
        ]),
        complex("list, empty", list([]), "map", "{}").json(&[(PATHS, "[]")]),
        complex("list, empty in another", list([("c", list([]))]), "map", r#"{"c":{}}"#)
            .json(&[(PATHS, "[]")]),
        deep("list, as deep as paths go", 8)
            .json(&[(PATHS, "['k.k.k.k.k.k.k.k.k']"), ("SpanAttributes.k.k.k.k.k.k.k.k.k.:Int64", "7")]),
        deep("list, deeper", 10).json(&[
            (PATHS, "['k.k.k.k.k.k.k.k.k']"),
            ("SpanAttributes.k.k.k.k.k.k.k.k.k.:String", &text_of(2)),
        ]),
        // Each list adds two levels of messages, and the span's attribute is at depth five of a hundred.
        deep("list, almost too deep", 30).json(&[("length(JSONAllPaths(SpanAttributes))", "1")]),
        // In text, the members keep their form.
        complex(
            "list, of equal keys",
            list([("b", text("first")), ("b", text("second"))]),
            "map",
            r#"{"b":"first","b":"second"}"#,
        )
        .json(&[(PATHS, "['k.b']"), ("SpanAttributes.k.b.:String", "first")]),
    ]
}

pub fn keys() -> Vec<Case> {
    vec![
        Case::attributes("keys, equal", [("k", text("first")), ("k", IntValue(2)), ("k", text("third"))])
            .json(&[(PATHS, "['k']"), ("SpanAttributes.k.:String", "first")])
            .span_as_text("{'k':'first'}", "String {'k':'first'}"),
        Case::attributes("keys, empty", [("", text("v"))])
            .json(&[(PATHS, "['']"), ("toJSONString(SpanAttributes)", r#"{"":"v"}"#)])
            .span_as_text("{'':'v'}", "String {'':'v'}"),
        Case::attributes("keys, dotted", [("a.b.c", IntValue(1)), (".d", IntValue(2)), ("e.", IntValue(3))])
            .json(&[(PATHS, "['.d','a.b.c','e.']"), ("SpanAttributes.a.b.c.:Int64", "1")])
            .span_as_text("{'a.b.c':'1','.d':'2','e.':'3'}", "Int {'a.b.c':1,'.d':2,'e.':3}"),
        Case::attributes(
            "keys, dotted and nested",
            [("a", list([("b", text("nested"))])), ("a.b", text("literal"))],
        )
        .json(&[(PATHS, "['a.b']"), ("SpanAttributes.a.b.:String", "literal")])
        .span_as_text(
            r#"{'a':'{"b":"nested"}','a.b':'literal'}"#,
            r#"String {'a.b':'literal'} Complex {'@map@a':'{"b":"nested"}'}"#,
        ),
        Case::attributes(
            "keys, a value and a path through it",
            [("a", text("value")), ("a.b", text("below"))],
        )
        .json(&[
            (PATHS, "['a','a.b']"),
            ("SpanAttributes.a.:String", "value"),
            ("SpanAttributes.a.b.:String", "below"),
        ])
        .span_as_text("{'a':'value','a.b':'below'}", "String {'a':'value','a.b':'below'}"),
        Case::attributes(
            "keys, of lists",
            [("a", list([("b", text("first"))])), ("a", list([("b", text("second")), ("c", text("own"))]))],
        )
        .json(&[(PATHS, "['a.b','a.c']"), ("SpanAttributes.a.b.:String", "first")])
        .span_as_text(r#"{'a':'{"b":"first"}'}"#, r#"Complex {'@map@a':'{"b":"first"}'}"#),
    ]
}
