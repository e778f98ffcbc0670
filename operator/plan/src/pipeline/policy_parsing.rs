//! From the fields of a spec to a policy. Everything that is written in it was checked by the API server's rules; an object
//! that was stored before a rule was there may still break it, which is a violation and no panic.

use super::{
    policy::{InitialOffset, Load, Mode, Policy, Rests},
    schedule::{Schedule, Zone},
};
use sluice_crds::{self as crds, Day, ScalingMode, TracePipelineSpec};
use sluice_gateway_config::{Duration, Violations};

/// The field of schedules.
const SCHEDULES: &str = "spec.scaling.schedules";

/// What is said of gateways whose number nothing limits.
const MAX_REPLICAS: &str = "must be set with source.otlp and scaling.mode Auto or Recommend: no number of partitions limits the gateways";

/// Bits of all days of the week.
const EVERY_DAY: u8 = 0b111_1111;

impl Policy {
    /// Reads the policy.
    pub fn of(spec: &TracePipelineSpec) -> Result<Self, Violations> {
        let (scaling, mut found) = (&spec.scaling, Violations::default());
        let target_lag = seconds("targetLag", &scaling.target_lag, &mut found);
        let down_after = seconds("scaleDownAfter", &scaling.scale_down_after, &mut found);
        let rests = scaling.idle.as_ref().and_then(|idle| {
            let after = seconds("idle.after", &idle.after, &mut found);
            let refresh = seconds("idle.refreshEvery", &idle.refresh_every, &mut found);
            Some(Rests { after_seconds: after?, refresh_seconds: refresh? })
        });
        let schedules = scaling.schedules.iter().enumerate();
        let schedules = schedules.filter_map(|(index, one)| schedule(one, index, &mut found)).collect();
        let (mode, load) = (mode(scaling.mode), load(spec));
        // Also if it is null, which the API server's rule takes for set.
        if load == Load::Requests
            && matches!(mode, Mode::Auto | Mode::Recommend)
            && scaling.max_replicas.is_none()
        {
            found.add("spec.scaling.maxReplicas", MAX_REPLICAS);
        }
        let default = Self::default();
        let policy = Self {
            mode,
            load,
            replicas: spec.replicas,
            partitions_per_replica: spec.partitions_per_replica,
            replicas_min: scaling.min_replicas,
            replicas_max: scaling.max_replicas,
            schedules,
            // The logs of `source.otlp` are read from their beginning.
            initial_offset: match spec.source.kafka.as_ref().map(|kafka| kafka.initial_offset) {
                Some(crds::InitialOffset::Earliest) | None => InitialOffset::Earliest,
                Some(crds::InitialOffset::Latest) => InitialOffset::Latest,
            },
            catch_up_seconds: target_lag.map_or(default.catch_up_seconds, f64::from),
            down_after_seconds: down_after.unwrap_or(default.down_after_seconds),
            fallback_replicas: scaling.fallback_replicas,
            rests,
            ..default
        };
        found.or(policy)
    }
}

fn load(spec: &TracePipelineSpec) -> Load {
    if spec.source.otlp.is_some() { Load::Requests } else { Load::Partitions }
}

fn mode(mode: ScalingMode) -> Mode {
    match mode {
        ScalingMode::Fixed => Mode::Fixed,
        ScalingMode::Auto => Mode::Auto,
        ScalingMode::Recommend => Mode::Recommend,
        ScalingMode::External => Mode::External,
    }
}

/// Whole seconds of a duration of `spec.scaling`, at least one.
pub(super) fn seconds(field: &str, text: &str, found: &mut Violations) -> Option<u32> {
    let path = format!("spec.scaling.{field}");
    match text.parse::<Duration>() {
        Ok(duration) => Some(u32::try_from(duration.as_millis() / 1_000).unwrap_or(u32::MAX).max(1)),
        Err(error) => {
            found.add(path, format!("{error}"));
            None
        }
    }
}

/// Reads the schedule with this index, or adds what is wrong with it.
fn schedule(schedule: &crds::Schedule, index: usize, found: &mut Violations) -> Option<Schedule> {
    let mut refuse = |field: &str, words: String| {
        found.add(format!("{SCHEDULES}[{index}]{field}"), format!("{:?}: {words}", schedule.name));
    };
    let (from, to) = (minute(&schedule.from), minute(&schedule.to));
    for (field, read) in [(".from", from), (".to", to)] {
        if read.is_none() {
            refuse(field, "must be HH:MM".into());
        }
    }
    let zone = zone(schedule).map_err(|(field, words)| refuse(field, words)).ok();
    let ((from_minute, to_minute), zone) = from.zip(to).zip(zone)?;
    let days = schedule.days.iter().fold(0, |days, day| days | bit(*day));
    Some(Schedule {
        name: schedule.name.clone(),
        days: if days == 0 { EVERY_DAY } else { days },
        from_minute,
        to_minute,
        zone,
        replicas_min: schedule.min_replicas,
        replicas_max: schedule.max_replicas,
    })
}

/// The time zone of a schedule, UTC if it names none; or the field that is wrong, and what is wrong with it.
fn zone(schedule: &crds::Schedule) -> Result<Zone, (&'static str, String)> {
    match (schedule.time_zone.as_deref(), schedule.utc_offset.as_deref()) {
        (None, None) => Ok(Zone::UTC),
        (Some(name), None) => Zone::named(name).ok_or_else(|| {
            let words = format!(
                "timeZone {name:?} is not a name of the IANA time zone database; write one such as Europe/Berlin, or set utcOffset"
            );
            (".timeZone", words)
        }),
        (None, Some(offset)) => ahead(offset)
            .and_then(Zone::ahead_of_utc)
            .ok_or_else(|| (".utcOffset", format!("utcOffset {offset:?} must be +HH:MM or -HH:MM"))),
        (Some(_), Some(_)) => Err(("", "timeZone and utcOffset are both set; remove one of them".into())),
    }
}

fn bit(day: Day) -> u8 {
    match day {
        Day::Monday => 1,
        Day::Tuesday => 1 << 1,
        Day::Wednesday => 1 << 2,
        Day::Thursday => 1 << 3,
        Day::Friday => 1 << 4,
        Day::Saturday => 1 << 5,
        Day::Sunday => 1 << 6,
    }
}

/// `08:30` as a minute of the day.
fn minute(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// `-03:30` as minutes.
fn ahead(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    i32::try_from(minute(rest)?).ok().map(|minutes| sign * minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_offsets_are_read_or_refused() {
        for (text, expected) in [("00:00", Some(0)), ("23:59", Some(1_439)), ("24:00", None), ("8", None)] {
            assert_eq!(minute(text), expected, "{text}");
        }
        for (text, expected) in [("+02:00", Some(120)), ("-03:30", Some(-210)), ("02:00", None), ("+x", None)]
        {
            assert_eq!(ahead(text), expected, "{text}");
        }
    }

    #[test]
    fn a_clock_is_named_by_a_zone_or_an_offset_and_not_by_both() {
        let read = |zone: Option<&str>, offset: Option<&str>| {
            let one = crds::Schedule {
                name: "office".into(),
                days: Vec::new(),
                from: "08:00".into(),
                to: "18:00".into(),
                utc_offset: offset.map(str::to_owned),
                time_zone: zone.map(str::to_owned),
                min_replicas: Some(2),
                max_replicas: None,
            };
            let mut found = Violations::default();
            let zone = schedule(&one, 0, &mut found).map(|one| one.zone);
            found.or(zone).map_err(|found| found.to_string())
        };
        assert_eq!(read(None, None), Ok(Some(Zone::UTC)));
        assert_eq!(read(None, Some("+02:00")), Ok(Zone::ahead_of_utc(120)));
        assert_eq!(read(Some("Europe/Berlin"), None), Ok(Zone::named("Europe/Berlin")));
        for (zone, offset, expected) in [
            (
                Some("Europe/Berln"),
                None,
                ".timeZone: \"office\": timeZone \"Europe/Berln\" is not a name of the IANA",
            ),
            (Some("Europe/Berlin"), Some("+02:00"), ": \"office\": timeZone and utcOffset are both set"),
            (None, Some("2"), ".utcOffset: \"office\": utcOffset \"2\" must be"),
        ] {
            let refused = read(zone, offset).unwrap_err();
            assert!(refused.starts_with(&format!("spec.scaling.schedules[0]{expected}")), "{refused}");
        }
    }

    #[test]
    fn days_are_bits_and_none_is_all() {
        let of = |days: &[Day]| {
            let one = crds::Schedule {
                name: "a".into(),
                days: days.to_vec(),
                from: "08:00".into(),
                to: "18:00".into(),
                utc_offset: None,
                time_zone: None,
                min_replicas: Some(2),
                max_replicas: None,
            };
            schedule(&one, 0, &mut Violations::default()).unwrap().days
        };
        assert_eq!(of(&[]), EVERY_DAY);
        assert_eq!(of(&[Day::Monday, Day::Sunday]), 0b100_0001);
    }
}
