//! Divides the log of an audit into its result, for standard output, and all else, for standard error.
//!
//! A pod's log has both streams of the program in one. Lines of progress have an end of their own. The rest is the result, or why there is
//! none: the exit code says which, so it is held back until the end. Limit: [`HELD_BYTES_MAX`].

use crate::{cluster::Error, terminal::Terminal};
use serde::de::IgnoredAny;

/// The end of each line of progress that `sluice-gateway audit` writes to standard error.
const PROGRESS_END: &str = " offsets done";

/// Exit codes with which `sluice-gateway audit` has written a result: nothing, something, or nothing certain is wrong.
const WITH_RESULT: [u8; 3] = [0, 65, 66];

/// Bytes that are held back at most. Chosen: far more than an error has, so that whatever is longer is a result.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The output so far.
#[derive(Debug, Default)]
pub(super) struct Output {
    is_json: bool,
    /// Lines that were divided, of both kinds. A log that is read again begins with them.
    pub lines: usize,
    held: Vec<u8>,
    /// Whether more was held back than an error has. Then it is a result, and is written as it arrives.
    is_result: bool,
}

impl Output {
    /// With `--json`, the result is one line with an object.
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, ..Self::default() }
    }

    /// The next line of the log, without its end.
    pub(super) fn line(&mut self, line: &str, terminal: &mut Terminal<'_>) -> Result<(), Error> {
        self.lines += 1;
        let is_progress = if self.is_json { !is_object(line) } else { line.ends_with(PROGRESS_END) };
        if is_progress {
            return terminal.tell(line);
        }
        self.held.extend_from_slice(line.as_bytes());
        self.held.push(b'\n');
        if self.is_result || self.held.len() > HELD_BYTES_MAX {
            self.is_result = true;
            return self.write(terminal);
        }
        Ok(())
    }

    /// The program has ended: with this exit code, or because something ended it. A code that comes with a result fails without one: the
    /// kubelet may have rotated the log within the result.
    pub(super) fn end(&mut self, code: Option<u8>, terminal: &mut Terminal<'_>) -> Result<(), Error> {
        let code = code.filter(|code| WITH_RESULT.contains(code));
        if !self.is_result && self.held.is_empty() {
            return code.map_or(Ok(()), |code| Err(Error::LogIncomplete { code }));
        }
        if self.is_result || code.is_some() {
            return self.write(terminal);
        }
        terminal.told.write_all(&std::mem::take(&mut self.held)).map_err(Error::Write)
    }

    fn write(&mut self, terminal: &mut Terminal<'_>) -> Result<(), Error> {
        let held = std::mem::take(&mut self.held);
        terminal.out.write_all(&held).and_then(|()| terminal.out.flush()).map_err(Error::Write)
    }
}

/// Whether a line is a whole JSON object. The rest of a rotated line may begin with one.
fn is_object(line: &str) -> bool {
    line.starts_with('{') && serde_json::from_str::<IgnoredAny>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes to standard output and to standard error.
    fn divided(is_json: bool, lines: &[&str], code: Option<u8>) -> (String, String) {
        let (mut out, mut told) = (Vec::new(), Vec::new());
        let mut terminal = Terminal { out: &mut out, told: &mut told };
        let mut output = Output::new(is_json);
        for line in lines {
            output.line(line, &mut terminal).unwrap();
        }
        output.end(code, &mut terminal).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(told).unwrap())
    }

    const PROGRESS: &str = "compare: spans/3, 20 of 100 offsets done";

    #[test]
    fn progress_is_no_part_of_a_result() {
        let lines = [PROGRESS, "Kafka against otel.otel_traces, group a", "all 1 2 3"];
        for code in WITH_RESULT {
            let (out, told) = divided(false, &lines, Some(code));
            assert_eq!(out, "Kafka against otel.otel_traces, group a\nall 1 2 3\n");
            assert_eq!(told, format!("{PROGRESS}\n"));
        }
        let (out, told) = divided(true, &[PROGRESS, "a warning", "{\"group\":\"a\"}"], Some(65));
        assert_eq!((out.as_str(), told), ("{\"group\":\"a\"}\n", format!("{PROGRESS}\na warning\n")));
    }

    #[test]
    fn an_error_is_no_result() {
        for code in [Some(69), Some(64), None] {
            let (out, told) = divided(false, &["ClickHouse is away"], code);
            assert_eq!((out.as_str(), told.as_str()), ("", "ClickHouse is away\n"), "{code:?}");
        }
    }

    #[test]
    fn a_code_that_has_a_result_fails_without_one() {
        let cut = ["\"spans\":3}]}", "{\"first\":1},{\"first\":9}]}", "{\"group\":"];
        let logs: [(bool, &[&str]); 3] = [(true, &cut), (true, &[]), (false, &[PROGRESS])];
        for (is_json, lines) in logs {
            for code in WITH_RESULT {
                let (mut out, mut told) = (Vec::new(), Vec::new());
                let mut terminal = Terminal { out: &mut out, told: &mut told };
                let mut output = Output::new(is_json);
                for line in lines {
                    output.line(line, &mut terminal).unwrap();
                }
                let error = output.end(Some(code), &mut terminal).unwrap_err();
                assert!(matches!(error, Error::LogIncomplete { code: found } if found == code), "{error}");
                assert!(out.is_empty());
            }
        }
        assert_eq!(divided(true, &[], Some(69)), (String::new(), String::new()));
    }

    #[test]
    fn a_long_result_is_written_as_it_comes() {
        let line = "x".repeat(HELD_BYTES_MAX);
        let (out, told) = divided(false, &["first", &line, "last"], None);
        assert_eq!((out, told.as_str()), (format!("first\n{line}\nlast\n"), ""));
    }
}
