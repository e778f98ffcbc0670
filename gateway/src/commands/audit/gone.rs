//! Offsets that an audit was asked for, and that Kafka no longer has: retention or a person deleted them. Pure.
//!
//! Limitation: a time names no offsets, so it is unknown whether Kafka has deleted messages after it.

use super::moment::Moment;
use sluice_ranges::OffsetRange;

/// The offsets that a request names by number, and that are before `oldest`, the first one in Kafka. Without `since`, an audit begins at
/// `oldest`: then only an `until` in front of all that is left names such offsets.
pub fn of(since: Option<Moment>, until: Option<Moment>, oldest: i64) -> Option<OffsetRange> {
    let (first, next) = match (since, until) {
        (Some(Moment::Offset(since)), Some(Moment::Offset(until))) => (since, until.min(oldest)),
        (Some(Moment::Offset(since)), _) => (since, oldest),
        (None, Some(Moment::Offset(until))) if until <= oldest => (0, until),
        _ => return None,
    };
    (first < next).then_some(OffsetRange { first, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_are_asked_for_and_deleted_are_gone() {
        let (at, time) = (|offset| Some(Moment::Offset(offset)), Some(Moment::At(7)));
        for (since, until, oldest, expected) in [
            (at(0), None, 1_400, Some((0, 1_400))),
            (at(100), at(200), 1_400, Some((100, 200))),
            (at(100), at(2_000), 1_400, Some((100, 1_400))),
            (at(100), time, 1_400, Some((100, 1_400))),
            (None, at(10), 1_400, Some((0, 10))),
            (None, at(2_000), 1_400, None),
            (at(1_400), None, 1_400, None),
            (at(0), None, 0, None),
            (None, at(0), 0, None),
            (time, None, 1_400, None),
            (time, at(10), 1_400, None),
            (None, None, 1_400, None),
        ] {
            let gone = of(since, until, oldest).map(|gone| (gone.first, gone.next));
            assert_eq!(gone, expected, "{since:?} {until:?} {oldest}");
        }
    }
}
