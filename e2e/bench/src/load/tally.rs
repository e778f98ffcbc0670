//! The outcomes of the requests of a case.

use std::ops::Range;
use std::time::Duration;

use e2e_fixtures::produce::Sent;
use e2e_fixtures::spans::Numbers;

#[derive(Clone, Debug)]
pub struct Delivery {
    pub numbers: Range<u64>,
    pub tries: u32,
    /// From the first time it was sent to the answer that accepted it; `None` if it failed.
    pub took: Option<Duration>,
    /// Whether it was accepted within the clients' time.
    pub is_in_time: bool,
    /// The text of the first answer that did not accept it.
    pub refusal: Option<String>,
}

/// Counts of requests, and the numbers of their spans. Each request is counted once: as accepted at the first try, as retried, or as failed.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that were sent.
    pub requests: u64,
    /// Accepted by the first answer.
    pub accepted_first: u64,
    /// Accepted after they were sent again.
    pub retried: u64,
    /// Never accepted.
    pub failed: u64,
    /// Accepted within the clients' time.
    pub in_time: u64,
    /// The text of the first answer that did not accept a request.
    pub refusal: Option<String>,
    accepted_spans: Vec<Range<u64>>,
    failed_spans: Vec<Range<u64>>,
    took: Vec<Duration>,
}

impl Tally {
    pub fn add(&mut self, delivery: Delivery) {
        self.requests += 1;
        self.in_time += u64::from(delivery.is_in_time);
        if let Some(took) = delivery.took {
            let is_first = delivery.tries == 1;
            self.accepted_first += u64::from(is_first);
            self.retried += u64::from(!is_first);
            self.took.push(took);
            self.accepted_spans.push(delivery.numbers);
        } else {
            self.failed += 1;
            self.failed_spans.push(delivery.numbers);
        }
        self.refusal = self.refusal.take().or(delivery.refusal);
    }

    pub fn extend(&mut self, other: Tally) {
        self.requests += other.requests;
        self.accepted_first += other.accepted_first;
        self.retried += other.retried;
        self.failed += other.failed;
        self.in_time += other.in_time;
        self.refusal = self.refusal.take().or(other.refusal);
        self.accepted_spans.extend(other.accepted_spans);
        self.failed_spans.extend(other.failed_spans);
        self.took.extend(other.took);
    }

    /// The numbers that must be in the table, and the numbers that may be.
    pub fn sent(&self) -> Sent {
        Sent {
            acked: numbers(&self.accepted_spans),
            doubtful: numbers(&self.failed_spans),
            messages: self.accepted_first + self.retried,
            ..Sent::default()
        }
    }

    /// How long accepted requests took, in rising order.
    pub fn sorted(&self) -> Vec<Duration> {
        let mut took = self.took.clone();
        took.sort_unstable();
        took
    }
}

/// Sorts the ranges first, so that each is added behind all others.
fn numbers(ranges: &[Range<u64>]) -> Numbers {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut numbers = Numbers::default();
    for range in ranges {
        numbers.insert(range);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(numbers: Range<u64>, tries: u32, took_ms: Option<u64>) -> Delivery {
        let took = took_ms.map(Duration::from_millis);
        Delivery { numbers, tries, took, is_in_time: tries == 1, refusal: (tries > 1).then(|| "503".into()) }
    }

    #[test]
    fn each_request_is_counted_once() {
        let mut tally = Tally::default();
        tally.add(delivery(20..30, 1, Some(5)));
        let mut other = Tally::default();
        other.add(delivery(10..20, 3, Some(9_000)));
        other.add(delivery(40..50, 2, None));
        tally.extend(other);
        assert_eq!((tally.requests, tally.in_time), (3, 1));
        assert_eq!((tally.accepted_first, tally.retried, tally.failed), (1, 1, 1));
        assert_eq!(tally.refusal.as_deref(), Some("503"));
        let sent = tally.sent();
        assert_eq!(sent.acked, Numbers::from(10..30), "in any order");
        assert_eq!((sent.doubtful, sent.messages), (Numbers::from(40..50), 2));
        assert_eq!(tally.sorted(), [Duration::from_millis(5), Duration::from_secs(9)]);
    }
}
