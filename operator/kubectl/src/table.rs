//! Tables for a terminal: each column is as wide as its widest cell, and numbers are aligned to the right. Names in cells may come from
//! senders of spans: what would control the terminal is shown as U+FFFD.

use std::fmt::Write as _;

/// Spaces between columns.
const GAP: &str = "  ";

/// A table with a header; every row has as many cells as the header. Columns of numbers are aligned to the right.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let printable = |cell: &String| cell.replace(char::is_control, "\u{FFFD}");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(printable).collect()).collect();
    let all = || {
        std::iter::once(header.iter().map(|cell| (*cell).to_owned()).collect()).chain(rows.iter().cloned())
    };
    let is_number =
        |cell: &String| cell == NOTHING || cell.chars().next().is_some_and(|first| first.is_ascii_digit());
    let columns: Vec<(usize, bool)> = (0..header.len())
        .map(|at| {
            let width =
                all().filter_map(|row: Vec<String>| row.get(at).map(|cell| cell.chars().count())).max();
            let right = !rows.is_empty() && rows.iter().filter_map(|row| row.get(at)).all(is_number);
            (width.unwrap_or(0), right)
        })
        .collect();
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(&columns).map(|(cell, (width, right))| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        // Writing to a String cannot fail.
        writeln!(text, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end()).ok();
    }
    text
}

/// The cell for an unknown value.
pub(super) const NOTHING: &str = "-";

/// A number, or [`NOTHING`].
pub(super) fn number(value: Option<u64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Bytes in the smallest unit that leaves at most four digits.
pub(super) fn size(bytes: u64) -> String {
    let mut rest = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 10_000 {
            return format!("{rest} {unit}");
        }
        rest >>= 10;
    }
    format!("{rest} TiB")
}

/// A duration in its two largest units.
pub(super) fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["spans".into(), "7".into()], vec!["a".into(), "1200".into()], vec!["b".into(), "-".into()]];
        assert_eq!(table(&["TOPIC", "LAG"], &rows), "TOPIC   LAG\nspans     7\na      1200\nb         -\n");
    }

    #[test]
    fn a_cell_does_not_control_the_terminal() {
        assert_eq!(
            table(&["SERVICE"], &[vec!["a\u{1b}[31m\nb\0".into()]]),
            "SERVICE\na\u{FFFD}[31m\u{FFFD}b\u{FFFD}\n"
        );
    }

    #[test]
    fn numbers_have_units() {
        for (bytes, expected) in
            [(0, "0 B"), (9_999, "9999 B"), (24_000_000, "22 MiB"), (u64::MAX, "16777215 TiB")]
        {
            assert_eq!(size(bytes), expected);
        }
        for (seconds, expected) in [(0, "0 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min"), (180_000, "2 d 2 h")]
        {
            assert_eq!(time(seconds), expected);
        }
    }
}
