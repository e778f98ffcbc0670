//! The cases, in the order of the tables in gateway/VALUES.md.

mod attributes;
mod spans;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::messages::{attribute, message, span};

/// A message, and what its row must say.
pub struct Case {
    pub name: &'static str,
    pub message: Vec<u8>,
    /// Condition that finds its row.
    pub row: String,
    /// Expressions, and their values as texts.
    pub results: Vec<(&'static str, String)>,
}

impl Case {
    fn new(name: &'static str, message: Vec<u8>, results: &[(&'static str, &str)]) -> Case {
        let results = results.iter().map(|(select, value)| (*select, (*value).to_owned())).collect();
        Case { name, message, row: format!("SpanName = '{name}'"), results }
    }

    /// A span with these attributes.
    fn attributes(
        name: &'static str,
        attributes: Vec<(&str, Value)>,
        results: &[(&'static str, &str)],
    ) -> Case {
        let attributes = attributes.into_iter().map(|(key, value)| attribute(key, value)).collect();
        Case::new(name, message(span(name, attributes)), results)
    }

    /// A span that `change` makes odd.
    fn span(name: &'static str, change: impl FnOnce(&mut Span), results: &[(&'static str, &str)]) -> Case {
        let mut odd = span(name, vec![]);
        change(&mut odd);
        Case::new(name, message(odd), results)
    }

    fn found_by(self, row: &str) -> Case {
        Case { row: row.to_owned(), ..self }
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let attributes = [attributes::scalars(), attributes::arrays(), attributes::lists(), attributes::keys()];
    let spans =
        [spans::bytes_that_are_not_text(), spans::times(), spans::fields(), spans::parts(), spans::large()];
    attributes.into_iter().chain(spans).flatten().collect()
}

/// Paths of the span's attributes.
const PATHS: &str = "arraySort(JSONAllPaths(SpanAttributes))";
