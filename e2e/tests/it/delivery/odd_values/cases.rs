//! The cases, in the order of the tables in gateway/VALUES.md.

mod attributes;
mod limits;
mod spans;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use sluice_gateway_config::Layout;

use super::messages::{key_values, message, span};
use crate::delivery::process::MESSAGE_MILLIS;

/// A message, and the expected values of its row.
pub struct Case {
    pub name: &'static str,
    pub message: Vec<u8>,
    /// Condition that finds its row.
    pub row: String,
    /// It has no form in OTLP/JSON: as text, it is malformed.
    pub only_in_protobuf: bool,
    /// The reason why it has no row in any layout.
    pub rejected: Option<&'static str>,
    /// Kafka's timestamp of the message, in ms.
    pub message_millis: i64,
    results: Vec<Expected>,
}

struct Expected {
    /// The layout of the table; `None` for all layouts.
    layout: Option<Layout>,
    select: String,
    text: String,
}

impl Case {
    fn new(name: &'static str, message: Vec<u8>) -> Case {
        let row = format!("SpanName = '{name}'");
        Case {
            name,
            message,
            row,
            only_in_protobuf: false,
            rejected: None,
            message_millis: MESSAGE_MILLIS,
            results: Vec::new(),
        }
    }

    fn attributes<'a>(name: &'static str, all: impl IntoIterator<Item = (&'a str, Value)>) -> Case {
        Case::new(name, message(span(name, key_values(all))))
    }

    /// A span that `change` makes odd.
    fn span(name: &'static str, change: impl FnOnce(&mut Span)) -> Case {
        let mut odd = span(name, vec![]);
        change(&mut odd);
        Case::new(name, message(odd))
    }

    fn found_by(self, row: &str) -> Case {
        Case { row: row.to_owned(), ..self }
    }

    fn only_in_protobuf(self) -> Case {
        Case { only_in_protobuf: true, ..self }
    }

    fn sent_at(self, message_millis: i64) -> Case {
        Case { message_millis, ..self }
    }

    /// It becomes a letter for this reason, and has no row.
    fn rejected(self, reason: &'static str) -> Case {
        Case { rejected: Some(reason), ..self }.everywhere(&[("SpanName", "none")])
    }

    fn everywhere(self, results: &[(&str, &str)]) -> Case {
        self.expecting(None, results)
    }

    fn json(self, results: &[(&str, &str)]) -> Case {
        self.expecting(Some(Layout::Json), results)
    }

    fn map(self, results: &[(&str, &str)]) -> Case {
        self.expecting(Some(Layout::Map), results)
    }

    fn nested(self, results: &[(&str, &str)]) -> Case {
        self.expecting(Some(Layout::Nested), results)
    }

    /// All attributes of the span in the other two layouts: a map, and groups as [`groups`] prints them.
    fn span_as_text(self, map: &str, nested: &str) -> Case {
        self.map(&[("SpanAttributes", map)]).nested(&[(&groups("SpanAttributes"), nested)])
    }

    /// As [`Self::span_as_text`], for the resource.
    fn resource_as_text(self, map: &str, nested: &str) -> Case {
        self.map(&[("ResourceAttributes", map)]).nested(&[(&groups("ResourceAttributes"), nested)])
    }

    fn expecting(mut self, layout: Option<Layout>, results: &[(&str, &str)]) -> Case {
        self.results.extend(results.iter().map(|(select, text)| Expected {
            layout,
            select: format!("toString({select})"),
            text: (*text).to_owned(),
        }));
        self
    }

    /// The expressions for a table of this layout, and their expected values as text.
    pub fn results(&self, layout: Layout) -> impl Iterator<Item = (&str, &str)> {
        let of_layout = move |expected: &&Expected| expected.layout.is_none_or(|expected| expected == layout);
        self.results.iter().filter(of_layout).map(|expected| (&*expected.select, &*expected.text))
    }
}

pub fn all() -> Vec<Case> {
    let attributes = [attributes::scalars(), attributes::arrays(), attributes::lists(), attributes::keys()];
    let spans =
        [spans::bytes_that_are_not_text(), spans::times(), spans::fields(), spans::parts(), spans::large()];
    let limits = [limits::too_large(), limits::message_times()];
    attributes.into_iter().chain(spans).chain(limits).flatten().collect()
}

/// The timestamp of the row in ns.
const TIMESTAMP: &str = "toUnixTimestamp64Nano(Timestamp)";

const PATHS: &str = "arraySort(JSONAllPaths(SpanAttributes))";

/// The typed groups of a set that are not empty: `Bool {'k':true} Int {'l':1}`.
fn groups(set: &str) -> String {
    let group = |name| {
        let pairs = format!("mapFromArrays(`{set}{name}.Key`, `{set}{name}.Value`)");
        format!("if(empty({pairs}), '', concat(' {name} ', toString({pairs})))")
    };
    let groups = ["Bool", "Double", "Int", "String", "Complex"].map(group);
    format!("trimLeft(concat({}))", groups.join(", "))
}
