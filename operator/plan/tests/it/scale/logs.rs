//! Gateways that accept OTLP over time: each has logs of its own, which no other gateway inserts, and refuses requests beyond the room that it has.

use super::course::{CAPACITY, POLL_SECONDS};
use sluice_plan::{
    Moment,
    scale::{
        Alignment, Cause, Decision, GatewayLogs, Limit, Load, LogTotals, Mode, PodSample, Policy, Sample,
        Samples, Standing, State, WorkloadSample, decide,
    },
};

/// How a gateway is at its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Work {
    #[default]
    Inserts,
    /// Nothing of its logs is inserted, and nothing says why.
    Stands,
    /// Its inserts fail.
    Fails,
    /// As [`Work::Stands`], and its volume is full: it refuses all requests, and clients send them to the others.
    Full,
}

/// All requests, in the parts that a gateway has of them.
const ALL: u64 = 1_000_000;
/// Of the connections, one in this many ends between two polls, and the client connects to any gateway: they live for ten minutes.
const ENDS_ONE_IN: u64 = 40;

#[derive(Debug, Clone, Default)]
struct Gateway {
    work: Work,
    /// Its part of [`ALL`].
    share: u64,
    logs: GatewayLogs,
    sample: PodSample,
}

struct Fleet {
    policy: Policy,
    state: State,
    samples: Samples,
    totals: LogTotals,
    now: Moment,
    gateways: Vec<Gateway>,
    /// Requests a second that clients have.
    offered: u64,
    /// Whether clients keep their connections, so that new gateways get their share late.
    keeps_connections: bool,
    /// Requests a second that the disk of a gateway takes.
    disk: u64,
    changes: u32,
}

impl Fleet {
    fn new(offered: u64, replicas: u32) -> Self {
        let workload = WorkloadSample { desired: replicas, ready: replicas, ..WorkloadSample::default() };
        let policy = Policy {
            mode: Mode::Auto,
            load: Load::Requests,
            replicas_max: Some(24),
            alignment: Alignment::Balanced,
            ..Policy::default()
        };
        Self {
            policy,
            state: State::default(),
            samples: Samples { workload, ..Samples::default() },
            totals: LogTotals::default(),
            now: Moment(1_000_000),
            gateways: vec![Gateway::default(); replicas as usize],
            offered,
            keeps_connections: false,
            disk: u64::MAX,
            changes: 0,
        }
    }

    fn replicas(&self) -> u32 {
        self.samples.workload.desired
    }

    fn step(&mut self) -> Decision {
        self.now = self.now.plus_seconds(u32::try_from(POLL_SECONDS).unwrap());
        let takes = |gateway: &Gateway| gateway.work != Work::Full;
        let taking = self.gateways.iter().filter(|gateway| takes(gateway)).count() as u64;
        let even = ALL / taking;
        for (ordinal, gateway) in (0..).zip(&mut self.gateways) {
            let part = if self.keeps_connections { ENDS_ONE_IN } else { 1 };
            let even = if takes(gateway) { even } else { 0 };
            gateway.share = (gateway.share * (part - 1) + even) / part;
            gateway.pass(self.offered * gateway.share / ALL, self.disk);
            (gateway.sample.ordinal, gateway.sample.at) = (ordinal, self.now);
        }
        let all = self.gateways.iter().map(|gateway| (gateway.sample.ordinal, gateway.logs));
        let partitions = vec![Some(self.totals.look(all))];
        let pods = self.gateways.iter().map(|gateway| gateway.sample.clone()).collect();
        self.samples.history.push(Sample { at: self.now, group_stable: true, partitions, pods, silent: 0 });
        let decision = decide(self.now, &self.policy, &self.state, &self.samples);
        self.state = decision.next.clone();
        self.changes += u32::from(decision.replicas != self.replicas());
        let workload = &mut self.samples.workload;
        (workload.desired, workload.ready) = (decision.replicas, decision.replicas);
        self.gateways.resize(decision.replicas as usize, Gateway::default());
        decision
    }

    /// A gateway stands, and a minute later its volume is full.
    fn fill(&mut self, ordinal: usize) {
        self.gateways[ordinal].work = Work::Stands;
        self.run(60);
        self.gateways[ordinal].work = Work::Full;
    }

    fn run(&mut self, seconds: u64) -> Decision {
        let mut last = self.step();
        for _ in 1..seconds / POLL_SECONDS {
            last = self.step();
        }
        last
    }
}

impl Gateway {
    /// A poll's worth of time in which this many requests a second come.
    fn pass(&mut self, share: u64, disk: u64) {
        let came = share.min(disk) * POLL_SECONDS;
        self.logs.appended += came;
        self.logs.waiting += came;
        let possible = CAPACITY * POLL_SECONDS;
        let done = if self.work == Work::Inserts { self.logs.waiting.min(possible) } else { 0 };
        self.logs.waiting -= done;
        let seconds = f64::from(u32::try_from(POLL_SECONDS).unwrap());
        let busy = f64::from(u32::try_from(done).unwrap()) / f64::from(u32::try_from(CAPACITY).unwrap());
        let sample = &mut self.sample;
        sample.workers = 1;
        sample.busy_seconds += busy;
        sample.source_seconds += if self.work == Work::Inserts { seconds - busy } else { 0.0 };
        sample.messages += done;
        sample.message_bytes += done * 100;
        sample.requests_refused += (share - share.min(disk)) * POLL_SECONDS;
        sample.requests_refused += u64::from(self.work == Work::Full) * 300;
        sample.insert_failures += u64::from(self.work == Work::Fails);
        sample.sink_behind = self.work == Work::Fails;
        sample.logs = Some(self.logs);
    }
}

#[test]
fn a_log_that_stands_asks_for_no_gateway_and_is_named() {
    for work in [Work::Stands, Work::Fails] {
        let mut fleet = Fleet::new(4_400, 6);
        fleet.run(900);
        assert_eq!(fleet.replicas(), 6);
        fleet.gateways[2].work = work;
        for _ in 0..480 {
            let decision = fleet.step();
            assert_eq!(decision.replicas, 6, "{work:?}: {}", decision.reason);
        }
        let last = fleet.step();
        assert_eq!(
            (last.cause, last.limited),
            (Cause::PartitionStuck, Some(Limit::PartitionStuck)),
            "{work:?}"
        );
        assert!(last.reason.contains("these do not: the logs of gateway 2"), "{}", last.reason);
        let figures = last.figures.unwrap();
        assert_eq!(Standing::of(&fleet.samples.history).unwrap().stuck, [2]);
        assert!(figures.lag_seconds < 1.0, "it is in no lag: {figures:?}");
    }
}

#[test]
fn more_requests_add_gateways_beside_one_whose_log_stands() {
    for work in [Work::Stands, Work::Fails] {
        let mut fleet = Fleet::new(4_400, 6);
        fleet.run(900);
        fleet.gateways[2].work = work;
        fleet.run(300);
        fleet.offered = 8_000;
        let last = fleet.run(300);
        assert!((10..=12).contains(&last.replicas), "{work:?}: {} {}", last.replicas, last.reason);
        let last = fleet.run(3_600);
        assert!((10..=12).contains(&last.replicas), "{work:?}: {} {}", last.replicas, last.reason);
    }
}

/// It was one of two that the load takes, and the other one has all of it.
#[test]
fn a_gateway_stands_in_for_one_that_is_full() {
    let mut fleet = Fleet::new(900, 2);
    fleet.run(900);
    assert_eq!(fleet.replicas(), 2);
    fleet.fill(1);
    let last = fleet.run(600);
    assert_eq!((last.replicas, last.cause), (3, Cause::PartitionStuck), "{}", last.reason);
    assert!(last.reason.contains("the logs of gateway 1, which refuses requests"), "{}", last.reason);
    fleet.changes = 0;
    assert_eq!((fleet.run(7_200).replicas, fleet.changes), (3, 0), "it does not swing");
    // Nor do the requests that it refuses keep gateways which the others do not need.
    fleet.offered = 300;
    assert_eq!(fleet.run(3_600).replicas, 2);
    let mut limited = Fleet::new(900, 2);
    limited.policy.replicas_max = Some(2);
    limited.run(900);
    limited.fill(1);
    assert_eq!(limited.run(600).replicas, 2);
}

#[test]
fn what_one_gateway_cannot_read_keeps_no_gateway() {
    let mut fleet = Fleet::new(4_400, 6);
    fleet.run(900);
    let logs = &mut fleet.gateways[5].logs;
    (logs.unreadable, logs.unread) = (1, 900_000);
    fleet.offered = 500;
    assert_eq!(fleet.run(7_200).replicas, 1);
}

#[test]
fn a_backlog_that_moves_adds_no_gateway_either() {
    let mut fleet = Fleet::new(4_400, 6);
    fleet.run(900);
    fleet.changes = 0;
    fleet.gateways[3].work = Work::Stands;
    fleet.run(3_600);
    fleet.gateways[3].work = Work::Inserts;
    let decision = fleet.run(300);
    let figures = decision.figures.unwrap();
    let standing = Standing::of(&fleet.samples.history);
    assert_eq!(standing, Some(Standing::default()));
    assert!(figures.lag_seconds > 300.0, "{figures:?}");
    fleet.run(7_200);
    assert_eq!((fleet.replicas(), fleet.changes), (6, 0));
}

#[test]
fn no_gateway_leaves_while_requests_are_refused_and_none_is_added_for_them() {
    let mut fleet = Fleet::new(4_400, 6);
    fleet.run(900);
    fleet.changes = 0;
    // The disk takes a tenth, then all; and again.
    for _ in 0..3 {
        fleet.disk = 70;
        let last = fleet.run(3_600);
        assert_eq!((last.replicas, fleet.changes), (6, 0), "{}", last.reason);
        assert!(last.reason.contains("gateways refuse requests"), "{}", last.reason);
        fleet.disk = u64::MAX;
        let last = fleet.run(900);
        assert_eq!((last.replicas, fleet.changes), (6, 0), "{}", last.reason);
    }
    // What is refused is no reason to keep them for longer than the usual time.
    fleet.offered = 500;
    assert_eq!(fleet.run(480).replicas, 6);
    assert_eq!(fleet.run(3_600).replicas, 1);
    assert!(fleet.changes <= 4, "{} changes", fleet.changes);
}

#[test]
fn gateways_come_within_three_minutes_of_a_load_that_takes_them() {
    let mut fleet = Fleet::new(2_200, 3);
    fleet.run(900);
    assert_eq!(fleet.replicas(), 3);
    fleet.offered = 5_200;
    let last = fleet.run(180);
    assert!((7..=8).contains(&last.replicas), "{} {}", last.replicas, last.reason);
    fleet.changes = 0;
    assert_eq!((fleet.run(7_200).replicas, fleet.changes), (last.replicas, 0), "it does not swing");
}

/// The first gateways stay full for minutes, whatever is added. That is no reason against more.
#[test]
fn gateways_that_get_their_share_late_are_not_said_to_be_in_vain() {
    let mut fleet = Fleet::new(2_200, 3);
    fleet.run(900);
    fleet.keeps_connections = true;
    for (offered, expected) in [(4_400, 6), (6_600, 9), (8_800, 12)] {
        fleet.offered = offered;
        let last = fleet.run(300);
        assert_eq!((last.replicas, last.cause), (expected, Cause::ComputeLimited), "{}", last.reason);
    }
    fleet.changes = 0;
    assert_eq!((fleet.run(7_200).replicas, fleet.changes), (12, 0), "it does not swing");
}
