//! Tests of [`super`].

use super::*;
use crate::optional::OptionalGroup;

#[test]
fn each_set_of_attributes_has_its_place_whatever_its_layout() {
    let mixed = TableColumns {
        resource: AttributeColumns::Map,
        link: AttributeColumns::Nested,
        ..Default::default()
    };
    let columns = mixed.columns();
    let at = |name: &str| columns.iter().position(|column| column.name == name).unwrap();
    assert_eq!(at("ResourceAttributes"), at("ServiceName") + 1);
    assert_eq!(at("SpanAttributes"), at("Duration") - 1);
    assert_eq!(at("Links.AttributesBool"), at("Links.TraceState") + 1);
    assert_eq!(at("Links.AttributesComplex"), columns.len() - 1);
    assert_eq!(
        mixed.to_string(),
        "ResourceAttributes Map, SpanAttributes Json, Events.Attributes Json, Links.Attributes Nested"
    );
}

#[test]
fn optional_columns_stand_where_many_rows_have_the_same_bytes() {
    let columns = TableColumns::of_layout(Layout::Nested).with_optional(OptionalColumns::all());
    let names: Vec<_> = columns.columns().into_iter().map(|column| column.name).collect();
    let at = |name: &str| names.iter().position(|other| other == name).unwrap();
    assert_eq!(at("ResourceAttributesKeys"), at("ResourceAttributesComplex.Value") + 1);
    assert_eq!(at("ScopeAttributesBool.Key"), at("ScopeVersion") + 1);
    assert_eq!(at("ScopeSchemaUrl") + 1, at("SpanAttributesBool.Key"));
    assert_eq!(at("SpanAttributesKeys") + 1, at("Duration"));
    assert_eq!(at("TraceFlags"), at("Links.AttributesComplex") + 1);
    assert_eq!(at("KafkaHeaders"), names.len() - 1);
    let none = columns.limited_to(OptionalColumns::default());
    assert_eq!(none, TableColumns::of_layout(Layout::Nested));
    assert_eq!(names.len() - none.columns().len(), OptionalColumn::ALL.len() + 9);
}

#[test]
fn two_tables_have_in_common_what_both_have_with_equal_types() {
    let with = |groups: &[OptionalGroup]| {
        let columns = TableColumns::default().with_optional(groups.iter().copied().collect());
        TableColumns { described: columns.names_and_types(), ..columns }
    };
    let both = [OptionalGroup::TraceFlags, OptionalGroup::KafkaCoordinates];
    let (one, other) = (with(&both), with(&both[1..]));
    assert_eq!(one.common(&other), Some(with(&both[1..])));
    assert_eq!(one.common(&TableColumns::of_layout(Layout::Map)), None);
    let mut altered = with(&both);
    altered.described.iter_mut().find(|(name, _)| name == "KafkaTopic").unwrap().1 = "String".into();
    let common = one.common(&altered).unwrap();
    assert_eq!(common.optional.names(), ["TraceFlags", "KafkaPartition", "KafkaOffset", "KafkaTimestamp"]);
    assert!(!common.described.iter().any(|(name, _)| name == "KafkaTopic"));
    altered.described.iter_mut().find(|(name, _)| name == "TraceId").unwrap().1 =
        "LowCardinality(String)".into();
    assert_eq!(one.common(&altered), None);
    // The scope's attributes in two layouts.
    let of_json = with(&[OptionalGroup::ScopeAttributes]);
    let maps = TableColumns { scope: AttributeColumns::Map, described: Vec::new(), ..of_json };
    let json = with(&[OptionalGroup::ScopeAttributes]);
    let common = json.common(&TableColumns { described: maps.clone().names_and_types(), ..maps }).unwrap();
    assert_eq!(common.optional.names(), [""; 0], "keys of no attributes");
}

#[test]
fn a_group_is_two_arrays_or_one_of_pairs() {
    let names = |set: AttributeSet| -> Vec<String> {
        let columns = set.columns(Layout::Nested).into_iter();
        columns.map(|column| format!("{} {}", column.name, column.column_type)).collect()
    };
    assert_eq!(
        names(AttributeSet::Span)[..4],
        [
            "SpanAttributesBool.Key Array(LowCardinality(String))",
            "SpanAttributesBool.Value Array(Bool)",
            "SpanAttributesDouble.Key Array(LowCardinality(String))",
            "SpanAttributesDouble.Value Array(Float64)",
        ]
    );
    assert_eq!(
        names(AttributeSet::Event)[4],
        "Events.AttributesComplex Array(Nested(Key LowCardinality(String), Value String))"
    );
}
