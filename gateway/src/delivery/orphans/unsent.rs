//! Only copies that cannot be sent for now: why they wait, and the log lines about them.
//!
//! Owner: the delivery task. Limits: a header for each block; the lines are [throttled](Throttle).

use crate::{
    ground::metrics::Metrics,
    volume::only_copy::{OnlyCopyBlock, Unsendable},
};
use sluice_clickhouse::outcome::Actor;
use sluice_kafka::Throttle;
use std::time::{Duration, Instant};

/// How long blocks wait before the table is checked again. Chosen: a person fixes it by hand.
const UNSENT_WAIT: Duration = Duration::from_secs(30);

/// The advice for blocks that the table does not accept.
const GIVE_COLUMNS: &str = "give the table those columns, or name a table that has them in the config and run `sluice-gateway drain`";

/// Blocks that cannot be sent, by [why](Unsendable).
#[derive(Default)]
pub struct Waits {
    /// The table does not accept them.
    pub unfit: Wait,
    /// No server says whether the table accepts them.
    pub unknown: Wait,
    /// Only another version of this program can send them.
    pub foreign: Wait,
}

/// Blocks that cannot be sent for the same reason.
#[derive(Default)]
pub struct Wait {
    /// How many.
    pub blocks: i64,
    /// The reason of the first one, in words.
    reason: Option<String>,
}

impl Waits {
    /// Counts one more block.
    pub fn add(&mut self, why: &Unsendable) {
        let wait = match why {
            Unsendable::Unfit(_) => &mut self.unfit,
            Unsendable::Unknown(_) => &mut self.unknown,
            Unsendable::Foreign => &mut self.foreign,
        };
        wait.blocks += 1;
        wait.reason.get_or_insert_with(|| why.to_string());
    }
}

/// Blocks that cannot be sent for now.
#[derive(Default)]
pub struct Unsent {
    blocks: Vec<OnlyCopyBlock>,
    /// When the table is checked again.
    again: Option<Instant>,
    /// The table is not checked before this, because it has just refused a block.
    not_before: Option<Instant>,
    /// Number of blocks that the table does not accept, as last set in the metric.
    unfit: i64,
    said_unfit: Throttle<String>,
    said_unknown: Throttle,
    said_foreign: Throttle<String>,
}

impl Unsent {
    /// Whether the table is to be checked again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|again| now >= again)
    }

    /// Adds a block that was not checked yet.
    pub fn add(&mut self, block: OnlyCopyBlock, now: Instant) {
        let soonest = self.not_before.map_or(now, |not_before| not_before.max(now));
        self.again = Some(self.again.map_or(soonest, |again| again.min(soonest)));
        self.blocks.push(block);
    }

    /// Delays the next check: the table has just refused a block and will refuse it again for a while.
    pub fn postpone(&mut self, now: Instant) {
        self.not_before = Some(now + UNSENT_WAIT);
    }

    /// Takes out all blocks, to check them again.
    pub fn take_all(&mut self) -> Vec<OnlyCopyBlock> {
        self.again = None;
        std::mem::take(&mut self.blocks)
    }

    /// Puts back blocks that cannot be sent, updates the metric, and logs what must be done.
    pub fn put(&mut self, (blocks, waits): (Vec<OnlyCopyBlock>, &Waits), metrics: &Metrics, now: Instant) {
        // Earlier if other blocks were added meanwhile.
        self.again = self.again.or_else(|| (!blocks.is_empty()).then(|| now + UNSENT_WAIT));
        self.blocks.extend(blocks);
        let Waits { unfit, unknown, foreign } = waits;
        metrics.refused.blocks_waiting_for(Actor::Table).add(unfit.blocks - self.unfit);
        self.unfit = unfit.blocks;
        if let Some(reason) = &unfit.reason
            && self.said_unfit.is_due(reason.clone(), now)
        {
            say_unfit(unfit, reason);
        }
        // Not by reason, because servers that are away give another one each time.
        if let Some(reason) = &unknown.reason
            && self.said_unknown.is_due((), now)
        {
            say_unknown(unknown, reason);
        }
        if let Some(reason) = &foreign.reason
            && self.said_foreign.is_due(reason.clone(), now)
        {
            say_foreign(foreign, reason);
        }
    }
}

fn say_unfit(wait: &Wait, reason: &str) {
    tracing::error!(
        blocks = wait.blocks,
        actor = Actor::Table.label(),
        reason,
        advice = GIVE_COLUMNS,
        "blocks on the queue volume are the only copy of their rows, and the table does not accept them; they stay there and are tried \
         again"
    );
}

fn say_unknown(wait: &Wait, reason: &str) {
    tracing::warn!(
        blocks = wait.blocks,
        reason,
        advice = "check that the servers answer and that the gateway's user may describe the table",
        "blocks on the queue volume are the only copy of their rows, and no server says whether the table accepts them; they stay there \
         and are tried again"
    );
}

fn say_foreign(wait: &Wait, reason: &str) {
    tracing::error!(
        blocks = wait.blocks,
        reason,
        advice = "this version cannot send them: run the version that wrote them with this volume, as the gateway or as `sluice-gateway \
                  drain`",
        "blocks on the queue volume are the only copy of their rows and have tokens of another version; they stay there"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::orphans::tests::only_copies,
        ground::metrics::reference,
        volume::test_volume::{Volume, left_behind},
    };

    /// All of these wait for the same reason.
    fn waits(blocks: &[OnlyCopyBlock], why: &Unsendable) -> Waits {
        let mut waits = Waits::default();
        for _ in blocks {
            waits.add(why);
        }
        waits
    }

    #[tokio::test(flavor = "current_thread")]
    async fn blocks_that_the_table_does_not_take_are_counted_said_and_looked_at_again() {
        let volume = Volume::new("unsent");
        let spool = left_behind(&volume, &[20, 30]).await;
        let (metrics, mut unsent, start) = (reference::metrics(), Unsent::default(), Instant::now());
        let waiting = metrics.refused.blocks_waiting_for(Actor::Table);
        let mut blocks = only_copies(&spool).await;
        for round in 0..2 {
            let waits = waits(&blocks, &Unsendable::Unfit("a column is missing".to_owned()));
            unsent.put((blocks, &waits), &metrics, start);
            assert_eq!((waiting.get(), unsent.again), (2, Some(start + UNSENT_WAIT)), "{round}");
            assert!(!unsent.is_due(start) && unsent.is_due(start + UNSENT_WAIT));
            blocks = unsent.take_all();
            assert!(!unsent.is_due(start + UNSENT_WAIT), "they are being looked at");
        }
        assert!(unsent.said_unfit.last().is_some() && unsent.said_unknown.last().is_none());
        // For one block no server answers; the other fits.
        blocks.truncate(1);
        let unknown = waits(&blocks, &Unsendable::Unknown("no server answers".to_owned()));
        unsent.put((blocks, &unknown), &metrics, start);
        assert_eq!((waiting.get(), unsent.again), (0, Some(start + UNSENT_WAIT)));
        blocks = unsent.take_all();
        // Only another version can send it.
        let foreign = waits(&blocks, &Unsendable::Foreign);
        unsent.put((blocks, &foreign), &metrics, start);
        assert_eq!((waiting.get(), unsent.again), (0, Some(start + UNSENT_WAIT)));
        drop(unsent.take_all());
        unsent.put((Vec::new(), &Waits::default()), &metrics, start);
        assert_eq!((waiting.get(), unsent.again), (0, None));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_has_come_is_looked_at_once_unless_the_table_has_refused_some_just_now() {
        let volume = Volume::new("come");
        let spool = left_behind(&volume, &[20, 30]).await;
        let (mut unsent, start) = (Unsent::default(), Instant::now());
        for (block, wait) in only_copies(&spool).await.into_iter().zip([Duration::ZERO, UNSENT_WAIT]) {
            unsent.add(block, start);
            assert_eq!(unsent.again, Some(start + wait));
            assert_eq!(unsent.take_all().len(), 1);
            unsent.postpone(start);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn that_nobody_says_whether_blocks_fit_is_said_once_in_a_while_whatever_the_reason() {
        let volume = Volume::new("unknown");
        let spool = left_behind(&volume, &[20]).await;
        let (metrics, mut unsent, start) = (reference::metrics(), Unsent::default(), Instant::now());
        let mut blocks = only_copies(&spool).await;
        for (seconds, reason, said) in [(0, "one is away", 0), (30, "another is", 0), (600, "both are", 600)]
        {
            let waits = waits(&blocks, &Unsendable::Unknown(reason.to_owned()));
            assert_eq!((waits.unknown.blocks, waits.unfit.blocks), (1, 0));
            unsent.put((blocks, &waits), &metrics, start + Duration::from_secs(seconds));
            assert_eq!(unsent.said_unknown.last(), Some(start + Duration::from_secs(said)), "{reason}");
            blocks = unsent.take_all();
        }
    }
}
