use super::*;
use crate::frame::{decode, frame_bytes};
use crate::json_limits::JsonLimits;
use crate::row_frames::RowFrames;
use crate::rowbinary::{put_f64, put_i64, put_u8, tag};
use crate::test_rows::{self, Chance};
use proptest::prelude::*;

fn shape(name: &str, type_name: &str) -> ColumnShape {
    let kind = Kind::parse(type_name).unwrap();
    ColumnShape { name: name.to_owned(), type_name: type_name.to_owned(), kind }
}

fn raw(frames: &[Bytes]) -> Vec<u8> {
    let mut raw = Vec::new();
    for frame in frames {
        assert_eq!(frame_bytes(frame).unwrap(), frame.len());
        decode(frame, &mut raw).unwrap();
    }
    raw
}

fn native(shapes: &[ColumnShape], rows: &[Vec<u8>]) -> Vec<u8> {
    let mut turning = Transposer::new(shapes);
    for row in rows {
        turning.append(row).unwrap();
    }
    raw(&turning.finish().unwrap())
}

/// A row with one JSON value of these paths.
fn object(paths: &[(&str, &[u8])]) -> Vec<u8> {
    let mut row = Vec::new();
    put_len(&mut row, paths.len());
    for (path, value) in paths {
        put_string(&mut row, path.as_bytes());
        row.extend_from_slice(value);
    }
    row
}

fn int(n: i64) -> Vec<u8> {
    [&[tag::INT64][..], &n.to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    let mut value = vec![tag::STRING];
    put_string(&mut value, text.as_bytes());
    value
}

/// ClickHouse 26.7's output for a column of this type with these rows (`FORMAT Native`, flattened). Only the order of paths and types
/// differs: by first appearance here, by name in ClickHouse.
#[test]
fn a_json_column_is_its_declared_paths_and_a_column_for_each_other_one() {
    let type_name = "JSON(`a.b` Nullable(String), l LowCardinality(String), t Int64)";
    let rows = [
        object(&[("t", &5_i64.to_le_bytes()), ("k", &text("v")), ("n", &int(1))]),
        object(&[("a.b", b"\x00\x02nn"), ("k", &[tag::NOTHING])]),
        object(&[("l", b"\x02lc"), ("k", &int(7))]),
    ];
    let three = b"\x03\0\0\0\0\0\0\0";
    let expected = [
        b"\x01\x03\x01j".as_slice(),
        &[u8::try_from(type_name.len()).unwrap()],
        type_name.as_bytes(),
        three,
        b"\x02\x01k\x01n",
        // The dictionary's version; then k and n.
        b"\x01\0\0\0\0\0\0\0",
        three,
        b"\x02\x06String\x05Int64",
        three,
        b"\x01\x05Int64",
        // a.b: flags, values.
        b"\x01\0\x01\0\x02nn\0",
        // l: all strings, their number, strings, number of values, indexes.
        b"\0\x06\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\x02lc\x03\0\0\0\0\0\0\0\0\0\x01",
        // t
        b"\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        // k: a text, none, a number.
        b"\0\x02\x01\x01v\x07\0\0\0\0\0\0\0",
        // n
        b"\0\x01\x01\x01\0\0\0\0\0\0\0",
    ];
    assert_eq!(native(&[shape("j", type_name)], &rows), expected.concat());
}

#[test]
fn arrays_are_where_each_ends_and_all_elements() {
    let array = |elements: &[&str]| {
        let mut row = Vec::new();
        put_len(&mut row, elements.len());
        for element in elements {
            put_string(&mut row, element.as_bytes());
        }
        row
    };
    let shapes = [shape("al", "Array(LowCardinality(String))")];
    let expected = [
        b"\x01\x03\x02al\x1dArray(LowCardinality(String))".as_slice(),
        b"\x01\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
        b"\0\x06\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\x01p\x01q\x03\0\0\0\0\0\0\0\x01\x02\x01",
    ];
    assert_eq!(native(&shapes, &[array(&["p", "q"]), array(&[]), array(&["p"])]), expected.concat());
    // As ClickHouse 26.7 prints an empty array: no elements, no dictionary.
    let empty = [b"\x01\x01\x02al\x1dArray(LowCardinality(String))\x01\0\0\0\0\0\0\0".as_slice(), &[0; 8]];
    assert_eq!(native(&shapes, &[array(&[])]), empty.concat());
}

#[test]
fn arrays_within_json_have_a_prefix_and_data_of_their_own() {
    let mut mixed = vec![tag::ARRAY, tag::DYNAMIC, 32, 2];
    mixed.extend(int(1));
    mixed.extend(text("x"));
    let mut nullable = vec![tag::ARRAY, tag::NULLABLE, tag::FLOAT64, 2, 0];
    put_f64(&mut nullable, 0.5);
    put_u8(&mut nullable, 1);
    let mut objects = vec![tag::ARRAY];
    JsonLimits::default().in_array().put_type(&mut objects);
    objects.push(1);
    objects.extend(object(&[("o", &int(2))]));
    let rows = [object(&[("k", &mixed)]), object(&[("k", &nullable)]), object(&[("k", &objects)])];
    let three = b"\x03\0\0\0\0\0\0\0";
    let expected = [
        b"\x01\x03\x01j\x04JSON".as_slice(),
        three,
        b"\x01\x01k",
        three,
        b"\x03\x0eArray(Dynamic)\x18Array(Nullable(Float64))\x38Array(JSON(max_dynamic_types=16, max_dynamic_paths=256))",
        three,
        b"\x02\x05Int64\x06String",
        three,
        b"\x01\x01o",
        three,
        b"\x01\x05Int64",
        b"\0\x01\x02",
        b"\x02\0\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0\0\x01x",
        b"\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
    ];
    assert_eq!(native(&[shape("j", "JSON")], &rows), expected.concat());
}

#[test]
fn a_column_of_many_strings_has_wider_indexes() {
    let rows: Vec<_> = (0..300).map(|n| text(&n.to_string())[1..].to_vec()).collect();
    let bytes = native(&[shape("l", "LowCardinality(String)")], &rows);
    let width = b"\x01\x06\0\0\0\0\0\0\x2d\x01\0\0\0\0\0\0";
    assert!(bytes.windows(width.len()).any(|window| window == width), "2 bytes, 301 strings");
    assert!(bytes.ends_with(&[&299_u16.to_le_bytes()[..], &300_u16.to_le_bytes()].concat()));
}

#[test]
fn what_would_take_too_much_memory_is_not_turned() {
    let shapes = [shape("j", "JSON")];
    let mut turning = Transposer::new(&shapes);
    let mut row = |row: Vec<u8>| turning.append(&row).map(drop);
    let names: Vec<_> = (0..=PATHS_MAX).map(|n| n.to_string()).collect();
    let paths: Vec<_> = names.iter().map(|name| (name.as_str(), &[tag::NOTHING][..])).collect();
    assert_eq!(row(object(&paths[..PATHS_MAX])), Ok(()));
    assert_eq!(Transposer::new(&shapes).append(&object(&paths)), Err(Unfit::Paths));
    // Empty objects take a byte each: this many rows lie between two checks.
    let outcome = (0..CELLS_MAX / PATHS_MAX + LOOK_BYTES).try_for_each(|_| row(object(&[])));
    assert_eq!(outcome, Err(Unfit::Cells));

    let shapes = [shape("s", "String")];
    let mut turning = Transposer::new(&shapes);
    let mut chance = Chance::new(7);
    let mut outcome = Ok(());
    while outcome.is_ok() {
        let noise: String = (0..100_000)
            .map(|_| {
                char::from(b"!#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"[chance.below(57)])
            })
            .collect();
        outcome = turning.append(&text(&noise)[1..]).map(drop);
        assert!(turning.rows < 4_096, "400 MB and no end");
    }
    assert_eq!(outcome, Err(Unfit::Memory));
}

/// Each of these rows would make columns grow by far more than its bytes.
#[test]
fn a_row_that_would_grow_is_not_turned() {
    let mut nulls = vec![tag::ARRAY, tag::NULLABLE, tag::INT64];
    put_len(&mut nulls, 1 << 20);
    nulls.extend(vec![1; 1 << 20]);
    assert_eq!(Transposer::new(&[shape("j", "JSON")]).append(&object(&[("k", &nulls)])), Err(Unfit::Memory));
    let shapes = [shape("j", "JSON(a Int64)")];
    let mut turning = Transposer::new(&shapes);
    let mut row = |row: Vec<u8>| turning.append(&row).map(drop);
    // Missing values are filled up when columns are checked: no path is far behind.
    (0..2 * LOOK_BYTES).try_for_each(|_| row(object(&[]))).unwrap();
    row(object(&[("a", &[0; 8])])).unwrap();
    let text = [&[tag::STRING][..], &text(&"x".repeat(3 << 20))[1..]].concat();
    assert_eq!(
        Transposer::new(&[shape("l", "LowCardinality(String)")]).append(&text[1..]),
        Err(Unfit::Memory)
    );
}

/// Columns whose indexes would be a gigabyte if every row had one for each path of a late row.
#[test]
fn paths_that_come_late_take_no_memory_for_the_rows_before() {
    let shapes = [shape("j", "JSON")];
    let mut turning = Transposer::new(&shapes);
    let mut rows = 0_usize;
    while rows < 1_000_000 && turning.append(&object(&[])).is_ok() {
        rows += 1;
    }
    let names: Vec<_> = (0..1_000).map(|n| n.to_string()).collect();
    let paths: Vec<_> = names.iter().map(|name| (name.as_str(), &[tag::BOOL, 1][..])).collect();
    turning.append(&object(&paths)).unwrap();
    let bytes: usize = turning.columns.iter().map(TableColumn::bytes).sum();
    assert!(bytes < 2 << 20, "{bytes} bytes");
    assert_eq!(turning.finish(), Err(Unfit::Cells));
}

#[test]
fn a_block_of_no_rows_is_not_turned() {
    assert_eq!(Transposer::new(&[shape("j", "JSON")]).finish(), Err(Unfit::RowCount));
}

/// After small rows that nearly fill a frame comes a row several times as large as the rest of the frame.
#[test]
fn a_large_row_that_crosses_a_frame_is_turned() {
    let columns = TableColumns::default();
    let mut chance = Chance::new(3);
    let mut frames = RowFrames::new();
    let mut store = Vec::new();
    let mut is_crossed = false;
    for _ in 0..900 {
        let mut row = test_rows::row(&columns, &mut chance);
        if !is_crossed && frames.totals().raw_bytes > 150 << 10 {
            row = test_rows::with_trace_id(&columns, &mut chance, &b"x".repeat(200_000));
            is_crossed = true;
        }
        frames.row().extend(row);
        frames.end_row(&mut store).unwrap();
    }
    frames.finish(&mut store).unwrap();
    let (shape, chunks) = (NativeShape::of(&columns).unwrap(), [Bytes::from(store)]);
    assert!(
        turned_with(&shape, &chunks, MARGIN_BYTES_MIN) == Err(Unfit::Short),
        "a row crosses a frame's end"
    );
    let measured = turned_with(&shape, &chunks, ROW_BYTES_MAX).unwrap();
    assert!(raw(&turned(&shape, &chunks).unwrap()) == raw(&measured));
}

#[test]
fn a_path_that_an_object_has_twice_is_not_turned() {
    let shapes = [shape("j", "JSON")];
    let twice = object(&[("k", &int(1)), ("k", &int(2))]);
    assert_eq!(Transposer::new(&shapes).append(&twice), Err(Unfit::Value("a path twice")));
}

/// Each object contains the next one in its only path: without a limit, so many would overflow the stack.
#[test]
fn values_that_nest_without_end_are_not_turned() {
    let mut nested = Vec::new();
    for _ in 0..200_000 {
        put_len(&mut nested, 1);
        put_string(&mut nested, b"k");
        JsonLimits::default().put_type(&mut nested);
    }
    let too_deep = Err(Unfit::Value("values that are nested too deep"));
    assert_eq!(Transposer::new(&[shape("j", "JSON")]).append(&nested), too_deep);
    let mut array = object(&[("k", &[])]);
    for _ in 0..100_000 {
        array.extend([tag::ARRAY, tag::DYNAMIC, 32, 1]);
    }
    assert_eq!(Transposer::new(&[shape("j", "JSON")]).append(&array), too_deep);
}

#[test]
fn a_row_that_ends_early_is_not_turned() {
    let mut row = object(&[("k", &int(1))]);
    row.pop();
    assert!(Transposer::new(&[shape("j", "JSON")]).append(&row).is_err());
    put_i64(&mut row, 1);
    assert!(Transposer::new(&[shape("j", "JSON")]).append(&row).is_ok());
}

proptest! {
    /// Everything that the row encoder writes can be converted, and every frame except the last is followed by more of the same block.
    #[test]
    fn every_row_is_turned(seed: u64, rows in 1_u64..400) {
        let mut chance = Chance::new(seed);
        let columns = test_rows::columns(&mut chance);
        let mut frames = RowFrames::new();
        let mut store = Vec::new();
        for _ in 0..rows {
            frames.row().extend(test_rows::row(&columns, &mut chance));
            frames.end_row(&mut store).unwrap();
        }
        frames.finish(&mut store).unwrap();
        prop_assert!(!store.is_empty());
        let shape = NativeShape::of(&columns).unwrap();
        let bytes = raw(&turned(&shape, &[Bytes::from(store)]).unwrap());
        prop_assert_eq!(usize::from(bytes[0]), columns.columns().len());
    }

    /// The hash of frames is checked before; this tests the code behind it.
    #[test]
    fn bytes_that_are_no_rows_do_not_panic(seed: u64, changes in 0_usize..4) {
        let mut chance = Chance::new(seed);
        let columns = test_rows::columns(&mut chance);
        let shape = NativeShape::of(&columns).unwrap();
        let mut turning = Transposer::new(&shape.columns);
        for _ in 0..8 {
            let mut row = test_rows::row(&columns, &mut chance);
            for _ in 0..changes {
                let at = chance.below(row.len());
                row[at] = [0, 1, 0x7f, 0x80, 0xff, tag::ARRAY, tag::NOTHING, tag::JSON][chance.below(8)];
            }
            row.truncate(row.len() - chance.below(2) * chance.below(row.len()));
            if turning.append(&row).is_err() {
                turning = Transposer::new(&shape.columns);
            }
        }
        prop_assert!(turning.rows == 0 || turning.finish().is_ok());
    }
}
