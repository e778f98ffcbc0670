//! The results, as a table in Markdown and as JSON.

use serde::Serialize;
use sluice_gateway_config::Layout;

use super::question::NAMES;
use super::table::{Inserts, Sizes};
use super::variant::Variant;
use crate::figures::{float, seconds};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub spans: u64,
    /// The server's version.
    pub server: String,
    /// In the order in which they were measured.
    pub variants: Vec<VariantReport>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VariantReport {
    pub name: &'static str,
    pub layout: Layout,
    pub order_by: &'static [&'static str],
    /// User and system CPU time of the server for all inserts.
    pub insert_cpu_seconds: f64,
    pub insert_cpu_micros_per_row: f64,
    pub inserts: u64,
    /// Mean time from the start of an INSERT to its answer.
    pub insert_milliseconds: f64,
    /// Mean number of files and directories that the server synced for an INSERT.
    pub syncs_per_insert: f64,
    pub bytes_per_row: f64,
    pub view_bytes_per_row: f64,
    pub questions: Vec<Answer>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub name: &'static str,
    pub milliseconds: u64,
    pub cpu_milliseconds: f64,
    pub read_rows: u64,
    pub read_bytes: u64,
}

impl VariantReport {
    pub fn new(variant: &Variant, inserts: &Inserts, sizes: &Sizes, questions: Vec<Answer>) -> VariantReport {
        let rows = float(sizes.rows.max(1));
        let count = float(inserts.count.max(1));
        VariantReport {
            name: variant.name,
            layout: variant.layout,
            order_by: variant.order_by,
            insert_cpu_seconds: seconds(inserts.cpu_us),
            insert_cpu_micros_per_row: float(inserts.cpu_us) / rows,
            inserts: inserts.count,
            insert_milliseconds: float(inserts.milliseconds) / count,
            syncs_per_insert: float(inserts.syncs) / count,
            bytes_per_row: float(sizes.table_bytes) / rows,
            view_bytes_per_row: float(sizes.view_bytes) / rows,
            questions,
        }
    }

    pub fn summary(&self) -> String {
        let Self { insert_cpu_seconds, insert_milliseconds, syncs_per_insert, bytes_per_row, .. } = self;
        format!(
            "{insert_cpu_seconds:.1} CPU-s for inserts, {insert_milliseconds:.0} ms and {syncs_per_insert:.0} syncs each, \
             {bytes_per_row:.1} bytes a row"
        )
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.name.to_owned(),
            format!("{:.1}", self.insert_cpu_micros_per_row),
            format!("{:.0} ({:.0})", self.insert_milliseconds, self.syncs_per_insert),
            format!("{:.1}", self.bytes_per_row + self.view_bytes_per_row),
        ];
        cells.extend(NAMES.iter().map(|name| {
            let answer = self.questions.iter().find(|answer| answer.name == *name);
            answer.map_or_else(
                || "-".into(),
                |found| format!("{:.1} ({})", found.cpu_milliseconds, rows(found.read_rows)),
            )
        }));
        cells
    }
}

fn rows(rows: u64) -> String {
    match rows {
        0..10_000 => rows.to_string(),
        10_000..10_000_000 => format!("{}k", rows / 1_000),
        _ => format!("{}M", rows / 1_000_000),
    }
}

impl Report {
    /// The table: CPU and time of an insert, bytes, and for each query CPU milliseconds and the rows read.
    pub fn lines(&self) -> Vec<String> {
        let mut head = vec![
            "table".to_owned(),
            "insert, us of CPU a row".into(),
            "insert, ms (syncs)".into(),
            "bytes a row".into(),
        ];
        head.extend(NAMES.iter().map(|name| format!("{name}, ms (rows)")));
        // Numbers stand to the right.
        let mut rule = vec!["---:".to_owned(); head.len()];
        "---".clone_into(&mut rule[0]);
        let rows = self.variants.iter().map(VariantReport::cells);
        let mut lines: Vec<_> = [head, rule].into_iter().chain(rows).map(|cells| markdown(&cells)).collect();
        lines.push(format!("{} spans, ClickHouse {}", self.spans, self.server));
        lines
    }
}

fn markdown(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_bench::variant::VARIANTS;

    #[test]
    fn a_line_has_what_a_row_costs_and_what_each_question_took() {
        let inserts = Inserts { count: 3, rows: 1_000, cpu_us: 7_500, milliseconds: 600, syncs: 54 };
        let sizes = Sizes { rows: 1_000, table_bytes: 90_000, view_bytes: 1_000 };
        let answer =
            |name| Answer { name, milliseconds: 2, cpu_milliseconds: 1.25, read_rows: 16_384, read_bytes: 9 };
        let variant = VariantReport::new(&VARIANTS[0], &inserts, &sizes, NAMES.map(answer).into());
        let report = Report { spans: 1_000, server: "26.7".into(), variants: vec![variant] };
        let lines = report.lines();
        assert!(lines[0].starts_with("| table | insert"), "{lines:?}");
        assert_eq!(lines[1], format!("| --- |{}", " ---: |".repeat(3 + NAMES.len())));
        assert!(
            lines[2].starts_with("| json-service | 7.5 | 200 (18) | 91.0 | 1.2 (16k) | 1.2 (16k) |"),
            "{lines:?}"
        );
        assert_eq!(lines[3], "1000 spans, ClickHouse 26.7");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["variants"][0]["insertCpuMicrosPerRow"], 7.5);
        assert_eq!(json["variants"][0]["questions"][5]["name"], "operations");
    }
}
