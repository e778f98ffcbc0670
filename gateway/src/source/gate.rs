//! Whether requests are taken, and how many are under way.
//!
//! A request enters before it is worked on, and leaves once it is durable or refused, whatever its client does meanwhile. So once nothing may
//! enter and nothing is under way, no message is appended any more: the logs can be found empty for good.

use sluice_kafka::Drain;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};

/// The gate; cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate {
    drain: Drain,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: AtomicBool,
    under_way: AtomicUsize,
}

/// A request that is under way.
#[derive(Debug)]
pub struct Entered(Arc<State>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// Open unless a drain is asked for.
    pub fn new(drain: Drain) -> Self {
        Self { drain, state: Arc::default() }
    }

    /// Lets a request in; `None` while none is taken.
    pub fn enter(&self) -> Option<Entered> {
        self.state.under_way.fetch_add(1, Ordering::AcqRel);
        let entered = Entered(self.state.clone());
        // Counted before it looks, as `may_append` looks before it counts: one of both sees the other.
        fence(Ordering::SeqCst);
        self.is_open().then_some(entered)
    }

    /// Takes no request any more.
    pub fn close(&self) {
        self.state.is_closed.store(true, Ordering::Release);
    }

    /// Whether a request may be appended from now on.
    pub fn may_append(&self) -> bool {
        let is_open = self.is_open();
        fence(Ordering::SeqCst);
        is_open || self.state.under_way.load(Ordering::Acquire) > 0
    }

    fn is_open(&self) -> bool {
        !self.drain.is_requested() && !self.state.is_closed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_appended_once_the_gate_is_closed_and_the_last_request_has_left() {
        let drain = Drain::default();
        let gate = Gate::new(drain.clone());
        let entered = gate.enter().unwrap();
        assert!(gate.may_append());
        drain.request();
        assert!(gate.enter().is_none());
        assert!(gate.may_append(), "a request is under way");
        drop(entered);
        assert!(!gate.may_append());
        drain.resume();
        assert!(gate.may_append());
        gate.close();
        assert!(!gate.may_append() && gate.enter().is_none());
    }
}
