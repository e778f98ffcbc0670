//! The CPU time of all cases as a drawing: a bar for each case, in pieces from the gateway to the merges.

use std::fmt::Write as _;

use super::report::{Cpu, Outcome};
use crate::throughput::float;

/// Points of a bar and of the space below it.
const BAR: f64 = 22.0;
const GAP: f64 = 10.0;
/// Points to the left of the bars, for names, and to the right, for sums.
const LEFT: f64 = 300.0;
const RIGHT: f64 = 80.0;
/// Points above the first bar, for the title and the legend.
const TOP: f64 = 60.0;
/// Points of the longest bar.
const WIDTH: f64 = 700.0;

/// A piece of a bar: its name, its colour, and its CPU seconds per million spans.
struct Piece {
    name: &'static str,
    colour: &'static str,
    value: fn(&Cpu) -> f64,
}

/// In the order in which the rows pass. A negative remainder is not drawn.
const PIECES: [Piece; 5] = [
    Piece { name: "gateway or Collector", colour: "#0b6e4f", value: |cpu| cpu.program },
    Piece { name: "inserts", colour: "#2e86ab", value: |cpu| cpu.inserts },
    Piece { name: "views", colour: "#8d6a9f", value: |cpu| cpu.views },
    Piece { name: "merges", colour: "#d1495b", value: |cpu| cpu.merges },
    Piece {
        name: "other, unattributed",
        colour: "#bbbbbb",
        value: |cpu| (cpu.other + cpu.unattributed).max(0.0),
    },
];

/// The drawing, as SVG.
pub fn plot(outcomes: &[Outcome]) -> String {
    let bars: Vec<(&str, &Cpu)> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome.case.as_str(), &outcome.bill.as_ref()?.cpu_s_per_million)))
        .collect();
    let sum = |cpu: &Cpu| PIECES.iter().map(|piece| (piece.value)(cpu)).sum::<f64>();
    let scale = WIDTH / bars.iter().map(|&(_, cpu)| sum(cpu)).fold(1.0, f64::max);
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + float(bars.len() as u64) * (BAR + GAP));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\">CPU seconds per million spans, until merges are quiet</text>\n"
    );
    for (place, piece) in PIECES.iter().enumerate() {
        let x = LEFT + 150.0 * float(place as u64);
        put(&mut svg, &format!("<text x=\"{x}\" y=\"42\" fill=\"{}\">{}</text>\n", piece.colour, piece.name));
    }
    for (place, &(name, cpu)) in bars.iter().enumerate() {
        bar(&mut svg, TOP + float(place as u64) * (BAR + GAP), name, (cpu, scale));
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, top: f64, name: &str, (cpu, scale): (&Cpu, f64)) {
    let (middle, mut x) = (top + BAR * 0.7, LEFT);
    put(svg, &format!("<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>\n", LEFT - 8.0));
    for piece in &PIECES {
        let width = (piece.value)(cpu) * scale;
        put(
            svg,
            &format!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{}\"><title>{} {:.2}</title></rect>\n",
                piece.colour,
                piece.name,
                (piece.value)(cpu)
            ),
        );
        x += width;
    }
    put(svg, &format!("<text x=\"{:.1}\" y=\"{middle:.1}\">{:.1}</text>\n", x + 6.0, cpu.whole));
}

fn put(text: &mut String, more: &str) {
    text.write_str(more).expect("a String takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::outcome;
    use super::*;

    #[test]
    fn every_case_with_a_bill_is_a_bar_of_five_pieces() {
        let failed = Outcome::ended("rich-collector-map".to_owned(), "the server ended");
        let svg = plot(&[outcome("rich-json"), failed, outcome("rich-nested")]);
        assert_eq!(svg.matches("<rect").count(), 1 + 2 * PIECES.len());
        assert!(
            svg.contains(">rich-json<") && svg.contains(">rich-nested<") && !svg.contains("collector-map")
        );
        assert!(svg.contains(">31.4<"), "the sum is beside the bar");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn without_a_bill_there_is_a_drawing_without_bars() {
        assert_eq!(plot(&[]).matches("<rect").count(), 1);
    }
}
