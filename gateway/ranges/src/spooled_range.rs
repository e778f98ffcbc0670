//! Ranges whose blocks an earlier run left on the queue volume. A new owner takes over those that it would cut again, without reading
//! their messages. Pure.
//!
//! The committed plan decides: a range is taken over if any reader of the log from the committed offset on would end it at the same
//! place.
//!
//! | where it ends | taken over when |
//! | --- | --- |
//! | at a cut of the plan | always |
//! | where the size rule says | it was made by the plan's rule |
//! | anywhere else | at or above the plan's horizon: below it an earlier owner may have sent a longer one |
//!
//! A range is not taken over if a part of it is in the plan's gaps ([`is_torn`]): an earlier owner may have sent the rest of it. A range that
//! starts where ranges are doubtful is not taken over either: the owner that made it may not have known that.
//!
//! If the cluster has another id than when the plan was made, ranges below the horizon are doubtful, because they get other tokens. A block on
//! the volume has the token that the plan's owner gave it: it is taken over, and sent under that token. Not so at or above the horizon:
//! there, an owner after this one would give the range another token without calling it doubtful.
//!
//! The ranges must follow each other from the committed offset on without a gap. Reading starts behind the last one that is taken over. Blocks
//! below that offset are not ranges of the partition: their rows are in the table, or the volume has the only copy and is responsible for
//! it. Before a rule change, none is taken over.
//!
//! Kafka need not have the messages of a range that is taken over: its block has all of them. So it stays one range under its token
//! wherever retention has moved the start of the log, also into its middle. The gateway decides beforehand which blocks are only copies. It
//! asks [`Committed::taken_over`], so that both decide alike.

use super::{
    Settings,
    cut::{Beginning, Closed, Cut},
    found::{Committed, Halt, Log, Start},
    gaps::is_torn,
    rule::{Fill, Rule},
    token::Content,
};
use crate::OffsetRange;

/// A range whose block is on the queue volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpooledRange {
    /// Its offsets.
    pub range: OffsetRange,
    /// Whether its end follows from the rule, or was in the plan that its reader found.
    pub is_derivable: bool,
    /// A reader that has read up to here knows the range.
    pub decided: i64,
    /// The rule by which it was made.
    pub rule: Rule,
    /// Whether its token is made with the [former id](Committed::former_cluster) of the cluster.
    pub is_renamed: bool,
}

impl SpooledRange {
    /// The record of a range that has ended. `None` if an earlier owner may have sent a longer one, which only reading it again can show,
    /// or one with messages that this one has not: it has another token.
    pub fn of(closed: &Closed) -> Option<Self> {
        let Closed { range, cut, decided, rule, doubtful, incomplete, .. } = *closed;
        let is_certain = !doubtful && !incomplete;
        let is_derivable = cut.is_derivable();
        is_certain.then_some(Self { range, is_derivable, decided, rule, is_renamed: false })
    }

    /// The range as its reader ended it, for an owner with this plan.
    pub(super) fn closed(&self, beginning: &Beginning) -> Closed {
        let cut = if beginning.planned.contains(&self.range.next) {
            Cut::Planned
        } else if self.is_derivable {
            Cut::Size
        } else {
            Cut::Time
        };
        let decided = if cut == Cut::Planned { self.range.next } else { self.decided };
        let (fill, content) = (Fill::default(), Content::default());
        Closed {
            range: self.range,
            cut,
            decided,
            fill,
            content,
            doubtful: false,
            doubtful_up_to: 0,
            incomplete: false,
            rule: self.rule,
        }
    }

    /// Whether no owner may have sent its messages in another range, or under another token.
    fn is_certain(&self, beginning: &Beginning) -> bool {
        let Beginning { doubtful_up_to, renamed, .. } = *beginning;
        let first = self.range.first;
        if self.is_renamed { (renamed.first..renamed.next).contains(&first) } else { first >= doubtful_up_to }
    }

    fn is_made_again(&self, beginning: &Beginning) -> bool {
        let OffsetRange { first, next } = self.range;
        let is_planned = beginning.planned.contains(&next);
        // A cut behind the last message is reached before the message that shows that the range has no room for it.
        let decided = if is_planned { next } else { self.decided.max(next) };
        if next <= first || beginning.planned.iter().any(|cut| first < *cut && *cut < decided && *cut != next)
        {
            return false;
        }
        // A range that ends at a cut has no place of the rule inside it, but only if it was made by that rule.
        let is_ruled = self.rule == beginning.rule;
        is_ruled && (is_planned || self.is_derivable || next >= beginning.horizon)
    }
}

/// What a new owner takes over, and where it starts with it.
pub(super) struct TakenOver<'k> {
    pub ranges: &'k [SpooledRange],
    /// The log, from the first of them on.
    pub log: Log,
    pub beginning: Beginning,
}

impl Committed<'_> {
    /// The ranges that a new owner takes over, of those whose blocks are on the queue volume of its pod, in the order of the log.
    pub fn taken_over<'k>(
        &self,
        settings: &Settings,
        kept: &'k [SpooledRange],
    ) -> Result<&'k [SpooledRange], Halt> {
        self.take_over(settings, kept).map(|taken| taken.ranges)
    }

    pub(super) fn take_over<'k>(
        &self,
        settings: &Settings,
        kept: &'k [SpooledRange],
    ) -> Result<TakenOver<'k>, Halt> {
        let offset = self.commit.map(|(offset, _)| offset);
        let kept = not_committed(offset, kept);
        // Behind the end of the log, offsets belong to other messages than the spooled ones.
        let kept = &kept[..kept.partition_point(|kept| kept.range.next <= self.log.end)];
        let first = kept.first().map(|kept| kept.range.first).filter(|first| Some(*first) == offset);
        let start = first.map_or(self.log.start, |first| first.min(self.log.start));
        let log = Log { start, ..self.log };
        let Start { plan, beginning, replaced, .. } = Committed { log, ..*self }.start(settings)?;
        let count = match &plan {
            Some(plan) if !replaced => taken_over(&beginning, &plan.gaps, kept),
            _ => 0,
        };
        let log = if count == 0 { self.log } else { log };
        Ok(TakenOver { ranges: &kept[..count], log, beginning })
    }
}

/// The ranges that start at or above the committed offset, in the order of the log.
pub(super) fn not_committed(offset: Option<i64>, kept: &[SpooledRange]) -> &[SpooledRange] {
    let is_committed = |kept: &SpooledRange| offset.is_some_and(|offset| kept.range.first < offset);
    &kept[kept.partition_point(is_committed)..]
}

/// How many of these ranges, from the first on, a new owner may take over; `gaps` are those of the plan.
pub(super) fn taken_over(beginning: &Beginning, gaps: &[OffsetRange], kept: &[SpooledRange]) -> usize {
    if beginning.switches {
        return 0;
    }
    let mut position = beginning.first;
    kept.iter()
        .take_while(|kept| {
            let follows = kept.range.first == position
                && kept.is_certain(beginning)
                && !is_torn(kept.range, gaps)
                && kept.is_made_again(beginning);
            position = kept.range.next;
            follows
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    const RULE: Rule = Rule { version: Version::Before, bytes: 100, messages: 10 };

    fn kept(first: i64, next: i64, is_derivable: bool) -> SpooledRange {
        let range = OffsetRange { first, next };
        SpooledRange { range, is_derivable, decided: next, rule: RULE, is_renamed: false }
    }

    fn beginning(planned: &[i64], horizon: i64) -> Beginning {
        Beginning {
            rule: RULE,
            first: 10,
            planned: planned.to_vec(),
            horizon,
            log_end: None,
            doubtful_up_to: 0,
            renamed: OffsetRange { first: 0, next: 0 },
            switches: false,
        }
    }

    #[test]
    fn what_a_new_owner_would_make_again_is_taken_over() {
        let all = [kept(10, 20, true), kept(20, 25, false), kept(25, 35, true), kept(35, 40, false)];
        assert_eq!(taken_over(&beginning(&[25], 35), &[], &all), 4);
        assert_eq!(
            taken_over(&beginning(&[25], 41), &[], &all),
            3,
            "the last one ends by time below the horizon"
        );
        assert_eq!(
            taken_over(&beginning(&[], 35), &[], &all),
            1,
            "a cut below the horizon that nobody planned"
        );
        assert_eq!(taken_over(&beginning(&[25, 30], 35), &[], &all), 2, "a planned cut lies within");
        assert_eq!(taken_over(&beginning(&[], 10), &[], &all), 4);
    }

    #[test]
    fn a_planned_cut_behind_its_last_message_makes_it_longer() {
        // The message at 22 has no room in it, and none lies between 20 and 22.
        let all = [SpooledRange { decided: 23, ..kept(10, 20, true) }];
        assert_eq!(taken_over(&beginning(&[21], 35), &[], &all), 0);
        assert_eq!(taken_over(&beginning(&[22], 35), &[], &all), 0);
        assert_eq!(taken_over(&beginning(&[23], 35), &[], &all), 1);
        assert_eq!(taken_over(&beginning(&[20, 22], 35), &[], &all), 1);
    }

    #[test]
    fn what_lies_below_the_committed_offset_is_in_nobodys_way() {
        let all = [kept(10, 20, true), kept(20, 30, true), kept(30, 40, true)];
        assert_eq!(not_committed(None, &all), all);
        assert_eq!(not_committed(Some(10), &all), all);
        assert_eq!(not_committed(Some(30), &all), &all[2..]);
        assert_eq!(not_committed(Some(25), &all), &all[2..], "an owner since has cut otherwise");
        assert_eq!(not_committed(Some(40), &all), []);
    }

    #[test]
    fn a_range_that_an_earlier_owner_has_made_without_a_part_is_not_taken_over() {
        let all = [kept(10, 20, true), kept(20, 25, true)];
        let begins = beginning(&[20, 25], 35);
        let gap = |first, next| [OffsetRange { first, next }];
        assert_eq!(taken_over(&begins, &gap(10, 20), &all), 2, "nobody has read any of its messages");
        assert_eq!(taken_over(&begins, &gap(0, 12), &all), 0);
        assert_eq!(taken_over(&begins, &gap(22, 25), &all), 1);
        let doubtful = |doubtful_up_to| Beginning { doubtful_up_to, ..beginning(&[20, 25], 35) };
        assert_eq!(taken_over(&doubtful(10), &[], &all), 2);
        assert_eq!(taken_over(&doubtful(11), &[], &all), 0);
    }

    #[test]
    fn a_range_with_the_token_of_the_former_id_is_taken_over_where_the_plan_promised_it() {
        let renamed = |first, next| Beginning {
            doubtful_up_to: next,
            renamed: OffsetRange { first, next },
            ..beginning(&[20, 25], 35)
        };
        let all = [kept(10, 20, true), kept(20, 25, true), kept(25, 35, true), kept(35, 40, false)];
        let former = all.map(|kept| SpooledRange { is_renamed: true, ..kept });
        assert_eq!(taken_over(&renamed(0, 35), &[], &former), 3, "above the horizon nobody has sent one");
        assert_eq!(taken_over(&renamed(11, 35), &[], &former), 0, "it was doubtful before");
        assert_eq!(taken_over(&renamed(0, 35), &[], &all), 0, "with the token of today's id");
        assert_eq!(taken_over(&beginning(&[20, 25], 35), &[], &former), 0, "the id is the same");
    }

    #[test]
    fn a_gap_another_rule_or_one_to_come_ends_it() {
        let all = [kept(10, 20, true), kept(21, 30, true)];
        assert_eq!(taken_over(&beginning(&[], 30), &[], &all), 1);
        assert_eq!(taken_over(&Beginning { first: 15, ..beginning(&[], 30) }, &[], &all), 0);
        assert_eq!(taken_over(&Beginning { switches: true, ..beginning(&[], 30) }, &[], &all), 0);
        let rule = Rule { bytes: 99, ..RULE };
        assert_eq!(taken_over(&beginning(&[], 30), &[], &[SpooledRange { rule, ..all[0] }]), 0);
    }
}
