//! Memory for the bodies of requests, as permits for bytes: taken before the bytes are read, given back when they are dropped.
//!
//! When there is no room, two queues decide which request is next. Requests without permits wait in the order in which they came: a small
//! request does not overtake a large one. Requests that have a body and need more for it (to rewrite JSON, or to decompress) come before all
//! of these. They return all their permits when they are done. The caller bounds the time of waiting.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, Notify},
    time::timeout,
};

/// The budget has no room for this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for {0} bytes")]
pub struct NoRoom(pub u64);

/// Bytes that bodies of requests may have together. Clones share them.
#[derive(Clone)]
pub struct ByteBudget(Arc<Shared>);

struct Shared {
    total: usize,
    free: AtomicUsize,
    /// Notified of every permit that is given back.
    freed: Notify,
    /// Held by the first request that waits for its first permit. Locks of tokio are given in the order in which they were asked for.
    first: Mutex<()>,
    /// Held by the first request that waits for more.
    more: Mutex<()>,
    /// Requests that wait for more.
    more_waiting: AtomicUsize,
}

impl Shared {
    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.free.fetch_add(bytes, Ordering::SeqCst);
            self.freed.notify_waiters();
        }
    }
}

/// Counts a request that waits for more.
struct WaitsForMore<'a>(&'a Shared);

impl<'a> WaitsForMore<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.more_waiting.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for WaitsForMore<'_> {
    fn drop(&mut self) {
        self.0.more_waiting.fetch_sub(1, Ordering::SeqCst);
        // The first of the other queue may be next.
        self.0.freed.notify_waiters();
    }
}

impl fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes used", self.used_bytes(), self.total_bytes())
    }
}

impl ByteBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        let total = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self(Arc::new(Shared {
            total,
            free: AtomicUsize::new(total),
            freed: Notify::new(),
            first: Mutex::new(()),
            more: Mutex::new(()),
            more_waiting: AtomicUsize::new(0),
        }))
    }

    /// All of its bytes.
    pub fn total_bytes(&self) -> u64 {
        count(self.0.total)
    }

    /// Bytes that permits hold now.
    pub fn used_bytes(&self) -> u64 {
        count(self.0.total.saturating_sub(self.0.free.load(Ordering::SeqCst)))
    }

    /// A permit, if there is room now. Requests that wait come after it.
    ///
    /// # Errors
    /// [`NoRoom`]; also if all of the budget is less.
    pub fn try_take(&self, bytes: usize) -> Result<BytePermit, NoRoom> {
        let less = |free: usize| free.checked_sub(bytes);
        match self.0.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Ok(BytePermit { budget: self.clone(), bytes }),
            Err(_) => Err(NoRoom(count(bytes))),
        }
    }

    /// The first permit of a request, once there is room: requests get theirs in the order in which they came, and after those that wait for
    /// more. With a time of zero nothing waits.
    ///
    /// # Errors
    /// [`NoRoom`] if there was none in this time, or all of the budget is less.
    pub async fn take_within(&self, bytes: usize, wait: Duration) -> Result<BytePermit, NoRoom> {
        if wait.is_zero() || bytes > self.0.total {
            return self.try_take(bytes);
        }
        let taken = timeout(wait, async {
            let _turn = self.0.first.lock().await;
            self.room(bytes, || self.0.more_waiting.load(Ordering::SeqCst) == 0).await
        });
        taken.await.map_err(|_| NoRoom(count(bytes)))
    }

    /// More for a request that has a permit, once there is room: before all requests that have none.
    ///
    /// # Errors
    /// [`NoRoom`] if there was none in this time, or all of the budget is less.
    pub(crate) async fn take_more_within(&self, bytes: usize, wait: Duration) -> Result<BytePermit, NoRoom> {
        if wait.is_zero() || bytes == 0 || bytes > self.0.total {
            return self.try_take(bytes);
        }
        let _waits = WaitsForMore::begin(&self.0);
        let taken = timeout(wait, async {
            let _turn = self.0.more.lock().await;
            self.room(bytes, || true).await
        });
        taken.await.map_err(|_| NoRoom(count(bytes)))
    }

    /// Waits for room. Owner: the first of a queue.
    async fn room(&self, bytes: usize, is_next: impl Fn() -> bool) -> BytePermit {
        loop {
            // Made before the look: what is given back in between ends the wait.
            let freed = self.0.freed.notified();
            if is_next()
                && let Ok(permit) = self.try_take(bytes)
            {
                return permit;
            }
            freed.await;
        }
    }
}

/// Bytes of the budget that one request holds, until it is dropped.
pub struct BytePermit {
    budget: ByteBudget,
    bytes: usize,
}

impl fmt::Debug for BytePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permit for {} bytes", self.bytes)
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        self.budget.0.give_back(self.bytes);
    }
}

impl BytePermit {
    /// The budget that it is of.
    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    /// What it is for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more, if there is room now. For what is made of the body: a permit is taken before memory is.
    ///
    /// # Errors
    /// [`NoRoom`]; the permit is as before.
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let more = self.budget.try_take(bytes)?;
        self.merge(more);
        Ok(())
    }

    /// The same once there is room, before all requests that have no permit yet.
    ///
    /// # Errors
    /// [`NoRoom`] if there was none in this time; the permit is as before.
    pub async fn grow_within(&mut self, bytes: usize, wait: Duration) -> Result<(), NoRoom> {
        let more = self.budget.take_more_within(bytes, wait).await?;
        self.merge(more);
        Ok(())
    }

    fn merge(&mut self, mut more: Self) {
        self.bytes += std::mem::take(&mut more.bytes);
    }

    /// Gives back all but this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.0.give_back(surplus);
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_hold_more_than_the_budget_and_give_all_back() {
        let budget = ByteBudget::new(100);
        let mut first = budget.try_take(60).unwrap();
        assert_eq!(budget.try_take(41).unwrap_err(), NoRoom(41));
        let second = budget.try_take(40).unwrap();
        assert_eq!((budget.used_bytes(), budget.total_bytes()), (100, 100));
        assert_eq!(first.grow(1).unwrap_err(), NoRoom(1));
        first.shrink_to(10);
        assert_eq!(budget.used_bytes(), 50);
        first.grow(50).unwrap();
        assert_eq!(first.bytes(), 60);
        drop((first, second));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn a_permit_is_waited_for_and_more_than_the_budget_is_not() {
        let budget = ByteBudget::new(100);
        let all = budget.try_take(100).unwrap();
        let (waiting, ()) = tokio::join!(budget.take_within(10, Duration::from_mins(1)), async { drop(all) });
        assert_eq!(waiting.unwrap().bytes(), 10);
        assert_eq!(budget.take_within(101, Duration::from_mins(1)).await.unwrap_err(), NoRoom(101));
    }

    const LONG: Duration = Duration::from_mins(1);

    /// Small requests come one after the other while a large one waits.
    #[tokio::test]
    async fn a_large_request_gets_its_turn_before_small_ones_that_came_later() {
        let budget = ByteBudget::new(100);
        let mut held: Vec<_> = (0..10).map(|_| budget.try_take(10).unwrap()).collect();
        let large = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take_within(60, LONG).await.unwrap() }
        });
        tokio::task::yield_now().await;
        for _ in 0..5 {
            held.pop();
            // Without its turn it would take what was given back.
            assert_eq!(budget.take_within(10, Duration::from_millis(20)).await.unwrap_err(), NoRoom(10));
        }
        held.pop();
        assert_eq!(large.await.unwrap().bytes(), 60);
        assert_eq!(budget.take_within(10, LONG).await.unwrap().bytes(), 10);
    }

    #[tokio::test]
    async fn what_has_a_permit_grows_before_those_that_have_none() {
        let budget = ByteBudget::new(100);
        let mut json = budget.try_take(20).unwrap();
        let rest = budget.try_take(80).unwrap();
        let small = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take_within(80, LONG).await.map(|permit| permit.bytes()) }
        });
        tokio::task::yield_now().await;
        let (grown, ()) = tokio::join!(json.grow_within(40, LONG), async {
            // Both wait when the rest is given back.
            tokio::task::yield_now().await;
            drop(rest);
        });
        assert_eq!((grown, json.bytes(), budget.used_bytes()), (Ok(()), 60, 60));
        drop(json);
        assert_eq!(small.await.unwrap(), Ok(80));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn one_that_gives_up_makes_room_for_the_next() {
        let budget = ByteBudget::new(100);
        let mut json = budget.try_take(60).unwrap();
        let (grown, small) =
            tokio::join!(json.grow_within(50, Duration::from_millis(50)), budget.take_within(40, LONG));
        assert_eq!((grown, small.unwrap().bytes()), (Err(NoRoom(50)), 40));
        assert_eq!(json.bytes(), 60);
    }
}
