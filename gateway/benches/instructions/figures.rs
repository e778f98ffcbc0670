//! The accepted figures, and what has become of them.
//!
//! Job: compare instructions per span with those in `accepted.json`, say what changed, and write the file. Pure, except
//! [`Figures::read`] and [`Figures::write`]. Place in the flow: the end of a run. Tests: `gateway/tests/it/speed_guard.rs`, because a
//! benchmark without a harness runs none.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs, io,
    path::Path,
};

/// A larger change fails, up or down. Specified.
pub const CHANGE_MAX: f64 = 0.03;

/// What instruction counts depend on besides our code. Figures of different conditions are not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// What `rustc --version` says.
    pub rustc: String,
    /// The processor's architecture.
    pub architecture: String,
    /// What libraries find at run time that valgrind's processor can do.
    pub cpu_features: Vec<String>,
}

/// Instructions per span by the name of what was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// What they were counted with.
    pub conditions: Conditions,
    /// By `shape/stage`.
    pub instructions_per_span: BTreeMap<String, f64>,
}

/// Why the file of figures cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read.
    #[error("cannot read the accepted figures: {0}")]
    Read(io::Error),
    /// It has another form.
    #[error("cannot parse the accepted figures: {0}")]
    Form(serde_json::Error),
    /// It could not be written.
    #[error("cannot write the accepted figures: {0}")]
    Write(io::Error),
}

/// How a figure compares with the accepted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It changed by no more than [`CHANGE_MAX`].
    Kept,
    /// It grew by more.
    Slower,
    /// It shrank by more.
    Faster,
    /// It has no accepted figure.
    New,
    /// It has an accepted figure and was not measured.
    Gone,
}

/// A figure beside the accepted one.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// `shape/stage`.
    pub name: String,
    /// From the file.
    pub accepted: Option<f64>,
    /// From this run.
    pub measured: Option<f64>,
}

/// Every figure beside the accepted one, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison(pub Vec<Line>);

impl Figures {
    /// Figures to the tenth of an instruction: smaller digits change from run to run.
    pub fn new(conditions: Conditions, instructions_per_span: BTreeMap<String, f64>) -> Self {
        let tenths = |(name, count): (String, f64)| (name, (count * 10.0).round() / 10.0);
        Self { conditions, instructions_per_span: instructions_per_span.into_iter().map(tenths).collect() }
    }

    /// Those of a file.
    pub fn read(file: &Path) -> Result<Self, Error> {
        serde_json::from_str(&fs::read_to_string(file).map_err(Error::Read)?).map_err(Error::Form)
    }

    /// Makes them the accepted ones.
    pub fn write(&self, file: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(Error::Form)? + "\n";
        fs::write(file, text).map_err(Error::Write)
    }

    /// These, as the accepted ones, beside the measured ones.
    pub fn compare(&self, measured: &Self) -> Comparison {
        let (accepted, measured) = (&self.instructions_per_span, &measured.instructions_per_span);
        let mut names: Vec<_> = accepted.keys().chain(measured.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let line = |name: &String| Line {
            name: name.clone(),
            accepted: accepted.get(name).copied(),
            measured: measured.get(name).copied(),
        };
        Comparison(names.into_iter().map(line).collect())
    }
}

impl Conditions {
    /// How these, as the accepted ones, differ from others; `None` if they do not.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let differs = |what: &str, accepted: &str, now: &str| {
            (accepted != now).then(|| format!("{what}: accepted {accepted}, now {now}"))
        };
        let differences = [
            differs("rustc", &self.rustc, &now.rustc),
            differs("architecture", &self.architecture, &now.architecture),
            differs("CPU features", &self.cpu_features.join(" "), &now.cpu_features.join(" ")),
        ];
        let texts: Vec<_> = differences.into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

impl Line {
    /// The change as a share of the accepted figure.
    fn change(&self) -> Option<f64> {
        let (accepted, measured) = self.accepted.zip(self.measured)?;
        Some(measured / accepted - 1.0)
    }

    /// How it compares.
    pub fn verdict(&self) -> Verdict {
        match (self.accepted, self.measured) {
            (Some(accepted), Some(measured)) if measured > accepted * (1.0 + CHANGE_MAX) => Verdict::Slower,
            (Some(accepted), Some(measured)) if measured < accepted * (1.0 - CHANGE_MAX) => Verdict::Faster,
            (Some(_), Some(_)) => Verdict::Kept,
            (None, _) => Verdict::New,
            (Some(_), None) => Verdict::Gone,
        }
    }
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Kept => "",
            Self::Slower => "more than 3 % slower",
            Self::Faster => "more than 3 % faster: accept it, else the gain can be lost unnoticed",
            Self::New => "has no accepted figure",
            Self::Gone => "has an accepted figure and was not measured",
        }
    }
}

impl Comparison {
    /// The figures that fail, a line each with stage, accepted, measured and change; `None` if there are none.
    pub fn failures(&self) -> Option<String> {
        let mut text = String::new();
        for line in self.0.iter().filter(|line| line.verdict() != Verdict::Kept) {
            writeln!(text, "{line}").expect("a string takes every text");
        }
        (!text.is_empty()).then(|| format!("{HEAD}\n{text}"))
    }
}

/// The columns of [`Line`] and [`Comparison`].
const HEAD: &str = "instructions per span    accepted   measured    change";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
        let change = self.change().map_or_else(|| "-".to_owned(), |n| format!("{:+.1} %", n * 100.0));
        let (accepted, measured) = (figure(self.accepted), figure(self.measured));
        let row = format!("{:<22} {accepted:>10} {measured:>10} {change:>9}", self.name);
        f.write_str(format!("{row}  {}", self.verdict().text()).trim_end())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for line in &self.0 {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
