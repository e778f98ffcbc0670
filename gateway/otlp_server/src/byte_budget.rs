//! Memory for the bodies of requests, as permits for bytes: taken before the bytes are read, given back when they are dropped.

use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// The budget has no room for this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for {0} bytes")]
pub struct NoRoom(pub u64);

/// Bytes that bodies of requests may have together. Clones share them.
#[derive(Clone)]
pub struct ByteBudget {
    semaphore: Arc<Semaphore>,
    total: usize,
}

impl fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes used", self.used_bytes(), self.total)
    }
}

impl ByteBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        let total = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(total)), total }
    }

    /// All of its bytes.
    pub fn total_bytes(&self) -> u64 {
        count(self.total)
    }

    /// Bytes that permits hold now.
    pub fn used_bytes(&self) -> u64 {
        count(self.total.saturating_sub(self.semaphore.available_permits()))
    }

    /// A permit, if there is room now.
    ///
    /// # Errors
    /// [`NoRoom`]; also if all of the budget is less.
    pub fn try_take(&self, bytes: usize) -> Result<BytePermit, NoRoom> {
        let no_room = NoRoom(count(bytes));
        let wanted = u32::try_from(bytes).map_err(|_| no_room)?;
        match self.semaphore.clone().try_acquire_many_owned(wanted) {
            Ok(permit) => Ok(BytePermit { budget: self.clone(), permit }),
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => Err(no_room),
        }
    }

    /// A permit, once there is room: those who wait get theirs in turn, also before smaller ones.
    ///
    /// # Errors
    /// [`NoRoom`] if there was none in this time, or all of the budget is less.
    pub async fn take_within(&self, bytes: usize, wait: Duration) -> Result<BytePermit, NoRoom> {
        let no_room = NoRoom(count(bytes));
        if wait.is_zero() || bytes > self.total {
            return self.try_take(bytes);
        }
        let wanted = u32::try_from(bytes).map_err(|_| no_room)?;
        match tokio::time::timeout(wait, self.semaphore.clone().acquire_many_owned(wanted)).await {
            Ok(Ok(permit)) => Ok(BytePermit { budget: self.clone(), permit }),
            Ok(Err(_)) | Err(_) => Err(no_room),
        }
    }
}

/// Bytes of the budget that one request holds, until it is dropped.
pub struct BytePermit {
    budget: ByteBudget,
    permit: OwnedSemaphorePermit,
}

impl fmt::Debug for BytePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permit for {} bytes", self.bytes())
    }
}

impl BytePermit {
    /// The budget that it is of.
    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    /// What it is for.
    pub fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Takes more, if there is room now. For what is made of the body: a permit is taken before memory is.
    ///
    /// # Errors
    /// [`NoRoom`]; the permit is as before.
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let more = self.budget.try_take(bytes)?;
        // Sums of two u32 that a budget of more than 4 GiB could give do not fit; bodies have less.
        if u32::try_from(self.bytes().saturating_add(bytes)).is_err() {
            return Err(NoRoom(count(bytes)));
        }
        self.permit.merge(more.permit);
        Ok(())
    }

    /// Gives back all but this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes().saturating_sub(bytes);
        drop(self.permit.split(surplus));
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
}
