//! The clients that there are: one for each Kafka cluster, shared by all pipelines on it, and closed when no pipeline uses it.
//!
//! Each cluster has places for questions of its own, so that those about one that is away wait for one another and for nobody else.
//! What there is of threads at the most: [`CLIENTS_MAX`] times [`QUESTIONS_MAX`] that ask, of the 512 that tokio has for what blocks; and
//! librdkafka's own, which are three and one for each broker of a cluster.

use super::{Client, Error, cluster::Cluster};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Clusters that are connected to at the same time. With places for all of them half of tokio's threads are left for others, such as for
/// names that are looked up. Chosen; a client of one broker without TLS takes half a MiB (measured: 30 MB for 64, debug build).
pub const CLIENTS_MAX: usize = 64;
/// Questions to one cluster at the same time, each on a thread of its own. A question takes some five answers: at 20 ms each, these are 40
/// questions a second, and 1200 pipelines are each asked for once in 30 s. Chosen.
pub const QUESTIONS_MAX: usize = 4;
/// A client that nobody used for this many seconds is closed: ten times the interval between two questions.
pub const IDLE_SECONDS_MAX: u64 = 300;
/// Reconciles that wait for an answer of a cluster that did not give the last one: one finds out when it is back.
const WAITING_MAX: usize = 1;

/// A cluster that is asked, and its client once somebody has.
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
            // Nothing speaks against it yet.
            has_answered: AtomicBool::new(true),
            client: Mutex::default(),
        }
    }

    /// A place to ask from; waits until one is free.
    pub async fn place(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The client, made when there is none. `group` is the one that is asked for: a client has to have some group, and this one may be
    /// looked at. It blocks its thread, for others that make the same client.
    pub fn client(&self, group: &str) -> Result<Arc<Client>, Error> {
        let mut client = self.open();
        if let Some(open) = &*client {
            return Ok(Arc::clone(open));
        }
        let made = Arc::new(Client::new(&self.cluster, group)?);
        *client = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Who asks next has another client; this one ends with the last question that it has under way.
    pub fn retire(&self, client: &Arc<Client>) {
        let mut open = self.open();
        let retired = open.take_if(|open| Arc::ptr_eq(open, client));
        // The last one waits for librdkafka's threads; nobody may wait for that at the lock.
        drop(open);
        drop(retired);
    }

    /// Remembers whether the cluster answers.
    pub fn note(&self, has_answered: bool) {
        self.has_answered.store(has_answered, Ordering::Relaxed);
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave to wait for a cluster's answer, for as long as it is kept.
pub struct Turn {
    _of_few: Option<OwnedSemaphorePermit>,
}

/// A connection, and another one that was given up for it: it is closed when it is dropped, which blocks its thread.
pub struct Connected {
    /// To the cluster.
    pub connection: Arc<Connection>,
    /// The one that made room.
    pub given_up: Option<Arc<Connection>>,
}

struct Open {
    connection: Arc<Connection>,
    used: Instant,
}

impl Open {
    /// No question holds it, nor waits for a place. Asked under the lock, behind which nobody can take it.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.connection) == 1
    }
}

/// All connections.
#[derive(Default)]
pub struct Clients {
    open: Mutex<HashMap<Cluster, Open>>,
}

impl Clients {
    /// The connection to a cluster. When there are too many, another one goes that nobody uses: the one used longest ago. `None` when
    /// there is no such.
    pub fn connect(&self, cluster: &Cluster) -> Option<Connected> {
        let used = Instant::now();
        let mut open = self.open();
        if let Some(found) = open.get_mut(cluster) {
            found.used = used;
            return Some(Connected { connection: Arc::clone(&found.connection), given_up: None });
        }
        let mut given_up = None;
        if open.len() >= CLIENTS_MAX {
            let idle = open.iter().filter(|(_, open)| open.is_idle());
            let oldest = idle.min_by_key(|(_, open)| open.used).map(|(cluster, _)| cluster.clone())?;
            given_up = open.remove(&oldest).map(|open| open.connection);
        }
        let connection = Arc::new(Connection::new(cluster.clone()));
        open.insert(cluster.clone(), Open { connection: Arc::clone(&connection), used });
        Some(Connected { connection, given_up })
    }

    /// Leave to wait for a cluster's answer; `None` when it did not give the last one and others wait already. Else the pipelines of one
    /// cluster that is away would take all reconciles there are, and those of others would wait for theirs.
    pub fn turn(&self, cluster: &Cluster) -> Option<Turn> {
        let waiting = match self.open().get(cluster).map(|open| &open.connection) {
            Some(away) if !away.has_answered.load(Ordering::Relaxed) => Arc::clone(&away.waiting),
            Some(_) | None => return Some(Turn { _of_few: None }),
        };
        waiting.try_acquire_owned().ok().map(|turn| Turn { _of_few: Some(turn) })
    }

    /// Closes the clients that nobody used for `idle`. It blocks its thread.
    pub fn close_idle(&self, idle: Duration) {
        let mut open = self.open();
        let closed: Vec<Open> = open
            .extract_if(|_, open| open.is_idle() && open.used.elapsed() >= idle)
            .map(|(_, open)| open)
            .collect();
        // Closing waits for librdkafka's threads; nobody may wait for that at the lock.
        drop(open);
        drop(closed);
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Cluster, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::cluster::tests::cluster;

    fn connect(clients: &Clients, servers: &str) -> Arc<Connection> {
        clients.connect(&cluster(servers, &[])).unwrap().connection
    }

    #[test]
    fn groups_share_their_clusters_client_until_it_is_retired() {
        let clients = Clients::default();
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
        let clients = Clients::default();
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
        let clients = Clients::default();
        let at = |number: usize| format!("127.0.0.1:{}", number + 1);
        let used: Vec<_> = (0..CLIENTS_MAX).map(|number| connect(&clients, &at(number))).collect();
        let another = cluster(&at(CLIENTS_MAX), &[]);
        assert!(clients.connect(&another).is_none(), "each of them is used");
        let mut used = used.into_iter();
        let idle = Arc::downgrade(&used.next().unwrap());
        let Connected { given_up, .. } = clients.connect(&another).unwrap();
        assert_eq!(clients.open().len(), CLIENTS_MAX);
        assert!(Arc::ptr_eq(&given_up.unwrap(), &idle.upgrade().unwrap()));
    }

    #[test]
    fn few_wait_for_a_cluster_that_does_not_answer() {
        let clients = Clients::default();
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
