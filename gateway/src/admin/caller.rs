//! Which callers may drain and resume a gateway.
//!
//! | from | at | may command |
//! | --- | --- | --- |
//! | the pod itself, which includes `kubectl port-forward` | either port | yes |
//! | other pods | the control port | if they send this pod's UID, as the operator does; always if the gateway does not know its UID |
//! | other pods | the admin port | no |
//!
//! Everyone who may read the pod knows its UID. Other callers get 404. An operator that sends no UID takes that answer for a gateway that
//! can only be stopped by deleting its pod. A request with another pod's UID gets 421 for every path: the address belonged to that pod.

use hyper::{HeaderMap, StatusCode};
use sluice_gateway_config::{PodIdentity, pod_uid::POD_UID_HEADER};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerRights {
    /// From within the pod.
    Within,
    /// From outside the pod, at the control port.
    Control,
    /// From outside the pod, at the admin port.
    Admin,
}

impl PeerRights {
    /// The origin of a peer; `otherwise` is the origin for peers outside the pod. Service meshes connect from other addresses of
    /// 127.0.0.0/8 on behalf of peers outside.
    pub(super) fn of(peer: IpAddr, otherwise: Self) -> Self {
        let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if own.contains(&peer.to_canonical()) { Self::Within } else { otherwise }
    }
}

/// What a gateway knows about its pod.
#[derive(Debug, Clone, Default)]
pub struct Own {
    pub pod: PodIdentity,
    /// The port at which other pods may send commands.
    pub control: Option<u16>,
}

impl Own {
    /// The answer to a request that names another pod.
    pub(super) fn misdirected(&self, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        let is_other = headers.contains_key(POD_UID_HEADER) && !self.is_named(headers);
        is_other.then(|| (StatusCode::MISDIRECTED_REQUEST, "this is another pod\n".to_owned()))
    }

    /// What a caller is told of this pod: its UID only if the request names it, because it lets a caller send commands.
    pub(super) fn told(&self, headers: &HeaderMap) -> PodIdentity {
        let is_known = headers.contains_key(POD_UID_HEADER) && self.is_named(headers);
        PodIdentity { uid: self.pod.uid.clone().filter(|_| is_known), ..self.pod.clone() }
    }

    /// Whether a request names this pod. A gateway that does not know its UID accepts any name, and none.
    fn is_named(&self, headers: &HeaderMap) -> bool {
        let Some(uid) = &self.pod.uid else { return true };
        headers.get(POD_UID_HEADER).is_some_and(|named| named.as_bytes() == uid.as_bytes())
    }

    /// The answer to a command that is not accepted.
    pub(super) fn refused(
        &self,
        path: &str,
        way: PeerRights,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, String)> {
        let at = match (way, self.control) {
            (PeerRights::Within, _) => return None,
            (PeerRights::Control, _) if self.is_named(headers) => return None,
            (PeerRights::Control, _) => {
                format!("from callers that send this pod's UID in {POD_UID_HEADER}, or ")
            }
            (PeerRights::Admin, Some(port)) => format!("at port {port}, or "),
            (PeerRights::Admin, None) => String::new(),
        };
        let words = format!(
            "{path} is accepted {at}from within the pod, as with kubectl sluice drain or kubectl port-forward\n"
        );
        Some((StatusCode::NOT_FOUND, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn naming(uid: &'static str) -> HeaderMap {
        [(hyper::header::HeaderName::from_static(POD_UID_HEADER), HeaderValue::from_static(uid))]
            .into_iter()
            .collect()
    }

    #[test]
    fn within_is_the_pods_own_loopback_and_nothing_that_looks_like_it() {
        for (peer, expected) in [
            ("127.0.0.1", PeerRights::Within),
            ("::1", PeerRights::Within),
            ("::ffff:127.0.0.1", PeerRights::Within),
            ("127.0.0.6", PeerRights::Admin),
            ("10.0.0.1", PeerRights::Admin),
            ("::", PeerRights::Admin),
            ("::ffff:10.0.0.1", PeerRights::Admin),
        ] {
            assert_eq!(PeerRights::of(peer.parse().unwrap(), PeerRights::Admin), expected, "{peer}");
        }
        assert_eq!(PeerRights::of("10.0.0.1".parse().unwrap(), PeerRights::Control), PeerRights::Control);
    }

    #[test]
    fn who_commands_from_elsewhere_names_the_pod() {
        let pod = PodIdentity { uid: Some("one".into()), ..PodIdentity::default() };
        let own = Own { pod, control: Some(9_091) };
        let refused =
            |way, headers: &HeaderMap| own.refused("/drain", way, headers).map(|(status, _)| status.as_u16());
        for (way, headers, expected) in [
            (PeerRights::Within, HeaderMap::new(), None),
            (PeerRights::Control, naming("one"), None),
            (PeerRights::Control, HeaderMap::new(), Some(404)),
            (PeerRights::Control, naming("another"), Some(404)),
            (PeerRights::Admin, naming("one"), Some(404)),
            (PeerRights::Admin, HeaderMap::new(), Some(404)),
        ] {
            assert_eq!(refused(way, &headers), expected, "{way:?} {headers:?}");
        }
        let unknown = Own { pod: PodIdentity::default(), ..own.clone() };
        assert_eq!(unknown.refused("/drain", PeerRights::Control, &HeaderMap::new()), None);
        let words = own.refused("/drain", PeerRights::Admin, &HeaderMap::new()).unwrap().1;
        assert!(words.contains("port 9091") && words.contains("port-forward"), "{words}");
    }

    #[test]
    fn who_means_another_pod_is_told_so_whatever_was_asked() {
        let pod = PodIdentity { uid: Some("one".into()), ..PodIdentity::default() };
        let own = Own { pod, control: None };
        assert_eq!(own.misdirected(&naming("one")), None);
        assert_eq!(own.misdirected(&HeaderMap::new()), None);
        assert_eq!(own.misdirected(&naming("another")).unwrap().0, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(Own::default().misdirected(&naming("another")), None);
    }
}
