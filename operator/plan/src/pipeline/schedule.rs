//! When the bounds of a schedule count: a beginning and an end on the local clock, and the days on which it begins.
//!
//! A schedule begins, and ends, at the first moment at which the local clock shows its time or a later one. That decides both days on which
//! clocks are changed:
//!
//! | the clock | a time that | is the moment |
//! | --- | --- | --- |
//! | is set forward, 02:00 to 03:00 | does not exist, 02:30 | of the change, 03:00; a schedule from 02:10 to 02:50 is not active on that day |
//! | is set back, 03:00 to 02:00 | exists twice, 02:30 | at which the clock shows it for the first time |
//!
//! A later time on the clock is never an earlier moment. So a schedule is active once for each day on which it begins, without a pause.
//! The table of time zones is compiled into the program; the machine's is not read. So the same arguments give the same answer.

use crate::ground::moment::Moment;
use jiff::{
    Timestamp,
    civil::{Date, Time},
    tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase},
};

/// Minutes of a day on the clock.
const DAY_MINUTES: u32 = 24 * 60;

/// The time zone of a local clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// A clock that is always this many minutes ahead of UTC; `None` for more than any clock is.
    pub fn ahead_of_utc(minutes: i32) -> Option<Self> {
        let offset = Offset::from_seconds(minutes.checked_mul(60)?).ok()?;
        Some(Self(TimeZone::fixed(offset)))
    }

    /// The zone of this name in the IANA time zone database, such as `Europe/Berlin`; `None` for a name that is not in it.
    pub fn named(name: &str) -> Option<Self> {
        let zone = TimeZoneDatabase::bundled().get(name).ok()?;
        (!zone.is_unknown()).then_some(Self(zone))
    }

    /// The first moment at which the clock shows this minute of this day or a later one; `None` beyond the range of times.
    fn first_at(&self, date: Date, minute: u32) -> Option<Timestamp> {
        let date = if minute >= DAY_MINUTES { date.tomorrow().ok()? } else { date };
        let (hour, minute) = (minute % DAY_MINUTES / 60, minute % 60);
        let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
        let shown = date.to_datetime(time);
        match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(shown).ok()
            }
            AmbiguousOffset::Gap { before, after } => {
                // By the offset of the other side, each of the two is on the wrong side of the change.
                let (too_early, too_late) =
                    (after.to_timestamp(shown).ok()?, before.to_timestamp(shown).ok()?);
                let change = self.0.following(too_early).next().map(|change| change.timestamp());
                Some(change.map_or(too_late, |change| change.min(too_late)))
            }
        }
    }
}

/// Other bounds during some minutes of some days. Past midnight when `to_minute` is not after `from_minute`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, for the reason.
    pub name: String,
    /// Days on which it begins, one bit each: 1 is Monday, 64 is Sunday.
    pub days: u8,
    /// The first minute of the day, 0 to 1439, on the local clock.
    pub from_minute: u32,
    /// Behind the last minute of the day, 0 to 1440.
    pub to_minute: u32,
    /// Whose clock.
    pub zone: Zone,
    /// The bound while it is active; `None` keeps the policy's.
    pub replicas_min: Option<u32>,
    /// The bound while it is active; `None` keeps the policy's.
    pub replicas_max: Option<u32>,
}

impl Schedule {
    /// Whether it is active.
    pub fn is_active(&self, now: Moment) -> bool {
        let now = i64::try_from(now.0).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
        let Some(now) = now else { return false };
        let today = self.zone.0.to_datetime(now).date();
        // It may have begun yesterday. Where a clock is set back past midnight, a schedule of tomorrow may have begun, too.
        let days = [today.yesterday().ok(), Some(today), today.tomorrow().ok()];
        days.into_iter().flatten().any(|first| self.is_active_of(first, now))
    }

    /// Whether it began on this day, if it begins on such a day, and has not ended.
    fn is_active_of(&self, first: Date, now: Timestamp) -> bool {
        let begins = self.days & (1 << first.weekday().to_monday_zero_offset()) != 0;
        let last = if self.from_minute < self.to_minute { Some(first) } else { first.tomorrow().ok() };
        let begin = self.zone.first_at(first, self.from_minute);
        let end = last.and_then(|last| self.zone.first_at(last, self.to_minute));
        begins && begin.zip(end).is_some_and(|(begin, end)| begin <= now && now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: u64 = 3_600_000;
    const MINUTE: u64 = 60_000;
    /// Monday, 5 January 1970, 00:00 UTC.
    const MONDAY: u64 = 4 * 24 * HOUR;

    fn schedule(zone: Zone, from_minute: u32, to_minute: u32) -> Schedule {
        Schedule {
            name: "a".into(),
            days: 0b111_1111,
            from_minute,
            to_minute,
            zone,
            replicas_min: Some(2),
            replicas_max: None,
        }
    }

    /// `2026-03-29T00:30:00Z` as a moment.
    fn at(text: &str) -> Moment {
        Moment::of_timestamp(text.parse().unwrap())
    }

    /// From when until when it is active between two moments, minute by minute.
    fn active(schedule: &Schedule, from: &str, to: &str) -> Vec<[String; 2]> {
        let text =
            |moment: u64| Timestamp::from_millisecond(i64::try_from(moment).unwrap()).unwrap().to_string();
        let (mut active, mut since) = (Vec::new(), None);
        let mut now = at(from).0;
        while now <= at(to).0 {
            match (schedule.is_active(Moment(now)), since) {
                (true, None) => since = Some(now),
                (false, Some(begin)) => {
                    active.push([text(begin), text(now)]);
                    since = None;
                }
                _ => {}
            }
            now += MINUTE;
        }
        assert_eq!(since, None, "active at the end");
        active
    }

    #[test]
    fn schedules_are_active_on_their_days_and_past_midnight() {
        let ahead = |minutes| Zone::ahead_of_utc(minutes).unwrap();
        let night = Schedule { days: 1, ..schedule(ahead(60), 22 * 60, 6 * 60) };
        for (hour, active) in [(20, false), (21, true), (28, true), (29, false), (45, false)] {
            assert_eq!(night.is_active(Moment(MONDAY + hour * HOUR)), active, "{hour}");
        }
        let day = Schedule { days: 0b1_1111, ..schedule(Zone::UTC, 8 * 60, 18 * 60) };
        for (hour, active) in [(7, false), (8, true), (18, false), (4 * 24 + 9, true), (5 * 24 + 9, false)] {
            assert_eq!(day.is_active(Moment(MONDAY + hour * HOUR)), active, "{hour}");
        }
    }

    #[test]
    fn a_zone_is_known_by_its_name_in_the_database() {
        for name in ["Europe/Berlin", "America/Argentina/Ushuaia", "UTC", "Etc/GMT+5", "Asia/Kolkata"] {
            assert!(Zone::named(name).is_some(), "{name}");
        }
        for name in ["", "Europe", "Europe/Berln", "CEST", "+02:00", "Etc/Unknown", "../etc/passwd"] {
            assert_eq!(Zone::named(name), None, "{name}");
        }
        assert_eq!(Zone::ahead_of_utc(i32::MAX), None);
    }

    #[test]
    fn an_office_begins_at_eight_in_summer_and_in_winter() {
        let office = schedule(Zone::named("Europe/Berlin").unwrap(), 8 * 60, 18 * 60);
        for (day, [begin, end]) in [
            ("2026-03-28", ["07:00", "17:00"]),
            ("2026-03-29", ["06:00", "16:00"]),
            ("2026-07-01", ["06:00", "16:00"]),
            ("2026-10-24", ["06:00", "16:00"]),
            ("2026-10-25", ["07:00", "17:00"]),
        ] {
            let found = active(&office, &format!("{day}T00:00:00Z"), &format!("{day}T23:59:00Z"));
            assert_eq!(found, [[format!("{day}T{begin}:00Z"), format!("{day}T{end}:00Z")]]);
        }
    }

    /// 29 March 2026: at 01:00 UTC the clocks of Berlin jump from 02:00 to 03:00.
    #[test]
    fn a_time_that_does_not_exist_is_the_moment_of_the_change() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let spring = |from, to| {
            active(&schedule(berlin.clone(), from, to), "2026-03-29T00:00:00Z", "2026-03-29T10:00:00Z")
        };
        let between = |begin: &str, end: &str| {
            vec![[format!("2026-03-29T{begin}:00Z"), format!("2026-03-29T{end}:00Z")]]
        };
        assert_eq!(spring(150, 300), between("01:00", "03:00"), "from 02:30 to 05:00");
        assert_eq!(spring(90, 150), between("00:30", "01:00"), "from 01:30 to 02:30");
        assert_eq!(spring(150, 195), between("01:00", "01:15"), "from 02:30 to 03:15");
        assert_eq!(spring(130, 170), Vec::<[String; 2]>::new(), "from 02:10 to 02:50");
        assert_eq!(spring(120, 180), Vec::<[String; 2]>::new(), "from 02:00 to 03:00");
    }

    /// 25 October 2026: at 01:00 UTC the clocks of Berlin go back from 03:00 to 02:00.
    #[test]
    fn a_time_that_exists_twice_is_the_first_of_both() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let autumn = |from, to| {
            active(&schedule(berlin.clone(), from, to), "2026-10-24T23:00:00Z", "2026-10-25T10:00:00Z")
        };
        let between = |begin: &str, end: &str| {
            vec![[format!("2026-10-25T{begin}:00Z"), format!("2026-10-25T{end}:00Z")]]
        };
        assert_eq!(autumn(150, 300), between("00:30", "04:00"), "from 02:30 to 05:00");
        assert_eq!(autumn(130, 170), between("00:10", "00:50"), "from 02:10 to 02:50");
        assert_eq!(autumn(150, 180), between("00:30", "02:00"), "from 02:30 to 03:00");
    }

    /// 5 April 2026: at 03:00 UTC the clocks of Santiago go back from midnight to 23:00 of the day before.
    #[test]
    fn a_clock_that_is_set_back_past_midnight_shows_the_next_day_once() {
        let santiago = Zone::named("America/Santiago").unwrap();
        let sunday = Schedule { days: 64, ..schedule(santiago, 0, 60) };
        let found = active(&sunday, "2026-04-05T00:00:00Z", "2026-04-05T12:00:00Z");
        assert_eq!(found, [["2026-04-05T04:00:00Z", "2026-04-05T05:00:00Z"].map(str::to_owned)]);
    }

    /// As schedules were before there were time zones.
    fn is_active_by_offset(schedule: &Schedule, ahead_minutes: i64, now: u64) -> bool {
        let minutes = i64::try_from(now / MINUTE).unwrap() + ahead_minutes;
        let (day, minute) = ((minutes.div_euclid(1_440) + 3).rem_euclid(7), minutes.rem_euclid(1_440));
        let begins = |day: i64| schedule.days & (1 << day.rem_euclid(7)) != 0;
        let (from, to) = (i64::from(schedule.from_minute), i64::from(schedule.to_minute));
        if from < to {
            begins(day) && (from..to).contains(&minute)
        } else {
            (begins(day) && minute >= from) || (begins(day - 1) && minute < to)
        }
    }

    proptest! {
        #[test]
        fn with_an_offset_nothing_has_changed(
            now in 0u64..4_102_444_800_000, ahead in -899i32..=899, days in 0u8..128, from in 0u32..1_440, to in 0u32..=1_440,
        ) {
            let one = Schedule { days, ..schedule(Zone::ahead_of_utc(ahead).unwrap(), from, to) };
            prop_assert_eq!(one.is_active(Moment(now)), is_active_by_offset(&one, i64::from(ahead), now));
        }

        /// A schedule of every day and its complement leave no minute out, whatever the clocks do.
        #[test]
        fn of_two_schedules_that_follow_each_other_one_is_active(
            now in 0u64..4_102_444_800_000, from in 0u32..1_440, to in 0u32..1_440, zone in 0usize..4,
        ) {
            prop_assume!(from != to);
            let names = ["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Tehran"];
            let zone = Zone::named(names[zone]).unwrap();
            let (one, other) = (schedule(zone.clone(), from, to), schedule(zone, to, from));
            prop_assert!(one.is_active(Moment(now)) != other.is_active(Moment(now)));
        }
    }
}
