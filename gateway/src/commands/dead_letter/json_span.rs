//! Extracts one span of a message in OTLP/JSON, as its own message.
//!
//! Parses the whole document, which takes many times its size in memory: acceptable for a command, not for a gateway.

use serde_json::Value;

/// Names of the arrays that lead to spans, outermost first, each as OTLP/JSON writes it and as protobuf names it.
const LEVELS: [[&str; 2]; 3] =
    [["resourceSpans", "resource_spans"], ["scopeSpans", "scope_spans"], ["spans", "spans"]];

/// The document with only span number `span`, counted from 0 in its order; `None` if there is no such span, or the document is invalid.
pub(super) fn extract(document: &[u8], span: u64) -> Option<Vec<u8>> {
    let document = document.strip_prefix("\u{feff}".as_bytes()).unwrap_or(document);
    let mut document: Value = serde_json::from_slice(document).ok()?;
    let mut before = span;
    keep(&mut document, &LEVELS, &mut before).then(|| document.to_string().into_bytes())
}

/// Removes everything except the wanted span from the arrays of `levels`. `false` if the span is not there; `holder` is then unchanged.
fn keep(holder: &mut Value, levels: &[[&str; 2]], before: &mut u64) -> bool {
    let Some((names, below)) = levels.split_first() else {
        // `holder` is a span.
        let wanted = *before == 0;
        *before = before.wrapping_sub(1);
        return wanted;
    };
    let Some(name) = names.iter().find(|name| holder.get(**name).is_some_and(Value::is_array)) else {
        return false;
    };
    let Some(Value::Array(children)) = holder.get_mut(*name) else { return false };
    let Some(found) = children.iter_mut().position(|child| keep(child, below, before)) else { return false };
    children.swap(0, found);
    children.truncate(1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_span_keeps_what_stands_around_it() {
        let document = json!({
            "unknown": 1,
            "resourceSpans": [
                {"resource": {"attributes": []}, "scopeSpans": [{"spans": [{"name": "0"}, {"name": "1"}]}, {}]},
                {"schemaUrl": "u", "scope_spans": [{"scope": {"name": "s"}, "spans": [{"name": "2"}, {"name": "3"}]}]},
            ],
        });
        let text = format!("\u{feff}{document}");
        let only =
            |span| -> Value { serde_json::from_slice(&extract(text.as_bytes(), span).unwrap()).unwrap() };
        let first = json!({"resource": {"attributes": []}, "scopeSpans": [{"spans": [{"name": "1"}]}]});
        assert_eq!(only(1), json!({"unknown": 1, "resourceSpans": [first]}));
        let last =
            json!({"schemaUrl": "u", "scope_spans": [{"scope": {"name": "s"}, "spans": [{"name": "3"}]}]});
        assert_eq!(only(3), json!({"unknown": 1, "resourceSpans": [last]}));
        assert_eq!(extract(text.as_bytes(), 4), None);
        assert_eq!(extract(b"{", 0), None);
        assert_eq!(extract(b"[1]", 0), None);
    }
}
