//! What is answered at both ports.

use super::*;
use crate::ground::metrics::reference::metrics;
use crossbeam_channel::{Receiver, bounded};
use http_body_util::BodyExt as _;
use sluice_gateway_config::{STATE_VERSION, pod_uid::POD_UID_HEADER};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A gateway that only records its commands.
#[derive(Default)]
struct Told(AtomicBool);

impl Health for Told {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    fn readiness(&self) -> Readiness {
        Readiness { ready: true, reasons: Vec::new() }
    }
    fn refresh(&self) {}
    fn drain(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn resume(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
    fn remaining(&self) -> Remaining {
        Remaining {
            damaged: Some(false),
            draining: Some(self.0.load(Ordering::Relaxed)),
            ..Remaining::default()
        }
    }
    fn state(&self) -> GatewayState {
        GatewayState {
            version: STATE_VERSION,
            readiness: self.readiness(),
            remaining: self.remaining(),
            ..GatewayState::default()
        }
    }
}

async fn asked<H: Health>(way: PeerRights, method: &str, path: &str, health: &Arc<H>) -> (u16, String) {
    let own = Own { pod: pod(), control: Some(9_091) };
    answered(way, (method, path), &Source::new(Arc::new(metrics()), health.clone(), own)).await
}

async fn answered<H: Health>(
    way: PeerRights,
    (method, path): (&str, &str),
    source: &Arc<Source<H>>,
) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).body(()).unwrap();
    let response = answer(&request, way, source).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn all_addresses_are_those_of_both_families() {
    for all in ["0.0.0.0:0", "[::]:0"] {
        let listeners = bind(all.parse().unwrap(), None).await.unwrap();
        for address in ["127.0.0.1", "::1"] {
            TcpStream::connect((address, listeners.listen().port())).await.unwrap();
        }
    }
}

#[tokio::test]
async fn without_ipv6_all_addresses_are_those_of_ipv4() {
    // The errors of Linux: EAFNOSUPPORT, EADDRNOTAVAIL.
    for code in [97, 99] {
        let listener = or_at_ipv4(Err(std::io::Error::from_raw_os_error(code)), 0).await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip().is_unspecified() && address.is_ipv4(), "{address}");
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
    }
    let taken = or_at_ipv4(Err(ErrorKind::AddrInUse.into()), 0).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse, "another process has the port");
}

#[tokio::test]
async fn commands_are_taken_where_they_may_be_given_and_everything_is_read_everywhere() {
    let health = Arc::new(Told::default());
    for (path, way) in
        [("/drain", PeerRights::Admin), ("/resume", PeerRights::Admin), ("/drain", PeerRights::Control)]
    {
        let (status, words) = asked(way, "POST", path, &health).await;
        assert_eq!(status, 404, "an operator that names no pod has it leave when it is told to end: {words}");
        assert_eq!(asked(way, "GET", path, &health).await.0, 405);
    }
    assert!(!health.0.load(Ordering::Relaxed));
    for path in ["/metrics", "/livez", "/readyz", "/drainz", "/state"] {
        assert_eq!(asked(PeerRights::Admin, "GET", path, &health).await.0, 200, "{path}");
    }
    let (status, told) = asked(PeerRights::Within, "POST", "/drain", &health).await;
    assert!(status == 200 && told.contains(r#""draining":true,"control":9091}"#), "{told}");
    assert!(asked(PeerRights::Within, "POST", "/resume", &health).await.1.contains(r#""draining":false"#));
}

fn pod() -> PodIdentity {
    PodIdentity { namespace: Some("tracing".into()), name: Some("a-0".into()), uid: Some("one".into()) }
}

/// The state, as a caller reads it who names this pod.
async fn state_for(name: Option<&str>) -> (u16, GatewayState) {
    let own = Own { pod: pod(), control: Some(9_091) };
    let source = Source::new(Arc::new(metrics()), Arc::new(Told::default()), own);
    let mut request = Request::builder().uri(STATE_PATH);
    if let Some(name) = name {
        request = request.header(POD_UID_HEADER, name);
    }
    let response = answer(&request.body(()).unwrap(), PeerRights::Admin, &source).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, GatewayState::read(&body).unwrap_or_default())
}

#[tokio::test]
async fn the_state_names_its_pod_and_tells_its_uid_to_nobody_who_does_not_know_it() {
    let (status, state) = state_for(Some("one")).await;
    assert_eq!((status, &state.pod), (200, &pod()));
    assert!(state.readiness.ready);
    assert_eq!((state.remaining.control, state.remaining.draining), (Some(9_091), Some(false)));
    let (status, state) = state_for(None).await;
    assert_eq!((status, state.pod), (200, PodIdentity { uid: None, ..pod() }));
    assert_eq!(state_for(Some("another")).await.0, 421);
    assert_eq!(asked(PeerRights::Within, "POST", STATE_PATH, &Arc::new(Told::default())).await.0, 405);
}

/// A gateway whose disk answers only after a signal of the test.
struct Hangs {
    may_answer: Receiver<()>,
    has_waited_in_vain: AtomicBool,
}

impl Health for Hangs {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    fn readiness(&self) -> Readiness {
        Readiness { ready: true, reasons: Vec::new() }
    }
    fn refresh(&self) {
        if self.may_answer.recv_timeout(Duration::from_secs(10)).is_err() {
            self.has_waited_in_vain.store(true, Ordering::Relaxed);
        }
    }
    fn drain(&self) {}
    fn resume(&self) {}
    fn remaining(&self) -> Remaining {
        Remaining::default()
    }
    fn state(&self) -> GatewayState {
        GatewayState::default()
    }
}

#[tokio::test]
async fn a_scrape_that_hangs_holds_up_no_probe() {
    let (answers, may_answer) = bounded(3);
    let health = Arc::new(Hangs { may_answer, has_waited_in_vain: AtomicBool::new(false) });
    let source = Source::new(Arc::new(metrics()), health.clone(), Own::default());
    let way = PeerRights::Admin;
    let scrape = || answered(way, ("GET", "/metrics"), &source);
    let probes = async {
        for path in ["/livez", "/readyz", "/drainz", "/state"] {
            assert_eq!(answered(way, ("GET", path), &source).await.0, 200);
        }
        for _ in 0..3 {
            answers.try_send(()).unwrap();
        }
    };
    let (one, two, three, ()) = tokio::join!(scrape(), scrape(), scrape(), probes);
    assert_eq!([one.0, two.0, three.0], [200; 3]);
    assert!(!health.has_waited_in_vain.load(Ordering::Relaxed), "probes waited for a scrape");
}

async fn post(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn both_ports_are_served_and_one_that_is_taken_keeps_no_gateway_from_running() {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listeners = bind(any, Some(any)).await.unwrap();
    let admin = listeners.listen();
    assert_ne!(admin.port(), 0, "the port that it got");
    let control = listeners.control.as_ref().unwrap().local_addr().unwrap();
    let without = bind(any, Some(control)).await.unwrap();
    assert!(without.control.is_none());
    assert!(
        bind(admin, None).await.unwrap_err().to_string().starts_with(&format!("cannot listen on {admin}"))
    );
    let health = Arc::new(Told::default());
    tokio::spawn(serve(listeners, Arc::new(metrics()), health.clone(), PodIdentity::default()));
    for (address, path, drains) in [(control, "/drain", true), (admin, "/resume", false)] {
        let answer = post(address, path).await;
        assert!(
            answer.contains(&format!(r#""draining":{drains},"control":{}}}"#, control.port())),
            "{answer}"
        );
    }
}
