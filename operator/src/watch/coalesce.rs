//! Makes one event of all events about one object within a time: a pod that restarts causes a dozen.
//!
//! The time begins with the first event, so that an object with steady events is still passed on. In `kube`'s controller it begins with the last
//! event: a rollout of 300 gateways would delay their pipeline for minutes.

use futures::{Stream, StreamExt, stream};
use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Objects with events that are not passed on yet: at most as many as there are objects.
#[derive(Debug)]
struct Pending<T> {
    /// In the order of their first events, with the time at which they are passed on.
    due: VecDeque<(Instant, T)>,
    waiting: HashSet<T>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { due: VecDeque::new(), waiting: HashSet::new() }
    }
}

impl<T: Clone + Eq + Hash> Pending<T> {
    /// An event at which the object is to be passed on at this moment, unless it is pending already.
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

/// Passes each object on once for all events within this time of the first. Ends with the events, and then passes nothing on.
pub fn coalesced<T: Clone + Eq + Hash>(
    events: impl Stream<Item = T> + Unpin,
    within: Duration,
) -> impl Stream<Item = T> {
    stream::unfold((events, Pending::default()), move |(mut events, mut pending)| async move {
        loop {
            let next_at = pending.next_at();
            tokio::select! {
                // Pass on what is due first, also under a steady load of events.
                biased;
                () = sleep_until(next_at.unwrap_or_else(Instant::now)), if next_at.is_some() => {
                    return pending.pass_on().map(|one| (one, (events, pending)));
                }
                one = events.next() => pending.add(one?, Instant::now() + within),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(1);

    /// What is passed on of objects that are pending of at these milliseconds, with when it is.
    fn passed_on(events: &[(u64, &'static str)]) -> Vec<(u64, &'static str)> {
        let begun = Instant::now();
        let mut pending = Pending::default();
        let mut passed_on = Vec::new();
        let ever = (u64::MAX / 1_000_000, "");
        for (at, one) in events.iter().chain([&ever]) {
            let now = begun + Duration::from_millis(*at);
            while let Some(next_at) = pending.next_at().filter(|next_at| *next_at <= now) {
                let after = u64::try_from((next_at - begun).as_millis()).unwrap();
                passed_on.push((after, pending.pass_on().unwrap()));
            }
            pending.add(*one, now + WITHIN);
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
        let mut coalesced = Box::pin(coalesced(events, Duration::ZERO));
        let mut pending = sender.clone();
        pending.try_send("a").unwrap();
        assert_eq!(coalesced.next().await, Some("a"));
        drop((pending, sender));
        assert_eq!(coalesced.next().await, None);
    }
}
