//! Tables as a reader of traces defines them.
//!
//! Job: the option `schema.preset`, and what may not stand beside it. Place in the flow: [`crate::schema`] asks it for violations.

use crate::{
    schema::{Layout, Schema},
    violation::Violations,
};
use serde::{Deserialize, Serialize};

/// A table as its reader defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// The table of `ClickStack`, for `HyperDX`: maps, text indexes, `SampleRate`.
    ClickStack,
}

impl Preset {
    /// Names of the columns that it adds.
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::ClickStack => &[
                "__hdx_materialized_rum.sessionId",
                "SampleRate",
                "ResourceAttributeItems",
                "SpanAttributeItems",
            ],
        }
    }

    /// Adds what is wrong: a preset decides the layout, and has columns of its own. `at` gives the path of a field.
    pub(crate) fn check(self, schema: &Schema, at: &impl Fn(&str) -> String, found: &mut Violations) {
        let is_other = schema.layout.is_some_and(|layout| layout != Layout::Map);
        found.add_if(is_other, &at("layout"), || {
            format!("must be Map or absent with preset {self:?}, whose attributes are maps")
        });
        let has_paths = schema.max_dynamic_paths.is_some() || !schema.typed_paths.is_empty();
        found.add_if(has_paths, &at("preset"), || {
            format!(
                "{self:?} stores attributes as Map, which has no paths: remove maxDynamicPaths and typedPaths"
            )
        });
        for column in schema.columns.iter().filter(|column| self.columns().contains(&column.name.as_str())) {
            let message = format!("preset {self:?} adds this column: remove it here");
            found.add(at(&format!("columns.{}", column.name)), message);
        }
    }
}
