//! The open Kafka clients: one for each cluster and each way to connect to it (credentials, TLS, properties). Pipelines with equal values
//! share a client. A client that no pipeline uses is closed.
//!
//! Each cluster has its own permits for requests, so that requests to an unreachable cluster delay no other cluster.
//! Threads: requests use up to [`QUESTIONS_MAX`] of tokio's blocking threads for each client ([`blocking_threads_max`]). librdkafka adds
//! three threads for each client, and one for each broker of its cluster.
//!
//! If there are more clusters than clients, the operator closes the client that was used last, so that the others stay open. All clusters
//! are asked in turn: if the client that was used longest ago were closed, each of them would be closed right before its cluster is asked
//! again. The counter `sluice_operator_kafka_clients_replaced_total`, an alert and one log line show the shortage.

use super::{Client, Error, cluster::Cluster};
use crate::world::metrics::KafkaClientMetrics;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// Open clients, unless the command line says otherwise. Chosen; a client of one broker without TLS takes 0.5 MiB (measured: 30 MB for 64,
/// debug build).
pub const CLIENTS_MAX_DEFAULT: u16 = 64;
/// The largest number that the command line accepts: 0.5 GiB of clients without TLS. Chosen.
pub const CLIENTS_MAX_MAX: u16 = 1_024;
/// Parallel requests to one cluster, each on its own thread. A request needs about five answers. At 20 ms each that is 40 requests a second,
/// which allows 1200 pipelines one request in 30 s. Chosen.
pub const QUESTIONS_MAX: usize = 4;
/// Blocking threads for other work, such as DNS lookups. With 64 clients the sum is tokio's default. Chosen.
const OTHER_THREADS_MAX: usize = 256;
/// A client that was not used for this many seconds is closed: ten times the interval between two requests.
pub const IDLE_SECONDS_MAX: u64 = 300;
/// A client that was not used for this many seconds belongs to no pipeline any more, as after a change of its credentials, and makes room
/// first. Twice the longest wait between two looks at a pipeline that waits for Kafka. Chosen.
const LEFT_SECONDS: u64 = 120;
/// Reconciles that wait for a cluster that did not give its last answer: one is enough to find out that it is back.
const WAITING_MAX: usize = 1;

/// A cluster, and its client once a request has opened it.
pub struct Connection {
    cluster: Cluster,
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    has_answered: AtomicBool,
    client: Mutex<Option<Arc<Client>>>,
}

impl Connection {
    fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            places: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            // Assumed until a request fails.
            has_answered: AtomicBool::new(true),
            client: Mutex::default(),
        }
    }

    /// A permit for a request; waits until one is free.
    pub async fn place(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The client, created if there is none. `group` becomes the client's own group: librdkafka needs one, and the user may describe this
    /// one. It blocks its thread while another thread creates the same client.
    pub fn client(&self, group: &str) -> Result<Arc<Client>, Error> {
        let mut client = self.open();
        if let Some(open) = &*client {
            return Ok(Arc::clone(open));
        }
        let made = Arc::new(Client::new(&self.cluster, group)?);
        *client = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Removes a client. The next request opens another one; this one closes with its last running request.
    pub fn retire(&self, client: &Arc<Client>) {
        let mut open = self.open();
        let retired = open.take_if(|open| Arc::ptr_eq(open, client));
        // Closing the last reference waits for librdkafka's threads: release the lock first.
        drop(open);
        drop(retired);
    }

    /// Records whether the cluster answered.
    pub fn note(&self, has_answered: bool) {
        self.has_answered.store(has_answered, Ordering::Relaxed);
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to wait for a cluster's answer, until it is dropped.
pub struct Turn {
    _of_few: Option<OwnedSemaphorePermit>,
}

/// A connection, and another one that was removed for it. Dropping the removed one closes it, which blocks the thread.
pub struct Connected {
    /// The connection to the cluster.
    pub connection: Arc<Connection>,
    /// The connection that was removed.
    pub given_up: Option<Arc<Connection>>,
}

struct Open {
    connection: Arc<Connection>,
    used: Instant,
}

impl Open {
    /// Whether no request uses it or waits for a permit. The caller holds the lock, so that no request can start meanwhile.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.connection) == 1
    }
}

/// All connections.
pub struct Clients {
    most: usize,
    open: Mutex<HashMap<Cluster, Open>>,
    metrics: KafkaClientMetrics,
    is_shortage_logged: AtomicBool,
}

/// Limit of tokio's blocking threads for this many clients.
pub fn blocking_threads_max(clients_max: u16) -> usize {
    usize::from(clients_max) * QUESTIONS_MAX + OTHER_THREADS_MAX
}

impl Clients {
    /// No connections yet, and at most `most` at the same time.
    pub fn new(most: u16, metrics: KafkaClientMetrics) -> Self {
        metrics.set_most(most);
        Self {
            most: usize::from(most),
            open: Mutex::default(),
            metrics,
            is_shortage_logged: AtomicBool::default(),
        }
    }

    /// Limit of open connections.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The connection to a cluster. At the limit, an idle connection is removed ([`to_give_up`]); `None` if none is idle.
    pub fn connect(&self, cluster: &Cluster) -> Option<Connected> {
        let used = Instant::now();
        let mut open = self.open();
        if let Some(found) = open.get_mut(cluster) {
            found.used = used;
            return Some(Connected { connection: Arc::clone(&found.connection), given_up: None });
        }
        let mut given_up = None;
        if open.len() >= self.most {
            self.tell_of_shortage();
            let idle = to_give_up(&open, used)?;
            given_up = open.remove(&idle).map(|open| open.connection);
            self.metrics.replaced();
        }
        let connection = Arc::new(Connection::new(cluster.clone()));
        open.insert(cluster.clone(), Open { connection: Arc::clone(&connection), used });
        self.metrics.set_open(open.len());
        Some(Connected { connection, given_up })
    }

    /// The right to wait for a cluster's answer; `None` if the cluster did not give its last answer and another reconcile already waits.
    /// Otherwise the pipelines of one unreachable cluster would occupy all reconciles.
    pub fn turn(&self, cluster: &Cluster) -> Option<Turn> {
        let waiting = match self.open().get(cluster).map(|open| &open.connection) {
            Some(away) if !away.has_answered.load(Ordering::Relaxed) => Arc::clone(&away.waiting),
            Some(_) | None => return Some(Turn { _of_few: None }),
        };
        waiting.try_acquire_owned().ok().map(|turn| Turn { _of_few: Some(turn) })
    }

    /// Closes the clients that were not used for `idle`. It blocks its thread.
    pub fn close_idle(&self, idle: Duration) {
        let mut open = self.open();
        let closed: Vec<Open> = open
            .extract_if(|_, open| open.is_idle() && open.used.elapsed() >= idle)
            .map(|(_, open)| open)
            .collect();
        self.metrics.set_open(open.len());
        // Closing waits for librdkafka's threads: release the lock first.
        drop(open);
        drop(closed);
    }

    /// Logs the shortage once for each process. The counter shows how often it happens.
    fn tell_of_shortage(&self) {
        if !self.is_shortage_logged.swap(true, Ordering::Relaxed) {
            warn!(
                kafka_clients_max = self.most,
                "the pipelines need more Kafka clients than --kafka-clients-max allows: the operator connects to the clusters beyond it again \
                 at each look; increase --kafka-clients-max (chart value kafkaClientsMax)"
            );
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Cluster, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The idle connection that makes room: one that no pipeline uses any more, else the one that was used last.
fn to_give_up(open: &HashMap<Cluster, Open>, now: Instant) -> Option<Cluster> {
    let idle = || open.iter().filter(|(_, open)| open.is_idle());
    let is_left = |open: &Open| now.saturating_duration_since(open.used) >= Duration::from_secs(LEFT_SECONDS);
    let left = idle().filter(|(_, open)| is_left(open)).min_by_key(|(_, open)| open.used);
    let chosen = left.or_else(|| idle().max_by_key(|(_, open)| open.used));
    chosen.map(|(cluster, _)| cluster.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::kafka::cluster::tests::cluster;

    fn clients(most: u16) -> Clients {
        Clients::new(most, KafkaClientMetrics::default())
    }

    fn connect(clients: &Clients, servers: &str) -> Arc<Connection> {
        clients.connect(&cluster(servers, &[])).unwrap().connection
    }

    #[test]
    fn groups_share_their_clusters_client_until_it_is_retired() {
        let clients = clients(CLIENTS_MAX_DEFAULT);
        let connection = connect(&clients, "127.0.0.1:1,127.0.0.1:2");
        let client = connection.client("a").unwrap();
        let same = connect(&clients, "127.0.0.1:2,127.0.0.1:1");
        assert!(Arc::ptr_eq(&client, &same.client("b").unwrap()));
        same.retire(&client);
        let next = connection.client("b").unwrap();
        assert!(!Arc::ptr_eq(&client, &next));
        connection.retire(&client);
        assert!(Arc::ptr_eq(&next, &connection.client("a").unwrap()), "another one than was meant stays");
    }

    #[test]
    fn clients_are_closed_when_nobody_uses_them() {
        let clients = clients(CLIENTS_MAX_DEFAULT);
        let first = Arc::downgrade(&connect(&clients, "127.0.0.1:1"));
        clients.close_idle(Duration::from_mins(1));
        assert_eq!(first.strong_count(), 1);
        let used = connect(&clients, "127.0.0.1:1");
        clients.close_idle(Duration::ZERO);
        assert_eq!(first.strong_count(), 2, "a question is under way");
        drop(used);
        clients.close_idle(Duration::ZERO);
        assert_eq!(first.strong_count(), 0);
    }

    #[test]
    fn no_more_clients_are_open_than_allowed_and_none_is_closed_that_is_used() {
        for most in [1, 3, CLIENTS_MAX_DEFAULT] {
            let clients = clients(most);
            let at = |number: u16| format!("127.0.0.1:{}", number + 1);
            let used: Vec<_> = (0..most).map(|number| connect(&clients, &at(number))).collect();
            let another = cluster(&at(most), &[]);
            assert!(clients.connect(&another).is_none(), "each of them is used");
            assert_eq!(clients.metrics.counts(), (most.into(), 0));
            let mut used = used.into_iter();
            let idle = Arc::downgrade(&used.next().unwrap());
            let Connected { given_up, .. } = clients.connect(&another).unwrap();
            assert_eq!(clients.open().len(), clients.most());
            assert!(Arc::ptr_eq(&given_up.unwrap(), &idle.upgrade().unwrap()));
            assert_eq!(clients.metrics.counts(), (most.into(), 1));
            drop(used);
            clients.close_idle(Duration::ZERO);
            assert_eq!(clients.metrics.counts(), (0, 1));
        }
    }

    #[test]
    fn clusters_beyond_the_limit_do_not_close_the_clients_of_all_others() {
        let (clients, count) = (clients(CLIENTS_MAX_DEFAULT), CLIENTS_MAX_DEFAULT + 6);
        let mut replaced_before = 0;
        for round in 0..5 {
            for number in 0..count {
                connect(&clients, &format!("127.0.0.1:{}", number + 1));
            }
            let (open, replaced) = clients.metrics.counts();
            assert_eq!(open, i64::from(CLIENTS_MAX_DEFAULT));
            // The six that are too many; one more if the clock does not tell two of them apart.
            assert!(replaced - replaced_before <= 7, "round {round}: {}", replaced - replaced_before);
            replaced_before = replaced;
        }
        assert!(replaced_before >= 5 * 6, "the shortage can be seen: {replaced_before}");
    }

    #[test]
    fn a_client_that_no_pipeline_uses_any_more_makes_room_first() {
        let clients = clients(2);
        for number in 1..=2 {
            connect(&clients, &format!("127.0.0.1:{number}"));
        }
        let (left, used) = (cluster("127.0.0.1:1", &[]), cluster("127.0.0.1:2", &[]));
        let past = Instant::now().checked_sub(Duration::from_secs(LEFT_SECONDS)).unwrap();
        clients.open().get_mut(&left).unwrap().used = past;
        connect(&clients, "127.0.0.1:3");
        let is_open = |cluster: &Cluster| clients.open().contains_key(cluster);
        assert!(!is_open(&left) && is_open(&used));
        connect(&clients, "127.0.0.1:4");
        assert!(is_open(&used), "the newcomer makes room");
    }

    #[test]
    fn few_wait_for_a_cluster_that_does_not_answer() {
        let clients = clients(CLIENTS_MAX_DEFAULT);
        let (away, other) = (cluster("127.0.0.1:1", &[]), cluster("127.0.0.1:2", &[]));
        assert!(clients.turn(&away).is_some(), "nobody asked it yet");
        let connection = clients.connect(&away).unwrap().connection;
        connection.note(false);
        let first = clients.turn(&away);
        assert!(first.is_some() && clients.turn(&away).is_none() && clients.turn(&other).is_some());
        drop(first);
        assert!(clients.turn(&away).is_some());
        connection.note(true);
        let all = [clients.turn(&away), clients.turn(&away)];
        assert!(all.iter().all(Option::is_some));
    }
}
