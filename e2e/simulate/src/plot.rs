//! Gateways and lag over time as a drawing: a row for each load and number of partitions, a line for each policy.

use std::fmt::Write as _;

use super::Run;
use super::numbers::count;

/// Points of a panel, right and down.
const PANEL: (f64, f64) = (560.0, 160.0);
/// Points between panels.
const GAP: f64 = 50.0;
/// Points above the first row, for the legend.
const TOP: f64 = 50.0;
/// A policy keeps its colour in all panels.
const COLOURS: [(&str, &str); 5] = [
    ("ours", "#0b6e4f"),
    ("keda", "#d1495b"),
    ("hpa", "#8d6a9f"),
    ("flink", "#e08e1b"),
    ("numaflow", "#2e86ab"),
];

/// The drawing, as SVG.
pub fn plot(runs: &[Run]) -> String {
    let mut rows: Vec<(&str, u32)> = Vec::new();
    for row in runs.iter().map(row_of) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let (width, height) = (3.0 * GAP + 2.0 * PANEL.0, TOP + count(rows.len() as u64) * (PANEL.1 + GAP));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (place, (policy, colour)) in COLOURS.iter().enumerate() {
        let x = GAP + 100.0 * count(place as u64);
        put(&mut svg, &format!("<text x=\"{x}\" y=\"20\" fill=\"{colour}\">{policy}</text>\n"));
    }
    for (place, row) in rows.iter().enumerate() {
        let top = TOP + count(place as u64) * (PANEL.1 + GAP);
        let of_row: Vec<_> = runs.iter().filter(|run| row_of(run) == *row).collect();
        panel(&mut svg, (GAP, top), &of_row, &Curve { title: "gateways", value: |point| f64::from(point.0) });
        panel(
            &mut svg,
            (2.0 * GAP + PANEL.0, top),
            &of_row,
            &Curve { title: "lag, s", value: |point| point.1 },
        );
    }
    svg + "</svg>\n"
}

/// The row of the drawing that a run belongs to.
fn row_of(run: &Run) -> (&str, u32) {
    (&run.load, run.partitions)
}

/// The value of a point that is drawn.
struct Curve {
    title: &'static str,
    value: fn(&(u32, f64)) -> f64,
}

fn panel(svg: &mut String, (left, top): (f64, f64), runs: &[&Run], curve: &Curve) {
    let Some(first) = runs.first() else { return };
    let values = runs.iter().flat_map(|run| run.curve.iter().map(curve.value));
    let most = values.fold(1.0, f64::max);
    let (width, height) = PANEL;
    put(
        svg,
        &format!(
            "<text x=\"{left}\" y=\"{}\">{}, {} partitions: {}, up to {most:.0}; {} hours</text>\n\
         <rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#ccc\"/>\n",
            top - 6.0,
            first.load,
            first.partitions,
            curve.title,
            first.hours
        ),
    );
    for run in runs {
        let colour =
            COLOURS.iter().find(|(policy, _)| *policy == run.policy).map_or("black", |(_, colour)| colour);
        let step = width / count(run.curve.len().max(2) as u64 - 1);
        let mut points = String::new();
        for (place, point) in run.curve.iter().enumerate() {
            let x = left + step * count(place as u64);
            let y = top + height * (1.0 - (curve.value)(point) / most);
            put(&mut points, &format!("{x:.1},{y:.1} "));
        }
        put(
            svg,
            &format!("<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>\n", points.trim_end()),
        );
    }
}

fn put(text: &mut String, more: &str) {
    text.write_str(more).expect("a String takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::super::{Course, Load, Name, Queue, Trace, Tuning};
    use super::*;

    #[test]
    fn every_run_is_a_line_in_two_panels() {
        let (load, queue, trace, tuning) =
            (Load::Steady, Queue::Spill, &Trace::default(), &Tuning::default());
        let run =
            |policy| Course { policy, load, partitions: 4, queue, hours: 0.5, seed: 0, trace, tuning }.run();
        let svg = plot(&[run(Name::Ours), run(Name::Flink)]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<rect").count()), (4, 3));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }
}
