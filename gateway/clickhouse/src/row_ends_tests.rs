use super::*;
use crate::column::Layout;
use crate::test_rows::{Chance, columns, row};
use proptest::prelude::*;

#[test]
fn every_layout_has_a_shape() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let columns = TableColumns::of_layout(layout);
        assert_eq!(RowShape::of(&columns).0.len(), columns.columns().len());
    }
}

#[test]
fn bytes_that_are_no_row_say_where_and_why() {
    let json = RowShape(vec![Kind::Json(JsonType::parse("JSON(a Nullable(Int16))").unwrap())]);
    let table: &[(&[u8], Result<usize, NoRow>)] = &[
        (&[0], Ok(1)),
        (&[1, 1, b'a', 0, 7, 0], Ok(6)),
        (&[1, 1, b'a', 1], Ok(4)),
        (&[1, 1, b'b', tag::NOTHING], Ok(4)),
        (&[1, 1, b'b', tag::ARRAY, tag::NULLABLE, tag::BOOL, 2, 1, 0, 1], Ok(10)),
        // A declared path in an object of an array is none.
        (&[1, 1, b'b', tag::ARRAY, tag::JSON, 0, 8, 4, 0, 0, 0, 1, 1, 1, b'a', tag::BOOL, 1], Ok(17)),
        (&[1, 1, b'a', 2], Err(NoRow::Not(NotARow { position: 4, what: "a flag that is neither 0 nor 1" }))),
        (
            &[1, 1, b'b', 0xff],
            Err(NoRow::Not(NotARow { position: 4, what: "a type that the gateway does not write" })),
        ),
        (&[1, 1, b'b', tag::INT64, 0], Err(NoRow::Short)),
        (&[], Err(NoRow::Short)),
    ];
    for (bytes, expected) in table {
        assert_eq!(json.row_bytes(bytes), *expected, "{bytes:02x?}");
    }
}

#[test]
fn lengths_that_nothing_can_have_are_refused_at_once() {
    let nothings = RowShape(vec![Kind::array(Kind::Fixed(0))]);
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(nothings.row_bytes(&most), Ok(10), "elements of no bytes");
    let numbers = RowShape(vec![Kind::array(Kind::Fixed(8))]);
    assert!(matches!(numbers.row_bytes(&most), Err(NoRow::Not(_))));
    let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03];
    assert!(matches!(numbers.row_bytes(&over), Err(NoRow::Not(_))));
    let endless = [tag::ARRAY; 4_096];
    assert!(matches!(RowShape(vec![Kind::Dynamic]).row_bytes(&endless), Err(NoRow::Not(_))));
}

#[test]
fn a_header_of_names_and_types_is_passed_over() {
    let header = [&[2, 1][..], b"a", &[1], b"b", &[6], b"String", &[4], b"Bool", b"row"].concat();
    assert_eq!(names_and_types_bytes(&header), Ok(header.len() - 3));
    assert_eq!(names_and_types_bytes(&header[..10]), Err(NoRow::Short));
}

proptest! {
    #[test]
    fn a_row_ends_where_the_encoder_ended_it_and_its_beginnings_are_short(seed: u64) {
        let mut chance = Chance::new(seed);
        let columns = columns(&mut chance);
        let shape = RowShape::of(&columns);
        let row = row(&columns, &mut chance);
        for length in 0..row.len() {
            prop_assert_eq!(shape.row_bytes(&row[..length]), Err(NoRow::Short), "{}", length);
        }
        let with_more = [&row[..], &[0xff; 9]].concat();
        prop_assert_eq!(shape.row_bytes(&with_more), Ok(row.len()));
    }

    #[test]
    fn any_bytes_are_a_row_or_not(seed: u64, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut chance = Chance::new(seed);
        let columns = columns(&mut chance);
        let shape = RowShape::of(&columns);
        let mut damaged = row(&columns, &mut chance);
        let at = chance.below(damaged.len());
        damaged.splice(at.., bytes.iter().copied());
        for bytes in [&bytes, &damaged] {
            if let Ok(length) = shape.row_bytes(bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert_eq!(shape.row_bytes(&bytes[..length]), Ok(length));
            }
        }
    }
}
