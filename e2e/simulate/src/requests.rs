//! Days of gateways with `source.otlp`, in turns of 15 s. Only the gateway that has a volume inserts from it.
//!
//! Clients keep their connections for ten minutes, so added gateways get their share late. If a gateway refuses a request, its client sends
//! it again until it gives up. Our decision sees the logs' offsets, the workers' seconds and the refusals, as the operator does.
//!
//! Estimated with a sketch of the same rules (30 November 2026), over seeds 0 to 4: 22 to 24 rescales and 196 to 203 replica-hours on each
//! of these days. More requests than the gateways can insert arrive only after three hours of a slow disk, for a minute. While a log
//! stalls, there are at most 8 gateways, as on a day without that.

use sluice_plan::{
    Moment,
    scale::{
        Alignment, GatewayLogs, Load as Shared, LogTotals, Mode, PodSample, Policy, Sample, Samples, State,
        WorkloadSample, decide,
    },
};
use std::collections::VecDeque;

use super::chance::Chance;
use super::load::{DAY_SECONDS, Load, Trace};
use super::numbers::{count, whole};

/// One turn, which is a poll.
const TURN_SECONDS: f64 = 15.0;
/// The start must be later than the Unix epoch: otherwise moments are smaller than windows.
const BEGIN: Moment = Moment(1_000_000_000);
/// Requests a second that a gateway inserts.
const CAPACITY: f64 = 1_000.0;
/// Share of the messages of other days: a tenth, which is 1,500 to 10,500 requests a second.
const OF_OTHER_DAYS: f64 = 0.1;
/// Largest random deviation of the arrivals in a turn.
const NOISE: f64 = 0.05;
/// Share of connections that end in a turn: each lives for ten minutes.
const CONNECTIONS_END: f64 = TURN_SECONDS / 600.0;
/// When the disturbance starts and ends, in seconds.
const TROUBLE_SECONDS: std::ops::Range<f64> = 10_800.0..21_600.0;
/// Requests a second that a gateway with a slow disk accepts.
const SLOW_DISK: f64 = 300.0;
/// Gateways refuse if more than this share of the requests was refused in so many turns, the longest window of rates. Twice the share from which
/// the decision counts it: that goes by what gateways append, and only by gateways that are still there.
const REFUSED_SHARE: f64 = 0.02;
const REFUSED_TURNS: usize = 12;
const REQUEST_BYTES: u64 = 900;

/// Seeds of each day.
const SEEDS: u32 = 3;
/// Upper limit of rescales: the measured number and two.
const RESCALES_MAX: u32 = 26;
/// Upper limit of replica-hours: the measured number and a few percent.
const REPLICA_HOURS_MAX: f64 = 210.0;
/// Seconds after which there must be enough gateways to insert what arrives.
const PROMISED_SECONDS: f64 = 180.0;

/// The disturbance of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Nothing,
    /// The second gateway inserts nothing from its logs.
    LogStands,
    SlowDisk,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Day {
    rescales: u32,
    replica_hours: f64,
    /// The largest number of gateways during the disturbance.
    peak: u32,
    /// The longest time, in seconds, in which more arrived than the gateways can insert. The time of slow disks is left out.
    short_seconds: f64,
    /// Gateways that were removed while requests were refused.
    removed_refusing: u32,
}

#[derive(Debug, Clone, Default)]
struct Gateway {
    /// Its share of all connections.
    share: f64,
    appended: f64,
    waiting: f64,
    inserted: f64,
    busy: f64,
    source: f64,
    refused: f64,
}

/// The limits that the days exceed.
pub fn check() -> Vec<String> {
    let mut passed = Vec::new();
    for seed in 0..SEEDS {
        let calm = day(Trouble::Nothing, seed);
        for (trouble, day) in [
            (Trouble::Nothing, calm.clone()),
            (Trouble::LogStands, day(Trouble::LogStands, seed)),
            (Trouble::SlowDisk, day(Trouble::SlowDisk, seed)),
        ] {
            let figures = [
                ("rescales", f64::from(day.rescales), f64::from(RESCALES_MAX)),
                ("replica-hours", day.replica_hours, REPLICA_HOURS_MAX),
                ("gateways in the trouble", f64::from(day.peak), f64::from(calm.peak)),
                ("seconds with too few gateways", day.short_seconds, PROMISED_SECONDS),
                ("gateways removed while requests are refused", f64::from(day.removed_refusing), 0.0),
            ];
            let more = figures.iter().filter(|(_, value, most)| value > most);
            passed.extend(more.map(|(what, value, most)| {
                format!("requests, {trouble:?}, seed {seed}: {what} {value:.1}, at most {most:.1}")
            }));
        }
    }
    passed
}

fn day(trouble: Trouble, seed: u32) -> Day {
    let policy = Policy {
        mode: Mode::Auto,
        load: Shared::Requests,
        replicas_min: 2,
        replicas_max: Some(24),
        alignment: Alignment::Balanced,
        ..Policy::default()
    };
    let (mut state, mut samples, mut totals) = (State::default(), Samples::default(), LogTotals::default());
    let mut gateways = vec![Gateway { share: 0.5, ..Gateway::default() }; 2];
    let (mut chance, trace, mut day) = (Chance::new(seed), Trace::default(), Day::default());
    let (mut again, mut short_seconds) = (0.0, 0.0);
    let mut lately = VecDeque::from([(0.0, 0.0); REFUSED_TURNS]);
    for turn in 1..=whole(DAY_SECONDS / TURN_SECONDS) {
        let seconds = count(turn) * TURN_SECONDS;
        let now = Moment(BEGIN.0 + whole(seconds * 1_000.0));
        let arrival = Load::Diurnal.arrival(seconds, &trace) * OF_OTHER_DAYS;
        let offered = arrival * (1.0 + NOISE * chance.around()) + again;
        let in_trouble = TROUBLE_SECONDS.contains(&seconds);
        let refused = pass(&mut gateways, offered, if in_trouble { trouble } else { Trouble::Nothing });
        lately.pop_front();
        lately.push_back((refused, offered));
        // Clients send again what was refused, and give up the rest.
        again = refused.min(arrival);
        let sample = sample(&gateways, now, &mut totals);
        samples.history.push(sample);
        let replicas = u32::try_from(gateways.len()).unwrap_or(u32::MAX);
        samples.workload = WorkloadSample { desired: replicas, ready: replicas, ..WorkloadSample::default() };
        let decision = decide(now, &policy, &state, &samples);
        state = decision.next;
        if decision.replicas != replicas {
            day.rescales += 1;
            let (refused, offered) = lately
                .iter()
                .fold((0.0, 0.0), |(refused, offered), turn| (refused + turn.0, offered + turn.1));
            let is_refusing = refused > REFUSED_SHARE * offered;
            day.removed_refusing += u32::from(is_refusing && decision.replicas < replicas);
            scale(&mut gateways, decision.replicas);
        }
        let is_short = arrival > f64::from(decision.replicas) * CAPACITY;
        let is_excused = in_trouble && trouble == Trouble::SlowDisk;
        short_seconds = if is_short && !is_excused { short_seconds + TURN_SECONDS } else { 0.0 };
        day.short_seconds = day.short_seconds.max(short_seconds);
        day.replica_hours += f64::from(decision.replicas) * TURN_SECONDS / 3_600.0;
        if in_trouble {
            day.peak = day.peak.max(decision.replicas);
        }
    }
    day
}

/// One turn in which `offered` requests a second arrive; returns how many of them are refused.
fn pass(gateways: &mut [Gateway], offered: f64, trouble: Trouble) -> f64 {
    let even = 1.0 / count(gateways.len() as u64);
    let mut refused = 0.0;
    for (ordinal, gateway) in gateways.iter_mut().enumerate() {
        gateway.share += (even - gateway.share) * CONNECTIONS_END;
        let disk = if trouble == Trouble::SlowDisk { SLOW_DISK } else { f64::INFINITY };
        let comes = offered * gateway.share;
        let taken = comes.min(disk);
        refused += comes - taken;
        gateway.refused += (comes - taken) * TURN_SECONDS;
        gateway.appended += taken * TURN_SECONDS;
        gateway.waiting += taken * TURN_SECONDS;
        if trouble == Trouble::LogStands && ordinal == 1 {
            continue;
        }
        let done = gateway.waiting.min(CAPACITY * TURN_SECONDS);
        gateway.waiting -= done;
        gateway.inserted += done;
        gateway.busy += done / CAPACITY;
        gateway.source += TURN_SECONDS - done / CAPACITY;
    }
    refused
}

fn sample(gateways: &[Gateway], at: Moment, totals: &mut LogTotals) -> Sample {
    let pod = |(ordinal, gateway): (u32, &Gateway)| {
        let appended = whole(gateway.appended);
        let waiting = whole(gateway.waiting).min(appended);
        PodSample {
            ordinal,
            at,
            workers: 1,
            busy_seconds: gateway.busy,
            source_seconds: gateway.source,
            messages: whole(gateway.inserted),
            message_bytes: whole(gateway.inserted) * REQUEST_BYTES,
            requests_refused: whole(gateway.refused),
            logs: Some(GatewayLogs { readable: 1, appended, waiting, ..GatewayLogs::default() }),
            ..PodSample::default()
        }
    };
    let pods: Vec<PodSample> = (0..).zip(gateways).map(pod).collect();
    let partition = totals.look(pods.iter().filter_map(|pod| Some((pod.ordinal, pod.logs?))));
    Sample { at, group_stable: true, partitions: vec![Some(partition)], pods, silent: 0 }
}

/// Added gateways have no connections yet; the clients of removed gateways connect to the others.
fn scale(gateways: &mut Vec<Gateway>, replicas: u32) {
    let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
    gateways.resize(replicas, Gateway::default());
    let sum: f64 = gateways.iter().map(|gateway| gateway.share).sum();
    for gateway in gateways.iter_mut().filter(|_| sum > 0.0) {
        gateway.share /= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_refuses_what_it_does_not_take_and_a_log_that_stands_keeps_it() {
        let mut gateways = vec![Gateway { share: 0.5, ..Gateway::default() }; 2];
        let refused = pass(&mut gateways, 1_000.0, Trouble::SlowDisk);
        assert!((refused - 400.0).abs() < 1e-9, "{refused}");
        assert!(gateways.iter().all(|gateway| gateway.waiting < 1e-9), "{gateways:?}");
        pass(&mut gateways, 1_000.0, Trouble::LogStands);
        let waiting: Vec<u64> = gateways.iter().map(|gateway| whole(gateway.waiting)).collect();
        assert_eq!(waiting, [0, 7_500]);
        scale(&mut gateways, 1);
        assert!((gateways[0].share - 1.0).abs() < 1e-9);
    }
}
