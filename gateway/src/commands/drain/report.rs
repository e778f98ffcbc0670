//! The result for every block of a volume, as text and as JSON.

use serde::Serialize;
use std::{fmt, ops::AddAssign};

/// Blocks and their rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    pub blocks: u64,
    /// Their rows.
    pub rows: u64,
}

impl Tally {
    /// One block.
    pub fn of(rows: u64) -> Self {
        Self { blocks: 1, rows }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.rows += other.rows;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {} rows", self.blocks, if self.blocks == 1 { "block" } else { "blocks" }, self.rows)
    }
}

/// What happens to a record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Fate {
    /// Its rows are in the table: nothing is lost.
    Settled,
    /// The partition's owner reads its messages: nothing is lost.
    InKafka,
    /// It is the only copy of its rows. It stays until it is given up.
    Nowhere,
    /// It was the only copy of its rows and was given up: they are lost.
    GivenUp,
    /// It is incomplete and was the only copy of its rows: they are lost.
    Lost,
    /// Its offsets are unknown. It stays until it is given up.
    Unknown,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Damaged {
    /// The file that keeps its bytes.
    pub file: String,
    /// What is wrong with the file.
    pub reason: String,
    /// `topic/partition`; absent if its header is damaged too. Then offsets and rows are also absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The first offset that it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<i64>,
    /// One past the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// What happens to it.
    pub fate: Fate,
}

impl Damaged {
    /// Whether it is still on the volume.
    pub fn stays(&self) -> bool {
        matches!(self.fate, Fate::Nowhere | Fate::Unknown)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.partition, self.first.zip(self.next), self.rows) {
            (Some(partition), Some((first, next)), Some(rows)) => {
                write!(f, "{partition}, offsets {first} up to {next}, {rows} rows")?;
            }
            _ => f.write_str("records without readable offsets")?,
        }
        let Self { file, reason, .. } = self;
        let fate = match self.fate {
            Fate::Settled => "its rows are in the table",
            Fate::InKafka => "Kafka has its messages, and the partition's owner reads them",
            Fate::Nowhere => "it is the only copy of its rows; --give-up-damaged gives it up",
            Fate::GivenUp | Fate::Lost => "it was the only copy of its rows: they are lost",
            Fate::Unknown => "its offsets are unknown; --give-up-damaged gives it up",
        };
        write!(f, " in {file} ({reason}): {fate}")
    }
}

/// Why blocks are left, or lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "why", content = "text")]
pub enum Problem {
    /// A server cannot be reached, or refuses: later may help.
    Unavailable(String),
    /// Someone must act.
    ByHand(String),
    /// Rows are lost: the volume had their only copy.
    Lost(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(text) | Self::ByHand(text) => write!(f, "not empty: {text}"),
            Self::Lost(text) => write!(f, "rows are lost: {text}"),
        }
    }
}

/// The result for every block of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub volume: String,
    /// Blocks that could be read at the start.
    pub found: Tally,
    /// Dropped, because their rows are in the table.
    pub settled: Tally,
    /// Dropped, because the partition's owner reads their messages.
    pub in_kafka: Tally,
    pub inserted: Tally,
    /// Blocks that became unreadable before their insert: their rows are lost.
    pub lost: Tally,
    /// Still on the volume.
    pub left: Tally,
    /// Rows of inserted blocks that may be in the table twice.
    pub possible_duplicate_rows: u64,
    /// Rows of inserted blocks that ClickHouse refuses and that are in the dead-letter topic.
    pub dead_lettered_rows: u64,
    /// Refused rows that were skipped without a dead letter (`delivery.deadLetter.onMissing: Skip`).
    pub skipped_rows: u64,
    /// Records that cannot be read, each with its fate.
    pub damaged: Vec<Damaged>,
    /// Why blocks are left, or what is lost; absent if neither is the case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Report {
    /// Whether nothing is left on the volume.
    pub fn is_empty(&self) -> bool {
        self.left == Tally::default() && !self.damaged.iter().any(Damaged::stays)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} found", self.volume, self.found)?;
        let lines = [
            (self.inserted, "inserted"),
            (self.settled, "dropped: in the table already"),
            (self.in_kafka, "dropped: the partition's owner reads them from Kafka"),
            (self.lost, "LOST: they could not be read any more"),
            (self.left, "LEFT on the volume"),
        ];
        for (tally, what) in lines.iter().filter(|(tally, _)| tally.blocks > 0) {
            writeln!(f, "  {tally} {what}")?;
        }
        let rows = [
            (self.possible_duplicate_rows, "may be in the table twice"),
            (self.dead_lettered_rows, "were refused and went to the dead-letter topic"),
            (self.skipped_rows, "were refused and skipped without a dead letter"),
        ];
        for (rows, what) in rows.iter().filter(|(rows, _)| *rows > 0) {
            writeln!(f, "  {rows} rows {what}")?;
        }
        for damaged in &self.damaged {
            writeln!(f, "  damaged: {damaged}")?;
        }
        match &self.problem {
            Some(problem) => writeln!(f, "{problem}"),
            None if self.damaged.iter().any(|damaged| damaged.fate == Fate::GivenUp) => {
                writeln!(f, "empty, except for files of damaged records that were given up")
            }
            None => writeln!(f, "empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_and_why_is_said() {
        let damaged = Damaged {
            file: "segment-1.damaged".to_owned(),
            reason: "its checksum is another one".to_owned(),
            partition: Some("spans/3".to_owned()),
            first: Some(120),
            next: Some(180),
            rows: Some(60),
            fate: Fate::Nowhere,
        };
        let report = Report {
            volume: "/queue".to_owned(),
            found: Tally { blocks: 3, rows: 9 },
            inserted: Tally { blocks: 3, rows: 9 },
            damaged: vec![damaged.clone()],
            problem: Some(Problem::ByHand("1 damaged record".to_owned())),
            ..Report::default()
        };
        assert!(!report.is_empty());
        let text = report.to_string();
        assert!(text.contains("spans/3, offsets 120 up to 180, 60 rows in segment-1.damaged"), "{text}");
        assert!(text.ends_with("not empty: 1 damaged record\n") && !text.contains("LEFT"), "{text}");
        let given_up = Damaged { fate: Fate::GivenUp, ..damaged };
        let report = Report { damaged: vec![given_up], problem: None, ..report };
        assert!(report.is_empty() && report.to_string().ends_with("that were given up\n"), "{report}");
        assert!(Report::default().to_string().ends_with("\nempty\n"));
        let lost = Problem::Lost("1 block, 3 rows".to_owned());
        let text = Report { problem: Some(lost), ..report.clone() }.to_string();
        assert!(text.ends_with("rows are lost: 1 block, 3 rows\n") && !text.contains("not empty"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["damaged"][0]["fate"], "GivenUp");
        assert_eq!((json["inserted"]["rows"].as_u64(), json.get("problem")), (Some(9), None));
    }
}
