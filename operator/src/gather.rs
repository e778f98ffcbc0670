//! Events about one object that come close together are one: a rolling pod makes a dozen.
//!
//! The time runs from the first of them, so that what never ends keeps nobody waiting. What the controller of `kube` offers for this
//! runs from the last: three hundred gateways that come and go would put their pipeline off for minutes.

use futures::{Stream, StreamExt, stream};
use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// What was heard of and is not passed on: at most as many as there are objects.
#[derive(Debug)]
struct Heard<T> {
    /// In the order in which they were heard of, with when they are passed on.
    due: VecDeque<(Instant, T)>,
    waiting: HashSet<T>,
}

impl<T> Default for Heard<T> {
    fn default() -> Self {
        Self { due: VecDeque::new(), waiting: HashSet::new() }
    }
}

impl<T: Clone + Eq + Hash> Heard<T> {
    /// To be passed on at this moment, unless it is to be sooner.
    fn add(&mut self, one: T, at: Instant) {
        if self.waiting.insert(one.clone()) {
            self.due.push_back((at, one));
        }
    }

    /// When the next one is passed on.
    fn next_at(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    fn pass_on(&mut self) -> Option<T> {
        let (_, one) = self.due.pop_front()?;
        self.waiting.remove(&one);
        Some(one)
    }
}

/// Each object once for all events within this time of the first. Ends when they end, and passes nothing on then.
pub fn gathered<T: Clone + Eq + Hash>(
    events: impl Stream<Item = T> + Unpin,
    within: Duration,
) -> impl Stream<Item = T> {
    stream::unfold((events, Heard::default()), move |(mut events, mut heard)| async move {
        loop {
            let next_at = heard.next_at();
            tokio::select! {
                // Who is due goes first, however much there is to hear of.
                biased;
                () = sleep_until(next_at.unwrap_or_else(Instant::now)), if next_at.is_some() => {
                    return heard.pass_on().map(|one| (one, (events, heard)));
                }
                one = events.next() => heard.add(one?, Instant::now() + within),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(1);

    /// What is passed on of objects that are heard of at these milliseconds, with when it is.
    fn passed_on(events: &[(u64, &'static str)]) -> Vec<(u64, &'static str)> {
        let begun = Instant::now();
        let mut heard = Heard::default();
        let mut passed_on = Vec::new();
        let ever = (u64::MAX / 1_000_000, "");
        for (at, one) in events.iter().chain([&ever]) {
            let now = begun + Duration::from_millis(*at);
            while let Some(next_at) = heard.next_at().filter(|next_at| *next_at <= now) {
                let after = u64::try_from((next_at - begun).as_millis()).unwrap();
                passed_on.push((after, heard.pass_on().unwrap()));
            }
            heard.add(*one, now + WITHIN);
        }
        passed_on
    }

    #[test]
    fn what_never_ends_is_passed_on_all_the_same() {
        let events: Vec<_> = (0..20).map(|times| (times * 300, "a")).collect();
        assert_eq!(passed_on(&events), [1_000, 2_200, 3_400, 4_600, 5_800].map(|at| (at, "a")));
    }

    #[test]
    fn what_comes_close_together_is_one_and_each_object_has_its_own_time() {
        let events = [(0, "a"), (200, "b"), (300, "a"), (900, "b"), (2_400, "a"), (2_400, "c")];
        assert_eq!(passed_on(&events), [(1_000, "a"), (1_200, "b"), (3_400, "a"), (3_400, "c")]);
    }

    #[tokio::test]
    async fn it_ends_with_what_it_hears_from_and_passes_on_what_is_due_by_then() {
        let (sender, events) = futures::channel::mpsc::channel(1);
        let mut gathered = Box::pin(gathered(events, Duration::ZERO));
        let mut heard = sender.clone();
        heard.try_send("a").unwrap();
        assert_eq!(gathered.next().await, Some("a"));
        drop((heard, sender));
        assert_eq!(gathered.next().await, None);
    }
}
