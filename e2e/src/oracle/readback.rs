//! Reads one row back, every field with its stored type.
//!
//! Job: ask the server which type each JSON path has in this row, then read the value as exactly that type, so that an int
//! stored as text is seen as what it is. Place in the flow: `delivers` compares the result with `spans::expected_row`.
//! Limits: one query a path; for picked rows only.
//!
//! | stored type | read as |
//! | --- | --- |
//! | `String`, `Bool`, `Int64`, `Float64`, `Array(Nullable(T))` | the subcolumn `` .:`T` `` |
//! | `Array(Dynamic)` | `dynamicType` and text of each element |
//! | `Array(JSON(…))` | each element like a column of its own, through `[]` |
//! | anything else | its name |

use std::future::Future;
use std::pin::Pin;

use anyhow::{Context as _, Result};
use clickhouse::{Row, RowOwned, RowRead};
use serde::Deserialize;

use super::Oracle;
use crate::spans::{EventRow, Json, LinkRow, Paths, SpanRow};

/// The columns of a row that are not JSON. The fields have the names of the query's aliases.
#[derive(Row, Deserialize)]
struct Plain {
    timestamp_ns: i64,
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    trace_state: String,
    span_name: String,
    span_kind: String,
    service_name: String,
    scope_name: String,
    scope_version: String,
    duration_ns: u64,
    status_code: String,
    status_message: String,
    event_times_ns: Vec<i64>,
    event_names: Vec<String>,
    link_trace_ids: Vec<String>,
    link_span_ids: Vec<String>,
    link_trace_states: Vec<String>,
}

const PLAIN_COLUMNS: &str = "toUnixTimestamp64Nano(Timestamp) AS timestamp_ns, TraceId AS trace_id, SpanId AS span_id, \
    ParentSpanId AS parent_span_id, TraceState AS trace_state, toString(SpanName) AS span_name, \
    toString(SpanKind) AS span_kind, toString(ServiceName) AS service_name, ScopeName AS scope_name, \
    ScopeVersion AS scope_version, Duration AS duration_ns, toString(StatusCode) AS status_code, \
    StatusMessage AS status_message, arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS event_times_ns, \
    arrayMap(n -> toString(n), Events.Name) AS event_names, Links.TraceId AS link_trace_ids, \
    Links.SpanId AS link_span_ids, Links.TraceState AS link_trace_states";

/// A JSON value inside a row: a column, and inside arrays which element, counted from 1 as SQL does.
#[derive(Clone)]
struct Place {
    /// `SpanAttributes`, `Events.Attributes`, or a path with `[]` below one of them.
    column: String,
    elements: Vec<usize>,
}

impl Place {
    fn column(name: &str) -> Place {
        Place { column: name.to_owned(), elements: Vec::new() }
    }

    fn element(&self, index: usize) -> Place {
        let mut place = self.clone();
        place.elements.push(index + 1);
        place
    }

    /// The array of JSON at `path` below this place.
    fn array(&self, path: &str) -> Place {
        Place { column: format!("{}[]", self.below(path)), elements: self.elements.clone() }
    }

    /// The JSON value itself.
    fn itself(&self) -> String {
        self.indexed(&self.column)
    }

    /// The value at `path` as `type_name`.
    fn typed(&self, path: &str, type_name: &str) -> String {
        self.indexed(&format!("{}.:`{type_name}`", self.below(path)))
    }

    /// The value at a path that the column's type declares.
    fn declared(&self, path: &str) -> String {
        self.indexed(&self.below(path))
    }

    fn below(&self, path: &str) -> String {
        path.split('.').fold(self.column.clone(), |column, segment| format!("{column}.`{segment}`"))
    }

    fn indexed(&self, expression: &str) -> String {
        self.elements.iter().fold(expression.to_owned(), |inner, element| format!("({inner})[{element}]"))
    }
}

impl Oracle {
    /// The row whose attribute `sluice.seq` is `number`; the first found when it is doubled.
    pub async fn read(&self, number: u64) -> Result<SpanRow> {
        let plain: Plain = self.ask(number, PLAIN_COLUMNS).await?;
        let (events, links) = (self.events(number, &plain).await?, self.links(number, &plain).await?);
        Ok(SpanRow {
            timestamp_ns: plain.timestamp_ns,
            trace_id: plain.trace_id,
            span_id: plain.span_id,
            parent_span_id: plain.parent_span_id,
            trace_state: plain.trace_state,
            span_name: plain.span_name,
            span_kind: plain.span_kind,
            service_name: plain.service_name,
            resource_attributes: self.paths(number, &Place::column("ResourceAttributes")).await?,
            scope_name: plain.scope_name,
            scope_version: plain.scope_version,
            span_attributes: self.paths(number, &Place::column("SpanAttributes")).await?,
            duration_ns: plain.duration_ns,
            status_code: plain.status_code,
            status_message: plain.status_message,
            events,
            links,
        })
    }

    async fn events(&self, number: u64, plain: &Plain) -> Result<Vec<EventRow>> {
        let mut events = Vec::new();
        for (index, (timestamp_ns, name)) in plain.event_times_ns.iter().zip(&plain.event_names).enumerate() {
            let attributes = self.paths(number, &Place::column("Events.Attributes").element(index)).await?;
            events.push(EventRow { timestamp_ns: *timestamp_ns, name: name.clone(), attributes });
        }
        Ok(events)
    }

    async fn links(&self, number: u64, plain: &Plain) -> Result<Vec<LinkRow>> {
        let mut links = Vec::new();
        for (index, trace_id) in plain.link_trace_ids.iter().enumerate() {
            links.push(LinkRow {
                trace_id: trace_id.clone(),
                span_id: plain.link_span_ids.get(index).cloned().unwrap_or_default(),
                trace_state: plain.link_trace_states.get(index).cloned().unwrap_or_default(),
                attributes: self.paths(number, &Place::column("Links.Attributes").element(index)).await?,
            });
        }
        Ok(links)
    }

    /// Every path of the JSON value at `place`. Boxed, because an array of JSON leads back here.
    fn paths<'a>(
        &'a self,
        number: u64,
        place: &'a Place,
    ) -> Pin<Box<dyn Future<Output = Result<Paths>> + Send + 'a>> {
        Box::pin(async move {
            let types = format!("JSONAllPathsWithTypes({}) AS types", place.itself());
            let types = format!("arrayZip(mapKeys(types), mapValues(types)) FROM (SELECT {types}");
            let types: Vec<(String, String)> = self.ask_inner(number, &types, ")").await?;
            let mut paths = Paths::new();
            for (path, type_name) in types {
                // The server names every declared path, whether the row has it or not.
                if let Some(value) = self.value(number, place, (&path, &type_name)).await? {
                    paths.insert(path, value);
                }
            }
            Ok(paths)
        })
    }

    /// The value at a path; none where a declared path is absent.
    async fn value(
        &self,
        number: u64,
        place: &Place,
        (path, type_name): (&str, &str),
    ) -> Result<Option<Json>> {
        if type_name == "Nullable(String)" {
            let declared: Option<String> = self.ask(number, &place.declared(path)).await?;
            return Ok(declared.map(Json::Text));
        }
        let typed = place.typed(path, type_name);
        let absent = || Json::Other(format!("{type_name} without a value"));
        Ok(Some(match type_name {
            "String" => self.ask::<Option<String>>(number, &typed).await?.map_or_else(absent, Json::Text),
            "Bool" => self.ask::<Option<bool>>(number, &typed).await?.map_or_else(absent, Json::Bool),
            "Int64" => self.ask::<Option<i64>>(number, &typed).await?.map_or_else(absent, Json::Int),
            "Float64" => self.ask::<Option<f64>>(number, &typed).await?.map_or_else(absent, Json::Double),
            "Array(Nullable(String))" => Json::Texts(self.ask(number, &typed).await?),
            "Array(Nullable(Bool))" => Json::Bools(self.ask(number, &typed).await?),
            "Array(Nullable(Int64))" => Json::Ints(self.ask(number, &typed).await?),
            "Array(Nullable(Float64))" => Json::Doubles(self.ask(number, &typed).await?),
            "Array(Dynamic)" => {
                let typed_text = "(toString(dynamicType(x)), ifNull(CAST(x, 'Nullable(String)'), ''))";
                Json::Mixed(self.ask(number, &format!("arrayMap(x -> {typed_text}, {typed})")).await?)
            }
            array if array.starts_with("Array(JSON") => self.objects(number, &place.array(path)).await?,
            other => Json::Other(other.to_owned()),
        }))
    }

    async fn objects(&self, number: u64, place: &Place) -> Result<Json> {
        let length: u64 = self.ask(number, &format!("length({})", place.itself())).await?;
        let mut objects = Vec::new();
        for index in 0..usize::try_from(length)? {
            objects.push(self.paths(number, &place.element(index)).await?);
        }
        Ok(Json::Objects(objects))
    }

    async fn ask<T: RowOwned + RowRead>(&self, number: u64, expression: &str) -> Result<T> {
        self.ask_inner(number, expression, "").await
    }

    /// `SELECT {head} FROM` the row of `number`, closed with `tail`.
    async fn ask_inner<T: RowOwned + RowRead>(&self, number: u64, head: &str, tail: &str) -> Result<T> {
        let (table, prefix) = (&self.table, self.run.trace_id_prefix());
        let query = format!(
            "SELECT {head} FROM {table} WHERE startsWith(TraceId, '{prefix}') \
             AND SpanAttributes.`sluice`.`seq`.:`Int64` = {number} LIMIT 1{tail}"
        );
        let answer = self.server.limited(&query, self.server.client.query_raw(&query).fetch_one::<T>()).await;
        answer.with_context(|| format!("read span {number} back"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_sql() {
        let span = Place::column("SpanAttributes");
        assert_eq!(span.typed("a.b", "Int64"), "SpanAttributes.`a`.`b`.:`Int64`");
        let event = Place::column("Events.Attributes").element(0);
        assert_eq!(event.itself(), "(Events.Attributes)[1]");
        assert_eq!(event.typed("k", "Bool"), "(Events.Attributes.`k`.:`Bool`)[1]");
        let object = event.array("list").element(2);
        assert_eq!(object.typed("x", "String"), "((Events.Attributes.`list`[].`x`.:`String`)[1])[3]");
    }
}
