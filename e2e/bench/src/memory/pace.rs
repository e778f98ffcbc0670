//! The speed of a run, and when it was back at full speed. Pure.

use std::time::Duration;

const WINDOW_S: f64 = 1.0;

/// The share of the earlier rate that counts as full speed: other programs on the machine change the rate of a second by less than a fifth.
pub const FULL_SPEED: f64 = 0.8;

/// Inserted rows at several times.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Seconds since the start and rows until then, in the order of time.
    looks: Vec<(f64, f64)>,
}

impl Pace {
    /// Records how many rows were inserted at a time.
    pub fn look(&mut self, at: Duration, rows: f64) {
        self.looks.push((at.as_secs_f64(), rows));
    }

    /// Whether inserts were seen for a whole window, so that there is a rate.
    pub fn has_rate(&self) -> bool {
        let first = self.looks.iter().rev().find(|(_, rows)| *rows == 0.0);
        first.zip(self.looks.last()).is_some_and(|((begin, _), (end, _))| end - begin >= WINDOW_S)
    }

    /// Rows a second from the last sample without a row until `until`; `None` if that is shorter than half a window.
    pub fn rate_until(&self, until: Duration) -> Option<f64> {
        let until = until.as_secs_f64();
        let (begin, _) = *self.looks.iter().rev().find(|(_, rows)| *rows == 0.0)?;
        let (end, rows) = *self.looks.iter().rev().find(|(at, _)| *at <= until)?;
        (end - begin >= WINDOW_S / 2.0).then(|| rows / (end - begin))
    }

    /// Seconds from `since` to the start of the first window with at least [`FULL_SPEED`] of `rate`. `None` if there is no such window, for
    /// example because the rest of the backlog is shorter than a window.
    pub fn recovered(&self, since: Duration, rate: f64) -> Option<f64> {
        let since = since.as_secs_f64();
        let after = self.looks.iter().enumerate().filter(|(_, (at, _))| *at >= since);
        after.into_iter().find_map(|(index, (begin, rows))| {
            let rest = &self.looks[index..];
            let (end, then) = *rest.iter().find(|(at, _)| at - begin >= WINDOW_S)?;
            ((then - rows) / (end - begin) >= FULL_SPEED * rate).then_some(begin - since)
        })
    }

    pub fn rows_since(&self, since: Duration) -> f64 {
        let since = since.as_secs_f64();
        let before = self.looks.iter().rev().find(|(at, _)| *at <= since).map_or(0.0, |(_, rows)| *rows);
        self.looks.last().map_or(0.0, |(_, rows)| rows - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 a second, nothing from second 3 to 6, then 300 and from second 8 on 900 a second.
    fn pace() -> Pace {
        let mut pace = Pace::default();
        let mut rows = 0.0;
        for tenth in 0..140_u32 {
            let at = Duration::from_millis(u64::from(tenth) * 100);
            pace.look(at, rows);
            rows += match tenth {
                0..30 => 100.0,
                30..60 => 0.0,
                60..80 => 30.0,
                _ => 90.0,
            };
        }
        pace
    }

    #[test]
    fn full_speed_begins_with_the_first_window_that_has_it() {
        let pace = pace();
        let rate = pace.rate_until(Duration::from_secs(3)).unwrap();
        assert!((rate - 1_000.0).abs() < 1e-6, "{rate}");
        let recovered = pace.recovered(Duration::from_secs(6), rate).unwrap();
        assert!((1.8..=2.0).contains(&recovered), "{recovered}");
        assert_eq!(pace.recovered(Duration::from_secs(6), 2_000.0), None);
        assert!(pace.rows_since(Duration::from_secs(6)) > 5_000.0);
    }

    #[test]
    fn too_short_a_time_has_no_rate() {
        let mut pace = Pace::default();
        pace.look(Duration::ZERO, 0.0);
        pace.look(Duration::from_millis(300), 500.0);
        assert_eq!(pace.rate_until(Duration::from_secs(1)), None);
        assert!(!pace.has_rate());
        pace.look(Duration::from_secs(1), 900.0);
        assert!(pace.has_rate() && pace.rate_until(Duration::from_secs(1)).is_some());
    }
}
