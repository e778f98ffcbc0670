//! Annotated bytes of JSON values. ClickHouse 26.7 read each of them back as its comment says.

use super::*;
use crate::json_array::ArrayShape;
use crate::json_limits::JsonLimits;

/// The bytes of one object, and the summary of its paths.
fn object(write: impl FnOnce(&mut JsonObject<'_>)) -> (Vec<u8>, JsonSummary) {
    let (mut out, mut paths) = (Vec::new(), JsonPaths::new());
    let mut object = JsonObject::begin(&mut out, &mut paths);
    write(&mut object);
    let summary = object.finish();
    (out, summary)
}

#[test]
fn an_object_without_paths_is_one_byte() {
    assert_eq!(object(|_| {}).0, [0x00]);
    let mut out = Vec::new();
    put_empty_object(&mut out);
    assert_eq!(out, [0x00]);
}

#[test]
fn a_value_follows_its_path_and_tag() {
    let (bytes, summary) = object(|object| {
        assert!(object.path(b"a"));
        object.int(42);
        assert!(object.path(b"b.c"));
        object.string(b"hi");
        assert!(object.path(b"d"));
        object.bool(true);
        assert!(object.path(b"e"));
        object.double(1.5);
        assert!(object.path(b"f"));
        object.uint(u64::MAX);
        assert!(object.path(b""));
        object.null();
    });
    #[rustfmt::skip]
    assert_eq!(bytes, [
        6,
        1, b'a',             0x0a, 42, 0, 0, 0, 0, 0, 0, 0,       // "a": Int64
        3, b'b', b'.', b'c', 0x15, 2, b'h', b'i',                 // "b":{"c": String}
        1, b'd',             0x2d, 1,                             // "d": Bool
        1, b'e',             0x0e, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f,  // "e": Float64
        1, b'f',             0x04, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0,                   0x00,                                // "": null, reads as absent
    ]);
    assert_eq!(summary, JsonSummary { paths: 6, duplicates: 0, over_limit: 0 });
}

#[test]
fn the_first_of_two_equal_paths_wins() {
    let (bytes, summary) = object(|object| {
        assert!(object.path(b"a"));
        object.int(1);
        assert!(!object.path(b"a"));
        assert!(object.path(b"a.b"));
        object.bool(false);
        assert!(!object.path_parts(&[b"a", b"b"]));
    });
    assert_eq!(bytes, [2, 1, b'a', 0x0a, 1, 0, 0, 0, 0, 0, 0, 0, 3, b'a', b'.', b'b', 0x2d, 0]);
    assert_eq!(summary, JsonSummary { paths: 2, duplicates: 2, over_limit: 0 });
}

#[test]
fn parts_are_joined_by_dots() {
    let (bytes, _) = object(|object| {
        assert!(object.path_parts(&[b"a", b"", b"c"]));
        object.bool(true);
    });
    assert_eq!(bytes, [1, 4, b'a', b'.', b'.', b'c', 0x2d, 1]);
}

#[test]
fn a_count_above_127_takes_more_bytes_and_moves_the_object() {
    for count in [127_usize, 128, 129, 16_383, 16_384] {
        let mut out = b"before".to_vec();
        let mut paths = JsonPaths::new();
        let mut object = JsonObject::begin(&mut out, &mut paths);
        for n in 0..count {
            assert!(object.path(format!("{n:05}").as_bytes()));
            object.bool(n % 2 == 0);
        }
        assert_eq!(object.finish().paths, count);
        let mut expected = b"before".to_vec();
        put_len(&mut expected, count);
        for n in 0..count {
            put_string(&mut expected, format!("{n:05}").as_bytes());
            expected.extend_from_slice(&[0x2d, u8::from(n % 2 == 0)]);
        }
        assert!(out == expected, "{count} paths");
    }
}

#[test]
fn an_object_ends_with_its_paths_where_they_are_asked_for() {
    let (mut out, mut paths) = (b"row ".to_vec(), JsonPaths::new());
    let mut object = JsonObject::begin(&mut out, &mut paths);
    assert!(object.path(b"b"));
    object.int(1);
    assert!(object.path_parts(&[b"a", b"x"]));
    object.array(ArrayKind::Objects, 1, JsonLimits::default());
    let mut inner = object.element_object();
    assert!(inner.path(b"only inside"));
    inner.bool(true);
    inner.finish();
    assert!(!object.path(b"b"));
    assert!(object.path_in_place_of(b"sluice.unconverted", &[b"c"]));
    object.string(b"");
    let summary = object.finish_with_paths(1 << 20).unwrap();
    assert_eq!(summary, JsonSummary { paths: 3, duplicates: 1, over_limit: 0 });
    assert!(out.ends_with(b"\x04\x03a.x\x01b\x01c\x14sluice.unconverted.c"), "{}", out.escape_ascii());
    // More paths than a count of one byte: they are moved first.
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    let mut object = JsonObject::begin(&mut out, &mut paths);
    for number in 0..200 {
        assert!(object.path(format!("k{number:03}").as_bytes()));
        object.null();
        put_string(&mut expected, format!("k{number:03}").as_bytes());
    }
    assert_eq!(object.finish_with_paths(1 << 20).unwrap().paths, 200);
    assert!(out.starts_with(b"\xc8\x01\x04k000\x00\x04k001"));
    assert!(out.ends_with(&expected) && out[..out.len() - expected.len()].ends_with(b"\x00\xc8\x01"));
    // Without room, the row is given up.
    let mut out = Vec::new();
    let mut object = JsonObject::begin(&mut out, &mut paths);
    assert!(object.path(&[b'x'; 1_000]));
    object.null();
    assert_eq!(object.finish_with_paths(1_000), Err(NoRoom));
    paths.clear();
    let mut object = JsonObject::begin(&mut out, &mut paths);
    assert!(object.path(&[b'x'; 1_000]), "the paths of the row that was given up are forgotten");
    object.null();
    object.finish();
}

#[test]
fn objects_in_an_array_have_paths_of_their_own() {
    let (bytes, _) = object(|object| {
        assert!(object.path(b"a"));
        object.array(ArrayKind::Objects, 2, JsonLimits::default().in_array());
        for value in [1, 2] {
            let mut element = object.element_object();
            assert!(element.path(b"a"));
            element.int(value);
            assert!(!element.path(b"a"));
            assert_eq!(element.finish().paths, 1);
        }
        assert!(!object.path(b"a"));
    });
    #[rustfmt::skip]
    assert_eq!(bytes, [
        1, 1, b'a',
        0x1e, 0x30, 0x00, 0x80, 0x02, 0x10, 0x00, 0x00, 0x00, 2,   // Array(JSON(...)), two of them
        1, 1, b'a', 0x0a, 1, 0, 0, 0, 0, 0, 0, 0,
        1, 1, b'a', 0x0a, 2, 0, 0, 0, 0, 0, 0, 0,
    ]);
}

#[test]
fn a_long_object_inside_a_long_object_moves_only_itself() {
    let (mut out, mut paths) = (Vec::new(), JsonPaths::new());
    let mut outer = JsonObject::begin(&mut out, &mut paths);
    for n in 0..200 {
        assert!(outer.path(format!("o{n}").as_bytes()));
        if n == 100 {
            outer.array(ArrayKind::Objects, 1, JsonLimits::default().in_array());
            let mut inner = outer.element_object();
            for n in 0..300 {
                assert!(inner.path(format!("i{n}").as_bytes()));
                inner.bool(true);
            }
            assert_eq!(inner.finish().paths, 300);
        } else {
            outer.int(n);
        }
    }
    // The outer object's table still finds paths from before and after the inner one.
    assert!(!outer.path(b"o0"));
    assert!(!outer.path(b"o100"));
    assert!(!outer.path(b"o199"));
    assert_eq!(outer.finish(), JsonSummary { paths: 200, duplicates: 3, over_limit: 0 });
}

#[test]
fn paths_above_the_limit_are_left_out_and_counted() {
    let (_, summary) = object(|object| {
        for n in 0..JSON_PATHS_MAX + 3 {
            let taken = object.path(format!("{n}").as_bytes());
            assert_eq!(taken, n < JSON_PATHS_MAX);
            if taken {
                object.null();
            }
        }
    });
    assert_eq!(summary, JsonSummary { paths: JSON_PATHS_MAX, duplicates: 0, over_limit: 3 });
}

#[test]
fn an_object_inside_an_object_has_the_paths_that_are_left() {
    let (mut out, mut paths) = (Vec::new(), JsonPaths::new());
    let mut outer = JsonObject::begin(&mut out, &mut paths);
    for n in 0..JSON_PATHS_MAX - 6 {
        assert!(outer.path(format!("{n}").as_bytes()));
        outer.null();
    }
    assert!(outer.path(b"a"));
    outer.array(ArrayKind::Objects, 1, JsonLimits::default().in_array());
    let mut inner = outer.element_object();
    for n in 0..8 {
        let taken = inner.path(format!("{n}").as_bytes());
        assert_eq!(taken, n < 5);
        if taken {
            inner.null();
        }
    }
    assert_eq!(inner.finish(), JsonSummary { paths: 5, duplicates: 0, over_limit: 3 });
    assert!(outer.path(b"b"), "what the inner object had is free again");
    outer.null();
    assert_eq!(outer.finish(), JsonSummary { paths: JSON_PATHS_MAX - 4, duplicates: 0, over_limit: 0 });
}

#[test]
fn scratch_is_empty_again_after_an_object_that_was_never_finished() {
    // A malformed message ends in the middle of an object; the next one must not see its paths.
    let (mut out, mut paths) = (Vec::new(), JsonPaths::new());
    let mut object = JsonObject::begin(&mut out, &mut paths);
    assert!(object.path(b"a"));
    out.clear();
    paths.clear();
    let mut object = JsonObject::begin(&mut out, &mut paths);
    assert!(object.path(b"a"));
    object.null();
    assert_eq!(object.finish().paths, 1);
}

#[test]
fn an_array_value_is_written_through_its_kind() {
    let (bytes, _) = object(|object| {
        assert!(object.path(b"a"));
        let shape = ArrayShape::default();
        object.array(shape.kind(), shape.len, JsonLimits::default().in_array());
    });
    assert_eq!(bytes, [1, 1, b'a', 0x1e, 0x23, 0x15, 0x00]);
}

#[test]
fn a_path_that_stands_in_for_another_keeps_it_from_being_written() {
    for more in [0, 100] {
        let (mut out, mut paths) = (Vec::new(), JsonPaths::new());
        let mut object = JsonObject::begin(&mut out, &mut paths);
        for n in 0..more {
            assert!(object.path(format!("more.{n}").as_bytes()));
            object.bool(true);
        }
        assert!(object.path(b"first"));
        object.bool(true);
        assert!(!object.path_in_place_of(b"kept", &[b"first"]), "the object has the path");
        assert!(object.path_in_place_of(b"kept", &[b"a", b"b"]));
        object.bool(false);
        assert!(!object.path(b"a.b"), "another one stands in for it");
        assert!(!object.path_in_place_of(b"kept", &[b"a.b"]));
        assert!(!object.path(b"kept.a.b"));
        assert!(object.path(b"kept.c"));
        object.bool(true);
        assert!(!object.path_in_place_of(b"kept", &[b"c"]), "the object has what would stand in");
        assert!(object.path(b"c"));
        object.bool(true);
        assert_eq!(object.finish(), JsonSummary { paths: more + 4, duplicates: 5, over_limit: 0 });
        if more == 0 {
            assert_eq!(out, b"\x04\x05first\x2d\x01\x08kept.a.b\x2d\x00\x06kept.c\x2d\x01\x01c\x2d\x01");
        }
    }
}
