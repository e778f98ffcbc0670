//! Starts and stops the operator: first the probes, then the API server, the Lease, and the watches.
//!
//! ```text
//!  admin (/metrics /livez /readyz) .................................................. all the time
//!  reach the API server -> read the Lease -> hold the Lease -> not ready until all watches have listed, reconcile -> stop -> release the Lease
//!                             |                    |
//!                             |                    `-- lost: exit at once, with status 1
//!                             `-- another one holds it: ready, as a standby
//! ```

pub mod admin;
pub mod kubeconfig;
pub mod lease;

use crate::{
    args::Args,
    read::{Sources, kafka::sample::Sampler},
    reconcile::{Reconciler, error_policy, reconcile},
    volumes::replace,
    watch::{Scope, Watches, coalesce::coalesced, state::WatchState},
    world::{
        Shared, World,
        api_error::{ApiError, ErrorClass, described},
        cache::{Cache, Pipeline},
        clock,
        events::Events,
        memory::Memory,
        metrics::Metrics,
        responsibility::Responsibility,
        server_time::ServerTime,
    },
    write::connections,
};
use admin::{Admin, Readiness, WaitsFor};
use futures::{
    FutureExt, Stream, StreamExt,
    channel::mpsc,
    future::{BoxFuture, join_all, ready, select_ok},
    stream,
};
use kube::{
    Client, Config,
    runtime::{
        applier,
        controller::{self, Error as ControlError},
        events::Reporter,
        reflector::ObjectRef,
    },
};
use lease::{Lease, LeaseName, Lost};
use sluice_plan::Defaults;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tracing::{info, warn};

/// Reconciles that run at the same time in one scope. Each waits for the network most of the time.
const RECONCILES_MAX: u16 = 10;
/// Events about one pipeline within this many milliseconds of the first are one reconcile.
const COALESCE_MS: u64 = 1_000;
/// Capacity of the channel from the watches to the reconciles. A full channel makes the watches wait.
const CONCERNED_MAX: usize = 1_024;
/// Longest wait for running reconciles after SIGTERM, in seconds. With the release of the Lease it stays below the pod's 40 s.
const STOP_SECONDS_MAX: u64 = 20;
/// Seconds between attempts to reach the API server: the first, and the longest.
const REACH_SECONDS: (u64, u64) = (1, 15);
/// Longest request about the Lease, in seconds. Several fit between a renewal and the end of the process.
const LEASE_REQUEST_SECONDS: u64 = 3;
/// The operator gets ready without a namespace whose watches are all refused for this many seconds. Longer than it takes until a Role that
/// is installed with the operator exists. Chosen.
const REFUSED_SECONDS: u64 = 60;
/// Seconds between two searches for idle Kafka clients.
const TIDY_SECONDS: u64 = 60;

/// The operator's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the operator ended.
#[derive(Debug)]
pub enum Ending {
    /// SIGTERM or SIGINT.
    Asked,
    /// Another operator leads, or may lead.
    LeaseLost(Lost),
}

/// Why the operator could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is neither a pod's service account nor a kubeconfig.
    #[error("there is neither a pod's service account nor a usable kubeconfig: {0}")]
    Config(String),
    /// The configuration cannot be used.
    #[error("cannot create a client for the API server")]
    Client(#[source] ApiError),
    /// The probes cannot be served.
    #[error("cannot serve probes and metrics")]
    Admin(#[source] admin::Error),
    /// A metric was registered twice.
    #[error("cannot register metrics")]
    Metrics(#[source] prometheus::Error),
    /// A signal handler cannot be installed.
    #[error("cannot listen for signals")]
    Signal(#[source] std::io::Error),
}

/// Resolves when the process is asked to stop.
type Stop = futures::future::Shared<BoxFuture<'static, ()>>;

/// Runs the operator until SIGTERM, SIGINT, or the loss of the Lease.
pub async fn run(args: &Args) -> Result<Ending, Error> {
    let stop = stop_signal()?;
    let metrics =
        Arc::new(Metrics::new(VERSION, &ErrorClass::ALL.map(ErrorClass::label)).map_err(Error::Metrics)?);
    let readiness = Arc::new(Readiness::default());
    let admin = Admin::bind(args.listen, Arc::clone(&metrics), Arc::clone(&readiness)).await;
    let admin = admin.map_err(Error::Admin)?;
    info!(version = VERSION, listen = %admin.address(), gateway_image = %args.gateway_image, "starting");
    let admin = tokio::spawn(admin.serve());

    let work = async {
        let config =
            Config::infer().await.map_err(|error| Error::Config(kubeconfig::what_is_wrong(&error)))?;
        let time = ServerTime::default();
        let client = client(config.clone(), &time)?;
        reach(&client).await;
        readiness.set(WaitsFor::Lease);
        let mut lease = Lease::new(lease_client(config, &time)?, lease_name(args));
        lease.acquired(|| readiness.set(WaitsFor::Nothing)).await;
        Ok(((client, time), lease))
    };
    let started = tokio::select! {
        started = work => Some(started?),
        () = stop.clone() => None,
    };
    let ending = match started {
        Some((client, mut lease)) => lead(args, client, &mut lease, (metrics, &readiness), stop).await,
        None => Ending::Asked,
    };
    admin.abort();
    Ok(ending)
}

/// Watches and reconciles while this process holds the Lease.
async fn lead(
    args: &Args,
    (client, server_time): (Client, ServerTime),
    lease: &mut Lease,
    (metrics, readiness): (Arc<Metrics>, &Readiness),
    stop: Stop,
) -> Ending {
    metrics.set_leader(true);
    readiness.set(WaitsFor::Watches);
    let kafka = Sampler::new(args.kafka_clients_max, metrics.kafka_clients());
    let sources = Arc::new(Sources { kafka, own_logins: args.own_logins(), ..Sources::default() });
    let shared = Arc::new(Shared {
        events: Events::new(client.clone(), Reporter::from("sluice-operator")),
        client,
        metrics,
        memory: Memory::default(),
        responsibility: Responsibility::of(args.responsible()),
        pipelines: Arc::default(),
        clock: clock::now,
        server_time,
        defaults: Defaults {
            gateway_image: args.gateway_image.clone(),
            gateway_image_pull_secrets: args.gateway_image_pull_secrets.clone(),
            operator_version: VERSION.to_owned(),
            operator_pods: args.operator_pods(),
        },
    });
    let mut tasks = JoinSet::new();
    let scopes = scopes(args).into_iter();
    let (worlds, listings): (Vec<_>, Vec<_>) =
        scopes.map(|scope| watched(Arc::clone(&shared), scope, &mut tasks)).unzip();
    let counted: Vec<_> = worlds.iter().map(|(world, _)| Arc::clone(world)).collect();
    let control = |((world, events), listing): (Scoped, &Listing)| {
        let reconciler = Reconciler::new(world, Arc::clone(&sources), Arc::clone(&listing.state));
        control(Arc::new(reconciler), events, stop.clone())
    };
    let work = join_all(worlds.into_iter().zip(&listings).map(control));
    let refused = Duration::from_secs(REFUSED_SECONDS);
    let stopped = async {
        stop.clone().await;
        info!("stopping; waiting for the reconciles that run");
        sleep(Duration::from_secs(STOP_SECONDS_MAX)).await;
        warn!("stopping although a reconcile still runs");
    };
    let ending = tokio::select! {
        lost = lease.lost() => Ending::LeaseLost(lost),
        _ = work => Ending::Asked,
        () = stopped => Ending::Asked,
        never = tidy(&sources.kafka) => match never {},
        never = connections::count(&counted) => match never {},
        never = ready_once_listed(&listings, readiness, refused) => match never {},
    };
    shared.metrics.set_leader(false);
    if matches!(ending, Ending::Asked) {
        lease.release().await;
    }
    ending
}

/// The watches of one scope, for readiness.
pub struct Listing {
    /// One namespace, or all.
    pub scope: Scope,
    /// Copies of the watched objects.
    pub cache: Cache,
    /// Which watches fail.
    pub state: Arc<WatchState>,
}

impl Listing {
    /// Resolves once every watch has listed, or the API server has refused every watch for `refused`.
    async fn ended(&self, refused: Duration) {
        tokio::select! {
            // The watches end only with the process.
            _ = self.cache.ready() => {}
            () = self.state.sees_nothing(refused) => {
                let namespace = self.scope.0.as_deref();
                warn!(namespace, "the API server refuses every watch of this namespace; the operator gets ready without it");
            }
        }
    }
}

/// Sets the process ready once every watch has listed. Before, it leads, but reconciles nothing. A namespace whose watches are all refused
/// for `refused` does not delay the others: the namespace and the operator's Role in it may be deleted.
pub async fn ready_once_listed(listings: &[Listing], readiness: &Readiness, refused: Duration) -> Infallible {
    let watches = listings.iter().map(|listing| (listing.scope.clone(), Arc::clone(&listing.state)));
    readiness.set_watches(watches.collect());
    join_all(listings.iter().map(|listing| listing.ended(refused))).await;
    let any = select_ok(listings.iter().map(|listing| listing.cache.ready().boxed()));
    if any.await.is_ok() {
        readiness.set(WaitsFor::Nothing);
    }
    std::future::pending().await
}

/// A scope, and the channel of its pipelines to reconcile.
type Scoped = (Arc<World>, mpsc::Receiver<ObjectRef<Pipeline>>);

/// Starts the watches of one scope.
fn watched(shared: Arc<Shared>, scope: Scope, tasks: &mut JoinSet<()>) -> (Scoped, Listing) {
    let (concerned, events) = mpsc::channel(CONCERNED_MAX);
    let state = Arc::new(WatchState::new(Arc::clone(&shared.metrics)));
    let watches = Watches {
        client: &shared.client,
        scope: &scope,
        tasks,
        concerned,
        state: Arc::clone(&state),
        all: Arc::clone(&shared.pipelines),
    };
    let cache = watches.start();
    shared.pipelines.add(&cache);
    let listing = Listing { scope, cache: cache.clone(), state };
    ((Arc::new(World { shared, cache }), events), listing)
}

/// Reconciles the pipelines of one scope on events, until `stop`.
async fn control(reconciler: Arc<Reconciler>, events: mpsc::Receiver<ObjectRef<Pipeline>>, stop: Stop) {
    let world = &reconciler.world;
    let settings = controller::Config::default().concurrency(RECONCILES_MAX);
    let concerning = Arc::clone(world);
    let events = events.inspect(move |concerned| concerning.concerned(concerned));
    let events = coalesced(events, Duration::from_millis(COALESCE_MS));
    // Gateways that answered late are no event about their pipeline: what it waits for beside them is not sooner there. Those of other scopes
    // are not among this one's pipelines.
    let store = world.cache.pipelines.clone();
    let late = reconciler.sources.looks.late().filter(move |of| ready(store.get(of).is_some()));
    applier(
        |pipeline, reconciler| Box::pin(reconcile(pipeline, reconciler)),
        error_policy,
        Arc::clone(&reconciler),
        world.cache.pipelines.clone(),
        beside(events, late).map(Ok::<_, Infallible>).take_until(stop),
        settings,
    )
    .for_each(|outcome| {
        // `outcome` counts and logs the results. Only a pipeline that no longer exists is handled here.
        if let Err(ControlError::ObjectNotFound(gone)) = outcome {
            let pipeline = ObjectRef::new(&gone.name).within(&gone.namespace.clone().unwrap_or_default());
            if replace::holds_pods(&pipeline, world) {
                tokio::spawn(replace::let_gone_go(pipeline, Arc::clone(world)));
            }
            reconciler.forget(&gone);
        }
        std::future::ready(())
    })
    .await;
}

/// Events of both, until the first of the two ends.
fn beside<T>(events: impl Stream<Item = T>, others: impl Stream<Item = T>) -> impl Stream<Item = T> {
    let events = events.map(Some).chain(stream::once(ready(None)));
    stream::select(events, others.map(Some)).take_while(|one| ready(one.is_some())).filter_map(ready)
}

async fn tidy(sampler: &Sampler) -> Infallible {
    let mut ticks = interval(Duration::from_secs(TIDY_SECONDS));
    loop {
        ticks.tick().await;
        sampler.tidy().await;
    }
}

fn scopes(args: &Args) -> Vec<Scope> {
    let namespaces = args.namespaces();
    if namespaces.is_empty() {
        return vec![Scope(None)];
    }
    namespaces.into_iter().map(|namespace| Scope(Some(namespace))).collect()
}

fn stop_signal() -> Result<Stop, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let asked = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(asked.boxed().shared())
}

fn client(config: Config, time: &ServerTime) -> Result<Client, Error> {
    time.client(config).map_err(|error| Error::Client(error.into()))
}

/// A separate client for the Lease. Its requests must not wait for other requests, nor longer than the Lease lasts.
fn lease_client(mut config: Config, time: &ServerTime) -> Result<Client, Error> {
    let longest = Some(Duration::from_secs(LEASE_REQUEST_SECONDS));
    config.connect_timeout = longest;
    config.read_timeout = longest;
    config.write_timeout = longest;
    config.reset_reader_on_write = true;
    config.default_retry = false;
    client(config, time)
}

fn lease_name(args: &Args) -> LeaseName {
    LeaseName {
        namespace: args.namespace.clone(),
        name: args.lease_name.clone(),
        identity: args.lease_identity(),
    }
}

/// Waits until the API server answers. It logs the first failure and the success.
async fn reach(client: &Client) {
    let (mut wait, longest) = REACH_SECONDS;
    let mut is_away = false;
    loop {
        let attempt = timeout(Duration::from_secs(longest), client.apiserver_version()).await;
        let error = match attempt {
            Ok(Ok(server)) => {
                return info!(version = %server.git_version, "the API server answers");
            }
            Ok(Err(error)) => described(&ApiError::from(error)),
            Err(_) => "no answer in time".to_owned(),
        };
        if !is_away {
            warn!(%error, "the API server does not answer; the operator tries again");
            is_away = true;
        }
        sleep(Duration::from_secs(wait)).await;
        wait = (wait * 2).min(longest);
    }
}
