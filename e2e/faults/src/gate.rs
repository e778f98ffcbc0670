//! Holds a request inside a front until a scenario decides what happens to it.
//!
//! Job: the common part of both fronts. A scenario sets a [`Trap`] for a step and waits until a request is caught. The request waits until
//! the scenario gives a verdict, or drops the caught request, which lets it pass. Verdicts without a decision, such as "refuse the next
//! three", are rules. Place in the flow: fronts call [`Gate::pass`] at each step, scenarios call everything else. Any thread. Limits: there
//! are few traps and rules; each passage checks all of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::oneshot;

use e2e_stack::process::interrupt;

/// Interval of the check for Ctrl-C during a wait.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Traps and rules of one front. `P` is a passage, `V` a verdict; the default verdict lets the passage pass.
pub struct Gate<P, V> {
    posts: Mutex<Vec<Post<P, V>>>,
}

/// A trap or rule that each passage is compared with.
struct Post<P, V> {
    wants: Box<dyn FnMut(&P) -> bool + Send>,
    action: Action<P, V>,
}

enum Action<P, V> {
    /// Asks the scenario, once.
    Ask(oneshot::Sender<Caught<P, V>>),
    /// Gives this verdict to this many passages.
    Decide(V, u32, Arc<AtomicU32>),
}

/// A caught passage. Dropping it lets it pass.
pub struct Caught<P, V> {
    pub passage: P,
    decide: oneshot::Sender<V>,
}

impl<P, V> Caught<P, V> {
    /// Decides the passage. If its connection has ended meanwhile, nothing happens.
    pub fn decide(self, verdict: V) {
        self.decide.send(verdict).ok();
    }
}

/// A trap. Dropping it removes it.
pub struct Trap<P, V> {
    what: String,
    caught: oneshot::Receiver<Caught<P, V>>,
}

impl<P, V> Trap<P, V> {
    /// Waits until something is caught.
    pub async fn caught(mut self, patience: Duration) -> Result<Caught<P, V>> {
        let waited = async {
            loop {
                if let Ok(caught) = tokio::time::timeout(LOOK_AGAIN, &mut self.caught).await {
                    return caught.context("the front has ended");
                }
                interrupt::check()?;
            }
        };
        let waited = tokio::time::timeout(patience, waited).await;
        waited.with_context(|| format!("no {} was seen within {patience:?}", self.what))?
    }
}

/// A rule; removed when dropped.
pub struct Rule<'a, P, V> {
    gate: &'a Gate<P, V>,
    applied: Arc<AtomicU32>,
}

impl<P, V> Rule<'_, P, V> {
    pub fn applied(&self) -> u32 {
        self.applied.load(Ordering::Relaxed)
    }
}

impl<P, V> Drop for Rule<'_, P, V> {
    fn drop(&mut self) {
        let is_other = |post: &mut Post<P, V>| match &post.action {
            Action::Decide(_, _, applied) => !Arc::ptr_eq(applied, &self.applied),
            Action::Ask(_) => true,
        };
        self.gate.posts.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(is_other);
    }
}

impl<P, V> Default for Gate<P, V> {
    fn default() -> Self {
        Gate { posts: Mutex::default() }
    }
}

impl<P, V: Clone + Default> Gate<P, V> {
    /// Sets a trap for the next passage that `wants` accepts; `what` names it in an error.
    pub fn trap(&self, what: &str, wants: impl FnMut(&P) -> bool + Send + 'static) -> Trap<P, V> {
        let (sender, caught) = oneshot::channel();
        self.add(Post { wants: Box::new(wants), action: Action::Ask(sender) });
        Trap { what: what.to_owned(), caught }
    }

    /// Gives this verdict to the next `times` passages that `wants` accepts.
    pub fn rule(
        &self,
        times: u32,
        verdict: V,
        wants: impl FnMut(&P) -> bool + Send + 'static,
    ) -> Rule<'_, P, V> {
        let applied = Arc::new(AtomicU32::new(0));
        let action = Action::Decide(verdict, times, Arc::clone(&applied));
        self.add(Post { wants: Box::new(wants), action });
        Rule { gate: self, applied }
    }

    fn add(&self, post: Post<P, V>) {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).push(post);
    }

    /// The verdict for a passage. If a trap catches it, this waits for the scenario.
    pub async fn pass(&self, passage: P) -> V {
        match self.meet(passage) {
            Met::Decided(verdict) => verdict,
            Met::Asked(decided) => decided.await.unwrap_or_default(),
        }
    }

    fn meet(&self, passage: P) -> Met<V> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        // The scenario no longer waits for this trap.
        posts.retain(|post| !matches!(&post.action, Action::Ask(sender) if sender.is_closed()));
        // Every post sees every passage, because some count or remember them.
        let seen: Vec<bool> = posts.iter_mut().map(|post| (post.wants)(&passage)).collect();
        let first = seen.iter().zip(posts.iter()).position(|(wanted, post)| *wanted && !post.is_used_up());
        let Some(index) = first else { return Met::Decided(V::default()) };
        if let Action::Decide(verdict, left, applied) = &mut posts[index].action {
            *left -= 1;
            applied.fetch_add(1, Ordering::Relaxed);
            return Met::Decided(verdict.clone());
        }
        let (decide, decided) = oneshot::channel();
        if let Action::Ask(sender) = posts.remove(index).action {
            // If the scenario has just stopped waiting, its sender is dropped and the passage continues.
            sender.send(Caught { passage, decide }).ok();
        }
        Met::Asked(decided)
    }
}

impl<P, V> Post<P, V> {
    fn is_used_up(&self) -> bool {
        matches!(self.action, Action::Decide(_, 0, _))
    }
}

enum Met<V> {
    Decided(V),
    Asked(oneshot::Receiver<V>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    enum Verdict {
        #[default]
        Pass,
        Drop,
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn what_a_trap_catches_waits_for_its_verdict() {
        let gate: Arc<Gate<u32, Verdict>> = Arc::default();
        let trap = gate.trap("seven", |number| *number == 7);
        assert_eq!(gate.pass(6).await, Verdict::Pass);
        let passing = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.pass(7).await }
        });
        let caught = trap.caught(PATIENCE).await.unwrap();
        assert_eq!(caught.passage, 7);
        assert!(!passing.is_finished());
        caught.decide(Verdict::Drop);
        assert_eq!(passing.await.unwrap(), Verdict::Drop);
        assert_eq!(gate.pass(7).await, Verdict::Pass, "a trap catches once");
    }

    #[tokio::test]
    async fn what_is_let_go_of_passes() {
        let gate: Arc<Gate<u32, Verdict>> = Arc::default();
        let trap = gate.trap("any", |_| true);
        let passing = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.pass(1).await }
        });
        drop(trap.caught(PATIENCE).await.unwrap());
        assert_eq!(passing.await.unwrap(), Verdict::Pass);
    }

    #[tokio::test]
    async fn a_trap_that_nobody_waits_for_stops_nothing() {
        let gate: Gate<u32, Verdict> = Gate::default();
        drop(gate.trap("any", |_| true));
        assert_eq!(gate.pass(1).await, Verdict::Pass);
        let unseen = gate.trap("nine", |number| *number == 9).caught(Duration::from_millis(1)).await;
        assert!(unseen.err().unwrap().to_string().contains("no nine was seen"));
    }

    #[tokio::test]
    async fn a_rule_holds_so_often_and_while_it_is_there() {
        let gate: Gate<u32, Verdict> = Gate::default();
        let rule = gate.rule(2, Verdict::Drop, |number| *number > 4);
        let verdicts = [gate.pass(4).await, gate.pass(5).await, gate.pass(6).await, gate.pass(7).await];
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Drop, Verdict::Drop, Verdict::Pass]);
        assert_eq!(rule.applied(), 2);
        drop(rule);
        let rule = gate.rule(9, Verdict::Drop, |_| true);
        drop(rule);
        assert_eq!(gate.pass(8).await, Verdict::Pass);
    }
}
