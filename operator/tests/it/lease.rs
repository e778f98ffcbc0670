//! No two operators write at the same time: the Lease against an API server in memory, in virtual time. An operator writes from when it holds
//! the Lease until it has lost it, or gets a signal to end (`run.rs`; e2e/tests/it/operator/lease.rs shows it of two processes).

mod dice;
mod server;

use dice::Dice;
use serde_json::json;
use server::{Server, Way};
use sluice_operator::run::lease::{Lease, LeaseName, Lost};
use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// A leader that gives up has this many seconds to end before another one begins.
const MARGIN: Duration = Duration::from_secs(3);
/// A leader ends so long after its last renewal, at the latest.
const GIVES_UP: Duration = Duration::from_secs(12);
/// A standby begins so long after the last renewal, at the latest: the Lease expires after 15 s, and it looks every 2 s.
const TAKES_OVER: Duration = Duration::from_secs(18);
/// The time between two renewals, at the most: each 5 s are over when the holder next looks.
const RENEWS: Duration = Duration::from_secs(7);

/// Operators in the storm.
const OPERATORS: usize = 3;
/// Storms, each with another seed.
const STORMS: u64 = 20;
/// How long each lasts.
const STORM: Duration = Duration::from_mins(10);

/// How one stopped leading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It gave up.
    Lost,
    /// It was killed, or told to end.
    Asked,
}

/// Who leads, and when that changed.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<Change>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    number: usize,
    /// None when it begins.
    end: Option<End>,
    at: Instant,
}

impl Record {
    fn begins(&self, number: usize) {
        self.add(number, None);
    }

    fn ends(&self, number: usize, end: End) {
        self.add(number, Some(end));
    }

    fn add(&self, number: usize, end: Option<End>) {
        self.0.lock().unwrap().push(Change { number, end, at: Instant::now() });
    }

    fn changes(&self) -> Vec<Change> {
        self.0.lock().unwrap().clone()
    }

    fn leader(&self) -> Option<usize> {
        self.changes().last().filter(|change| change.end.is_none()).map(|change| change.number)
    }

    /// At any time at most one leads, and one that gives up has ended well before another one begins. It itself may be back before.
    fn ensure_never_two(&self, of: impl Debug) {
        let mut last: Option<Change> = None;
        for change in self.changes() {
            match (last, change.end) {
                (Some(last), Some(_)) => {
                    assert!(
                        last.end.is_none() && last.number == change.number,
                        "{of:?}: {last:?}, {change:?}"
                    );
                }
                (Some(last), None) => {
                    assert!(last.end.is_some(), "two lead, {of:?}: {last:?}, {change:?}");
                    let is_other = last.end == Some(End::Lost) && last.number != change.number;
                    assert!(!is_other || change.at - last.at >= MARGIN, "{of:?}: {last:?}, {change:?}");
                }
                (None, end) => assert_eq!(end, None, "{of:?}"),
            }
            last = Some(change);
        }
    }
}

fn lease(server: &Server, number: usize, identity: String) -> Lease {
    let name = LeaseName { namespace: "sluice-system".into(), name: "sluice".into(), identity };
    Lease::new(server.client(number), name)
}

/// An operator until it has lost the Lease.
async fn serve(mut lease: Lease, number: usize, record: Record) -> Lost {
    lease.acquired(|| ()).await;
    record.begins(number);
    let lost = lease.lost().await;
    record.ends(number, End::Lost);
    lost
}

/// One that leads, and another one that stands by.
struct Two {
    server: Server,
    record: Record,
    operators: JoinSet<Lost>,
}

impl Two {
    async fn start() -> Self {
        Self::start_apart(Duration::from_secs(1)).await
    }

    /// Each starts so long after the one before, and so looks.
    async fn start_apart(apart: Duration) -> Self {
        let (server, record) = (Server::new(2, Dice::new(7)), Record::default());
        let mut operators = JoinSet::new();
        for number in 0..2 {
            let lease = lease(&server, number, format!("operator-{number}"));
            operators.spawn(serve(lease, number, record.clone()));
            sleep(apart).await;
        }
        sleep(Duration::from_mins(10)).await;
        assert_eq!((record.leader(), record.changes().len()), (Some(0), 1), "nothing was wrong");
        Self { server, record, operators }
    }

    /// When the second one began, after the first one's end.
    async fn second_begins(&self) -> (Change, Change) {
        sleep(Duration::from_mins(10)).await;
        self.record.ensure_never_two("two operators");
        let changes = self.record.changes();
        assert_eq!((changes.len(), self.record.leader()), (3, Some(1)), "{changes:?}");
        (changes[1], changes[2])
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_one_begins() {
    for way in [Way::Cut, Way::Deaf, Way::DeafWrites, Way::Refused, Way::Late(60)] {
        let mut two = Two::start().await;
        two.server.go(0, way);
        let cut = Instant::now();
        let lost = two.operators.join_next().await.unwrap().unwrap();
        assert!(matches!(lost, Lost::NotRenewed { seconds: 12, .. }), "{way:?}: {lost}");
        assert_eq!(lost.to_string().contains("too little CPU"), way != Way::Refused, "{way:?}: {lost}");
        assert!(cut.elapsed() <= GIVES_UP, "{way:?}: {:?}", cut.elapsed());
        let (end, begin) = two.second_begins().await;
        // What is carried out without an answer still holds the others off.
        let carried_out = if way == Way::DeafWrites { GIVES_UP } else { Duration::ZERO };
        assert!(begin.at - cut <= TAKES_OVER + carried_out, "{way:?}: {:?}", begin.at - cut);
        assert!(begin.at - end.at >= MARGIN, "{way:?}: {:?}", begin.at - end.at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_when_it_was_asked_for() {
    // A look is 2 s apart from the next one: the standby looks at any time between two of the holder.
    for tenth in (1..20).step_by(3) {
        let mut two = Two::start_apart(Duration::from_millis(100 * tenth)).await;
        two.server.go(0, Way::LateWrites);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(two.record.changes().len(), 1, "an answer that is late is one");
        two.server.go(0, Way::Cut);
        two.operators.join_next().await.unwrap().unwrap();
        let (end, begin) = two.second_begins().await;
        assert!(begin.at - end.at >= MARGIN, "{tenth}: {:?}", begin.at - end.at);
    }
}

#[tokio::test(start_paused = true)]
async fn of_those_that_see_a_free_lease_at_once_one_leads() {
    for seed in 0..100 {
        let (server, record) = (Server::new(OPERATORS, Dice::new(seed)), Record::default());
        // There is none in every other round, and one without a holder in the rest.
        if seed % 2 == 0 {
            server.change(&json!({"holderIdentity": null}));
        }
        let mut operators = JoinSet::new();
        for number in 0..OPERATORS {
            operators.spawn(serve(lease(&server, number, format!("{number}")), number, record.clone()));
        }
        sleep(Duration::from_mins(2)).await;
        let leader = record.leader().map(|number| number.to_string());
        assert_eq!((record.changes().len(), server.holder()), (1, leader), "{:?}", record.changes());
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_clock_of_another_node_says_counts_for_nothing() {
    for renewed in ["2000-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"] {
        let (server, record) = (Server::new(1, Dice::new(7)), Record::default());
        let theirs = json!({"holderIdentity": "elsewhere", "renewTime": renewed, "leaseDurationSeconds": 15});
        server.change(&theirs);
        let operator = tokio::spawn(serve(lease(&server, 0, "here".into()), 0, record.clone()));
        for _ in 0..100 {
            sleep(RENEWS).await;
            server.change(&theirs);
        }
        let last = Instant::now();
        assert_eq!(record.changes(), [], "{renewed}: another one renews");
        sleep(TAKES_OVER).await;
        let begun = record.changes()[0].at;
        assert!(begun - last >= GIVES_UP + MARGIN, "{renewed}: {:?}", begun - last);
        operator.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_when_a_standby_looks() {
    let (server, record) = (Server::new(2, Dice::new(7)), Record::default());
    let mut first = lease(&server, 0, "first".into());
    timeout(MARGIN, first.acquired(|| ())).await.expect("it is free");
    let second = tokio::spawn(serve(lease(&server, 1, "second".into()), 1, record.clone()));
    assert!(timeout(Duration::from_mins(1), first.lost()).await.is_err(), "it is not lost");
    first.release().await;
    let released = Instant::now();
    sleep(MARGIN).await;
    assert_eq!((record.leader(), server.holder().as_deref()), (Some(1), Some("second")));
    assert!(record.changes()[0].at >= released);
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_has_no_two_holders_among_those_who_have_seen_it() {
    let mut two = Two::start().await;
    two.server.delete();
    let deleted = Instant::now();
    let lost = two.operators.join_next().await.unwrap().unwrap();
    assert!(matches!(&lost, Lost::Taken(holder) if holder == "nobody"), "{lost}");
    assert!(deleted.elapsed() < MARGIN, "{:?}", deleted.elapsed());
    let (end, begin) = two.second_begins().await;
    assert!(begin.at - end.at >= MARGIN && begin.at - deleted <= TAKES_OVER, "{end:?}, {begin:?}");
}

#[tokio::test(start_paused = true)]
async fn in_a_storm_no_two_lead_and_behind_it_one_does() {
    let mut began = 0;
    for seed in 0..STORMS {
        let mut dice = Dice::new(seed);
        let (server, record) = (Server::new(OPERATORS, dice.clone()), Record::default());
        let mut storm = JoinSet::new();
        for number in 0..OPERATORS {
            storm.spawn(live_and_die(
                server.clone(),
                number,
                Dice::new(dice.below(u64::MAX)),
                record.clone(),
            ));
        }
        storm.spawn(change_ways(server.clone(), Dice::new(dice.below(u64::MAX))));
        tokio::select! {
            ended = storm.join_next() => panic!("it goes on for ever: {ended:?}"),
            () = sleep(STORM) => {}
        }
        record.ensure_never_two(seed);
        began += record.changes().iter().filter(|change| change.end.is_none()).count();
        // All are killed, and start in a network that is well.
        storm.shutdown().await;
        if let Some(number) = record.leader() {
            record.ends(number, End::Asked);
        }
        let mut calm = JoinSet::new();
        for number in 0..OPERATORS {
            server.go(number, Way::Open);
            calm.spawn(serve(lease(&server, number, format!("calm-{number}")), number, record.clone()));
        }
        // The last holder may have renewed it right before, and something of it may still be on its way.
        sleep(2 * TAKES_OVER).await;
        let leader = record.leader();
        assert!(leader.is_some(), "nobody leads behind storm {seed}");
        let changes = record.changes().len();
        sleep(STORM).await;
        assert_eq!((record.leader(), record.changes().len()), (leader, changes), "storm {seed}");
        record.ensure_never_two(seed);
    }
    assert!(
        began as u64 >= 5 * STORMS,
        "{began} times one began to lead in {STORMS} storms: they show little"
    );
}

/// Without the right to the Lease a process can never take over: it is no standby.
#[tokio::test(start_paused = true)]
async fn a_process_stands_by_once_it_has_read_the_lease() {
    let (server, record) = (Server::new(2, Dice::new(7)), Record::default());
    let leader = tokio::spawn(serve(lease(&server, 0, "first".into()), 0, record.clone()));
    sleep(MARGIN).await;
    assert_eq!(record.leader(), Some(0));
    server.go(1, Way::Refused);
    let stands_by = AtomicBool::new(false);
    let mut second = lease(&server, 1, "second".into());
    let acquired = second.acquired(|| stands_by.store(true, Ordering::Relaxed));
    tokio::pin!(acquired);
    assert!(timeout(Duration::from_mins(1), &mut acquired).await.is_err());
    assert!(!stands_by.load(Ordering::Relaxed), "it was refused");
    server.go(1, Way::Open);
    assert!(timeout(MARGIN, &mut acquired).await.is_err());
    assert!(stands_by.load(Ordering::Relaxed));
    leader.abort();
}

/// One operator after another. Each loses the Lease, is killed, or gets a signal to end.
async fn live_and_die(server: Server, number: usize, mut dice: Dice, record: Record) {
    for life in 0.. {
        // A container that is started again in its pod is the same to the Lease, another pod is not.
        let life = if dice.below(2) == 0 { 0 } else { life };
        let mut lease = lease(&server, number, format!("operator-{number}-{life}"));
        let is_leading = || record.leader() == Some(number);
        tokio::select! {
            () = async {
                lease.acquired(|| ()).await;
                record.begins(number);
                let lost = lease.lost().await;
                assert!(matches!(lost, Lost::NotRenewed { .. }), "{lost}");
                record.ends(number, End::Lost);
            } => {}
            () = sleep(Duration::from_secs(1 + dice.below(120))) => {
                let is_told = dice.below(2) == 0;
                if is_leading() {
                    record.ends(number, End::Asked);
                    if is_told {
                        lease.release().await;
                    }
                }
            }
        }
        sleep(Duration::from_millis(dice.below(3_000))).await;
    }
}

/// Every few seconds the requests of one of them fare otherwise, and now and then those of all.
async fn change_ways(server: Server, mut dice: Dice) {
    let ways = [
        Way::Open,
        Way::Open,
        Way::Cut,
        Way::Deaf,
        Way::DeafWrites,
        Way::Refused,
        Way::LateWrites,
        Way::Late(3),
        Way::Late(15),
    ];
    loop {
        sleep(Duration::from_millis(500 + dice.below(10_000))).await;
        let way = dice.one_of(&ways);
        match dice.one_of(&[0, 1, 2, OPERATORS]) {
            OPERATORS => (0..OPERATORS).for_each(|number| server.go(number, way)),
            number => server.go(number, way),
        }
    }
}
